//! Many elements to one.

use super::Tensor;
use crate::error::Result;
use crate::op::{Reduce, Reducer};
use crate::shape::Axes;

impl Tensor {
    pub fn reduce(&self, reducer: Reducer, axes: &[usize], keep: bool) -> Result<Self> {
        self.context.run_one(Reduce { reducer, axes: Axes::new(axes)?, keep }, &[self])
    }

    /// The sum of all elements, a scalar.
    pub fn sum(&self) -> Result<Self> {
        let axes = Axes::all(self.shape().rank());
        self.context.run_one(Reduce { reducer: Reducer::Sum, axes, keep: false }, &[self])
    }
}
