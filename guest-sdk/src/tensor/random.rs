//! Made from nothing. Random numbers follow from the run's seed, its step, and how many draws the call made before.

use super::{Tensor, TensorType};
use crate::Result;
use crate::host::kernels;

impl Tensor {
    /// `count` numbers (u32) from 0 on.
    pub fn indices(count: u32) -> Result<Self> {
        Self::iota(TensorType::U32, count, 0, 1)
    }

    /// `start`, `start + step`, …
    pub fn iota(ty: TensorType, count: u32, start: i32, step: i32) -> Result<Self> {
        kernels::iota(ty, count, start, step).map(Self::from)
    }

    /// f32, uniform in `[low, high)`.
    pub fn uniform(dimensions: &[u32], low: f32, high: f32) -> Result<Self> {
        kernels::uniform(dimensions, low, high).map(Self::from)
    }

    /// f32, normal with this mean and standard deviation.
    pub fn normal(dimensions: &[u32], mean: f32, deviation: f32) -> Result<Self> {
        kernels::normal(dimensions, mean, deviation).map(Self::from)
    }

    /// Each element 0 with this probability, and what stays scaled up to make up for it.
    pub fn dropout(&self, rate: f32) -> Result<Self> {
        kernels::dropout(self.raw(), rate).map(Self::from)
    }
}
