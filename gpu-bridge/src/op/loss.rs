//! Losses, each computed together with its gradient.
//!
//! Both need the same pass over the prediction, and training always wants both. The gradient is saved as it will be
//! used, scaled by the reduction, so that going back from a loss costs nothing.

use smallvec::smallvec;

use super::{Binary, Inputs, Meta, Outputs, Saves, Spec};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tape::Backward;

/// How far a prediction is from its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossKind {
    /// `logits [n, c], labels [n]` (an index type): `-log softmax(logits)[label]`. With `smoothing` the target is that
    /// much of all classes alike, and the label only for the rest.
    SoftmaxCrossEntropy { smoothing: f32 },
    /// `log-probabilities [n, c], labels [n]` (an index type): minus the one of the label.
    Nll,
    /// `logits, targets` of one shape: `-t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))`.
    BinaryCrossEntropyWithLogits,
    /// `predictions, targets` (-1 or 1) of one shape: `max(0, 1 - t p)`.
    Hinge,
    /// `predictions, targets` of one shape: `(p - t)^2`.
    Mse,
}

impl LossKind {
    /// Whether the target is a class for each row, not a number for each element.
    pub fn takes_labels(self) -> bool {
        matches!(self, Self::SoftmaxCrossEntropy { .. } | Self::Nll)
    }
}

/// How the losses of rows or elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Over rows where the target is labels, else over elements. Of none it is NaN.
    Mean,
    /// Of none it is 0.
    Sum,
}

impl Reduction {
    /// What each of `count` losses is multiplied by.
    pub fn factor(self, count: usize) -> f64 {
        match self {
            Self::Mean => 1.0 / count as f64,
            Self::Sum => 1.0,
        }
    }
}

/// `prediction, target`: the loss, a scalar, and its gradient by the prediction. Gradients flow through the loss alone,
/// and not to the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    pub kind: LossKind,
    pub reduction: Reduction,
}

impl Spec for Loss {
    fn name(&self) -> &'static str {
        match self.kind {
            LossKind::SoftmaxCrossEntropy { .. } => "softmax-cross-entropy",
            LossKind::Nll => "nll",
            LossKind::BinaryCrossEntropyWithLogits => "binary-cross-entropy-with-logits",
            LossKind::Hinge => "hinge",
            LossKind::Mse => "mse",
        }
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [prediction, _] = inputs.exactly()?;
        if self.kind.takes_labels() {
            inputs.typed(0, crate::DType::F32)?;
            inputs.indices(1)?;
            inputs.ranked(0, 2)?;
            inputs.shaped(1, &prediction.shape[..1])?;
        } else {
            inputs.all_f32()?;
            inputs.same_shape(0, 1)?;
        }
        if let LossKind::SoftmaxCrossEntropy { smoothing } = self.kind
            && !(0.0..=1.0).contains(&smoothing)
        {
            return Err(Error::argument(inputs.op, format!("smoothing {smoothing} must be between 0 and 1")));
        }
        Ok(smallvec![Meta::f32(Shape::SCALAR), *prediction])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        let each = match self.kind {
            LossKind::SoftmaxCrossEntropy { .. } => 16,
            LossKind::BinaryCrossEntropyWithLogits => 40,
            LossKind::Nll => 1,
            LossKind::Hinge | LossKind::Mse => 4,
        };
        each * inputs.first().map_or(0, |prediction| prediction.shape.elements() as u64)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::outputs(0b10)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        if backward.wants(1) {
            return Err(Error::NotDifferentiable { op: self.name(), input: 1 });
        }
        if backward.reached(1) {
            return Err(Error::argument(self.name(), "gradients flow through the loss alone; detach its gradient"));
        }
        let gradient = backward.output(1)?;
        if backward.is_loss() {
            return backward.pass(0, gradient);
        }
        let dy = backward.gradient(0)?;
        backward.emit(0, Binary::Mul, &[&gradient, &dy])
    }
}
