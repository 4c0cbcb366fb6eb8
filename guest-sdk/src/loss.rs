//! Losses: one number for a batch, the mean over its samples.
//!
//! Labels are as the data set has them: classes (i32) or values (f32). Where values are wanted, classes are turned into
//! them, and shaped like the predictions.
//!
//! ```
//! use weft_sdk::{Tensor, loss};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let logits = Tensor::new(&[0.0, 0.0, 0.0, 0.0], &[2, 2])?;
//! let labels = Tensor::new(&[1, 0], &[2])?;
//! let loss = loss::cross_entropy(&logits, &labels)?.item()?;
//! assert!((loss - 2.0_f32.ln()).abs() < 1e-6);
//! # Ok(())
//! # }
//! ```

use crate::bindings::weft::train::kernels::Reduction;
use crate::host::kernels;
use crate::tensor::TensorType;
use crate::{Result, Tensor};

/// `-log softmax(logits)[label]`, of `logits [n, c]` and classes `[n]`.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    smoothed_cross_entropy(logits, labels, 0.0)
}

/// [`cross_entropy`] whose target is `smoothing` of all classes alike, and the label only for the rest.
pub fn smoothed_cross_entropy(logits: &Tensor, labels: &Tensor, smoothing: f32) -> Result<Tensor> {
    kernels::cross_entropy(logits.raw(), labels.raw(), smoothing, Reduction::Mean).map(Tensor::from)
}

/// `-log_probabilities[label]`, of `[n, c]` and classes `[n]`.
pub fn nll(log_probabilities: &Tensor, labels: &Tensor) -> Result<Tensor> {
    kernels::nll(log_probabilities.raw(), labels.raw(), Reduction::Mean).map(Tensor::from)
}

/// `-t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))`, of logits and targets from 0 to 1 (or classes 0 and 1).
pub fn binary_cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let targets = values_like(targets, logits)?;
    kernels::binary_cross_entropy(logits.raw(), targets.raw(), Reduction::Mean).map(Tensor::from)
}

/// `max(0, 1 - t p)`, of predictions and targets that are -1 or 1.
pub fn hinge(predictions: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let targets = values_like(targets, predictions)?;
    kernels::hinge(predictions.raw(), targets.raw(), Reduction::Mean).map(Tensor::from)
}

/// `(p - t)²`
pub fn mse(predictions: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let targets = values_like(targets, predictions)?;
    kernels::mse(predictions.raw(), targets.raw(), Reduction::Mean).map(Tensor::from)
}

/// What fits the labels: [`cross_entropy`] of classes, [`mse`] of values.
pub fn by_labels(predictions: &Tensor, labels: &Tensor) -> Result<Tensor> {
    if labels.ty() == TensorType::F32 { mse(predictions, labels) } else { cross_entropy(predictions, labels) }
}

/// Labels as values (f32) in the shape of the predictions.
pub fn values_like(labels: &Tensor, predictions: &Tensor) -> Result<Tensor> {
    let values = if labels.ty() == TensorType::F32 { labels.clone() } else { labels.cast(TensorType::F32)? };
    let dimensions = predictions.dimensions();
    if values.dimensions() == dimensions { Ok(values) } else { values.reshape(&dimensions) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_count_as_values_where_values_are_wanted() {
        let logits = Tensor::new(&[0.0, 2.0], &[2, 1]).unwrap();
        let classes = binary_cross_entropy(&logits, &Tensor::new(&[0, 1], &[2]).unwrap()).unwrap().item().unwrap();
        let values = binary_cross_entropy(&logits, &Tensor::new(&[0.0, 1.0], &[2, 1]).unwrap()).unwrap();
        assert_eq!(classes, values.item().unwrap());
        let expected = (2.0_f32.ln() + (1.0 + (-2.0_f32).exp()).ln()) / 2.0;
        assert!((classes - expected).abs() < 1e-6);
    }

    #[test]
    fn labels_choose_the_loss() {
        let output = Tensor::new(&[1.0, 1.0, 3.0, 3.0], &[2, 2]).unwrap();
        let squares = by_labels(&output, &Tensor::zeros(&[2, 2]).unwrap()).unwrap().item().unwrap();
        assert_eq!(squares, 5.0);
        let entropy = by_labels(&output, &Tensor::new(&[0, 1], &[2]).unwrap()).unwrap().item().unwrap();
        assert!((entropy - 2.0_f32.ln()).abs() < 1e-6);
    }

    #[test]
    fn the_hinge_loss_ignores_what_is_right_by_a_margin() {
        let predictions = Tensor::new(&[2.0, 0.5, -1.0], &[3, 1]).unwrap();
        let signs = Tensor::new(&[1.0, 1.0, 1.0], &[3]).unwrap();
        assert!((hinge(&predictions, &signs).unwrap().item().unwrap() - 2.5 / 3.0).abs() < 1e-6);
    }
}
