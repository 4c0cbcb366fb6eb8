//! Convolution of images: `x [n, in, h, w]` with kernels `[out, in / groups, kh, kw]` and a bias `[out]`: parameters
//! `weight` and `bias`, both uniform within `1 / sqrt(in / groups * kh * kw)` at first.
//!
//! ```
//! use weft_sdk::nn::{Conv2d, Conv2dConfig};
//! use weft_sdk::{Path, Tensor};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let path = Path::root();
//! let x = Tensor::ones(&[2, 4, 8, 8])?;
//! let plain = Conv2d::new(&path.at("plain"), 4, 6, 3)?;
//! assert_eq!(plain.forward(&x)?.dimensions(), [2, 6, 6, 6]);
//! let depthwise = Conv2dConfig::new(4, 4, 3).stride(2).padding(1).groups(4).without_bias().init(&path.at("apart"))?;
//! assert_eq!(depthwise.forward(&x)?.dimensions(), [2, 4, 4, 4]);
//! # Ok(())
//! # }
//! ```

use super::{Layer, Mode};
use crate::model::Initial;
use crate::tensor::Convolution;
use crate::{Path, Result, Tensor};

/// A convolution before it is declared.
#[derive(Clone, Debug)]
pub struct Conv2dConfig {
    inputs: u32,
    outputs: u32,
    kernel: (u32, u32),
    how: Convolution,
    bias: bool,
    /// Of weights and biases, if others than usual.
    initial: Option<(Initial, Initial)>,
}

impl Conv2dConfig {
    /// With a square kernel.
    pub fn new(inputs: u32, outputs: u32, kernel: u32) -> Self {
        let how = Convolution::default();
        Self { inputs, outputs, kernel: (kernel, kernel), how, bias: true, initial: None }
    }

    /// Another kernel: down and across.
    pub fn kernel(self, down: u32, across: u32) -> Self {
        Self { kernel: (down, across), ..self }
    }

    pub fn stride(mut self, stride: u32) -> Self {
        self.how.stride = (stride, stride);
        self
    }

    /// Zeros on each side.
    pub fn padding(mut self, padding: u32) -> Self {
        self.how.padding = (padding, padding);
        self
    }

    pub fn dilation(mut self, dilation: u32) -> Self {
        self.how.dilation = (dilation, dilation);
        self
    }

    /// Each group of output channels sees its own group of input channels only.
    pub fn groups(mut self, groups: u32) -> Self {
        self.how.groups = groups;
        self
    }

    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    /// Other first values.
    pub fn initial(self, weights: Initial, biases: Initial) -> Self {
        Self { initial: Some((weights, biases)), ..self }
    }

    /// How many numbers of its input an output is made of.
    pub fn fan_in(&self) -> u32 {
        self.inputs / self.how.groups.max(1) * self.kernel.0 * self.kernel.1
    }

    /// How many outputs a number of the input goes into.
    pub fn fan_out(&self) -> u32 {
        self.outputs * self.kernel.0 * self.kernel.1
    }

    pub fn init(self, path: &Path) -> Result<Conv2d> {
        let usual = Initial::of_fan_in(self.fan_in());
        let (weights, biases) = self.initial.unwrap_or((usual, usual));
        let dimensions = [self.outputs, self.inputs / self.how.groups.max(1), self.kernel.0, self.kernel.1];
        Ok(Conv2d {
            weight: path.weight("weight", &dimensions, weights)?,
            bias: if self.bias { Some(path.weight("bias", &[self.outputs], biases)?) } else { None },
            how: self.how,
        })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Conv2d {
    pub weight: Tensor,
    pub bias: Option<Tensor>,
    how: Convolution,
}

impl Conv2d {
    /// With a square kernel that moves by one, without padding.
    pub fn new(path: &Path, inputs: u32, outputs: u32, kernel: u32) -> Result<Self> {
        Conv2dConfig::new(inputs, outputs, kernel).init(path)
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.conv2d(&self.weight, self.bias.as_ref(), self.how)
    }
}

impl Layer for Conv2d {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fans_count_what_a_group_sees() {
        let config = Conv2dConfig::new(8, 16, 3).groups(4);
        assert_eq!((config.fan_in(), config.fan_out()), (18, 144));
    }
}
