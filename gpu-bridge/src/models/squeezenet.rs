//! SqueezeNet 1.1: fire modules, which squeeze the channels and then expand them in two ways at once.

use super::layer::{Builder, Conv, Network, Pass, concat_channels, halve_overlapping, mean_of_places};
use crate::error::Result;
use crate::op::Conv2d;
use crate::tensor::Tensor;

/// Place in PyTorch's sequence, channels in, squeezed to, expanded to by each way, and whether the image is halved first.
const PLAN: [(usize, usize, usize, usize, bool); 8] = [
    (3, 64, 16, 64, true),
    (4, 128, 16, 64, false),
    (6, 128, 32, 128, true),
    (7, 256, 32, 128, false),
    (9, 256, 48, 192, true),
    (10, 384, 48, 192, false),
    (11, 384, 64, 256, false),
    (12, 512, 64, 256, false),
];

pub(super) struct SqueezeNet {
    stem: Conv,
    fires: Vec<Fire>,
    last: Conv,
}

struct Fire {
    halved: bool,
    squeeze: Conv,
    /// Of 1x1 and of 3x3.
    expand: [Conv; 2],
}

impl Fire {
    fn declare(builder: &mut Builder, (place, from, squeezed, to, halved): (usize, usize, usize, usize, bool)) -> Self {
        let mut conv = |name: &str, sizes: [usize; 3]| {
            builder.conv(&format!("features.{place}.{name}"), sizes, Conv2d::padded(sizes[2] / 2), true)
        };
        Self {
            halved,
            squeeze: conv("squeeze", [squeezed, from, 1]),
            expand: [conv("expand1x1", [to, squeezed, 1]), conv("expand3x3", [to, squeezed, 3])],
        }
    }

    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let squeezed = if self.halved {
            self.squeeze.forward(&halve_overlapping(x)?, pass)?
        } else {
            self.squeeze.forward(x, pass)?
        };
        let squeezed = squeezed.relu()?;
        let [small, large] = &self.expand;
        concat_channels(&small.forward(&squeezed, pass)?, &large.forward(&squeezed, pass)?)?.relu()
    }
}

impl SqueezeNet {
    pub(super) fn declare(builder: &mut Builder) -> Self {
        Self {
            stem: builder.conv("features.0", [64, 3, 3], Conv2d::strided(2, 0), true),
            fires: PLAN.map(|plan| Fire::declare(builder, plan)).into(),
            last: builder.conv("classifier.1", [10, 512, 1], Conv2d::default(), true),
        }
    }
}

impl Network for SqueezeNet {
    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = self.stem.forward(x, pass)?.relu()?;
        for fire in &self.fires {
            x = fire.forward(&x, pass)?;
        }
        let x = pass.dropout(&x, 0.5)?;
        mean_of_places(&self.last.forward(&x, pass)?.relu()?)
    }
}
