//! Residual networks for coloured images: `depth` 18, 32, 34 or 50, with a stem for small images or for large ones.
//!
//! The stem `small` is one convolution of 3x3, for images of about 32x32; `large` is torchvision's, 7x7 with a stride and
//! a maximum after it, for about 224x224. Depth 32 is the narrow one of He and others for CIFAR-10: three stages of five
//! blocks, 16 to 64 channels wide; the others are torchvision's.
//!
//! Parameters with ten classes and the stem `small`: 11,173,962 (18), 466,906 (32), 21,282,122 (34), 23,520,842 (50); with
//! 1,000 classes and the stem `large`: 11,689,512 (18), 21,797,672 (34), 25,557,032 (50). On CIFAR-10 expect the
//! best of these functions, above all with augmentation and a schedule.

use weft_sdk::nn::{Linear, Mode};
use weft_sdk::optim::Sgd;
use weft_sdk::tensor::Window;
use weft_sdk::{Error, HyperParameters, Path, Result, Tensor, Trainer};

mod block;

use block::{Block, Normalized};

#[derive(HyperParameters)]
struct Parameters {
    /// How many layers there are.
    #[hyper(default = "18", choices = ["18", "32", "34", "50"])]
    depth: String,
    /// For small images, or for large ones.
    #[hyper(default = "small", choices = ["small", "large"])]
    stem: String,
    /// How many classes there are.
    #[hyper(default = 10, low = 2)]
    classes: u32,
    /// The height and width of the images; those of another size are resized.
    #[hyper(default = 32, low = 8, high = 1024)]
    side: u32,
    /// How much of a step goes on in the direction of those before.
    #[hyper(default = 0.9, low = 0.0, high = 0.999)]
    momentum: f32,
    /// How far weights are pulled to zero.
    #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
    weight_decay: f32,
}

/// What a depth consists of.
struct Plan {
    /// How many blocks each stage has.
    stages: &'static [u32],
    /// The channels of the first stage; each one after has twice as many.
    width: u32,
    /// Whether a block narrows its channels for the 3x3 convolution, and widens them fourfold after it.
    bottleneck: bool,
}

impl Plan {
    fn of(depth: &str) -> Result<Self> {
        let (stages, width, bottleneck): (&[u32], _, _) = match depth {
            "18" => (&[2, 2, 2, 2], 64, false),
            "32" => (&[5, 5, 5], 16, false),
            "34" => (&[3, 4, 6, 3], 64, false),
            "50" => (&[3, 4, 6, 3], 64, true),
            _ => return Err(Error::bad_input(format!("there is no ResNet of depth `{depth}`"))),
        };
        Ok(Self { stages, width, bottleneck })
    }
}

struct ResNet {
    side: u32,
    stem: Normalized,
    /// Whether the stem is followed by a maximum.
    halved: bool,
    blocks: Vec<Block>,
    last: Linear,
}

/// A residual network for coloured images.
#[weft_sdk::trainer]
impl Trainer for ResNet {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { depth, stem, classes, side, momentum, weight_decay } = parameters;
        Sgd { momentum, weight_decay, ..Sgd::default() }.declare()?;
        let Plan { stages, width, bottleneck } = Plan::of(&depth)?;
        let large = stem == "large";
        let (kernel, stride) = if large { (7, 2) } else { (3, 1) };
        let stem = Normalized::new([&path.at("conv1"), &path.at("bn1")], [3, width], kernel, stride, true)?;
        let mut blocks = Vec::new();
        let mut channels = width;
        for (stage, &count) in stages.iter().enumerate() {
            let path = path.at(format!("layer{}", stage + 1));
            for index in 0..count {
                let stride = if stage > 0 && index == 0 { 2 } else { 1 };
                let block = Block::new(&path.at(index), channels, width << stage, stride, bottleneck)?;
                channels = block.channels();
                blocks.push(block);
            }
        }
        let last = Linear::new(&path.at("fc"), channels, classes)?;
        Ok(Self { side, stem, halved: large, blocks, last })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let mut x = self.stem.forward(&x.to_images(3, self.side, self.side)?, mode)?;
        if self.halved {
            x = x.max_pool2d(Window::square(3).stride(2).padding(1))?;
        }
        for block in &self.blocks {
            x = block.forward(&x, mode)?;
        }
        self.last.forward(&x.mean_of_places()?)
    }
}

#[cfg(test)]
mod tests {
    use weft_sdk::hyper::Value;
    use weft_sdk::native::{Batch, Session};

    use super::*;

    fn session(depth: &str, stem: &str, classes: i64) -> Session<ResNet> {
        let text = |text: &str| Value::Text(text.into());
        let settings = [("depth", text(depth)), ("stem", text(stem)), ("classes", Value::Integer(classes))];
        Session::new(&settings).unwrap()
    }

    #[test]
    fn parameter_counts_are_those_of_torchvision() {
        for (depth, stem, classes, count) in [
            ("18", "small", 10, 11_173_962),
            ("32", "small", 10, 466_906),
            ("34", "small", 10, 21_282_122),
            ("50", "small", 10, 23_520_842),
            ("18", "large", 1000, 11_689_512),
            ("34", "large", 1000, 21_797_672),
            ("50", "large", 1000, 25_557_032),
        ] {
            assert_eq!(session(depth, stem, classes).parameters(), count, "{depth} {stem}");
        }
    }

    #[test]
    fn every_kind_of_block_and_stem_learns_a_batch() {
        let batch =
            Batch::new(Tensor::normal(&[4, 3, 32, 32], 0.0, 1.0).unwrap(), Tensor::new(&[0, 1, 2, 3], &[4]).unwrap());
        for (depth, stem) in [("32", "small"), ("18", "large"), ("50", "large")] {
            let mut session = session(depth, stem, 10);
            let losses: Vec<f32> = (0..16).map(|_| session.step(&batch, 0.002).unwrap()).collect();
            assert!(losses[15] < losses[0] / 2.0, "{depth} {stem}: {losses:?}");
        }
    }
}
