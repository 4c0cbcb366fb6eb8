//! Normalization of each channel by its mean and variance over a batch.
//!
//! ```text
//! y = activation(scale * (x - mean) / sqrt(variance + epsilon) + shift)
//! ```
//!
//! The gradient needs `x` but not `y`: what the activation was given is computed anew, which is cheaper than to keep and
//! read another tensor of that size.

use smallvec::smallvec;

use super::check_epsilon;
use crate::error::{Error, Result};
use crate::op::{Inputs, Meta, Outputs, Saves, Spec, Unary};
use crate::tape::Backward;

/// Refuses an activation that is not cheap to compute twice.
fn check_activation(op: &'static str, activation: Option<Unary>) -> Result<()> {
    match activation {
        None | Some(Unary::Relu | Unary::Relu6 | Unary::HardSwish) => Ok(()),
        Some(other) => Err(Error::argument(
            op,
            format!("activation `{}`: only relu, relu6 and hard-swish are fused", other.name()),
        )),
    }
}

/// Checks `x [n, c, ...]`, which comes first, and that the inputs from `first` to `last` are `[c]`.
fn check_channels(inputs: &Inputs<'_>, first: usize, last: usize) -> Result<Meta> {
    inputs.all_f32()?;
    let x = inputs.metas[0];
    if !(2..=5).contains(&x.shape.rank()) {
        return Err(Error::shape(
            inputs.op,
            format!("input 0 is {:?}, it must have 2 to 5 axes: [n, c, ...]", x.shape),
        ));
    }
    (first..=last).try_for_each(|index| inputs.shaped(index, &x.shape[1..2]))?;
    Ok(x)
}

/// Refuses channels without a single element: they have no mean.
fn check_elements(op: &'static str, x: &Meta) -> Result<()> {
    if x.shape[1] > 0 && x.shape.elements() == 0 {
        return Err(Error::shape(op, format!("{:?} has no elements to take statistics of", x.shape)));
    }
    Ok(())
}

/// `x [n, c, ...], scale [c], shift [c]`: normalized by the batch's own statistics, then the activation (relu, relu6 or
/// hard-swish). Gives `y, mean [c], variance [c]`, the variance biased: 0 for a single element. Gradients flow through
/// `y` alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    pub epsilon: f32,
    pub activation: Option<Unary>,
}

impl Spec for BatchNorm {
    fn name(&self) -> &'static str {
        "batch-norm"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, scale, _] = *inputs.exactly()?;
        let x = check_channels(&inputs, 1, 2)?;
        check_elements(inputs.op, &x)?;
        check_epsilon(inputs.op, self.epsilon)?;
        check_activation(inputs.op, self.activation)?;
        Ok(smallvec![x, scale, scale])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        7 * inputs.first().map_or(0, |x| x.shape.elements() as u64)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        let shift = if self.activation.is_some() { 0b100 } else { 0 };
        Saves { inputs: 0b011 | shift, outputs: 0b110 }
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        if backward.reached(1) || backward.reached(2) {
            return Err(Error::argument(
                self.name(),
                "gradients flow through its first result alone; detach the others",
            ));
        }
        let (mean, variance) = (backward.output(1)?, backward.output(2)?);
        let op =
            BatchNormGradient { epsilon: self.epsilon, activation: self.activation, statistics: Statistics::OfBatch };
        spread(backward, op, &mean, &variance)
    }
}

/// Computes the gradients of `x, scale, shift` and hands them on.
fn spread(
    backward: &mut Backward<'_>,
    op: BatchNormGradient,
    mean: &crate::Tensor,
    variance: &crate::Tensor,
) -> Result<()> {
    let (x, scale, dy) = (backward.input(0)?, backward.input(1)?, backward.gradient(0)?);
    let results = match op.activation {
        None => backward.run_all(op, &[&x, &scale, mean, variance, &dy])?,
        Some(_) => backward.run_all(op, &[&x, &scale, mean, variance, &dy, &backward.input(2)?])?,
    };
    results.into_iter().enumerate().try_for_each(|(input, gradient)| backward.pass(input, gradient))
}

/// Where the mean and variance that a batch was normalized by came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// From the batch itself, so they depend on every element of it.
    OfBatch,
    /// From elsewhere: constants.
    Given,
}

/// `x, scale, mean, variance, dy`, and `shift` if there is an activation: the gradient of [`BatchNorm`] and
/// [`BatchNormInference`]. Gives `dx, dscale, dshift`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormGradient {
    pub epsilon: f32,
    pub activation: Option<Unary>,
    pub statistics: Statistics,
}

impl Spec for BatchNormGradient {
    fn name(&self) -> &'static str {
        "batch-norm-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        check_activation(inputs.op, self.activation)?;
        match self.activation {
            None => drop(inputs.exactly::<5>()?),
            Some(_) => drop(inputs.exactly::<6>()?),
        }
        let x = check_channels(&inputs, 1, 3)?;
        inputs.same_shape(0, 4)?;
        inputs.shaped(5, &x.shape[1..2])?;
        if self.statistics == Statistics::OfBatch {
            check_elements(inputs.op, &x)?;
        }
        check_epsilon(inputs.op, self.epsilon)?;
        Ok(smallvec![x, inputs.metas[1], inputs.metas[1]])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        11 * inputs.first().map_or(0, |x| x.shape.elements() as u64)
    }
}

/// `x [n, c, ...], scale [c], shift [c], mean [c], variance [c]`: normalized by given statistics, which have no gradient,
/// then the activation (relu, relu6 or hard-swish).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormInference {
    pub epsilon: f32,
    pub activation: Option<Unary>,
}

impl Spec for BatchNormInference {
    fn name(&self) -> &'static str {
        "batch-norm-inference"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, _, _, _, _] = inputs.exactly()?;
        let x = check_channels(&inputs, 1, 4)?;
        check_epsilon(inputs.op, self.epsilon)?;
        check_activation(inputs.op, self.activation)?;
        Ok(smallvec![x])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        3 * outputs.first().map_or(0, |y| y.shape.elements() as u64)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        let shift = if self.activation.is_some() { 0b100 } else { 0 };
        Saves::inputs(0b11011 | shift)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        if let Some(input) = (3..5).find(|&input| backward.wants(input)) {
            return Err(Error::NotDifferentiable { op: self.name(), input });
        }
        let (mean, variance) = (backward.input(3)?, backward.input(4)?);
        let op =
            BatchNormGradient { epsilon: self.epsilon, activation: self.activation, statistics: Statistics::Given };
        spread(backward, op, &mean, &variance)
    }
}
