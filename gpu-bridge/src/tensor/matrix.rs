//! Products of matrices.

use super::Tensor;
use crate::error::Result;
use crate::op::MatMul;

impl Tensor {
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        self.context.run_one(MatMul { scale: 1.0 }, &[self, other])
    }
}
