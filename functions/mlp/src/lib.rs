//! A multi-layer perceptron: five hidden layers of 100, each rectified, for rows of numbers.
//!
//! 42,601 parameters with 20 features and two classes, which one output tells apart. It learns a function of 20 bits
//! well within a few dozen epochs; how well it does on other rows depends on them. How many layers there are and how wide the
//! first three are can be searched: `layers=int:1..4`, `units3=int:16..128 if layers>=3`.

use weft_sdk::nn::{Activation, Dropout, Linear, LinearConfig, Mode};
use weft_sdk::optim::Sgd;
use weft_sdk::{HyperParameters, Path, Result, Tensor, Trainer, loss};

#[derive(HyperParameters)]
struct Parameters {
    /// How many numbers a sample has.
    #[hyper(default = 20, low = 1)]
    features: u32,
    /// How many classes there are; two share one output.
    #[hyper(default = 2, low = 2)]
    classes: u32,
    /// How many hidden layers there are.
    #[hyper(default = 5, low = 1, high = 64)]
    layers: u32,
    /// How wide they are.
    #[hyper(default = 100, low = 1, high = 65536, log)]
    width: u32,
    /// How wide the first hidden layer is; 0: as wide as the others.
    #[hyper(default = 0, low = 0)]
    units1: u32,
    /// How wide the second hidden layer is, where there is one; 0: as wide as the others.
    #[hyper(default = 0, low = 0)]
    units2: u32,
    /// How wide the third hidden layer is, where there is one; 0: as wide as the others.
    #[hyper(default = 0, low = 0)]
    units3: u32,
    /// How much of each hidden layer is dropped in training.
    #[hyper(default = 0.0, low = 0.0, high = 0.9)]
    dropout: f32,
    /// How much of a step goes on in the direction of those before.
    #[hyper(default = 0.9, low = 0.0, high = 0.999)]
    momentum: f32,
    /// How far weights are pulled to zero.
    #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
    weight_decay: f32,
}

struct Mlp {
    hidden: Vec<Linear>,
    last: Linear,
    dropout: Dropout,
    classes: u32,
}

/// A multi-layer perceptron for rows of numbers.
#[weft_sdk::trainer]
impl Trainer for Mlp {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { features, classes, layers, width, units1, units2, units3, .. } = parameters;
        let Parameters { dropout, momentum, weight_decay, .. } = parameters;
        Sgd { momentum, weight_decay, ..Sgd::default() }.declare()?;
        let (mut hidden, mut inputs) = (Vec::new(), features);
        for layer in 0..layers {
            let own = [units1, units2, units3].get(layer as usize).copied().unwrap_or(0);
            let units = if own == 0 { width } else { own };
            // PyTorch counts the activations between them too.
            hidden.push(LinearConfig::new(inputs, units).activation(Activation::Relu).init(&path.at(2 * layer))?);
            inputs = units;
        }
        let outputs = if classes == 2 { 1 } else { classes };
        let last = Linear::new(&path.at(2 * layers), inputs, outputs)?;
        Ok(Self { hidden, last, dropout: Dropout(dropout), classes })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let mut x = if x.rank() == 2 { x.clone() } else { x.flatten()? };
        for layer in &self.hidden {
            x = self.dropout.forward(&layer.forward(&x)?, mode)?;
        }
        self.last.forward(&x)
    }

    fn loss(&self, output: &Tensor, labels: &Tensor) -> Result<Tensor> {
        if self.classes == 2 { loss::binary_cross_entropy(output, labels) } else { loss::cross_entropy(output, labels) }
    }
}

#[cfg(test)]
mod tests {
    use weft_sdk::hyper::Value;
    use weft_sdk::native::{Batch, Session};

    use super::*;

    #[test]
    fn layers_have_the_widths_that_they_are_given() {
        let given = [("layers", 3), ("width", 10), ("units1", 4), ("units3", 6)]
            .map(|(name, units)| (name, Value::Integer(units)));
        let session = Session::<Mlp>::new(&given).unwrap();
        assert_eq!(session.parameters(), (20 * 4 + 4) + (4 * 10 + 10) + (10 * 6 + 6) + (6 + 1));
    }

    #[test]
    fn it_has_the_parameters_of_pytorch_and_learns_a_function_of_bits() {
        let mut session = Session::<Mlp>::new(&[]).unwrap();
        assert_eq!(session.parameters(), 42_601);
        let bits: Vec<f32> = (0..32 * 20_u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 31) as f32).collect();
        let labels: Vec<i32> = bits.chunks(20).map(|row| row[0] as i32 ^ row[1] as i32).collect();
        let batch = Batch::new(Tensor::new(&bits, &[32, 20]).unwrap(), Tensor::new(&labels, &[32]).unwrap());
        for _ in 0..300 {
            session.step(&batch, 0.05).unwrap();
        }
        let metrics = session.evaluate(&batch).unwrap();
        assert!(metrics["loss"] < 0.05 && metrics["accuracy"] == 1.0, "{metrics:?}");
    }
}
