//! Activations: functions of one number that keep a stack of linear layers from being one linear layer.
//!
//! They are layers of their own, and some layers compute one on the way out for less: linear layers any of them, batch
//! normalization `Relu`, `Relu6` and `HardSwish`.
//!
//! ```
//! use weft_sdk::Tensor;
//! use weft_sdk::nn::{Activation, Layer, Mode};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let x = Tensor::new(&[-1.0, 2.0], &[2])?;
//! assert_eq!(Activation::Relu.forward(&x, Mode::Training)?.to_vec::<f32>()?, [0.0, 2.0]);
//! # Ok(())
//! # }
//! ```

use super::{Layer, Mode};
use crate::tensor::UnaryOp;
use crate::{Result, Tensor};

/// A function of one number: `Relu`, `Relu6`, `Gelu`, `Silu`, `Tanh`, `Sigmoid`, `HardSwish`, `HardSigmoid`, …
pub type Activation = UnaryOp;

impl Layer for Activation {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        x.unary(*self)
    }
}
