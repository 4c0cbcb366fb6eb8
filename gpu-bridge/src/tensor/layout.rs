//! The same elements elsewhere.

use super::Tensor;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::op::{
    Concat, Copy, Expand, GatherRows, OneHot, Pad, Permute, Resampling, Reshape, Resize, ScatterAddRows, Slice, TopK,
};
use crate::shape::{MAX_RANK, Shape};

impl Tensor {
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        self.context.run_one(Reshape(Shape::new(shape)?), &[self])
    }

    /// Axes of size 1, and axes that are not there, repeated to fill a shape.
    pub fn expand(&self, shape: &[usize]) -> Result<Self> {
        self.context.run_one(Expand(Shape::new(shape)?), &[self])
    }

    /// Axis `i` of the result is axis `order[i]` of this one.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        self.context.run_one(Permute::new(order)?, &[self])
    }

    /// The last two axes swapped.
    pub fn transposed(&self) -> Result<Self> {
        let rank = self.shape().rank();
        if rank < 2 {
            return Err(Error::shape("transposed", format!("{:?} has fewer than two axes", self.shape())));
        }
        let mut order: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        order.swap(rank - 2, rank - 1);
        self.permute(&order[..rank])
    }

    /// Per axis, every `steps`-th element from `starts` on, `sizes` of them. A view.
    pub fn slice(&self, starts: &[usize], sizes: &[usize], steps: &[usize]) -> Result<Self> {
        let slice = Slice { starts: Shape::new(starts)?, sizes: Shape::new(sizes)?, steps: Shape::new(steps)? };
        self.context.run_one(slice, &[self])
    }

    /// `size` elements of one axis from `start` on. A view.
    pub fn narrow(&self, axis: usize, start: usize, size: usize) -> Result<Self> {
        let rank = self.shape().rank();
        let starts = Shape::new(&[0; MAX_RANK][..rank])?.with(axis, start)?;
        let steps = Shape::new(&[1; MAX_RANK][..rank])?;
        self.context.run_one(Slice { starts, sizes: self.shape().with(axis, size)?, steps }, &[self])
    }

    /// The elements in memory of their own, row after row.
    pub fn copy(&self) -> Result<Self> {
        self.context.run_one(Copy, &[self])
    }

    /// This tensor if its elements lie row after row, else a copy.
    pub fn contiguous(&self) -> Result<Self> {
        if self.layout().is_contiguous() { Ok(self.clone()) } else { self.copy() }
    }

    /// With `before` and `after` elements of `value` around it, per axis.
    pub fn pad(&self, before: &[usize], after: &[usize], value: f32) -> Result<Self> {
        let steps = Shape::new(&[1; MAX_RANK][..self.shape().rank()])?;
        let pad = Pad { before: Shape::new(before)?, after: Shape::new(after)?, steps, value };
        self.context.run_one(pad, &[self])
    }

    /// Rows of this table by index: `[n, ...]` and an index `[m...]` give `[m..., ...]`.
    pub fn gather_rows(&self, index: &Self) -> Result<Self> {
        self.context.run_one(GatherRows, &[self, index])
    }

    /// The rows of this table that belong to some tokens: [`Self::gather_rows`] by its other name.
    pub fn embedding(&self, tokens: &Self) -> Result<Self> {
        self.gather_rows(tokens)
    }

    /// Zeros of `count` rows with these rows added, each at its index: `[m..., ...]` and an index `[m...]` give
    /// `[count, ...]`.
    pub fn scatter_add_rows(&self, index: &Self, count: usize) -> Result<Self> {
        self.context.run_one(ScatterAddRows { count }, &[self, index])
    }

    /// Classes to rows of 0 with a 1 at the class.
    pub fn one_hot(&self, classes: usize) -> Result<Self> {
        self.context.run_one(OneHot { classes }, &[self])
    }

    /// The `count` largest of the last axis, largest first, and their indices (u32).
    pub fn top_k(&self, count: usize) -> Result<(Self, Self)> {
        let mut results = self.context.run(TopK { count }, &[self])?.into_iter();
        match (results.next(), results.next()) {
            (Some(values), Some(indices)) => Ok((values, indices)),
            _ => Err(Error::Internal { op: "top-k", reason: "it has two results".into() }),
        }
    }

    /// Images `[n, c, h, w]` at another size.
    pub fn resize(&self, mode: Resampling, height: usize, width: usize) -> Result<Self> {
        self.context.run_one(Resize { mode, height, width }, &[self])
    }
}

impl Context {
    /// Tensors of one type joined along an axis.
    pub fn concat(&self, tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
        // Here already, before anything is made of each of them.
        Concat::check_count(tensors.len())?;
        self.run_one(Concat { axis }, tensors)
    }
}
