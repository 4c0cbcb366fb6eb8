//! LeNet-5 as it is trained today, for grey images of 28x28: rectifiers, maxima, a linear layer at the end.
//!
//! 44,426 parameters. Images of another size are resized. Of handwritten digits expect almost all to be right
//! after a few epochs, at a learning rate of 0.01 to 0.05 and batches of 64.

use weft_sdk::nn::{Activation, Conv2d, Linear, LinearConfig, Mode};
use weft_sdk::optim::{Schedule, Sgd};
use weft_sdk::tensor::Window;
use weft_sdk::{HyperParameters, Path, Result, Tensor, Trainer};

#[derive(HyperParameters)]
struct Parameters {
    /// How many classes there are.
    #[hyper(default = 10, low = 2)]
    classes: u32,
    /// How much of a step goes on in the direction of those before.
    #[hyper(default = 0.9, low = 0.0, high = 0.999)]
    momentum: f32,
    /// How far weights are pulled to zero.
    #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
    weight_decay: f32,
    /// Over how many steps the learning rate falls to nothing, in half a wave; with 0 it stays.
    #[hyper(default = 0, low = 0)]
    decay_steps: u32,
}

struct LeNet {
    convolutions: [Conv2d; 2],
    linear: [Linear; 3],
}

/// LeNet-5 for grey images of 28x28.
#[weft_sdk::trainer]
impl Trainer for LeNet {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { classes, momentum, weight_decay, decay_steps } = parameters;
        Sgd { momentum, weight_decay, ..Sgd::default() }.declare()?;
        if decay_steps > 0 {
            Schedule::cosine(decay_steps, 0.0).declare()?;
        }
        let hidden = |inputs, outputs| LinearConfig::new(inputs, outputs).activation(Activation::Relu);
        Ok(Self {
            convolutions: [Conv2d::new(&path.at(0), 1, 6, 5)?, Conv2d::new(&path.at(3), 6, 16, 5)?],
            linear: [
                hidden(256, 120).init(&path.at(7))?,
                hidden(120, 84).init(&path.at(9))?,
                Linear::new(&path.at(11), 84, classes)?,
            ],
        })
    }

    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        let mut x = x.to_images(1, 28, 28)?;
        for convolution in &self.convolutions {
            // A maximum of rectified values is the rectified maximum: a quarter of the work.
            x = convolution.forward(&x)?.max_pool2d(Window::square(2))?.relu()?;
        }
        x = x.flatten()?;
        for layer in &self.linear {
            x = layer.forward(&x)?;
        }
        Ok(x)
    }
}

#[cfg(test)]
mod tests {
    use weft_sdk::native::{Batch, Session};

    use super::*;

    /// Images that are bright in one quarter, which is their class.
    fn batch() -> Batch {
        let bright = |place: usize| (place / 28 % 28 / 14) * 2 + place % 28 / 14;
        let image = |class: usize| (0..28 * 28).map(move |place| f32::from(u8::from(bright(place) == class)));
        let features: Vec<f32> = (0..8).flat_map(|index| image(index % 4)).collect();
        let labels: Vec<i32> = (0..8).map(|index| index % 4).collect();
        Batch::new(Tensor::new(&features, &[8, 1, 28, 28]).unwrap(), Tensor::new(&labels, &[8]).unwrap())
    }

    #[test]
    fn it_has_the_parameters_of_pytorch_and_learns_a_batch() {
        let mut session = Session::<LeNet>::new(&[]).unwrap();
        assert_eq!(session.parameters(), 44_426);
        let batch = batch();
        let losses: Vec<f32> = (0..60).map(|_| session.step(&batch, 0.02).unwrap()).collect();
        assert!(losses[59] < losses[0] / 2.0, "{losses:?}");
        assert_eq!(session.infer(&batch).unwrap().dimensions(), [8, 10]);
    }
}
