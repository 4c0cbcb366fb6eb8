//! Element by element.

use super::Tensor;
use crate::error::Result;
use crate::op::{Binary, Unary};

impl Tensor {
    pub fn unary(&self, op: Unary) -> Result<Self> {
        self.context.run_one(op, &[self])
    }

    pub fn binary(&self, op: Binary, other: &Self) -> Result<Self> {
        self.context.run_one(op, &[self, other])
    }

    pub fn add(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Add, other)
    }

    pub fn sub(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Sub, other)
    }

    pub fn mul(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Mul, other)
    }

    pub fn div(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Div, other)
    }

    pub fn relu(&self) -> Result<Self> {
        self.unary(Unary::Relu)
    }
}
