//! Each row of the last axis normalized by its own mean and variance, times `weight` plus `bias`:
//! `y = (x - mean) / sqrt(variance + epsilon) * weight + bias`. At first they are 1 and 0.
//!
//! ```
//! use weft_sdk::nn::LayerNorm;
//! use weft_sdk::{Path, Tensor};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let norm = LayerNorm::new(&Path::root(), 2)?;
//! let y = norm.forward(&Tensor::new(&[1.0, 3.0], &[1, 2])?)?.to_vec::<f32>()?;
//! assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
//! # Ok(())
//! # }
//! ```

use super::{Layer, Mode};
use crate::model::Initial;
use crate::{Path, Result, Tensor};

/// See the [module](self).
#[derive(Debug)]
pub struct LayerNorm {
    pub weight: Tensor,
    pub bias: Tensor,
    epsilon: f32,
}

impl LayerNorm {
    pub fn new(path: &Path, width: u32) -> Result<Self> {
        Ok(Self {
            weight: path.weight("weight", &[width], Initial::Constant(1.0))?,
            bias: path.weight("bias", &[width], Initial::Constant(0.0))?,
            epsilon: 1e-5,
        })
    }

    pub fn epsilon(self, epsilon: f32) -> Self {
        Self { epsilon, ..self }
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(&self.weight, &self.bias, self.epsilon)
    }
}

impl Layer for LayerNorm {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}
