//! MobileNetV3-Small: inverted residuals of depthwise convolutions, with squeeze-and-excitation.

use super::layer::{BatchNorm, Builder, Conv, Linear, Network, Pass, mean_of_places};
use crate::error::Result;
use crate::op::{Conv2d, Unary};
use crate::tensor::Tensor;

/// One inverted residual: channels in, expanded to, out; kernel, stride; whether it is squeezed; its activation.
struct Plan(usize, usize, usize, usize, usize, bool, Unary);

const PLAN: [Plan; 11] = [
    Plan(16, 16, 16, 3, 2, true, Unary::Relu),
    Plan(16, 72, 24, 3, 2, false, Unary::Relu),
    Plan(24, 88, 24, 3, 1, false, Unary::Relu),
    Plan(24, 96, 40, 5, 2, true, Unary::HardSwish),
    Plan(40, 240, 40, 5, 1, true, Unary::HardSwish),
    Plan(40, 240, 40, 5, 1, true, Unary::HardSwish),
    Plan(40, 120, 48, 5, 1, true, Unary::HardSwish),
    Plan(48, 144, 48, 5, 1, true, Unary::HardSwish),
    Plan(48, 288, 96, 5, 2, true, Unary::HardSwish),
    Plan(96, 576, 96, 5, 1, true, Unary::HardSwish),
    Plan(96, 576, 96, 5, 1, true, Unary::HardSwish),
];

const LAST_WIDTH: usize = 576;

pub(super) struct MobileNet {
    stem: Normalized,
    blocks: Vec<Block>,
    head: Normalized,
    classifier: [Linear; 2],
}

/// A convolution, its normalization, and an activation.
struct Normalized(Conv, BatchNorm, Option<Unary>);

impl Normalized {
    fn declare(builder: &mut Builder, path: &str, sizes: [usize; 3], conv: Conv2d, activation: Option<Unary>) -> Self {
        let convolution = builder.conv(&format!("{path}.0"), sizes, conv, false);
        Self(convolution, builder.batch_norm(&format!("{path}.1"), sizes[0], 1e-3, 0.01), activation)
    }

    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = self.0.forward(x, pass)?;
        self.1.forward(&x, self.2, pass)
    }
}

/// Weighs each channel by what all of them are on average.
struct Squeeze([Linear; 2]);

impl Squeeze {
    fn declare(builder: &mut Builder, path: &str, channels: usize) -> Self {
        let squeezed = to_multiple_of_eight(channels / 4);
        Self([
            builder.linear(&format!("{path}.fc1"), channels, squeezed),
            builder.linear(&format!("{path}.fc2"), squeezed, channels),
        ])
    }

    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let [first, second] = &self.0;
        let weights = first.forward(&mean_of_places(x)?, Some(Unary::Relu), pass)?;
        let weights = second.forward(&weights, Some(Unary::HardSigmoid), pass)?;
        x.mul(&weights.reshape(&[x.shape()[0], x.shape()[1], 1, 1])?)
    }
}

/// The nearest multiple, unless that is below nine tenths.
fn to_multiple_of_eight(channels: usize) -> usize {
    let nearest = ((channels + 4) / 8 * 8).max(8);
    if 10 * nearest < 9 * channels { nearest + 8 } else { nearest }
}

struct Block {
    expand: Option<Normalized>,
    depthwise: Normalized,
    squeeze: Option<Squeeze>,
    project: Normalized,
    residual: bool,
}

impl Block {
    fn declare(builder: &mut Builder, place: usize, plan: &Plan) -> Self {
        let &Plan(from, expanded, to, kernel, stride, squeezed, activation) = plan;
        let mut part = 0;
        let mut path = || {
            part += 1;
            format!("features.{place}.block.{}", part - 1)
        };
        let depthwise = Conv2d { groups: expanded, ..Conv2d::strided(stride, kernel / 2) };
        Self {
            expand: (expanded != from).then(|| {
                Normalized::declare(builder, &path(), [expanded, from, 1], Conv2d::default(), Some(activation))
            }),
            depthwise: Normalized::declare(builder, &path(), [expanded, expanded, kernel], depthwise, Some(activation)),
            squeeze: squeezed.then(|| Squeeze::declare(builder, &path(), expanded)),
            project: Normalized::declare(builder, &path(), [to, expanded, 1], Conv2d::default(), None),
            residual: stride == 1 && from == to,
        }
    }

    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = input.clone();
        if let Some(expand) = &self.expand {
            x = expand.forward(&x, pass)?;
        }
        x = self.depthwise.forward(&x, pass)?;
        if let Some(squeeze) = &self.squeeze {
            x = squeeze.forward(&x, pass)?;
        }
        x = self.project.forward(&x, pass)?;
        if self.residual { x.add(input) } else { Ok(x) }
    }
}

impl MobileNet {
    pub(super) fn declare(builder: &mut Builder) -> Self {
        let swish = Some(Unary::HardSwish);
        let stem = Normalized::declare(builder, "features.0", [16, 3, 3], Conv2d::strided(2, 1), swish);
        let blocks = PLAN.iter().enumerate().map(|(index, plan)| Block::declare(builder, index + 1, plan)).collect();
        let head = format!("features.{}", PLAN.len() + 1);
        Self {
            stem,
            blocks,
            head: Normalized::declare(builder, &head, [LAST_WIDTH, 96, 1], Conv2d::default(), swish),
            classifier: [builder.linear("classifier.0", LAST_WIDTH, 1024), builder.linear("classifier.3", 1024, 10)],
        }
    }
}

impl Network for MobileNet {
    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = self.stem.forward(x, pass)?;
        for block in &self.blocks {
            x = block.forward(&x, pass)?;
        }
        let x = mean_of_places(&self.head.forward(&x, pass)?)?;
        let x = self.classifier[0].forward(&x, Some(Unary::HardSwish), pass)?;
        let x = pass.dropout(&x, 0.2)?;
        self.classifier[1].forward(&x, None, pass)
    }
}
