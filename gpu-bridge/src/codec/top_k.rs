//! `top-k`: the elements that are largest in size, exactly, and the rest another time (Stich et al., *Sparsified SGD with
//! memory*, 2018).

use super::{Parts, sparse};
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) fn encode(flat: &Tensor, fraction: f32, residual: Option<&Tensor>) -> Result<Parts> {
    let accumulated = sparse::accumulated(flat, residual)?;
    sparse::send(&accumulated, count(flat.shape().elements(), fraction), residual)
}

/// How many are sent: the nearest whole number, but at least one.
pub(super) fn count(elements: usize, fraction: f32) -> usize {
    let count = (f64::from(fraction) * elements as f64).round() as usize;
    count.clamp(elements.min(1), elements)
}
