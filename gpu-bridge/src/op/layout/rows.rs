//! Rows by index. Any type that can name rows will do for the index; one that is out of range is an error.

use smallvec::smallvec;

use super::super::{Inputs, Meta, Outputs, Saves, Spec};
use crate::error::{Error, Result};
use crate::shape::{MAX_RANK, Shape};
use crate::tape::Backward;

/// Two runs of axes, one after the other.
fn joined(op: &'static str, a: &[usize], b: &[usize]) -> Result<Shape> {
    let mut sizes = [0; MAX_RANK];
    let rank = a.len() + b.len();
    if rank > MAX_RANK {
        return Err(Error::shape(op, format!("{a:?} and {b:?} make {rank} axes, the most is {MAX_RANK}")));
    }
    sizes[..a.len()].copy_from_slice(a);
    sizes[a.len()..rank].copy_from_slice(b);
    Shape::new(&sizes[..rank])
}

/// `table [n, ...], index [m...]`: rows by index, `[m..., ...]`. An embedding is this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherRows;

impl Spec for GatherRows {
    fn name(&self) -> &'static str {
        "gather-rows"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [table, index] = inputs.exactly()?;
        inputs.indices(1)?;
        let [_, row @ ..] = &*table.shape else {
            return Err(Error::shape(inputs.op, "input 0 is a scalar, it has no rows"));
        };
        Ok(smallvec![Meta::new(joined(inputs.op, &index.shape, row)?, table.dtype)])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::inputs(0b10)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (dy, index) = (backward.gradient(0)?, backward.input(1)?);
        let count = backward.input_shape(0)[0];
        backward.emit(0, ScatterAddRows { count }, &[&dy, &index])
    }
}

/// `rows [m..., ...], index [m...]`: zeros of `count` rows, `[count, ...]`, with each row added at its index, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScatterAddRows {
    pub count: usize,
}

impl Spec for ScatterAddRows {
    fn name(&self) -> &'static str {
        "scatter-add-rows"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [rows, index] = inputs.exactly()?;
        inputs.typed(0, crate::dtype::DType::F32)?;
        inputs.indices(1)?;
        let Some(row) = rows.shape.strip_prefix(&*index.shape) else {
            return Err(Error::mismatch(inputs.op, "not one index per row", &rows.shape, &index.shape));
        };
        Ok(smallvec![Meta::f32(joined(inputs.op, &[self.count], row)?)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.first().map_or(0, |rows| rows.shape.elements() as u64)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::inputs(0b10)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (dy, index) = (backward.gradient(0)?, backward.input(1)?);
        backward.emit(0, GatherRows, &[&dy, &index])
    }
}

/// `index [...]` to `[..., classes]`, f32: 1 at the index, else 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneHot {
    pub classes: usize,
}

impl Spec for OneHot {
    fn name(&self) -> &'static str {
        "one-hot"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [index] = inputs.exactly()?;
        inputs.indices(0)?;
        if self.classes == 0 {
            return Err(Error::argument(inputs.op, "0 classes, it takes at least 1"));
        }
        Ok(smallvec![Meta::f32(joined(inputs.op, &index.shape, &[self.classes])?)])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }
}
