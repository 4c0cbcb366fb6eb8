//! `y = x W^T + b`, of `x [..., in]`, `W [out, in]` and `b [out]`: parameters `weight` and `bias`, both uniform within
//! `1 / sqrt(in)` at first.
//!
//! ```
//! use weft_sdk::nn::{Activation, Linear, LinearConfig};
//! use weft_sdk::{Path, Tensor};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let path = Path::root();
//! let hidden = LinearConfig::new(3, 8).activation(Activation::Relu).init(&path.at(0))?;
//! let last = Linear::new(&path.at(2), 8, 2)?;
//! let y = last.forward(&hidden.forward(&Tensor::ones(&[5, 3])?)?)?;
//! assert_eq!(y.dimensions(), [5, 2]);
//! # Ok(())
//! # }
//! ```

use super::{Activation, Layer, Mode};
use crate::model::Initial;
use crate::{Path, Result, Tensor};

/// A linear layer before it is declared.
#[derive(Clone, Debug)]
pub struct LinearConfig {
    inputs: u32,
    outputs: u32,
    bias: bool,
    activation: Option<Activation>,
    weights: Initial,
    biases: Initial,
}

impl LinearConfig {
    pub fn new(inputs: u32, outputs: u32) -> Self {
        let initial = Initial::of_fan_in(inputs);
        Self { inputs, outputs, bias: true, activation: None, weights: initial, biases: initial }
    }

    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    /// Computed on the way out.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation: Some(activation), ..self }
    }

    /// Other first values.
    pub fn initial(self, weights: Initial, biases: Initial) -> Self {
        Self { weights, biases, ..self }
    }

    pub fn init(self, path: &Path) -> Result<Linear> {
        Ok(Linear {
            weight: path.weight("weight", &[self.outputs, self.inputs], self.weights)?,
            bias: if self.bias { Some(path.weight("bias", &[self.outputs], self.biases)?) } else { None },
            activation: self.activation,
        })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Linear {
    pub weight: Tensor,
    pub bias: Option<Tensor>,
    activation: Option<Activation>,
}

impl Linear {
    pub fn new(path: &Path, inputs: u32, outputs: u32) -> Result<Self> {
        LinearConfig::new(inputs, outputs).init(path)
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, self.bias.as_ref(), self.activation)
    }
}

impl Layer for Linear {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}
