//! ResNet of basic blocks, for 3x32x32: a 3x3 stem instead of 7x7, and no pooling after it.

use super::layer::{BatchNorm, Builder, Conv, Linear, Network, Pass, mean_of_places};
use crate::error::Result;
use crate::op::{Conv2d, Unary};
use crate::tensor::Tensor;

const WIDTHS: [usize; 4] = [64, 128, 256, 512];

pub(super) struct ResNet {
    stem: Normalized,
    blocks: Vec<Block>,
    last: Linear,
}

/// A convolution and its normalization.
struct Normalized(Conv, BatchNorm);

impl Normalized {
    fn declare(builder: &mut Builder, conv: &str, norm: &str, sizes: [usize; 3], attributes: Conv2d) -> Self {
        let conv = builder.conv(conv, sizes, attributes, false);
        Self(conv, builder.batch_norm(norm, sizes[0], 1e-5, 0.1))
    }

    fn forward(&self, x: &Tensor, activation: Option<Unary>, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = self.0.forward(x, pass)?;
        self.1.forward(&x, activation, pass)
    }
}

/// Two convolutions, and the input added to what they give.
struct Block {
    first: Normalized,
    second: Normalized,
    /// Brings the input to the shape of the output, where that is another.
    shortcut: Option<Normalized>,
}

impl Block {
    fn declare(builder: &mut Builder, path: &str, from: usize, to: usize, stride: usize) -> Self {
        let mut part = |conv: &str, norm: &str, sizes: [usize; 3], attributes: Conv2d| {
            Normalized::declare(builder, &format!("{path}.{conv}"), &format!("{path}.{norm}"), sizes, attributes)
        };
        Self {
            first: part("conv1", "bn1", [to, from, 3], Conv2d::strided(stride, 1)),
            second: part("conv2", "bn2", [to, to, 3], Conv2d::padded(1)),
            shortcut: (stride != 1 || from != to)
                .then(|| part("downsample.0", "downsample.1", [to, from, 1], Conv2d::strided(stride, 0))),
        }
    }

    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let inner = self.first.forward(x, Some(Unary::Relu), pass)?;
        let inner = self.second.forward(&inner, None, pass)?;
        match &self.shortcut {
            Some(shortcut) => inner.add(&shortcut.forward(x, None, pass)?)?.relu(),
            None => inner.add(x)?.relu(),
        }
    }
}

impl ResNet {
    /// `depths`: how many blocks of each width.
    pub(super) fn declare(builder: &mut Builder, depths: [usize; 4]) -> Self {
        let stem = Normalized::declare(builder, "conv1", "bn1", [WIDTHS[0], 3, 3], Conv2d::padded(1));
        let mut blocks = Vec::new();
        let mut from = WIDTHS[0];
        for (stage, (&to, depth)) in WIDTHS.iter().zip(depths).enumerate() {
            for index in 0..depth {
                let stride = if stage > 0 && index == 0 { 2 } else { 1 };
                blocks.push(Block::declare(builder, &format!("layer{}.{index}", stage + 1), from, to, stride));
                from = to;
            }
        }
        Self { stem, blocks, last: builder.linear("fc", from, 10) }
    }
}

impl Network for ResNet {
    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = self.stem.forward(x, Some(Unary::Relu), pass)?;
        for block in &self.blocks {
            x = block.forward(&x, pass)?;
        }
        self.last.forward(&mean_of_places(&x)?, None, pass)
    }
}
