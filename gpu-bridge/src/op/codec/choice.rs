//! Which elements are worth sending.

use smallvec::smallvec;

use super::super::{Inputs, Meta, Outputs, Spec};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;

/// `x`: the `count` elements that are largest in size, `[count]`, and their indices (u32), counted row after row: in the
/// order of their indices. Of equals those with the lower indices are taken; NaN counts as larger than all others, and
/// one NaN as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Largest {
    pub count: usize,
}

/// The size of an element as a number to compare: the same for all NaN.
#[inline(always)]
pub(crate) fn size(x: f32) -> u32 {
    const NAN: u32 = 0x7f80_0001;
    (x.to_bits() & 0x7fff_ffff).min(NAN)
}

impl Spec for Largest {
    fn name(&self) -> &'static str {
        "largest"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        countable(inputs)?;
        if self.count > x.shape.elements() {
            return Err(Error::argument(inputs.op, format!("the {} largest of {:?}", self.count, x.shape)));
        }
        let shape = Shape::new(&[self.count])?;
        Ok(smallvec![Meta::f32(shape), Meta::new(shape, DType::U32)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.iter().map(|x| 16 * x.shape.elements() as u64).sum()
    }
}

/// `changes, weights`: the changes that are at least `threshold` times as large as their weight, in size, and zeros in
/// place of the others; and how many they are (u32, one element). A change of zero is never one of them, any other of a
/// weight of zero is; so is a NaN, and whatever belongs to a weight that is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Significant {
    pub threshold: f32,
}

impl Significant {
    /// Whether a change is worth sending.
    #[inline(always)]
    pub(crate) fn keeps(self, change: f32, weight: f32) -> bool {
        // What is not negative compares as its bits do, and NaN is above all.
        let (change, least) = (size(change), (self.threshold * weight.abs()).to_bits());
        (change != 0) & ((change >= least) | weight.is_nan())
    }
}

impl Spec for Significant {
    fn name(&self) -> &'static str {
        "significant"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [changes, _] = inputs.exactly()?;
        inputs.all_f32()?;
        inputs.same_shape(0, 1)?;
        countable(inputs)?;
        if !(self.threshold.is_finite() && self.threshold > 0.0) {
            let reason = format!("threshold {} must be finite and above 0", self.threshold);
            return Err(Error::argument(inputs.op, reason));
        }
        Ok(smallvec![*changes, Meta::new(Shape::new(&[1])?, DType::U32)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.first().map_or(0, |changes| 4 * changes.shape.elements() as u64)
    }
}

/// Refuses a first input whose elements an index cannot name.
fn countable(inputs: Inputs<'_>) -> Result<()> {
    match inputs.metas.first() {
        Some(x) if u32::try_from(x.shape.elements()).is_err() => {
            let reason = format!("`{}`: {:?} has more elements than a u32 can count", inputs.op, x.shape);
            Err(Error::TooLarge { reason })
        }
        _ => Ok(()),
    }
}
