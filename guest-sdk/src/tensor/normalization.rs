//! Softmax, and normalizations. The layers in [`nn`](crate::nn) hold the scales, shifts and running statistics.

use super::{Tensor, UnaryOp};
use crate::Result;
use crate::host::kernels;

impl Tensor {
    /// `e^x` over the sum of them, along the last axis.
    pub fn softmax(&self) -> Result<Self> {
        kernels::softmax(self.raw()).map(Self::from)
    }

    /// The logarithm of [`Self::softmax`].
    pub fn log_softmax(&self) -> Result<Self> {
        kernels::log_softmax(self.raw()).map(Self::from)
    }

    /// [`Self::softmax`] of the places where `mask` (u8, broadcast) is not 0; the others are 0.
    pub fn masked_softmax(&self, mask: &Self) -> Result<Self> {
        kernels::masked_softmax(self.raw(), mask.raw()).map(Self::from)
    }

    /// `[n, c, ...]` with each channel normalized by the batch's own mean and variance, which the running ones follow by
    /// `momentum`; times `scale [c]` plus `shift [c]`; then the activation (relu, relu6 or hard-swish).
    pub fn batch_norm(
        &self,
        [scale, shift]: [&Self; 2],
        [running_mean, running_variance]: [&Self; 2],
        momentum: f32,
        epsilon: f32,
        activation: Option<UnaryOp>,
    ) -> Result<Self> {
        let (mean, variance) = (running_mean.raw(), running_variance.raw());
        kernels::batch_norm(self.raw(), scale.raw(), shift.raw(), mean, variance, momentum, epsilon, activation)
            .map(Self::from)
    }

    /// [`Self::batch_norm`] with a mean and variance that are known.
    pub fn batch_norm_inference(
        &self,
        [scale, shift]: [&Self; 2],
        [mean, variance]: [&Self; 2],
        epsilon: f32,
        activation: Option<UnaryOp>,
    ) -> Result<Self> {
        let (mean, variance) = (mean.raw(), variance.raw());
        kernels::batch_norm_inference(self.raw(), scale.raw(), shift.raw(), mean, variance, epsilon, activation)
            .map(Self::from)
    }

    /// Each row of the last axis normalized by its own mean and variance, times `scale` plus `shift`.
    pub fn layer_norm(&self, scale: &Self, shift: &Self, epsilon: f32) -> Result<Self> {
        kernels::layer_norm(self.raw(), scale.raw(), shift.raw(), epsilon).map(Self::from)
    }

    /// `x / (k + alpha / size * s) ^ beta`, `s` the sum of squares over `size` channels of `[n, c, ...]`.
    pub fn local_response_norm(&self, size: u32, alpha: f32, beta: f32, k: f32) -> Result<Self> {
        kernels::local_response_norm(self.raw(), size, alpha, beta, k).map(Self::from)
    }
}
