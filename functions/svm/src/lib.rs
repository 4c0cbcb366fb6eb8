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

#[cfg(test)]
mod tests {
    use weft_sdk::data::Csr;
    use weft_sdk::hyper::Value;
    use weft_sdk::native::{Batch, Session};

    use super::*;

    const ROWS: [[f32; 4]; 6] = [
        [1.0, 0.0, 0.0, 2.0],
        [0.0, 1.5, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0],
        [2.0, 0.0, 0.0, 1.0],
        [0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 2.0, 0.0],
    ];

    fn dense(labels: &[i32; 6]) -> Batch {
        Batch::new(Tensor::new(ROWS.as_flattened(), &[6, 4]).unwrap(), Tensor::new(labels, &[6]).unwrap())
    }

    fn sparse(labels: &[i32; 6]) -> Batch {
        let (mut offsets, mut columns, mut values) = (vec![0_u32], Vec::new(), Vec::new());
        for row in ROWS {
            for (column, value) in row.into_iter().enumerate().filter(|(_, value)| *value != 0.0) {
                columns.push(column as u32);
                values.push(value);
            }
            offsets.push(columns.len() as u32);
        }
        let features = Csr {
            offsets: Tensor::new(&offsets, &[7]).unwrap(),
            columns: Tensor::new(&columns, &[columns.len() as u32]).unwrap(),
            values: Tensor::new(&values, &[values.len() as u32]).unwrap(),
            width: 4,
        };
        Batch::sparse(features, Some(Tensor::new(labels, &[6]).unwrap()))
    }

    fn session(classes: i64) -> Session<Svm> {
        Session::new(&[("features", Value::Integer(4)), ("classes", Value::Integer(classes))]).unwrap()
    }

    #[test]
    fn two_classes_share_an_output() {
        assert_eq!(Session::<Svm>::new(&[]).unwrap().parameters(), 29);
        assert_eq!(session(3).parameters(), 15);
    }

    #[test]
    fn dense_and_sparse_rows_are_told_apart_alike() {
        for (classes, labels) in [(2, [0, 1, 1, 0, 1, 1]), (3, [0, 1, 2, 0, 1, 2])] {
            let mut losses = Vec::new();
            for batch in [dense(&labels), sparse(&labels)] {
                let mut session = session(classes);
                session.tensor("weight").unwrap().assign(&Tensor::scalar(0.1).unwrap()).unwrap();
                session.tensor("bias").unwrap().assign(&Tensor::scalar(0.0).unwrap()).unwrap();
                losses.push((0..100).map(|_| session.step(&batch, 0.1).unwrap()).collect::<Vec<_>>());
                assert_eq!(session.evaluate(&batch).unwrap()["accuracy"], 1.0);
            }
            for (dense, sparse) in losses[0].iter().zip(&losses[1]) {
                assert!((dense - sparse).abs() < 1e-4, "{dense} {sparse}");
            }
        }
    }
}
