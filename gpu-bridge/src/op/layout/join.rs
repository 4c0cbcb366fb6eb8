//! Tensors put together: with constants around them, and with each other.

use smallvec::smallvec;

use super::super::{Inputs, Meta, Outputs, Spec};
use super::{Slice, spread};
use crate::error::{Error, Result};
use crate::shape::{MAX_RANK, Shape};
use crate::tape::Backward;

/// `x` with, per axis, `before` and `after` elements of `value` around it and `steps - 1` between its elements. The
/// value is cast to the type of `x`: truncated and saturating for integers, NaN as 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pad {
    pub before: Shape,
    pub after: Shape,
    pub steps: Shape,
    pub value: f32,
}

impl Spec for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        let Self { before, after, steps, .. } = self;
        let rank = x.shape.rank();
        if before.rank() != rank || after.rank() != rank || steps.rank() != rank || steps.contains(&0) {
            let reason = format!(
                "before {before:?}, after {after:?} and steps {steps:?} must have the axes of {:?}, steps at least 1",
                x.shape
            );
            return Err(Error::argument(inputs.op, reason));
        }
        let mut sizes = [0; MAX_RANK];
        for (axis, size) in sizes[..rank].iter_mut().enumerate() {
            *size = spread(x.shape[axis], steps[axis])
                .and_then(|used| used.checked_add(before[axis])?.checked_add(after[axis]))
                .ok_or_else(|| Error::too_large(format!("`{}`: axis {axis} of {:?}", inputs.op, x.shape)))?;
        }
        Ok(smallvec![Meta::new(Shape::new(&sizes[..rank])?, x.dtype)])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }

    fn strided(&self) -> bool {
        true
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        let sizes = backward.input_shape(0);
        backward.emit(0, Slice { starts: self.before, sizes, steps: self.steps }, &[&dy])
    }
}

/// The most tensors that [`Concat`] joins at once: what it takes per input, on the tape too, stays small.
pub const MAX_CONCAT: usize = 1_024;

/// Up to [`MAX_CONCAT`] tensors of one type, joined along an axis. Their other sizes are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concat {
    pub axis: usize,
}

impl Concat {
    /// Refuses more than [`MAX_CONCAT`] tensors.
    pub(crate) fn check_count(count: usize) -> Result<()> {
        if count <= MAX_CONCAT {
            return Ok(());
        }
        Err(Error::argument("concat", format!("{count} tensors, the most is {MAX_CONCAT} (limit `max_concat`)")))
    }
}

impl Spec for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [first, others @ ..] = inputs.metas else {
            return Err(inputs.wrong_count("at least 1"));
        };
        Self::check_count(inputs.metas.len())?;
        if self.axis >= first.shape.rank() {
            return Err(Error::shape(inputs.op, format!("{:?} has no axis {}", first.shape, self.axis)));
        }
        let mut size = first.shape[self.axis];
        for (index, other) in others.iter().enumerate() {
            inputs.typed(index + 1, first.dtype)?;
            if other.shape.rank() != first.shape.rank()
                || (0..first.shape.rank()).any(|axis| axis != self.axis && other.shape[axis] != first.shape[axis])
            {
                let what = format!("sizes differ beside axis {}", self.axis);
                return Err(Error::mismatch(inputs.op, &what, &first.shape, &other.shape));
            }
            size = size
                .checked_add(other.shape[self.axis])
                .ok_or_else(|| Error::too_large(format!("`{}`: axis {}", inputs.op, self.axis)))?;
        }
        Ok(smallvec![Meta::new(first.shape.with(self.axis, size)?, first.dtype)])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }

    fn strided(&self) -> bool {
        true
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        let rank = dy.shape().rank();
        let steps = Shape::new(&[1; MAX_RANK][..rank])?;
        let mut starts = [0; MAX_RANK];
        for input in 0..backward.inputs() {
            let sizes = backward.input_shape(input);
            backward.emit(input, Slice { starts: Shape::new(&starts[..rank])?, sizes, steps }, &[&dy])?;
            starts[self.axis] += sizes[self.axis];
        }
        Ok(())
    }
}
