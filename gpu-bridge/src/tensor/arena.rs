//! Writing in place: of whole arenas, or of any contiguous tensor.

use super::Tensor;
use crate::error::Result;
use crate::op::{Accumulate, AdmmDual, AdmmGradient, Assign, Blend, ClipNorm, Optimize};

impl Tensor {
    /// Overwrites it with `from`, broadcast.
    pub fn assign(&self, from: &Self) -> Result<()> {
        self.context.run(Assign, &[self, from]).map(drop)
    }

    /// Adds `scale * from`.
    pub fn accumulate(&self, from: &Self, scale: f32) -> Result<()> {
        self.context.run(Accumulate { scale }, &[self, from]).map(drop)
    }

    /// Goes `amount` of the way to `from`.
    pub fn blend(&self, from: &Self, amount: f32) -> Result<()> {
        self.context.run(Blend { amount }, &[self, from]).map(drop)
    }

    /// One step of an optimizer on these weights. See [`Arena::optimizer`](crate::Arena::optimizer) for one that keeps
    /// the states.
    pub fn optimize(&self, step: Optimize, states: &[&Self], gradients: &Self) -> Result<()> {
        let mut inputs = vec![self];
        inputs.extend(states);
        inputs.push(gradients);
        self.context.run(step, &inputs).map(drop)
    }

    /// Scales these gradients so that their norm is at most `limit`, given the sum of their squares.
    pub fn clip_norm(&self, sum_of_squares: &Self, limit: f32) -> Result<()> {
        self.context.run(ClipNorm { limit }, &[self, sum_of_squares]).map(drop)
    }

    /// Adds `rho * (x - z + u)` to these gradients.
    pub fn admm_gradient(&self, rho: f32, x: &Self, z: &Self, u: &Self) -> Result<()> {
        self.context.run(AdmmGradient { rho }, &[self, x, z, u]).map(drop)
    }

    /// Adds `x - z` to this dual variable.
    pub fn admm_dual(&self, x: &Self, z: &Self) -> Result<()> {
        self.context.run(AdmmDual, &[self, x, z]).map(drop)
    }
}
