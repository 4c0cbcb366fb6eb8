//! LeNet-5 as it is trained today: rectifiers, maxima, a linear layer at the end.

use super::layer::{Builder, Conv, Linear, Network, Pass, halve};
use crate::error::Result;
use crate::op::{Conv2d, Unary};
use crate::tensor::Tensor;

pub(super) struct LeNet {
    convolutions: [Conv; 2],
    linear: [Linear; 3],
}

impl LeNet {
    pub(super) fn declare(builder: &mut Builder) -> Self {
        Self {
            convolutions: [
                builder.conv("0", [6, 1, 5], Conv2d::default(), true),
                builder.conv("3", [16, 6, 5], Conv2d::default(), true),
            ],
            linear: [builder.linear("7", 256, 120), builder.linear("9", 120, 84), builder.linear("11", 84, 10)],
        }
    }
}

impl Network for LeNet {
    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = x.clone();
        for conv in &self.convolutions {
            // A maximum of rectified values is the rectified maximum: a quarter of the work.
            x = halve(&conv.forward(&x, pass)?)?.relu()?;
        }
        let x = x.reshape(&[x.shape()[0], 256])?;
        let x = self.linear[0].forward(&x, Some(Unary::Relu), pass)?;
        let x = self.linear[1].forward(&x, Some(Unary::Relu), pass)?;
        self.linear[2].forward(&x, None, pass)
    }
}
