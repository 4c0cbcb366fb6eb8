//! Gradients, and writing in place, which is never recorded.

use super::Tensor;
use crate::Result;
use crate::host::kernels;

impl Tensor {
    /// Adds to the gradient of every weight that this loss descends from, and ends the recording that led to it.
    pub fn backward(&self) -> Result<()> {
        kernels::backward(self.raw())
    }

    /// The same tensor, through which no gradient flows.
    pub fn detach(&self) -> Result<Self> {
        kernels::detach(self.raw()).map(Self::from)
    }

    /// The gradient of a weight, if a [`Self::backward`] has reached it since the step began.
    pub fn gradient(&self) -> Result<Option<Self>> {
        Ok(kernels::gradient(self.raw())?.map(Self::from))
    }

    /// Overwrites this with `x`, broadcast.
    pub fn assign(&self, x: &Self) -> Result<()> {
        kernels::assign(self.raw(), x.raw())
    }

    /// Adds `scale * x` to this.
    pub fn accumulate(&self, x: &Self, scale: f32) -> Result<()> {
        kernels::accumulate(self.raw(), x.raw(), scale)
    }

    /// Goes `amount` of the way to `x`.
    pub fn blend(&self, x: &Self, amount: f32) -> Result<()> {
        kernels::blend(self.raw(), x.raw(), amount)
    }
}
