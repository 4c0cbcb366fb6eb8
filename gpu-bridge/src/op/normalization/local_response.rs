//! Normalization of each element by its neighbours in the channels around it.

use smallvec::smallvec;

use crate::error::{Error, Result};
use crate::op::{Inputs, Meta, Outputs, Saves, Spec};
use crate::tape::Backward;

/// `x [n, c, ...]`: `x / (k + alpha / size * s) ^ beta`, where `s` sums the squares of the channels from `size / 2` before
/// to `(size - 1) / 2` after. Channels that are not there count as 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNorm {
    pub size: usize,
    pub alpha: f32,
    pub beta: f32,
    pub k: f32,
}

impl LocalResponseNorm {
    fn check(&self, inputs: &Inputs<'_>) -> Result<()> {
        inputs.all_f32()?;
        let x = inputs.metas[0].shape;
        if !(3..=5).contains(&x.rank()) {
            return Err(Error::shape(inputs.op, format!("input 0 is {x:?}, it must have 3 to 5 axes: [n, c, ...]")));
        }
        if self.size == 0 {
            return Err(Error::argument(inputs.op, "size 0 must be at least 1"));
        }
        let Self { alpha, beta, k, .. } = *self;
        if ![alpha, beta, k].iter().all(|value| value.is_finite()) {
            return Err(Error::argument(inputs.op, format!("alpha {alpha}, beta {beta} and k {k} must be finite")));
        }
        Ok(())
    }

    fn work(&self, metas: &[Meta]) -> u64 {
        let x = metas.first().map(|meta| meta.shape).filter(|shape| shape.rank() > 1);
        x.map_or(0, |x| (x.elements() as u64).saturating_mul(2 * self.size.min(x[1]) as u64 + 24))
    }
}

impl Spec for LocalResponseNorm {
    fn name(&self) -> &'static str {
        "local-response-norm"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        self.check(&inputs)?;
        Ok(smallvec![*x])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        self.work(inputs)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::inputs(1)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (x, dy) = (backward.input(0)?, backward.gradient(0)?);
        backward.emit(0, LocalResponseNormGradient(*self), &[&x, &dy])
    }
}

/// `x, dy`: the gradient of [`LocalResponseNorm`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNormGradient(pub LocalResponseNorm);

impl Spec for LocalResponseNormGradient {
    fn name(&self) -> &'static str {
        "local-response-norm-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x, _] = inputs.exactly()?;
        self.0.check(&inputs)?;
        inputs.same_shape(0, 1)?;
        Ok(smallvec![*x])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        self.0.work(inputs).saturating_mul(2)
    }
}
