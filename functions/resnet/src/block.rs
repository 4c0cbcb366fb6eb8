//! What a residual network is made of: convolutions that are normalized, and blocks of them with a shortcut.

use weft_sdk::model::Initial;
use weft_sdk::nn::{Activation, BatchNorm, BatchNormConfig, Conv2d, Conv2dConfig, Mode};
use weft_sdk::{Path, Result, Tensor};

/// How much wider a bottleneck's output is than its middle.
const EXPANSION: u32 = 4;

/// A convolution and its normalization.
pub struct Normalized(Conv2d, BatchNorm);

impl Normalized {
    /// `channels`: in and out. The image keeps its size, but for the stride.
    pub fn new(
        [convolution, norm]: [&Path; 2],
        channels: [u32; 2],
        kernel: u32,
        stride: u32,
        rectified: bool,
    ) -> Result<Self> {
        let [from, to] = channels;
        let config = Conv2dConfig::new(from, to, kernel).stride(stride).padding(kernel / 2).without_bias();
        let weights = Initial::he_normal(config.fan_out());
        let convolution = config.initial(weights, Initial::Constant(0.0)).init(convolution)?;
        let config = BatchNormConfig::new(to);
        let config = if rectified { config.activation(Activation::Relu) } else { config };
        Ok(Self(convolution, config.init(norm)?))
    }

    pub fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        self.1.forward(&self.0.forward(x)?, mode)
    }
}

/// Convolutions, and the input added to what they give.
pub struct Block {
    convolutions: Vec<Normalized>,
    /// Brings the input to the shape of the output, where that is another.
    shortcut: Option<Normalized>,
    channels: u32,
}

impl Block {
    pub fn new(path: &Path, from: u32, width: u32, stride: u32, bottleneck: bool) -> Result<Self> {
        let channels = if bottleneck { EXPANSION * width } else { width };
        // Channels in and out, kernel, stride.
        let plan: &[([u32; 2], u32, u32)] = if bottleneck {
            &[([from, width], 1, 1), ([width, width], 3, stride), ([width, channels], 1, 1)]
        } else {
            &[([from, width], 3, stride), ([width, channels], 3, 1)]
        };
        let mut convolutions = Vec::new();
        for (index, &(channels, kernel, stride)) in plan.iter().enumerate() {
            let number = index + 1;
            let paths = [&path.at(format!("conv{number}")), &path.at(format!("bn{number}"))];
            // The last is rectified only after the input has been added.
            convolutions.push(Normalized::new(paths, channels, kernel, stride, number < plan.len())?);
        }
        let shortcut = if stride != 1 || from != channels {
            let path = path.at("downsample");
            Some(Normalized::new([&path.at(0), &path.at(1)], [from, channels], 1, stride, false)?)
        } else {
            None
        };
        Ok(Self { convolutions, shortcut, channels })
    }

    /// How many channels come out.
    pub fn channels(&self) -> u32 {
        self.channels
    }

    pub fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let inner = self.convolutions.iter().try_fold(x.clone(), |x, layer| layer.forward(&x, mode))?;
        match &self.shortcut {
            Some(shortcut) => inner.add(&shortcut.forward(x, mode)?)?.relu(),
            None => inner.add(x)?.relu(),
        }
    }
}
