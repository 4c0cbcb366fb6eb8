//! Layers one after the other.
//!
//! Each has been declared where its name says; a sequence has no name of its own.
//!
//! ```
//! use weft_sdk::nn::{Activation, Dropout, Linear, Mode, Sequential};
//! use weft_sdk::{Path, Tensor};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let path = Path::root();
//! let net = Sequential::new()
//!     .then(Linear::new(&path.at(0), 3, 8)?)
//!     .then(Activation::Tanh)
//!     .then(Dropout(0.1))
//!     .then(Linear::new(&path.at(3), 8, 2)?);
//! assert_eq!(net.forward(&Tensor::ones(&[5, 3])?, Mode::Training)?.dimensions(), [5, 2]);
//! # Ok(())
//! # }
//! ```

use super::{Layer, Mode};
use crate::{Result, Tensor};

/// See the [module](self).
#[derive(Default)]
pub struct Sequential(Vec<Box<dyn Layer>>);

impl Sequential {
    pub fn new() -> Self {
        Self::default()
    }

    /// With another layer at the end.
    pub fn then(mut self, layer: impl Layer + 'static) -> Self {
        self.0.push(Box::new(layer));
        self
    }

    pub fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        self.0.iter().try_fold(x.clone(), |x, layer| layer.forward(&x, mode))
    }
}

impl Layer for Sequential {
    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        self.forward(x, mode)
    }
}
