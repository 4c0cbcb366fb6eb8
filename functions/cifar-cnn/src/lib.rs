//! The small network for coloured images of 32x32 that Feng and others train on serverless functions: two convolutions,
//! two maxima, two local response normalizations, two linear layers.
//!
//! 1,684,426 parameters. Images of another size are resized. On CIFAR-10 expect most images to be right, but clearly
//! fewer than of a ResNet.

use weft_sdk::nn::{Activation, Conv2d, Conv2dConfig, Dropout, Linear, LinearConfig, LocalResponseNorm, Mode};
use weft_sdk::optim::Sgd;
use weft_sdk::tensor::Window;
use weft_sdk::{HyperParameters, Path, Result, Tensor, Trainer};

#[derive(HyperParameters)]
struct Parameters {
    /// How many classes there are.
    #[hyper(default = 10, low = 2)]
    classes: u32,
    /// How wide the hidden linear layer is.
    #[hyper(default = 384, low = 1, high = 65536, log)]
    width: u32,
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

const CHANNELS: u32 = 64;

struct CifarCnn {
    convolutions: [Conv2d; 2],
    norm: LocalResponseNorm,
    hidden: Linear,
    dropout: Dropout,
    last: Linear,
}

/// Feng's small network for coloured images of 32x32.
#[weft_sdk::trainer]
impl Trainer for CifarCnn {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { classes, width, dropout, momentum, weight_decay } = parameters;
        Sgd { momentum, weight_decay, ..Sgd::default() }.declare()?;
        let convolution = |name: &str, inputs| Conv2dConfig::new(inputs, CHANNELS, 5).padding(2).init(&path.at(name));
        let hidden = LinearConfig::new(CHANNELS * 8 * 8, width).activation(Activation::Relu);
        Ok(Self {
            convolutions: [convolution("conv1", 3)?, convolution("conv2", CHANNELS)?],
            norm: LocalResponseNorm { alpha: 1e-3, ..LocalResponseNorm::new(9) },
            hidden: hidden.init(&path.at("fc1"))?,
            dropout: Dropout(dropout),
            last: Linear::new(&path.at("fc2"), width, classes)?,
        })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let [first, second] = &self.convolutions;
        let halves = Window::square(3).stride(2).padding(1);
        let x = x.to_images(3, 32, 32)?;
        // A maximum of rectified values is the rectified maximum: a quarter of the work.
        let x = self.norm.forward(&first.forward(&x)?.max_pool2d(halves)?.relu()?)?;
        let x = self.norm.forward(&second.forward(&x)?.relu()?)?.max_pool2d(halves)?;
        let x = self.hidden.forward(&x.flatten()?)?;
        self.last.forward(&self.dropout.forward(&x, mode)?)
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
        let mut session = Session::<CifarCnn>::new(&[]).unwrap();
        assert_eq!(session.parameters(), 1_684_426);
        let batch = batch();
        let losses: Vec<f32> = (0..30).map(|_| session.step(&batch, 0.005).unwrap()).collect();
        assert!(losses[29] < losses[0] / 2.0, "{losses:?}");
        assert_eq!(session.infer(&batch).unwrap().dimensions(), [8, 10]);
    }
}
