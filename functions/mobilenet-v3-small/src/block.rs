//! The inverted residual: few channels, expanded to many, seen each on its own, weighed, and projected to few again.

use weft_sdk::model::Initial;
use weft_sdk::nn::{Activation, BatchNorm, BatchNormConfig, Conv2d, Conv2dConfig, Linear, LinearConfig, Mode};
use weft_sdk::{Path, Result, Tensor};

/// One inverted residual.
pub struct Plan {
    pub from: u32,
    pub expanded: u32,
    pub to: u32,
    pub kernel: u32,
    pub stride: u32,
    pub squeezed: bool,
    pub activation: Activation,
}

/// A convolution, its normalization, and an activation.
pub struct Normalized(Conv2d, BatchNorm);

impl Normalized {
    /// `channels`: in and out. The image keeps its size, but for the stride.
    pub fn new(
        path: &Path,
        channels: [u32; 2],
        kernel: u32,
        stride: u32,
        groups: u32,
        activation: Option<Activation>,
    ) -> Result<Self> {
        let [from, to] = channels;
        let config = Conv2dConfig::new(from, to, kernel).stride(stride).padding(kernel / 2).groups(groups);
        // What torchvision divides by is the kernel's first axis, whatever the groups.
        let weights = Initial::he_normal(config.fan_out());
        let convolution = config.without_bias().initial(weights, Initial::Constant(0.0)).init(&path.at(0))?;
        let norm = BatchNormConfig::new(to).epsilon(1e-3).momentum(0.01);
        let norm = match activation {
            Some(activation) => norm.activation(activation),
            None => norm,
        };
        Ok(Self(convolution, norm.init(&path.at(1))?))
    }

    pub fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        self.1.forward(&self.0.forward(x)?, mode)
    }
}

/// Weighs each channel by what all of them are on average.
struct Squeeze([Linear; 2]);

impl Squeeze {
    fn new(path: &Path, channels: u32) -> Result<Self> {
        let squeezed = to_multiple_of_eight(channels / 4);
        let linear = |inputs: u32, outputs: u32, activation| {
            let config = LinearConfig::new(inputs, outputs).activation(activation);
            config.initial(Initial::he_normal(outputs), Initial::Constant(0.0))
        };
        Ok(Self([
            linear(channels, squeezed, Activation::Relu).init(&path.at("fc1"))?,
            linear(squeezed, channels, Activation::HardSigmoid).init(&path.at("fc2"))?,
        ]))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [first, second] = &self.0;
        let weights = second.forward(&first.forward(&x.mean_of_places()?)?)?;
        x.mul(&weights.reshape(&[x.size(0), x.size(1), 1, 1])?)
    }
}

pub struct Block {
    expand: Option<Normalized>,
    depthwise: Normalized,
    squeeze: Option<Squeeze>,
    project: Normalized,
    residual: bool,
}

impl Block {
    pub fn new(path: &Path, plan: &Plan) -> Result<Self> {
        let &Plan { from, expanded, to, kernel, stride, squeezed, activation } = plan;
        let mut parts = (0..).map(|part| path.at(part));
        let mut next = || parts.next().unwrap_or_default();
        let expand = if expanded == from {
            None
        } else {
            Some(Normalized::new(&next(), [from, expanded], 1, 1, 1, Some(activation))?)
        };
        let depthwise = Normalized::new(&next(), [expanded, expanded], kernel, stride, expanded, Some(activation))?;
        let squeeze = if squeezed { Some(Squeeze::new(&next(), expanded)?) } else { None };
        let project = Normalized::new(&next(), [expanded, to], 1, 1, 1, None)?;
        Ok(Self { expand, depthwise, squeeze, project, residual: stride == 1 && from == to })
    }

    pub fn forward(&self, input: &Tensor, mode: Mode) -> Result<Tensor> {
        let mut x = input.clone();
        if let Some(expand) = &self.expand {
            x = expand.forward(&x, mode)?;
        }
        x = self.depthwise.forward(&x, mode)?;
        if let Some(squeeze) = &self.squeeze {
            x = squeeze.forward(&x)?;
        }
        x = self.project.forward(&x, mode)?;
        if self.residual { x.add(input) } else { Ok(x) }
    }
}

/// The nearest multiple, unless that is below nine tenths.
fn to_multiple_of_eight(channels: u32) -> u32 {
    let nearest = ((channels + 4) / 8 * 8).max(8);
    if 10 * nearest < 9 * channels { nearest + 8 } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_rounded_but_not_by_more_than_a_tenth() {
        assert_eq!([4, 16, 24, 60, 72, 144].map(to_multiple_of_eight), [8, 16, 24, 64, 72, 144]);
        assert_eq!(to_multiple_of_eight(11), 16);
    }
}
