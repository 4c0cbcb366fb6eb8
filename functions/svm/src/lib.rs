//! A linear support vector machine: a linear layer and the hinge loss, of dense rows or sparse ones.
//!
//! `(features + 1) * outputs` parameters, where two classes share one output and more are each told apart from the rest.
//! It does about as well as logistic regression on the same rows. The loss is convex.

use weft_sdk::data::{self, Features};
use weft_sdk::nn::{Linear, Mode};
use weft_sdk::optim::Sgd;
use weft_sdk::tensor::TensorType;
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
    /// How far weights are pulled to zero, which widens the margin.
    #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
    weight_decay: f32,
}

struct Svm {
    weight: Tensor,
    bias: Tensor,
    classes: u32,
}

/// A linear support vector machine of dense or sparse rows.
#[weft_sdk::trainer(convex)]
impl Trainer for Svm {
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
        // Values are taken as they are: -1 or 1.
        if labels.ty() == TensorType::F32 {
            return loss::hinge(output, labels);
        }
        let signs = |ones: Tensor| ones.affine(2.0, -1.0);
        if self.classes == 2 {
            return loss::hinge(output, &signs(loss::values_like(labels, output)?)?);
        }
        // Each class is a problem of its own, so their losses add up where the mean over all would divide them.
        let mean = loss::hinge(output, &signs(labels.one_hot(self.classes)?)?)?;
        &mean * self.classes as f32
    }
}
