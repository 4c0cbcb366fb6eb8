//! The largest elements.

use smallvec::smallvec;

use super::super::{Inputs, Meta, Outputs, Saves, Spec};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tape::Backward;

/// `x [..., n]`: the `count` largest of the last axis, largest first, and their indices (u32). NaN counts as largest;
/// of equals the one with the lower index comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK {
    pub count: usize,
}

impl Spec for TopK {
    fn name(&self) -> &'static str {
        "top-k"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        let [.., size] = *x.shape else {
            return Err(Error::shape(inputs.op, "input 0 is a scalar, it has no last axis"));
        };
        if self.count == 0 || self.count > size || u32::try_from(size).is_err() {
            let reason = format!("the {} largest of the last axis of {:?}", self.count, x.shape);
            return Err(Error::argument(inputs.op, reason));
        }
        let shape = x.shape.with(x.shape.rank() - 1, self.count)?;
        Ok(smallvec![Meta::f32(shape), Meta::new(shape, DType::U32)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.iter().map(|x| x.shape.elements() as u64).sum()
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::outputs(0b10)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (dy, indices) = (backward.gradient(0)?, backward.output(1)?);
        let size = backward.input_shape(0).from_end(0);
        backward.emit(0, TopKGradient { size }, &[&dy, &indices])
    }
}

/// `dy [..., k], indices u32 [..., k]`: zeros `[..., size]`, with each element of `dy` added at its index of the last
/// axis, in order. The gradient of [`TopK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopKGradient {
    pub size: usize,
}

impl Spec for TopKGradient {
    fn name(&self) -> &'static str {
        "top-k-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [dy, _] = inputs.exactly()?;
        inputs.typed(0, DType::F32)?;
        inputs.typed(1, DType::U32)?;
        inputs.same_shape(0, 1)?;
        if dy.shape.rank() == 0 {
            return Err(Error::shape(inputs.op, "input 0 is a scalar, it has no last axis"));
        }
        Ok(smallvec![Meta::f32(dy.shape.with(dy.shape.rank() - 1, self.size)?)])
    }
}
