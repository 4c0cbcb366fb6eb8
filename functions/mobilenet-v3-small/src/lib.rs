//! MobileNetV3-Small: inverted residuals of depthwise convolutions, with squeeze-and-excitation.
//!
//! 1,528,106 parameters with ten classes. Made for images of 224x224; it takes those of 32x32 too, on which, shrunk as
//! they are by its strides, expect less than of a ResNet. The 1x1 convolutions of squeeze-and-excitation, which
//! see images of one place, are linear layers here: the same numbers, without the last two axes.

use weft_sdk::model::Initial;
use weft_sdk::nn::{Activation, Dropout, Linear, LinearConfig, Mode};
use weft_sdk::optim::Sgd;
use weft_sdk::{HyperParameters, Path, Result, Tensor, Trainer};

mod block;

use block::{Block, Normalized, Plan};

#[derive(HyperParameters)]
struct Parameters {
    /// How many classes there are.
    #[hyper(default = 10, low = 2)]
    classes: u32,
    /// The height and width of the images; those of another size are resized.
    #[hyper(default = 32, low = 8, high = 1024)]
    side: u32,
    /// How much of the last layer's input is dropped in training.
    #[hyper(default = 0.2, low = 0.0, high = 0.9)]
    dropout: f32,
    /// How much of a step goes on in the direction of those before.
    #[hyper(default = 0.9, low = 0.0, high = 0.999)]
    momentum: f32,
    /// How far weights are pulled to zero.
    #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
    weight_decay: f32,
}

const PLAN: [Plan; 11] = [
    Plan { from: 16, expanded: 16, to: 16, kernel: 3, stride: 2, squeezed: true, activation: Activation::Relu },
    Plan { from: 16, expanded: 72, to: 24, kernel: 3, stride: 2, squeezed: false, activation: Activation::Relu },
    Plan { from: 24, expanded: 88, to: 24, kernel: 3, stride: 1, squeezed: false, activation: Activation::Relu },
    Plan { from: 24, expanded: 96, to: 40, kernel: 5, stride: 2, squeezed: true, activation: Activation::HardSwish },
    Plan { from: 40, expanded: 240, to: 40, kernel: 5, stride: 1, squeezed: true, activation: Activation::HardSwish },
    Plan { from: 40, expanded: 240, to: 40, kernel: 5, stride: 1, squeezed: true, activation: Activation::HardSwish },
    Plan { from: 40, expanded: 120, to: 48, kernel: 5, stride: 1, squeezed: true, activation: Activation::HardSwish },
    Plan { from: 48, expanded: 144, to: 48, kernel: 5, stride: 1, squeezed: true, activation: Activation::HardSwish },
    Plan { from: 48, expanded: 288, to: 96, kernel: 5, stride: 2, squeezed: true, activation: Activation::HardSwish },
    Plan { from: 96, expanded: 576, to: 96, kernel: 5, stride: 1, squeezed: true, activation: Activation::HardSwish },
    Plan { from: 96, expanded: 576, to: 96, kernel: 5, stride: 1, squeezed: true, activation: Activation::HardSwish },
];

const LAST_WIDTH: u32 = 576;
const HIDDEN: u32 = 1024;

struct MobileNet {
    side: u32,
    stem: Normalized,
    blocks: Vec<Block>,
    head: Normalized,
    hidden: Linear,
    dropout: Dropout,
    last: Linear,
}

/// MobileNetV3-Small for coloured images.
#[weft_sdk::trainer]
impl Trainer for MobileNet {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { classes, side, dropout, momentum, weight_decay } = parameters;
        Sgd { momentum, weight_decay, ..Sgd::default() }.declare()?;
        let (features, classifier) = (path.at("features"), path.at("classifier"));
        let swish = Some(Activation::HardSwish);
        let stem = Normalized::new(&features.at(0), [3, 16], 3, 2, 1, swish)?;
        let mut blocks = Vec::new();
        for (index, plan) in PLAN.iter().enumerate() {
            blocks.push(Block::new(&features.at(index + 1).at("block"), plan)?);
        }
        let head = Normalized::new(&features.at(PLAN.len() + 1), [PLAN[10].to, LAST_WIDTH], 1, 1, 1, swish)?;
        let linear = |inputs, outputs| {
            LinearConfig::new(inputs, outputs).initial(Initial::deviating(0.01), Initial::Constant(0.0))
        };
        Ok(Self {
            side,
            stem,
            blocks,
            head,
            hidden: linear(LAST_WIDTH, HIDDEN).activation(Activation::HardSwish).init(&classifier.at(0))?,
            dropout: Dropout(dropout),
            last: linear(HIDDEN, classes).init(&classifier.at(3))?,
        })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let mut x = self.stem.forward(&x.to_images(3, self.side, self.side)?, mode)?;
        for block in &self.blocks {
            x = block.forward(&x, mode)?;
        }
        let x = self.hidden.forward(&self.head.forward(&x, mode)?.mean_of_places()?)?;
        self.last.forward(&self.dropout.forward(&x, mode)?)
    }
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
        let mut session = Session::<MobileNet>::new(&[("dropout", Value::Real(0.0))]).unwrap();
        assert_eq!(session.parameters(), 1_528_106);
        let batch = batch();
        let losses: Vec<f32> = (0..20).map(|_| session.step(&batch, 0.05).unwrap()).collect();
        assert!(losses[19] < losses[0] / 2.0, "{losses:?}");
        assert_eq!(session.infer(&batch).unwrap().dimensions(), [8, 10]);
    }
}
