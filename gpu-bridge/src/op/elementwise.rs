//! Element by element: functions of one and of two tensors, choices, and conversions.

use smallvec::smallvec;

use super::{Fill, Inputs, Meta, Outputs, Saves, Spec};
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::Shape;
use crate::tape::Backward;

mod binary;
mod unary;

pub use binary::{Binary, BinaryGradient, Compare, Comparison, Side};
pub use unary::{Unary, UnaryGradient, UnaryGradientFromOutput};

/// `condition (u8), a, b`, broadcast: `a` where the condition is not 0, else `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select;

impl Spec for Select {
    fn name(&self) -> &'static str {
        "select"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, a, _] = inputs.exactly()?;
        inputs.typed(0, DType::U8)?;
        inputs.typed(2, a.dtype)?;
        Ok(smallvec![Meta::new(inputs.broadcast()?, a.dtype)])
    }

    fn strided(&self) -> bool {
        true
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::inputs(1)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        let condition = backward.input(0)?;
        let zero = backward.run(Fill { shape: Shape::SCALAR, dtype: DType::F32, value: 0.0 }, &[])?;
        backward.emit_reduced(1, Self, &[&condition, &dy, &zero])?;
        backward.emit_reduced(2, Self, &[&condition, &zero, &dy])
    }
}

/// `x` as another type. What has a fraction is truncated to become an integer, what is out of range becomes the
/// nearest that is not, and NaN becomes 0. Between `f32` and `f16` the gradient passes as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast(pub DType);

impl Spec for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        Ok(smallvec![Meta::new(x.shape, self.0)])
    }

    fn strided(&self) -> bool {
        true
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        backward.pass(0, dy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::cpu::Cpu;
    use crate::{Context, Crew, Limits};

    fn context() -> Context {
        Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default())
    }

    #[test]
    fn the_gradient_passes_through_f16() {
        let x = context().tensor(&[2], &[0.1_f32, 2.0]).unwrap().parameter(None).unwrap();
        let half = x.cast(DType::F16).unwrap();
        half.cast(DType::F32).unwrap().affine(3.0, 0.0).unwrap().sum().unwrap().backward().unwrap();
        assert_eq!(x.gradient().unwrap().to_vec::<f32>().unwrap(), [3.0, 3.0]);
    }

    #[test]
    fn integers_cut_the_gradient() {
        let x = context().tensor(&[2], &[0.1_f32, 2.0]).unwrap().parameter(None).unwrap();
        let whole = x.cast(DType::I32).unwrap().cast(DType::F32).unwrap();
        assert!(whole.sum().unwrap().backward().is_err());
    }
}
