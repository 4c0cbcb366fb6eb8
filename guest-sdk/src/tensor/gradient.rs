//! Gradients, and writing in place, which is never recorded.

use super::Tensor;
use crate::Result;
use crate::host::kernels;

impl Tensor {
    /// Adds to the gradient of every weight that this loss descends from, and ends the recording that led to it.
    pub fn backward(&self) -> Result<()> {
        kernels::backward(self.raw())
    }

    /// The same tensor, through which no gradient flows.
    pub fn detach(&self) -> Result<Self> {
        kernels::detach(self.raw()).map(Self::from)
    }

    /// The gradient of a weight, if a [`Self::backward`] has reached it since the step began.
    pub fn gradient(&self) -> Result<Option<Self>> {
        Ok(kernels::gradient(self.raw())?.map(Self::from))
    }

    /// Overwrites this with `x`, broadcast.
    pub fn assign(&self, x: &Self) -> Result<()> {
        kernels::assign(self.raw(), x.raw())
    }

    /// Adds `scale * x` to this.
    pub fn accumulate(&self, x: &Self, scale: f32) -> Result<()> {
        kernels::accumulate(self.raw(), x.raw(), scale)
    }

    /// Goes `amount` of the way to `x`.
    pub fn blend(&self, x: &Self, amount: f32) -> Result<()> {
        kernels::blend(self.raw(), x.raw(), amount)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Initial;
    use crate::{Path, Tensor};

    #[test]
    fn backward_reaches_the_weights_that_a_loss_descends_from() {
        let path = Path::root();
        let weight = path.weight("weight", &[2], Initial::Constant(3.0)).unwrap();
        let other = path.weight("other", &[2], Initial::Constant(3.0)).unwrap();
        let loss = (&weight * &weight).unwrap().sum().unwrap();
        loss.backward().unwrap();
        assert_eq!(weight.gradient().unwrap().unwrap().to_vec::<f32>().unwrap(), [6.0, 6.0]);
        assert!(other.gradient().unwrap().is_none());
    }

    #[test]
    fn nothing_flows_through_a_detached_tensor() {
        let weight = Path::root().weight("weight", &[1], Initial::Constant(2.0)).unwrap();
        weight.mul(&weight.detach().unwrap()).unwrap().backward().unwrap();
        assert_eq!(weight.gradient().unwrap().unwrap().item(), Ok(2.0));
    }

    #[test]
    fn writing_in_place_is_seen_by_all_who_hold_the_tensor() {
        let tensor = Tensor::ones(&[2]).unwrap();
        let same = tensor.clone();
        tensor.accumulate(&Tensor::scalar(2.0).unwrap().expand(&[2]).unwrap(), 0.5).unwrap();
        assert_eq!(same.to_vec::<f32>().unwrap(), [2.0, 2.0]);
        tensor.blend(&Tensor::zeros(&[2]).unwrap(), 0.25).unwrap();
        assert_eq!(same.to_vec::<f32>().unwrap(), [1.5, 1.5]);
        tensor.assign(&Tensor::scalar(7.0).unwrap()).unwrap();
        assert_eq!(same.to_vec::<f32>().unwrap(), [7.0, 7.0]);
    }
}
