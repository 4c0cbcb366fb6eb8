//! `plain`: every element as it is.

use smallvec::{SmallVec, smallvec};

use super::Parts;
use crate::error::Result;
use crate::op::Meta;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// A copy, as what is encoded must not change with the tensor.
pub(super) fn encode(flat: &Tensor) -> Result<Parts> {
    Ok(smallvec![flat.copy()?])
}

pub(super) fn parts(elements: usize) -> Result<SmallVec<[Meta; 2]>> {
    Ok(smallvec![Meta::f32(Shape::new(&[elements])?)])
}

pub(super) fn decode(part: &Tensor) -> Result<Tensor> {
    part.copy()
}
