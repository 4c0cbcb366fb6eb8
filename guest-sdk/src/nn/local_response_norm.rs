//! Each number damped by its neighbours in other channels: `y = x / (k + alpha / size * s) ^ beta`, where `s` sums the
//! squares of `size` channels around. No parameters.
//!
//! ```
//! use weft_sdk::Tensor;
//! use weft_sdk::nn::LocalResponseNorm;
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let norm = LocalResponseNorm { size: 1, alpha: 3.0, beta: 0.5, k: 1.0 };
//! assert_eq!(norm.forward(&Tensor::ones(&[1, 2, 1, 1])?)?.to_vec::<f32>()?, [0.5, 0.5]);
//! # Ok(())
//! # }
//! ```

use super::{Layer, Mode};
use crate::{Result, Tensor};

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNorm {
    /// How many channels count.
    pub size: u32,
    pub alpha: f32,
    pub beta: f32,
    pub k: f32,
}

impl LocalResponseNorm {
    /// With PyTorch's defaults for the rest.
    pub fn new(size: u32) -> Self {
        Self { size, alpha: 1e-4, beta: 0.75, k: 1.0 }
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.local_response_norm(self.size, self.alpha, self.beta, self.k)
    }
}

impl Layer for LocalResponseNorm {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}
