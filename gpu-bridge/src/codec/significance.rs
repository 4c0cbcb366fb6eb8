//! `significance`: the elements that have accumulated to something beside the weight that they change, and the rest when
//! they have (Hsieh et al., *Gaia: geo-distributed machine learning approaching LAN speeds*, 2017).

use super::{Feedback, Parts, sparse};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub(super) fn encode(flat: &Tensor, threshold: f32, feedback: Feedback<'_>) -> Result<Parts> {
    let weights = feedback.weights.ok_or_else(|| Error::argument("encode", "`significance` needs the weights"))?;
    let weights = weights.detach().reshape(&[flat.shape().elements()])?;
    let accumulated = sparse::accumulated(flat, feedback.residual)?;
    let (significant, count) = accumulated.significant(&weights, threshold)?;
    // What is kept is not zero and all else is: the largest of so many are just these.
    let count = count.to_vec::<u32>()?.into_iter().sum::<u32>() as usize;
    sparse::send(&significant, count, feedback.residual)
}
