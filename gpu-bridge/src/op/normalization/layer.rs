//! Normalization of each row by its own mean and variance.

use smallvec::smallvec;

use super::check_epsilon;
use crate::error::{Error, Result};
use crate::op::{Inputs, Meta, Outputs, Saves, Spec};
use crate::shape::Shape;
use crate::tape::Backward;

/// Checks `x [..., c]`, which comes first, and gives the shape without its last axis.
fn check_rows(inputs: &Inputs<'_>) -> Result<Shape> {
    inputs.all_f32()?;
    let x = inputs.metas[0].shape;
    match x.split_last() {
        None | Some((0, _)) => {
            Err(Error::shape(inputs.op, format!("input 0 is {x:?}, it must have a last axis that is not empty")))
        }
        Some((channels, rows)) => {
            inputs.shaped(1, &[*channels])?;
            Shape::new(rows)
        }
    }
}

/// `x [..., c], scale [c], shift [c]`: normalized over the last axis, `scale * (x - mean) * rstd + shift` with
/// `rstd = 1 / sqrt(variance + epsilon)`. Gives `y, mean [...], rstd [...]`. Gradients flow through `y` alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    pub epsilon: f32,
}

impl Spec for LayerNorm {
    fn name(&self) -> &'static str {
        "layer-norm"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x, _, _] = inputs.exactly()?;
        let rows = Meta::f32(check_rows(&inputs)?);
        inputs.same_shape(1, 2)?;
        check_epsilon(inputs.op, self.epsilon)?;
        Ok(smallvec![*x, rows, rows])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        7 * inputs.first().map_or(0, |x| x.shape.elements() as u64)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves { inputs: 0b011, outputs: 0b110 }
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        if backward.reached(1) || backward.reached(2) {
            return Err(Error::argument(
                self.name(),
                "gradients flow through its first result alone; detach the others",
            ));
        }
        let (x, scale, dy) = (backward.input(0)?, backward.input(1)?, backward.gradient(0)?);
        let (mean, rstd) = (backward.output(1)?, backward.output(2)?);
        let results = backward.run_all(LayerNormGradient, &[&x, &scale, &mean, &rstd, &dy])?;
        results.into_iter().enumerate().try_for_each(|(input, gradient)| backward.pass(input, gradient))
    }
}

/// `x, scale, mean, rstd, dy`: the gradient of [`LayerNorm`]. Gives `dx, dscale, dshift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerNormGradient;

impl Spec for LayerNormGradient {
    fn name(&self) -> &'static str {
        "layer-norm-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x, scale, _, _, _] = inputs.exactly()?;
        let rows = check_rows(&inputs)?;
        inputs.shaped(2, &rows)?;
        inputs.shaped(3, &rows)?;
        inputs.same_shape(0, 4)?;
        Ok(smallvec![*x, *scale, *scale])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        13 * inputs.first().map_or(0, |x| x.shape.elements() as u64)
    }
}
