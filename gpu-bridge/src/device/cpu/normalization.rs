//! Normalization of batches, layers, neighbours and rows.

use super::memory::Output;
use crate::error::{Error, Result};

mod batch;
mod layer;
mod local_response;
mod softmax;

pub(super) use batch::{batch, batch_gradient, batch_inference};
pub(super) use layer::{layer, layer_gradient};
pub(super) use local_response::{local_response, local_response_gradient};
pub(super) use softmax::{log_softmax, log_softmax_gradient, masked_softmax, softmax, softmax_gradient};

/// The results of an operation, as many as its spec says.
fn results<'a, 'b, const N: usize>(outputs: &'a mut [Output<'b>]) -> Result<&'a mut [Output<'b>; N]> {
    outputs
        .try_into()
        .map_err(|_| Error::Internal { op: "normalization", reason: "a kernel was given too few results".into() })
}

/// Mean and variance of `count` numbers, from the sums of their differences from `near` and of the squares of these.
#[inline(always)]
fn statistics(near: f32, sum: f64, squares: f64, count: usize) -> (f32, f32) {
    let count = count as f64;
    let offset = sum / count;
    let variance = squares / count - offset * offset;
    ((f64::from(near) + offset) as f32, if variance < 0.0 { 0.0 } else { variance as f32 })
}

/// A value near the mean, from which differences are finite.
#[inline(always)]
fn near(mean: f64) -> f32 {
    if mean.abs() <= f64::from(f32::MAX) { mean as f32 } else { 0.0 }
}
