//! Some of the elements, with indices: what `top-k` and `significance` have in common.
//!
//! Indices rise, so a frame can be checked in one pass, and adding at them is no matter of order.

use smallvec::{SmallVec, smallvec};

use super::Parts;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::Meta;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Adds the tensor to what was not sent before. Without a residual that is the tensor alone.
pub(super) fn accumulated(flat: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
    let Some(residual) = residual else { return Ok(flat.clone()) };
    let residual = residual.detach().reshape(&[flat.shape().elements()])?;
    residual.accumulate(flat, 1.0)?;
    Ok(residual)
}

/// The `count` largest of what has accumulated; they are no longer part of the residual.
pub(super) fn send(from: &Tensor, count: usize, residual: Option<&Tensor>) -> Result<Parts> {
    let (values, indices) = from.largest(count)?;
    if let Some(residual) = residual {
        let residual = residual.detach().reshape(&[from.shape().elements()])?;
        residual.add_at(&values, &indices, -1.0)?;
    }
    Ok(smallvec![indices, values])
}

pub(super) fn parts(sent: usize) -> Result<SmallVec<[Meta; 2]>> {
    let shape = Shape::new(&[sent])?;
    Ok(smallvec![Meta::new(shape, DType::U32), Meta::f32(shape)])
}

pub(super) fn decode(indices: &Tensor, values: &Tensor, elements: usize) -> Result<Tensor> {
    let decoded = values.context().zeros(&[elements])?;
    decoded.add_at(values, indices, 1.0)?;
    Ok(decoded)
}
