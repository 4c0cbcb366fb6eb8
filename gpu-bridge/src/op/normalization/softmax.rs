//! Rows to probabilities.

use smallvec::smallvec;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Inputs, Meta, Outputs, Saves, Spec};
use crate::tape::Backward;

/// Checks the first input: it must have rows.
fn check_rows(inputs: &Inputs<'_>) -> Result<Meta> {
    inputs.typed(0, DType::F32)?;
    match inputs.metas[0] {
        x if x.shape.rank() == 0 => Err(Error::shape(inputs.op, "input 0 is a scalar, it must have a last axis")),
        x => Ok(x),
    }
}

/// Checks what a function of rows takes: `x`.
fn infer_rows(inputs: &Inputs<'_>) -> Result<Outputs> {
    let [_] = inputs.exactly()?;
    Ok(smallvec![check_rows(inputs)?])
}

/// Checks `x, mask`.
fn infer_masked(inputs: &Inputs<'_>) -> Result<Outputs> {
    let [_, mask] = inputs.exactly()?;
    let x = check_rows(inputs)?;
    inputs.typed(1, DType::U8)?;
    if mask.shape.broadcast(&x.shape) != Some(x.shape) {
        return Err(Error::mismatch(inputs.op, "the mask does not expand", &mask.shape, &x.shape));
    }
    Ok(smallvec![x])
}

/// Checks what a gradient takes: `y, dy`.
fn infer_gradient(inputs: &Inputs<'_>) -> Result<Outputs> {
    let [y, _] = inputs.exactly()?;
    inputs.all_f32()?;
    check_rows(inputs)?;
    inputs.same_shape(0, 1)?;
    Ok(smallvec![*y])
}

fn work(each: u64, outputs: &[Meta]) -> u64 {
    each * outputs.first().map_or(0, |y| y.shape.elements() as u64)
}

/// A function of rows: its gradient is another operation, of the result and of the gradient that comes back.
macro_rules! function_of_rows {
    ($op:ident, $name:literal, $gradient:ident, $flops:literal each, $infer:expr) => {
        impl Spec for $op {
            fn name(&self) -> &'static str {
                $name
            }

            fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
                $infer(&inputs)
            }

            fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
                work($flops, outputs)
            }

            fn differentiable(&self) -> bool {
                true
            }

            fn saves(&self, _: u32) -> Saves {
                Saves::outputs(1)
            }

            fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
                let (y, dy) = (backward.output(0)?, backward.gradient(0)?);
                backward.emit(0, $gradient, &[&y, &dy])
            }
        }
    };
}

macro_rules! gradient_of_rows {
    ($op:ident, $name:literal, $flops:literal each) => {
        impl Spec for $op {
            fn name(&self) -> &'static str {
                $name
            }

            fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
                infer_gradient(&inputs)
            }

            fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
                work($flops, outputs)
            }
        }
    };
}

/// `x [..., n]`, over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax;

function_of_rows!(Softmax, "softmax", SoftmaxGradient, 16 each, infer_rows);

/// `x [..., n], mask (u8, broadcast to x)`: where the mask is 0 the result is 0, whatever `x` is there; a row with no
/// place left is all 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedSoftmax;

function_of_rows!(MaskedSoftmax, "masked-softmax", SoftmaxGradient, 17 each, infer_masked);

/// `y, dy`: the gradient of [`Softmax`] and [`MaskedSoftmax`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftmaxGradient;

gradient_of_rows!(SoftmaxGradient, "softmax-gradient", 4 each);

/// `x [..., n]`: the logarithm of [`Softmax`], without its loss of small values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSoftmax;

function_of_rows!(LogSoftmax, "log-softmax", LogSoftmaxGradient, 16 each, infer_rows);

/// `y, dy`: the gradient of [`LogSoftmax`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSoftmaxGradient;

gradient_of_rows!(LogSoftmaxGradient, "log-softmax-gradient", 15 each);
