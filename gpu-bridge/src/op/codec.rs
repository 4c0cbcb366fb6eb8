//! What workers exchange in fewer bytes: the steps of [`crate::codec`] that go over every element, and that no other
//! operations put together would do in one pass. None has a gradient. Here: halves, and sums at some places. In the
//! files beside: elements as levels of their bucket ([`levels`]), and which elements are worth sending ([`choice`]).

use smallvec::smallvec;

pub(crate) mod choice;
pub(crate) mod levels;

pub use choice::{Largest, Significant};
pub use levels::{Dequantize, Quantize};

use super::{Inputs, Meta, Outputs, Spec};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// `x`: the nearest f16. What is finite stays finite: beyond the largest f16 (65504) it becomes that, with its sign.
/// Infinities and NaN stay what they are, so that whoever looks for them finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CastSaturating;

impl Spec for CastSaturating {
    fn name(&self) -> &'static str {
        "cast-saturating"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        Ok(smallvec![Meta::new(x.shape, DType::F16)])
    }
}

/// `sum, values [k], indices u32 [k]`: `sum[indices[i]] += scale * values[i]`, the elements of `sum` counted row after
/// row. The indices must rise, each above the one before: so no element is written twice, and nothing is a matter of
/// order. If they do not, `sum` holds anything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddAt {
    pub scale: f32,
}

impl AddAt {
    /// What is wrong with the index at a place, `{index}` and `{count}` still to be filled in.
    pub(crate) const NOT_RISING: &'static str =
        "indices must rise and be below {count}, the number of elements: the one at place {index} does not";
}

impl Spec for AddAt {
    fn name(&self) -> &'static str {
        "add-at"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, _, _] = inputs.exactly()?;
        inputs.typed(0, DType::F32)?;
        inputs.typed(1, DType::F32)?;
        inputs.typed(2, DType::U32)?;
        inputs.ranked(1, 1)?;
        inputs.same_shape(1, 2)?;
        if !self.scale.is_finite() {
            return Err(Error::argument(inputs.op, format!("scale {} must be finite", self.scale)));
        }
        Ok(smallvec![])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.get(1).map_or(0, |values| 2 * values.shape.elements() as u64)
    }

    fn writes(&self) -> usize {
        1
    }
}
