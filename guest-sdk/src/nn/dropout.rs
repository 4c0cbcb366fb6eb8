//! In training each number is 0 with a probability, and what stays is scaled up to make up for it. Otherwise nothing
//! happens, and with a rate of 0 nothing is drawn.
//!
//! ```
//! use weft_sdk::Tensor;
//! use weft_sdk::nn::{Dropout, Mode};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let x = Tensor::ones(&[100])?;
//! let y = Dropout(0.5).forward(&x, Mode::Training)?.to_vec::<f32>()?;
//! assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
//! assert_eq!(Dropout(0.5).forward(&x, Mode::Evaluation)?.to_vec::<f32>()?, [1.0; 100]);
//! # Ok(())
//! # }
//! ```

use super::{Layer, Mode};
use crate::{Result, Tensor};

/// Drops this share; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout(pub f32);

impl Dropout {
    pub fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        if mode == Mode::Training && self.0 > 0.0 { x.dropout(self.0) } else { Ok(x.clone()) }
    }
}

impl Layer for Dropout {
    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        self.forward(x, mode)
    }
}
