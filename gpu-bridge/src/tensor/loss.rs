//! Losses, each computed together with its gradient.

use super::Tensor;
use crate::error::Result;
use crate::op::{Loss, LossKind, Reduction};

impl Tensor {
    /// The loss of this prediction, a scalar. A target has no gradient.
    pub fn loss(&self, kind: LossKind, reduction: Reduction, target: &Self) -> Result<Self> {
        self.context.run_one(Loss { kind, reduction }, &[self, target])
    }

    /// Of logits `[n, c]` and labels `[n]`: the mean of `-log softmax(logits)[label]`.
    pub fn cross_entropy(&self, labels: &Self) -> Result<Self> {
        self.loss(LossKind::SoftmaxCrossEntropy { smoothing: 0.0 }, Reduction::Mean, labels)
    }

    /// Of log-probabilities `[n, c]` and labels `[n]`: the mean of minus the one of the label.
    pub fn nll(&self, labels: &Self) -> Result<Self> {
        self.loss(LossKind::Nll, Reduction::Mean, labels)
    }

    /// Of logits and targets between 0 and 1: the mean of `-t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))`.
    pub fn bce_with_logits(&self, targets: &Self) -> Result<Self> {
        self.loss(LossKind::BinaryCrossEntropyWithLogits, Reduction::Mean, targets)
    }

    /// Of targets that are -1 or 1: the mean of `max(0, 1 - t p)`.
    pub fn hinge(&self, targets: &Self) -> Result<Self> {
        self.loss(LossKind::Hinge, Reduction::Mean, targets)
    }

    /// The mean of `(p - t)^2`.
    pub fn mse(&self, targets: &Self) -> Result<Self> {
        self.loss(LossKind::Mse, Reduction::Mean, targets)
    }
}
