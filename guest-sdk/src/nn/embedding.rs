//! A table with a row for each token: `weight [count, width]`, normal at first. Tokens `[...]` become `[..., width]`.
//!
//! ```
//! use weft_sdk::nn::Embedding;
//! use weft_sdk::{Path, Tensor};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let words = Embedding::new(&Path::root(), 10, 4)?;
//! let tokens = Tensor::new(&[3_u32, 1, 3], &[1, 3])?;
//! assert_eq!(words.forward(&tokens)?.dimensions(), [1, 3, 4]);
//! # Ok(())
//! # }
//! ```

use super::{Layer, Mode};
use crate::model::Initial;
use crate::tensor::TensorType;
use crate::{Path, Result, Tensor};

/// See the [module](self).
#[derive(Debug)]
pub struct Embedding {
    pub weight: Tensor,
}

impl Embedding {
    pub fn new(path: &Path, count: u32, width: u32) -> Result<Self> {
        Ok(Self { weight: path.weight("weight", &[count, width], Initial::deviating(1.0))? })
    }

    /// Tokens that come as numbers (f32), as the features of a data set do, are rounded down.
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        if tokens.ty() == TensorType::F32 {
            self.weight.embedding(&tokens.cast(TensorType::U32)?)
        } else {
            self.weight.embedding(tokens)
        }
    }
}

impl Layer for Embedding {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}
