//! Normalization of batches, layers, neighbours and rows.

mod batch;
mod layer;
mod local_response;
mod softmax;

pub use batch::{BatchNorm, BatchNormGradient, BatchNormInference, Statistics};
pub use layer::{LayerNorm, LayerNormGradient};
pub use local_response::{LocalResponseNorm, LocalResponseNormGradient};
pub use softmax::{LogSoftmax, LogSoftmaxGradient, MaskedSoftmax, Softmax, SoftmaxGradient};

use crate::error::{Error, Result};

/// Refuses an epsilon that could make a variance negative.
fn check_epsilon(op: &'static str, epsilon: f32) -> Result<()> {
    if epsilon >= 0.0 && epsilon.is_finite() {
        return Ok(());
    }
    Err(Error::argument(op, format!("epsilon {epsilon} must not be negative, and finite")))
}
