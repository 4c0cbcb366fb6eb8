//! Normalization of batches, layers, neighbours and rows.

use super::Tensor;
use crate::error::{Error, Result};
use crate::op::{
    BatchNorm, BatchNormInference, LayerNorm, LocalResponseNorm, LogSoftmax, MaskedSoftmax, Softmax, Unary,
};

impl Tensor {
    /// Over the last axis.
    pub fn softmax(&self) -> Result<Self> {
        self.context.run_one(Softmax, &[self])
    }

    /// The logarithm of [`Self::softmax`].
    pub fn log_softmax(&self) -> Result<Self> {
        self.context.run_one(LogSoftmax, &[self])
    }

    /// [`Self::softmax`] of the places where `mask` (u8, broadcast) is not 0; the others are 0.
    pub fn masked_softmax(&self, mask: &Self) -> Result<Self> {
        self.context.run_one(MaskedSoftmax, &[self, mask])
    }

    /// `[n, c, ...]` with each channel normalized by its own mean and variance over the batch, times `scale [c]` plus
    /// `shift [c]`, then the activation (relu, relu6 or hard-swish). Gives also that mean and (biased) variance, cut off
    /// from the tape.
    pub fn batch_norm(
        &self,
        scale: &Self,
        shift: &Self,
        epsilon: f32,
        activation: Option<Unary>,
    ) -> Result<(Self, Self, Self)> {
        let results = self.context.run(BatchNorm { epsilon, activation }, &[self, scale, shift])?;
        match results.as_slice() {
            [y, mean, variance] => Ok((y.clone(), mean.detach(), variance.detach())),
            _ => Err(Error::Internal { op: "batch-norm", reason: "it gives three results".into() }),
        }
    }

    /// Like [`Self::batch_norm`] with a mean and variance that are known.
    pub fn batch_norm_inference(
        &self,
        [scale, shift]: [&Self; 2],
        [mean, variance]: [&Self; 2],
        epsilon: f32,
        activation: Option<Unary>,
    ) -> Result<Self> {
        let inputs = [self, scale, shift, mean, variance];
        self.context.run_one(BatchNormInference { epsilon, activation }, &inputs)
    }

    /// Each row of the last axis normalized by its own mean and variance, times `scale` plus `shift`.
    pub fn layer_norm(&self, scale: &Self, shift: &Self, epsilon: f32) -> Result<Self> {
        self.context.run_one(LayerNorm { epsilon }, &[self, scale, shift])
    }

    /// `x / (k + alpha / size * s) ^ beta`, `s` the sum of squares over `size` channels of `[n, c, ...]`.
    pub fn local_response_norm(&self, size: usize, alpha: f32, beta: f32, k: f32) -> Result<Self> {
        self.context.run_one(LocalResponseNorm { size, alpha, beta, k }, &[self])
    }
}
