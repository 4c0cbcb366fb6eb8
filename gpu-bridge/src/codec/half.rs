//! `f16`: every element as the nearest half. What is finite stays finite, at most the largest half (65504): one element
//! that is too large would else make an infinity of a whole average.

use smallvec::{SmallVec, smallvec};

use super::Parts;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::Meta;
use crate::shape::Shape;
use crate::tensor::Tensor;

pub(super) fn encode(flat: &Tensor) -> Result<Parts> {
    Ok(smallvec![flat.cast_saturating()?])
}

pub(super) fn parts(elements: usize) -> Result<SmallVec<[Meta; 2]>> {
    Ok(smallvec![Meta::new(Shape::new(&[elements])?, DType::F16)])
}

pub(super) fn decode(part: &Tensor) -> Result<Tensor> {
    part.cast(DType::F32)
}
