//! Linear layers alone: logistic regression and a multi-layer perceptron.

use super::layer::{Builder, Linear, Network, Pass};
use crate::error::Result;
use crate::op::Unary;
use crate::tensor::Tensor;

const FEATURES: usize = 28;

pub(super) struct LogReg(Linear);

impl LogReg {
    pub(super) fn declare(builder: &mut Builder) -> Self {
        Self(builder.linear("", FEATURES, 1))
    }
}

impl Network for LogReg {
    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        self.0.forward(x, None, pass)
    }
}

const WIDTHS: [usize; 6] = [20, 100, 100, 100, 100, 100];

pub(super) struct Mlp {
    hidden: Vec<Linear>,
    last: Linear,
}

impl Mlp {
    pub(super) fn declare(builder: &mut Builder) -> Self {
        let hidden: Vec<Linear> = WIDTHS
            .windows(2)
            .enumerate()
            // PyTorch counts the activations between them too.
            .map(|(index, widths)| builder.linear(&format!("{}", 2 * index), widths[0], widths[1]))
            .collect();
        Self { last: builder.linear(&format!("{}", 2 * hidden.len()), WIDTHS[WIDTHS.len() - 1], 1), hidden }
    }
}

impl Network for Mlp {
    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in &self.hidden {
            x = layer.forward(&x, Some(Unary::Relu), pass)?;
        }
        self.last.forward(&x, None, pass)
    }
}
