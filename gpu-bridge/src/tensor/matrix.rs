//! Products of matrices.

use super::Tensor;
use crate::error::Result;
use crate::op::{Linear, MatMul, Unary};

impl Tensor {
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        self.context.run_one(MatMul { scale: 1.0 }, &[self, other])
    }

    /// The product times `scale`, which costs nothing.
    pub fn scaled_matmul(&self, other: &Self, scale: f32) -> Result<Self> {
        self.context.run_one(MatMul { scale }, &[self, other])
    }

    /// `self weight^T + bias`, then the activation, in one pass.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>, activation: Option<Unary>) -> Result<Self> {
        match bias {
            Some(bias) => self.context.run_one(Linear { activation }, &[self, weight, bias]),
            None => self.context.run_one(Linear { activation }, &[self, weight]),
        }
    }
}
