//! Whole arenas at once: what training itself does to all parameters in one call.

use smallvec::smallvec;

use super::{Inputs, Outputs, Spec};
use crate::error::{Error, Result};

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
        let [_, _] = inputs.exactly()?;
        inputs.all_f32()?;
        inputs.same_shape(0, 1)?;
        Ok(smallvec![])
    }

    fn writes(&self) -> usize {
        1
    }
}
