//! Tensors of counts and random numbers, and random numbers applied to tensors.

use super::Tensor;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Dropout, Iota, Normal, Stream, Uniform};
use crate::shape::Shape;

impl Tensor {
    /// Each element kept with probability `1 - rate` and scaled by its inverse, else 0.
    pub fn dropout(&self, rate: f32, stream: Stream) -> Result<Self> {
        self.context.run_one(Dropout { rate, stream }, &[self])
    }
}

impl Context {
    /// `start, start + step, ...`: `count` of them.
    pub fn iota(&self, count: usize, dtype: DType, start: i32, step: i32) -> Result<Tensor> {
        self.run_one(Iota { count, dtype, start, step }, &[])
    }

    /// f32, uniform in `[low, high)`.
    pub fn uniform(&self, shape: &[usize], low: f32, high: f32, stream: Stream) -> Result<Tensor> {
        self.run_one(Uniform { shape: Shape::new(shape)?, low, high, stream }, &[])
    }

    /// f32, normal with this mean and standard deviation.
    pub fn normal(&self, shape: &[usize], mean: f32, deviation: f32, stream: Stream) -> Result<Tensor> {
        self.run_one(Normal { shape: Shape::new(shape)?, mean, deviation, stream }, &[])
    }
}
