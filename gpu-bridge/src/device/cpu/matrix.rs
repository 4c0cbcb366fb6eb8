//! Products of matrices.

use super::elementwise::activate;
use super::gemm::{self, Matrix, Sizes};
use super::memory::{Input, Output};
use crate::error::Result;
use crate::op::{Linear, MatMul};
use crate::run::{Parts, Run};
use crate::shape::Layout;

pub(super) fn matmul(op: &MatMul, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (a, b) = (inputs[0].floats()?, inputs[1].floats()?);
    let (a_layout, b_layout, shape) = (inputs[0].layout, inputs[1].layout, outputs[0].layout.shape);
    let rank = shape.rank();
    let sizes = Sizes { m: shape[rank - 2], n: shape[rank - 1], k: a_layout.shape.from_end(0) };
    let each = sizes.m * sizes.n;
    let c = outputs[0].floats()?;
    if each == 0 || c.is_empty() {
        return Ok(());
    }
    let batch = c.len() / each;
    let a_batch = Batch::new(a_layout, &shape);
    let b_batch = Batch::new(b_layout, &shape);
    let a_at =
        |index: usize| Matrix::new(&a[a_batch.offset(index).min(a.len())..], stride(a_layout, 1), stride(a_layout, 0));
    let b_at =
        |index: usize| Matrix::new(&b[b_batch.offset(index).min(b.len())..], stride(b_layout, 1), stride(b_layout, 0));
    if batch == 1 {
        return gemm::multiply(sizes, a_at(0), b_at(0), c, op.scale, run, |_, _, _| {});
    }
    let together = gemm::products_per_tile(sizes);
    if together == 1 && (batch < 8 || gemm::is_large(sizes)) {
        for (index, c) in c.chunks_exact_mut(each).enumerate() {
            gemm::multiply(sizes, a_at(index), b_at(index), c, op.scale, run, |_, _, _| {})?;
        }
        return Ok(());
    }
    let parts = Parts::new(c);
    run.paced_with(batch.div_ceil(together), sizes.scratch(a_at(0)), |pace, tile, scratch| {
        for index in tile * together..batch.min((tile + 1) * together) {
            // SAFETY: every product has its own part.
            let c = unsafe { parts.part(index * each..(index + 1) * each) };
            gemm::multiply_alone(sizes, a_at(index), b_at(index), c, op.scale, scratch, pace)?;
        }
        Ok(())
    })
}

fn stride(layout: &Layout, from_end: usize) -> usize {
    layout.strides()[layout.shape.rank() - 1 - from_end]
}

/// Where the matrices of a broadcast batch start.
struct Batch {
    layout: Layout,
}

impl Batch {
    /// `shape` is that of the result, whose last two axes are the matrix.
    fn new(layout: &Layout, shape: &crate::shape::Shape) -> Self {
        // Only strides of the batch axes are used; a matrix axis is never looked at.
        let rank = shape.rank();
        let mut target = *shape;
        for (axis, from_end) in [(rank - 2, 1), (rank - 1, 0)] {
            target = target.with(axis, layout.shape.from_end(from_end)).unwrap_or(target);
        }
        Self { layout: layout.expand(&target) }
    }

    fn offset(&self, index: usize) -> usize {
        let axes = self.layout.shape.rank() - 2;
        let mut rest = index;
        let mut offset = 0;
        for axis in (0..axes).rev() {
            offset += rest % self.layout.shape[axis] * self.layout.strides()[axis];
            rest /= self.layout.shape[axis];
        }
        offset
    }
}

pub(super) fn linear(op: &Linear, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (x, weight) = (inputs[0].floats()?, inputs[1].floats()?);
    let bias = inputs.get(2).map(Input::floats).transpose()?;
    let (n, k) = (inputs[1].layout.shape[0], inputs[1].layout.shape[1]);
    let sizes = Sizes { m: inputs[0].layout.shape.elements() / k.max(1), n, k };
    let sizes = if k == 0 { Sizes { m: outputs[0].layout.shape.elements() / n.max(1), ..sizes } } else { sizes };
    let add_bias = |columns: std::ops::Range<usize>, row: &mut [f32]| {
        if let Some(bias) = bias {
            row.iter_mut().zip(&bias[columns]).for_each(|(y, &b)| *y += b);
        }
    };
    let (x, weight) = (Matrix::new(x, k, 1), Matrix::new(weight, 1, k));
    let (y, rest) = outputs.split_at_mut(1);
    let y = y[0].floats()?;
    match (op.activation, rest.first_mut()) {
        (None, _) => gemm::multiply(sizes, x, weight, y, 1.0, run, |_, columns, row| add_bias(columns, row)),
        (Some(activation), None) => gemm::multiply(sizes, x, weight, y, 1.0, run, |_, columns, row| {
            add_bias(columns, row);
            activate(activation, row);
        }),
        (Some(activation), Some(before)) => {
            let before = before.floats()?;
            let activated = Parts::new(y);
            gemm::multiply(sizes, x, weight, before, 1.0, run, |index, columns, row| {
                add_bias(columns.clone(), row);
                // SAFETY: this piece of this row is this tile's alone.
                let y = unsafe { activated.part(index * n + columns.start..index * n + columns.end) };
                y.copy_from_slice(row);
                activate(activation, y);
            })
        }
    }
}
