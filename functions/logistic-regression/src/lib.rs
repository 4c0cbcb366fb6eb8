//! Logistic regression: a linear layer and the cross entropy, of dense rows or sparse ones.
//!
//! `(features + 1) * outputs` parameters, where two classes share one output: 29 for the 28 features of HIGGS, on which
//! expect not much more than guessing, as classes there are not told apart by a line. The loss is convex: it has one
//! minimum, and every run ends near it.

use weft_sdk::data::{self, Features};
use weft_sdk::nn::{Linear, Mode};
use weft_sdk::optim::Sgd;
use weft_sdk::{Context, HyperParameters, Path, Result, Tensor, Trainer, loss};

#[derive(HyperParameters)]
struct Parameters {
    /// How many numbers a sample has.
    #[hyper(default = 28, low = 1)]
    features: u32,
    /// How many classes there are; two share one output.
    #[hyper(default = 2, low = 2)]
    classes: u32,
    /// How much of a step goes on in the direction of those before.
    #[hyper(default = 0.9, low = 0.0, high = 0.999)]
    momentum: f32,
    /// How far weights are pulled to zero.
    #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
    weight_decay: f32,
}

struct LogisticRegression {
    weight: Tensor,
    bias: Tensor,
    classes: u32,
}

/// Logistic regression of dense or sparse rows.
#[weft_sdk::trainer(convex)]
impl Trainer for LogisticRegression {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { features, classes, momentum, weight_decay } = parameters;
        Sgd { momentum, weight_decay, ..Sgd::default() }.declare()?;
        let Linear { weight, bias, .. } = Linear::new(path, features, if classes == 2 { 1 } else { classes })?;
        Ok(Self { weight, bias: bias.context("a linear layer has a bias")?, classes })
    }

    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        Features::Dense(x.clone()).linear(&self.weight, &self.bias)
    }

    fn output(&self, _: Mode) -> Result<Tensor> {
        data::any_features()?.linear(&self.weight, &self.bias)
    }

    fn loss(&self, output: &Tensor, labels: &Tensor) -> Result<Tensor> {
        if self.classes == 2 { loss::binary_cross_entropy(output, labels) } else { loss::cross_entropy(output, labels) }
    }
}
