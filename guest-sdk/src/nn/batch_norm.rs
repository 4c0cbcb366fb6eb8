//! Each channel of `[n, c, ...]` normalized over the batch: `y = (x - mean) / sqrt(variance + epsilon) * weight + bias`.
//!
//! In training mean and variance are the batch's own, and the buffers `running_mean` and `running_var` follow them by
//! the momentum; in evaluation they are the running ones. Parameters are `weight`, 1 at first, and `bias`, 0.
//!
//! ```
//! use weft_sdk::nn::{BatchNorm, Mode};
//! use weft_sdk::{Path, Tensor};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let norm = BatchNorm::new(&Path::root(), 1)?;
//! let x = Tensor::new(&[1.0, 3.0], &[2, 1])?;
//! let y = norm.forward(&x, Mode::Training)?.to_vec::<f32>()?;
//! assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
//! assert!((norm.running_mean.item()? - 0.2).abs() < 1e-6);
//! # Ok(())
//! # }
//! ```

use super::{Activation, Layer, Mode};
use crate::model::Initial;
use crate::{Path, Result, Tensor};

/// A batch normalization before it is declared.
#[derive(Clone, Debug)]
pub struct BatchNormConfig {
    channels: u32,
    epsilon: f32,
    momentum: f32,
    activation: Option<Activation>,
}

impl BatchNormConfig {
    pub fn new(channels: u32) -> Self {
        Self { channels, epsilon: 1e-5, momentum: 0.1, activation: None }
    }

    pub fn epsilon(self, epsilon: f32) -> Self {
        Self { epsilon, ..self }
    }

    /// How far the running statistics go towards those of each batch.
    pub fn momentum(self, momentum: f32) -> Self {
        Self { momentum, ..self }
    }

    /// Computed on the way out: `Relu`, `Relu6` or `HardSwish`.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation: Some(activation), ..self }
    }

    pub fn init(self, path: &Path) -> Result<BatchNorm> {
        let channels = [self.channels];
        Ok(BatchNorm {
            weight: path.weight("weight", &channels, Initial::Constant(1.0))?,
            bias: path.weight("bias", &channels, Initial::Constant(0.0))?,
            running_mean: path.buffer("running_mean", &channels, Initial::Constant(0.0))?,
            running_variance: path.buffer("running_var", &channels, Initial::Constant(1.0))?,
            config: self,
        })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct BatchNorm {
    pub weight: Tensor,
    pub bias: Tensor,
    pub running_mean: Tensor,
    pub running_variance: Tensor,
    config: BatchNormConfig,
}

impl BatchNorm {
    pub fn new(path: &Path, channels: u32) -> Result<Self> {
        BatchNormConfig::new(channels).init(path)
    }

    pub fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let parameters = [&self.weight, &self.bias];
        let running = [&self.running_mean, &self.running_variance];
        let BatchNormConfig { epsilon, momentum, activation, .. } = self.config;
        match mode {
            Mode::Training => x.batch_norm(parameters, running, momentum, epsilon, activation),
            Mode::Evaluation => x.batch_norm_inference(parameters, running, epsilon, activation),
        }
    }
}

impl Layer for BatchNorm {
    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        self.forward(x, mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluation_goes_by_the_running_statistics_and_leaves_them() {
        let norm = BatchNormConfig::new(1).momentum(1.0).activation(Activation::Relu).init(&Path::root()).unwrap();
        let x = Tensor::new(&[0.0, 4.0], &[2, 1]).unwrap();
        norm.forward(&x, Mode::Training).unwrap();
        // The running variance follows the unbiased one.
        assert_eq!(norm.running_mean.item(), Ok(2.0));
        assert_eq!(norm.running_variance.item(), Ok(8.0));
        let y = norm.forward(&Tensor::new(&[-9.0, 2.0 + 8.0_f32.sqrt()], &[2, 1]).unwrap(), Mode::Evaluation).unwrap();
        let y = y.to_vec::<f32>().unwrap();
        assert!(y[0] == 0.0 && (y[1] - 1.0).abs() < 1e-4, "{y:?}");
        assert_eq!(norm.running_mean.item(), Ok(2.0));
    }
}
