//! Models that people train, built on the operations of this crate alone: what the benchmark compares with PyTorch, and
//! what the tests compare with its stored values.
//!
//! [`Model::step`] is all of one training step: forward, loss, backward, and SGD with momentum 0.9 and weight decay
//! 1e-4. Networks, parameter names and their order are PyTorch's (torchvision's), so that values can be compared; two
//! things differ, and neither changes what is computed: query, key and value of attention have a weight each instead of
//! one for all three, and the 1x1 convolutions of squeeze-and-excitation, which see images of one place, are linear
//! layers. Weights and data follow a formula: see [`initial`].
//!
//! ```
//! use std::sync::Arc;
//! use weft_gpu::models::{Model, ModelKind};
//! use weft_gpu::{Context, Crew, Limits, device::cpu::Cpu};
//!
//! let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default());
//! let kind = ModelKind::LeNet;
//! let mut model = Model::new(&context, kind, 0)?;
//! let batch = kind.batch(&context, 8, 0)?;
//! let first = model.step(&batch, 0.01)?.item()?;
//! model.step(&batch, 0.01)?;
//! assert!(model.step(&batch, 0.01)?.item()? < first);
//! # Ok::<(), weft_gpu::Error>(())
//! ```

use std::fmt;
use std::str::FromStr;

use crate::arena::Arena;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

mod bert;
mod dense;
pub mod initial;
mod layer;
mod lenet;
mod mobilenet;
mod resnet;
mod squeezenet;
mod vgg;

use initial::{hash, uniform};
use layer::{Builder, Declared, Draws, Network, Pass};

/// Which model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelKind {
    /// Logistic regression of 28 features.
    LogReg,
    /// 20 bits, five hidden layers of 100, one output.
    Mlp,
    /// LeNet-5 with rectifiers and maxima, for 28x28.
    LeNet,
    /// For 3x32x32, as are the following: a 3x3 stem, and no pooling after it.
    ResNet18,
    ResNet34,
    MobileNetV3Small,
    SqueezeNet,
    Vgg11,
    /// 4 layers, 512 wide, 8 heads, 128 tokens of 30,522 words, two classes.
    BertSmall,
}

impl ModelKind {
    pub const ALL: [Self; 9] = [
        Self::LogReg,
        Self::Mlp,
        Self::LeNet,
        Self::ResNet18,
        Self::ResNet34,
        Self::MobileNetV3Small,
        Self::SqueezeNet,
        Self::Vgg11,
        Self::BertSmall,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::LogReg => "logreg",
            Self::Mlp => "mlp",
            Self::LeNet => "lenet",
            Self::ResNet18 => "resnet18",
            Self::ResNet34 => "resnet34",
            Self::MobileNetV3Small => "mobilenetv3s",
            Self::SqueezeNet => "squeezenet",
            Self::Vgg11 => "vgg11",
            Self::BertSmall => "bert-small",
        }
    }

    /// The shape of one sample.
    pub const fn sample(self) -> &'static [usize] {
        match self {
            Self::LogReg => &[28],
            Self::Mlp => &[20],
            Self::LeNet => &[1, 28, 28],
            Self::BertSmall => &[bert::TOKENS],
            _ => &[3, 32, 32],
        }
    }

    /// How many classes there are; `None` where one output says yes or no.
    pub const fn classes(self) -> Option<usize> {
        match self {
            Self::LogReg | Self::Mlp => None,
            Self::BertSmall => Some(2),
            _ => Some(10),
        }
    }

    /// Data of the right shapes, which depends on the seed alone; see [`initial`].
    pub fn batch(self, context: &Context, size: usize, seed: u32) -> Result<Batch> {
        let shape: Vec<usize> = [size].iter().chain(self.sample()).copied().collect();
        let count = shape.iter().product::<usize>() as u32;
        let input = |element| hash(seed, initial::INPUTS, element);
        let x = match self {
            Self::BertSmall => {
                context.tensor(&shape, &(0..count).map(|i| input(i) % bert::WORDS as u32).collect::<Vec<u32>>())
            }
            Self::Mlp => context.tensor(&shape, &(0..count).map(|i| (input(i) % 2) as f32).collect::<Vec<f32>>()),
            _ => {
                let deviation = 3.0_f64.sqrt();
                let value = |i| (uniform(seed, initial::INPUTS, i) * deviation) as f32;
                context.tensor(&shape, &(0..count).map(value).collect::<Vec<f32>>())
            }
        }?;
        let target = |classes: usize| (0..size as u32).map(move |i| hash(seed, initial::TARGETS, i) % classes as u32);
        let y = match self.classes() {
            Some(classes) => context.tensor(&[size], &target(classes).collect::<Vec<u32>>()),
            None => context.tensor(&[size, 1], &target(2).map(|bit| bit as f32).collect::<Vec<f32>>()),
        }?;
        Ok(Batch { x, y })
    }

    fn declare(self, builder: &mut Builder) -> Box<dyn Network> {
        match self {
            Self::LogReg => Box::new(dense::LogReg::declare(builder)),
            Self::Mlp => Box::new(dense::Mlp::declare(builder)),
            Self::LeNet => Box::new(lenet::LeNet::declare(builder)),
            Self::ResNet18 => Box::new(resnet::ResNet::declare(builder, [2, 2, 2, 2])),
            Self::ResNet34 => Box::new(resnet::ResNet::declare(builder, [3, 4, 6, 3])),
            Self::MobileNetV3Small => Box::new(mobilenet::MobileNet::declare(builder)),
            Self::SqueezeNet => Box::new(squeezenet::SqueezeNet::declare(builder)),
            Self::Vgg11 => Box::new(vgg::Vgg::declare(builder)),
            Self::BertSmall => Box::new(bert::Bert::declare(builder)),
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for ModelKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
            Error::argument("model", format!("there is no `{name}`; there are: {}", names.join(", ")))
        })
    }
}

/// Samples and what they should become.
#[derive(Clone, Debug)]
pub struct Batch {
    pub x: Tensor,
    /// Classes `[n]` (u32), or 0 and 1 `[n, 1]` (f32) where the model has one output.
    pub y: Tensor,
}

/// What the network is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout drops; batches are normalized by their own statistics, which the running ones follow. Recorded.
    Training,
    /// Nothing random, the running statistics, and nothing recorded.
    Evaluation,
}

/// A model with its weights and the state of its optimizer.
pub struct Model {
    kind: ModelKind,
    context: Context,
    network: Box<dyn Network>,
    declared: Declared,
    draws: Option<Draws>,
}

impl Model {
    /// Weights and dropout depend on the seed alone.
    pub fn new(context: &Context, kind: ModelKind, seed: u32) -> Result<Self> {
        let mut builder = Builder::default();
        let network = kind.declare(&mut builder);
        let declared = builder.build(context, seed)?;
        Ok(Self { kind, context: context.clone(), network, declared, draws: Some(Draws::new(seed)) })
    }

    pub fn kind(&self) -> ModelKind {
        self.kind
    }

    /// How many numbers are trained.
    pub fn parameters(&self) -> usize {
        self.declared.arena().elements()
    }

    /// All parameters, under their names in PyTorch.
    pub fn arena(&self) -> &Arena {
        self.declared.arena()
    }

    /// A running mean or variance by its name in PyTorch.
    pub fn statistic(&self, name: &str) -> Option<&Tensor> {
        self.declared.statistic(name)
    }

    /// From now on training drops nothing.
    pub fn without_dropout(mut self) -> Self {
        self.draws = None;
        self
    }

    /// What the network makes of some samples, before any softmax or sigmoid.
    pub fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let _paused = (mode == Mode::Evaluation).then(|| self.context.no_grad());
        let mut pass = Pass::new(&self.declared, mode, self.draws.as_mut());
        self.network.forward(x, &mut pass)
    }

    /// The mean loss over a batch in training, recorded.
    pub fn loss(&mut self, batch: &Batch) -> Result<Tensor> {
        let output = self.forward(&batch.x, Mode::Training)?;
        match self.kind.classes() {
            Some(_) => output.cross_entropy(&batch.y),
            None => output.bce_with_logits(&batch.y),
        }
    }

    /// One step of training at a learning rate. Gives the loss before it.
    pub fn step(&mut self, batch: &Batch, rate: f32) -> Result<Tensor> {
        self.declared.arena().clear_gradients();
        let loss = self.loss(batch)?;
        loss.backward()?;
        self.declared.descend(rate)?;
        Ok(loss.detach())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_are_those_of_pytorch() {
        for (kind, count) in [
            (ModelKind::LogReg, 29),
            (ModelKind::Mlp, 42_601),
            (ModelKind::LeNet, 44_426),
            (ModelKind::ResNet18, 11_173_962),
            (ModelKind::ResNet34, 21_282_122),
            (ModelKind::MobileNetV3Small, 1_528_106),
            (ModelKind::SqueezeNet, 727_626),
            (ModelKind::Vgg11, 9_225_610),
            (ModelKind::BertSmall, 28_303_362),
        ] {
            let mut builder = Builder::default();
            kind.declare(&mut builder);
            assert_eq!(builder.parameters(), count, "{kind}");
        }
    }

    #[test]
    fn names_lead_back_to_their_models() {
        for kind in ModelKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("resnet50".parse::<ModelKind>().is_err());
    }
}
