//! SqueezeNet 1.1: fire modules, which squeeze the channels and then expand them in two ways at once.
//!
//! 727,626 parameters with ten classes. Made for images of 224x224; it takes those of 32x32 too, on which, shrunk as they
//! are by its stem, expect less than of a ResNet.

use weft_sdk::model::Initial;
use weft_sdk::nn::{Conv2d, Conv2dConfig, Dropout, Mode};
use weft_sdk::optim::Sgd;
use weft_sdk::tensor::Window;
use weft_sdk::{HyperParameters, Path, Result, Tensor, Trainer};

#[derive(HyperParameters)]
struct Parameters {
    /// How many classes there are.
    #[hyper(default = 10, low = 2)]
    classes: u32,
    /// The height and width of the images; those of another size are resized.
    #[hyper(default = 32, low = 17, high = 1024)]
    side: u32,
    /// How much of the last layer's input is dropped in training.
    #[hyper(default = 0.5, low = 0.0, high = 0.9)]
    dropout: f32,
    /// How much of a step goes on in the direction of those before.
    #[hyper(default = 0.9, low = 0.0, high = 0.999)]
    momentum: f32,
    /// How far weights are pulled to zero.
    #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
    weight_decay: f32,
}

/// Place in PyTorch's sequence, channels in, squeezed to, expanded to by each way, and whether the image is halved first.
const PLAN: [(u32, u32, u32, u32, bool); 8] = [
    (3, 64, 16, 64, true),
    (4, 128, 16, 64, false),
    (6, 128, 32, 128, true),
    (7, 256, 32, 128, false),
    (9, 256, 48, 192, true),
    (10, 384, 48, 192, false),
    (11, 384, 64, 256, false),
    (12, 512, 64, 256, false),
];

struct SqueezeNet {
    side: u32,
    stem: Conv2d,
    fires: Vec<Fire>,
    dropout: Dropout,
    last: Conv2d,
}

struct Fire {
    halved: bool,
    squeeze: Conv2d,
    /// Of 1x1 and of 3x3.
    expand: [Conv2d; 2],
}

/// SqueezeNet 1.1 for coloured images.
#[weft_sdk::trainer]
impl Trainer for SqueezeNet {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { classes, side, dropout, momentum, weight_decay } = parameters;
        Sgd { momentum, weight_decay, ..Sgd::default() }.declare()?;
        let features = path.at("features");
        let stem = rectified(Conv2dConfig::new(3, 64, 3).stride(2)).init(&features.at(0))?;
        let mut fires = Vec::new();
        for (place, from, squeezed, to, halved) in PLAN {
            let path = features.at(place);
            fires.push(Fire {
                halved,
                squeeze: rectified(Conv2dConfig::new(from, squeezed, 1)).init(&path.at("squeeze"))?,
                expand: [
                    rectified(Conv2dConfig::new(squeezed, to, 1)).init(&path.at("expand1x1"))?,
                    rectified(Conv2dConfig::new(squeezed, to, 3).padding(1)).init(&path.at("expand3x3"))?,
                ],
            });
        }
        let last = Conv2dConfig::new(512, classes, 1).initial(Initial::deviating(0.01), Initial::Constant(0.0));
        let last = last.init(&path.at("classifier").at(1))?;
        Ok(Self { side, stem, fires, dropout: Dropout(dropout), last })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let mut x = self.stem.forward(&x.to_images(3, self.side, self.side)?)?.relu()?;
        for fire in &self.fires {
            x = fire.forward(&x)?;
        }
        self.last.forward(&self.dropout.forward(&x, mode)?)?.relu()?.mean_of_places()
    }
}

impl Fire {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let squeezed = if self.halved {
            self.squeeze.forward(&x.max_pool2d(Window::square(3).stride(2).ceil())?)?
        } else {
            self.squeeze.forward(x)?
        };
        let squeezed = squeezed.relu()?;
        let [small, large] = &self.expand;
        Tensor::concat(&[&small.forward(&squeezed)?, &large.forward(&squeezed)?], 1)?.relu()
    }
}

/// First values as torchvision has them before a rectifier.
fn rectified(config: Conv2dConfig) -> Conv2dConfig {
    let weights = Initial::he_uniform(config.fan_in());
    config.initial(weights, Initial::Constant(0.0))
}

#[cfg(test)]
mod tests {
    use weft_sdk::hyper::Value;
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
        let mut session = Session::<SqueezeNet>::new(&[("dropout", Value::Real(0.0))]).unwrap();
        assert_eq!(session.parameters(), 727_626);
        let batch = batch();
        let losses: Vec<f32> = (0..60).map(|_| session.step(&batch, 0.005).unwrap()).collect();
        // The last rectifier leaves some classes without a gradient, from which small batches do not recover.
        assert!(losses[59] < losses[0] * 0.8, "{losses:?}");
        assert_eq!(session.infer(&batch).unwrap().dimensions(), [8, 10]);
    }
}
