//! How good a model is on a batch: means over its samples, one number each.

use crate::tensor::TensorType;
use crate::{Result, Tensor};

/// A number with a name. `loss` and `accuracy` mean the same for all functions.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: String,
    /// A mean over the samples of the call.
    pub value: Tensor,
}

impl Metric {
    pub fn new(name: impl Into<String>, value: Tensor) -> Self {
        Self { name: name.into(), value }
    }

    pub fn loss(value: Tensor) -> Self {
        Self::new("loss", value)
    }

    pub fn accuracy(value: Tensor) -> Self {
        Self::new("accuracy", value)
    }
}

/// The share of samples that are right: whose largest output is the label's, or, where there is one output, whose
/// output is positive as the label is.
///
/// ```
/// use weft_sdk::{Tensor, metric};
///
/// # fn main() -> weft_sdk::Result<()> {
/// let outputs = Tensor::new(&[0.1, 0.9, 0.8, 0.2], &[2, 2])?;
/// assert_eq!(metric::accuracy(&outputs, &Tensor::new(&[1, 1], &[2])?)?.item()?, 0.5);
/// # Ok(())
/// # }
/// ```
pub fn accuracy(outputs: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let labels = if labels.rank() == 1 { labels.clone() } else { labels.reshape(&[labels.size(0)])? };
    let right = if outputs.rank() == 2 && outputs.size(1) > 1 {
        outputs.arg_max(1)?.equal(&labels.cast(TensorType::U32)?)?
    } else {
        let half = Tensor::scalar(0.5)?;
        let positive = labels.cast(TensorType::F32)?.greater(&half)?;
        outputs.reshape(&[outputs.size(0)])?.greater(&Tensor::scalar(0.0)?)?.equal(&positive)?
    };
    right.cast(TensorType::F32)?.mean()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_output_is_right_by_its_sign() {
        let outputs = Tensor::new(&[-1.0, 2.0, 3.0, -4.0], &[4, 1]).unwrap();
        let share = |labels: Tensor| accuracy(&outputs, &labels).unwrap().item().unwrap();
        assert_eq!(share(Tensor::new(&[0, 1, 0, 0], &[4]).unwrap()), 0.75);
        assert_eq!(share(Tensor::new(&[0.0, 1.0, 1.0, 1.0], &[4, 1]).unwrap()), 0.75);
        assert_eq!(share(Tensor::new(&[-1.0, 1.0, 1.0, -1.0], &[4]).unwrap()), 1.0);
    }
}
