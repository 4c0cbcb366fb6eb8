//! VGG-11 for 3x32x32: eight convolutions, halved five times, and one linear layer.

use super::layer::{Builder, Conv, Linear, Network, Pass, halve};
use crate::error::Result;
use crate::op::Conv2d;
use crate::tensor::Tensor;

/// Place in PyTorch's sequence, channels in and out, and whether the image is halved after it.
const PLAN: [(usize, usize, usize, bool); 8] = [
    (0, 3, 64, true),
    (3, 64, 128, true),
    (6, 128, 256, false),
    (8, 256, 256, true),
    (11, 256, 512, false),
    (13, 512, 512, true),
    (16, 512, 512, false),
    (18, 512, 512, true),
];

pub(super) struct Vgg {
    convolutions: Vec<(Conv, bool)>,
    last: Linear,
}

impl Vgg {
    pub(super) fn declare(builder: &mut Builder) -> Self {
        let mut layer = |(place, from, to, halved): (usize, usize, usize, bool)| {
            (builder.conv(&format!("0.{place}"), [to, from, 3], Conv2d::padded(1), true), halved)
        };
        let convolutions = PLAN.map(&mut layer).into();
        Self { convolutions, last: builder.linear("2", 512, 10) }
    }
}

impl Network for Vgg {
    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = x.clone();
        for (conv, halved) in &self.convolutions {
            x = conv.forward(&x, pass)?;
            // A maximum of rectified values is the rectified maximum: a quarter of the work.
            x = if *halved { halve(&x)?.relu()? } else { x.relu()? };
        }
        self.last.forward(&x.reshape(&[x.shape()[0], 512])?, None, pass)
    }
}
