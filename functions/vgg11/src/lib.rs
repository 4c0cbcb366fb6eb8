//! VGG-11 for coloured images of 32x32: eight convolutions, halved five times, and one linear layer.
//!
//! 9,225,610 parameters with ten classes. Images of another size are resized. On CIFAR-10 expect more than of a
//! small network and less than of a ResNet; without normalization it wants a small learning rate at first.

use weft_sdk::model::Initial;
use weft_sdk::nn::{Conv2d, Conv2dConfig, Dropout, Linear, Mode};
use weft_sdk::optim::Sgd;
use weft_sdk::tensor::Window;
use weft_sdk::{HyperParameters, Path, Result, Tensor, Trainer};

#[derive(HyperParameters)]
struct Parameters {
    /// How many classes there are.
    #[hyper(default = 10, low = 2)]
    classes: u32,
    /// How much of the last layer's input is dropped in training.
    #[hyper(default = 0.0, low = 0.0, high = 0.9)]
    dropout: f32,
    /// How much of a step goes on in the direction of those before.
    #[hyper(default = 0.9, low = 0.0, high = 0.999)]
    momentum: f32,
    /// How far weights are pulled to zero.
    #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
    weight_decay: f32,
}

/// Place in PyTorch's sequence, channels in and out, and whether the image is halved after it.
const PLAN: [(u32, u32, u32, bool); 8] = [
    (0, 3, 64, true),
    (3, 64, 128, true),
    (6, 128, 256, false),
    (8, 256, 256, true),
    (11, 256, 512, false),
    (13, 512, 512, true),
    (16, 512, 512, false),
    (18, 512, 512, true),
];

struct Vgg {
    /// And whether the image is halved after it.
    convolutions: Vec<(Conv2d, bool)>,
    dropout: Dropout,
    last: Linear,
}

/// VGG-11 for coloured images of 32x32.
#[weft_sdk::trainer]
impl Trainer for Vgg {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { classes, dropout, momentum, weight_decay } = parameters;
        Sgd { momentum, weight_decay, ..Sgd::default() }.declare()?;
        let mut convolutions = Vec::new();
        for (place, from, to, halved) in PLAN {
            let config = Conv2dConfig::new(from, to, 3).padding(1);
            let weights = Initial::he_normal(config.fan_out());
            convolutions.push((config.initial(weights, Initial::Constant(0.0)).init(&path.at(0).at(place))?, halved));
        }
        Ok(Self { convolutions, dropout: Dropout(dropout), last: Linear::new(&path.at(2), 512, classes)? })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let mut x = x.to_images(3, 32, 32)?;
        for (convolution, halved) in &self.convolutions {
            x = convolution.forward(&x)?;
            // A maximum of rectified values is the rectified maximum: a quarter of the work.
            x = if *halved { x.max_pool2d(Window::square(2))?.relu()? } else { x.relu()? };
        }
        self.last.forward(&self.dropout.forward(&x.flatten()?, mode)?)
    }
}

#[cfg(test)]
mod tests {
    use weft_sdk::native::{Batch, Session};

    use super::*;

    /// Images that are bright in one quarter, which is their class.
    fn batch() -> Batch {
        let bright = |place: usize| (place / 32 % 32 / 16) * 2 + place % 32 / 16;
        let image = |class: usize| (0..3 * 32 * 32).map(move |place| f32::from(u8::from(bright(place) == class)));
        let features: Vec<f32> = (0..8).flat_map(|index| image(index % 4)).collect();
        let labels: Vec<i32> = (0..8).map(|index| index % 4).collect();
        Batch::new(Tensor::new(&features, &[8, 3, 32, 32]).unwrap(), Tensor::new(&labels, &[8]).unwrap())
    }

    #[test]
    fn it_has_the_parameters_of_pytorch_and_learns_a_batch() {
        let mut session = Session::<Vgg>::new(&[]).unwrap();
        assert_eq!(session.parameters(), 9_225_610);
        let batch = batch();
        let losses: Vec<f32> = (0..20).map(|_| session.step(&batch, 0.005).unwrap()).collect();
        assert!(losses[19] < losses[0] / 2.0, "{losses:?}");
        assert_eq!(session.infer(&batch).unwrap().dimensions(), [8, 10]);
    }
}
