//! Many elements to one.

use super::Tensor;
use crate::error::Result;
use crate::op::{ArgReduce, Extreme, Reduce, Reducer};
use crate::shape::Axes;

impl Tensor {
    /// Over some axes, which stay with size 1 if `keep`.
    pub fn reduce(&self, reducer: Reducer, axes: &[usize], keep: bool) -> Result<Self> {
        self.context.run_one(Reduce { reducer, axes: Axes::new(axes)?, keep }, &[self])
    }

    /// Over all axes, to a scalar.
    pub fn reduce_all(&self, reducer: Reducer) -> Result<Self> {
        let axes = Axes::all(self.shape().rank());
        self.context.run_one(Reduce { reducer, axes, keep: false }, &[self])
    }

    /// The sum of all elements, a scalar.
    pub fn sum(&self) -> Result<Self> {
        self.reduce_all(Reducer::Sum)
    }

    /// The mean of all elements, a scalar.
    pub fn mean(&self) -> Result<Self> {
        self.reduce_all(Reducer::Mean)
    }

    /// The index (u32) of the first largest along an axis. NaN counts as largest.
    pub fn arg_max(&self, axis: usize, keep: bool) -> Result<Self> {
        self.context.run_one(ArgReduce { extreme: Extreme::Max, axis, keep }, &[self])
    }

    /// The index (u32) of the first smallest along an axis. NaN counts as smallest.
    pub fn arg_min(&self, axis: usize, keep: bool) -> Result<Self> {
        self.context.run_one(ArgReduce { extreme: Extreme::Min, axis, keep }, &[self])
    }
}
