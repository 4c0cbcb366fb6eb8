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

/// `x [..., n]`, over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax;

impl Spec for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_] = inputs.exactly()?;
        Ok(smallvec![check_rows(&inputs)?])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        work(16, outputs)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::outputs(1)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (y, dy) = (backward.output(0)?, backward.gradient(0)?);
        backward.emit(0, SoftmaxGradient, &[&y, &dy])
    }
}

/// `x [..., n], mask (u8, broadcast to x)`: where the mask is 0 the result is 0, whatever `x` is there; a row with no
/// place left is all 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedSoftmax;

impl Spec for MaskedSoftmax {
    fn name(&self) -> &'static str {
        "masked-softmax"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, mask] = inputs.exactly()?;
        let x = check_rows(&inputs)?;
        inputs.typed(1, DType::U8)?;
        if mask.shape.broadcast(&x.shape) != Some(x.shape) {
            return Err(Error::mismatch(inputs.op, "the mask does not expand", &mask.shape, &x.shape));
        }
        Ok(smallvec![x])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        work(17, outputs)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::outputs(1)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (y, dy) = (backward.output(0)?, backward.gradient(0)?);
        backward.emit(0, SoftmaxGradient, &[&y, &dy])
    }
}

/// `y, dy`: the gradient of [`Softmax`] and [`MaskedSoftmax`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftmaxGradient;

impl Spec for SoftmaxGradient {
    fn name(&self) -> &'static str {
        "softmax-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        infer_gradient(&inputs)
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        work(4, outputs)
    }
}

/// `x [..., n]`: the logarithm of [`Softmax`], without its loss of small values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSoftmax;

impl Spec for LogSoftmax {
    fn name(&self) -> &'static str {
        "log-softmax"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_] = inputs.exactly()?;
        Ok(smallvec![check_rows(&inputs)?])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        work(16, outputs)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::outputs(1)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (y, dy) = (backward.output(0)?, backward.gradient(0)?);
        backward.emit(0, LogSoftmaxGradient, &[&y, &dy])
    }
}

/// `y, dy`: the gradient of [`LogSoftmax`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSoftmaxGradient;

impl Spec for LogSoftmaxGradient {
    fn name(&self) -> &'static str {
        "log-softmax-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        infer_gradient(&inputs)
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        work(15, outputs)
    }
}
