//! Whole arenas at once: what training itself does to all parameters in one call.

use smallvec::smallvec;

use super::{Inputs, Meta, Outputs, Spec};
use crate::error::{Error, Result};

mod optimizer;

pub use optimizer::{Adagrad, Adam, Optimize, Optimizer, RmsProp, Sgd};

/// `into, from` (broadcast): `into = from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assign;

impl Spec for Assign {
    fn name(&self) -> &'static str {
        "assign"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [into, from] = inputs.exactly()?;
        inputs.typed(1, into.dtype)?;
        if from.shape.broadcast(&into.shape) != Some(into.shape) {
            return Err(Error::mismatch(inputs.op, "does not expand", &from.shape, &into.shape));
        }
        Ok(smallvec![])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }

    fn writes(&self) -> usize {
        1
    }

    fn strided(&self) -> bool {
        true
    }
}

/// `into, from`: `into += scale * from`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accumulate {
    pub scale: f32,
}

impl Spec for Accumulate {
    fn name(&self) -> &'static str {
        "accumulate"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        alike::<2>(inputs)?;
        finite(inputs.op, "scale", self.scale)?;
        Ok(smallvec![])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        2 * elements(inputs)
    }

    fn writes(&self) -> usize {
        1
    }
}

/// `into, from`: `into += amount * (from - into)`, a step from one to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blend {
    pub amount: f32,
}

impl Spec for Blend {
    fn name(&self) -> &'static str {
        "blend"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        alike::<2>(inputs)?;
        finite(inputs.op, "amount", self.amount)?;
        Ok(smallvec![])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        3 * elements(inputs)
    }

    fn writes(&self) -> usize {
        1
    }
}

/// `gradients, sum of squares (one element)`: gradients times `min(1, limit / (sqrt(sum) + 1e-6))`, so that their norm is
/// at most `limit`.
///
/// A norm that is not finite is treated as PyTorch does by default: an infinite one makes every finite gradient 0 and
/// the others NaN, a NaN makes all of them NaN. Who wants to skip such a step looks at the sum first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClipNorm {
    pub limit: f32,
}

impl ClipNorm {
    /// What the gradients are multiplied with, from the sum of their squares.
    pub fn scale(&self, sum_of_squares: f32) -> f32 {
        let scale = self.limit / (sum_of_squares.sqrt() + 1e-6);
        // Not `min`, which would lose a NaN.
        if scale > 1.0 { 1.0 } else { scale }
    }
}

impl Spec for ClipNorm {
    fn name(&self) -> &'static str {
        "clip-norm"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, sum] = inputs.exactly()?;
        inputs.all_f32()?;
        if sum.shape.elements() != 1 {
            return Err(Error::shape(
                inputs.op,
                format!("input 1, the sum of squares, is {:?}, not one element", sum.shape),
            ));
        }
        if self.limit.is_nan() || self.limit < 0.0 {
            return Err(Error::argument(inputs.op, format!("limit {} must not be negative", self.limit)));
        }
        Ok(smallvec![])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        elements(inputs)
    }

    fn writes(&self) -> usize {
        1
    }
}

/// `gradients, x, z, u`: `gradients += rho * (x - z + u)`, the term that ADMM adds to a worker's loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmmGradient {
    pub rho: f32,
}

impl Spec for AdmmGradient {
    fn name(&self) -> &'static str {
        "admm-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        alike::<4>(inputs)?;
        finite(inputs.op, "rho", self.rho)?;
        Ok(smallvec![])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        4 * elements(inputs)
    }

    fn writes(&self) -> usize {
        1
    }
}

/// `u, x, z`: `u += x - z`, ADMM's step of the scaled dual variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmmDual;

impl Spec for AdmmDual {
    fn name(&self) -> &'static str {
        "admm-dual"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        alike::<3>(inputs)?;
        Ok(smallvec![])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        2 * elements(inputs)
    }

    fn writes(&self) -> usize {
        1
    }
}

/// Refuses all but `N` f32 tensors of one shape.
fn alike<const N: usize>(inputs: Inputs<'_>) -> Result<()> {
    let _: &[Meta; N] = inputs.exactly()?;
    inputs.all_f32()?;
    (1..N).try_for_each(|index| inputs.same_shape(0, index))
}

fn finite(op: &'static str, what: &str, value: f32) -> Result<()> {
    if !value.is_finite() {
        return Err(Error::argument(op, format!("{what} {value} must be finite")));
    }
    Ok(())
}

/// The size of the arena: all of its operands have it.
fn elements(inputs: &[Meta]) -> u64 {
    inputs.first().map_or(0, |meta| meta.shape.elements() as u64)
}
