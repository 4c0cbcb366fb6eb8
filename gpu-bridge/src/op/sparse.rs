//! Sparse rows (CSR), and the two steps of k-means.
//!
//! A matrix of `m` sparse rows is three tensors: `offsets u32 [m + 1]`, `columns u32 [e]` and `values f32 [e]`. The stored
//! values of row `i` are those from `offsets[i]` to `offsets[i + 1]`; a column may come more than once in a row, and then
//! counts as their sum. Whether offsets and columns make sense is only known when an operation runs: if not, it is an
//! error then, and nothing is read or written out of bounds.

use smallvec::smallvec;

use super::{Inputs, Meta, Op, Outputs, Saves, Spec};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{MAX_RANK, Shape};
use crate::tape::Backward;

mod kmeans;

pub use kmeans::{KMeansAccumulate, KMeansAssign};

/// `offsets, columns, values, x [k] or [k, n]`: the sparse `[m, k]` times `x`, `[m]` or `[m, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsrMatMul;

impl Spec for CsrMatMul {
    fn name(&self) -> &'static str {
        "csr-matmul"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [.., x] = inputs.exactly::<4>()?;
        let rows = matrix(inputs)?;
        dense(inputs, 3, None)?;
        Ok(smallvec![Meta::f32(with_first(&x.shape, rows)?)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        product_flops(inputs, 3)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, wanted: u32) -> Saves {
        product_saves(wanted)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let other = CsrTransposedMatMul { columns: backward.input_shape(3)[0] };
        product_gradient(backward, other, false)
    }
}

/// `offsets, columns, values, r [m] or [m, n]`: the transpose of the sparse `[m, columns]` times `r`, `[columns]` or
/// `[columns, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsrTransposedMatMul {
    pub columns: usize,
}

impl Spec for CsrTransposedMatMul {
    fn name(&self) -> &'static str {
        "csr-transposed-matmul"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [.., r] = inputs.exactly::<4>()?;
        let rows = matrix(inputs)?;
        dense(inputs, 3, Some(rows))?;
        Ok(smallvec![Meta::f32(with_first(&r.shape, self.columns)?)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        product_flops(inputs, 3)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, wanted: u32) -> Saves {
        product_saves(wanted)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        product_gradient(backward, CsrMatMul, true)
    }
}

/// `offsets, columns, x [k] or [k, n], dy [m] or [m, n]`: the gradient of the stored values, `[e]`: for each the product
/// of its row of `dy` and its column's row of `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsrValuesGradient;

impl Spec for CsrValuesGradient {
    fn name(&self) -> &'static str {
        "csr-values-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, columns, x, dy] = inputs.exactly()?;
        let rows = rows(inputs)?;
        dense(inputs, 2, None)?;
        dense(inputs, 3, Some(rows))?;
        if x.shape[1..] != dy.shape[1..] {
            return Err(Error::mismatch(inputs.op, "the dense operands differ past their rows", &x.shape, &dy.shape));
        }
        Ok(smallvec![Meta::f32(columns.shape)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        product_flops(inputs, 2)
    }
}

/// Refuses offsets and columns that cannot be a matrix, and says how many rows it has.
fn rows(inputs: Inputs<'_>) -> Result<usize> {
    for index in 0..2 {
        inputs.typed(index, DType::U32)?;
        inputs.ranked(index, 1)?;
    }
    match inputs.metas[0].shape[0].checked_sub(1) {
        Some(rows) => Ok(rows),
        None => Err(Error::shape(inputs.op, "input 0, the offsets, is empty; there is one more than there are rows")),
    }
}

/// Refuses offsets, columns and values that cannot be a matrix, and says how many rows it has.
fn matrix(inputs: Inputs<'_>) -> Result<usize> {
    let rows = rows(inputs)?;
    inputs.typed(2, DType::F32)?;
    inputs.shaped(2, &inputs.metas[1].shape)?;
    Ok(rows)
}

/// Refuses a dense operand that is neither a vector nor a matrix, or has another number of rows.
fn dense(inputs: Inputs<'_>, index: usize, rows: Option<usize>) -> Result<()> {
    inputs.typed(index, DType::F32)?;
    let shape = &inputs.metas[index].shape;
    if !matches!(shape.rank(), 1 | 2) {
        return Err(Error::shape(inputs.op, format!("input {index} is {shape:?}, it must have one or two axes")));
    }
    match rows {
        Some(rows) if shape[0] != rows => {
            Err(Error::shape(inputs.op, format!("input {index} is {shape:?}, there are {rows} sparse rows")))
        }
        _ => Ok(()),
    }
}

/// A vector or matrix of another length.
fn with_first(shape: &Shape, size: usize) -> Result<Shape> {
    let mut sizes = [0; MAX_RANK];
    sizes[..shape.rank()].copy_from_slice(shape);
    sizes[0] = size;
    Shape::new(&sizes[..shape.rank()])
}

/// Two for each stored value and each column of the dense operand.
fn product_flops(inputs: &[Meta], dense: usize) -> u64 {
    let stored = inputs.get(1).map_or(0, |columns| columns.shape.elements() as u64);
    let wide = inputs.get(dense).map_or(1, |dense| if dense.shape.rank() == 2 { dense.shape[1] as u64 } else { 1 });
    stored.saturating_mul(wide).saturating_mul(2)
}

/// The gradient of the values needs the dense operand, and that of the dense operand the values.
fn product_saves(wanted: u32) -> Saves {
    let values = if wanted & 0b1000 != 0 { 0b0100 } else { 0 };
    let dense = if wanted & 0b0100 != 0 { 0b1000 } else { 0 };
    Saves::inputs(0b0011 | values | dense)
}

/// Passes on what comes back to a product, or to a `transposed` one: to the dense operand through the same matrix the
/// `other` way.
fn product_gradient(backward: &mut Backward<'_>, other: impl Into<Op>, transposed: bool) -> Result<()> {
    let (dy, offsets, columns) = (backward.gradient(0)?, backward.input(0)?, backward.input(1)?);
    if backward.wants(2) {
        let dense = backward.input(3)?;
        let (by_column, by_row) = if transposed { (&dy, &dense) } else { (&dense, &dy) };
        backward.emit(2, CsrValuesGradient, &[&offsets, &columns, by_column, by_row])?;
    }
    if backward.wants(3) {
        let values = backward.input(2)?;
        backward.emit(3, other, &[&offsets, &columns, &values, &dy])?;
    }
    Ok(())
}
