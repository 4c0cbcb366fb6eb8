//! The same elements elsewhere.

use super::Tensor;
use crate::error::{Error, Result};
use crate::op::{Expand, Permute, Reshape};
use crate::shape::Shape;

impl Tensor {
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        self.context.run_one(Reshape(Shape::new(shape)?), &[self])
    }

    pub fn expand(&self, shape: &[usize]) -> Result<Self> {
        self.context.run_one(Expand(Shape::new(shape)?), &[self])
    }

    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        self.context.run_one(Permute::new(order)?, &[self])
    }

    /// The last two axes swapped.
    pub fn transposed(&self) -> Result<Self> {
        let rank = self.shape().rank();
        if rank < 2 {
            return Err(Error::shape("transposed", format!("{:?} has fewer than two axes", self.shape())));
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        self.permute(&order)
    }
}
