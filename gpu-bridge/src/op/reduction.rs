//! Many elements to one: sums, means and extremes over any axes.

use smallvec::smallvec;

use super::{Inputs, Meta, Outputs, Spec};
use crate::error::{Error, Result};
use crate::shape::{Axes, MAX_RANK, Shape};

/// How elements are folded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reducer {
    Sum,
}

/// `x` over some axes, which stay with size 1 if `keep`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduce {
    pub reducer: Reducer,
    pub axes: Axes,
    pub keep: bool,
}

/// The shape that is left when some axes are folded.
pub(super) fn reduced_shape(op: &'static str, shape: &Shape, axes: Axes, keep: bool) -> Result<Shape> {
    if axes.rank() > shape.rank() {
        return Err(Error::shape(op, format!("{shape:?} has no axis {}", axes.rank() - 1)));
    }
    let mut sizes = [0; MAX_RANK];
    let mut rank = 0;
    for (axis, &size) in shape.iter().enumerate() {
        if !axes.contains(axis) || keep {
            sizes[rank] = if axes.contains(axis) { 1 } else { size };
            rank += 1;
        }
    }
    Shape::new(&sizes[..rank])
}

impl Spec for Reduce {
    fn name(&self) -> &'static str {
        match self.reducer {
            Reducer::Sum => "sum",
        }
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        Ok(smallvec![Meta::f32(reduced_shape(inputs.op, &x.shape, self.axes, self.keep)?)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.iter().map(|input| input.shape.elements() as u64).sum()
    }
}
