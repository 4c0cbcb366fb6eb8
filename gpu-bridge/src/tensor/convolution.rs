//! Convolution in two dimensions.

use super::Tensor;
use crate::error::Result;
use crate::op::Conv2d;

impl Tensor {
    /// `self [n, c, h, w]` with `weight [o, c / groups, kh, kw]`.
    pub fn conv2d(&self, weight: &Self, bias: Option<&Self>, conv: Conv2d) -> Result<Self> {
        match bias {
            Some(bias) => self.context.run_one(conv, &[self, weight, bias]),
            None => self.context.run_one(conv, &[self, weight]),
        }
    }
}
