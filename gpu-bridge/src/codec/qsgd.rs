//! `qsgd`: every element as a sign and one of a few levels of its bucket, rounded up or down by chance (Alistarh et al.,
//! *QSGD: communication-efficient SGD via gradient quantization and encoding*, 2017).
//!
//! With `s` levels and a bucket whose largest element is `m`, the mean of what is decoded is the element, and its
//! variance at most `(m / s)^2 / 4`. [`crate::op::Quantize`] says why the scale is the largest element.

use smallvec::{SmallVec, smallvec};

use super::Parts;
use crate::error::Result;
use crate::op::codec::levels;
use crate::op::{Meta, Stream};
use crate::tensor::Tensor;

pub(super) fn encode(flat: &Tensor, bits: u32, bucket: usize, stream: Stream) -> Result<Parts> {
    let (scales, codes) = flat.quantize(bits, bucket, stream)?;
    Ok(smallvec![scales, codes])
}

pub(super) fn parts(elements: usize, bits: u32, bucket: usize) -> Result<SmallVec<[Meta; 2]>> {
    Ok(levels::parts("qsgd", elements, bits, bucket)?.into_iter().collect())
}

pub(super) fn decode(scales: &Tensor, codes: &Tensor, bits: u32, bucket: usize, elements: usize) -> Result<Tensor> {
    scales.dequantize(codes, bits, bucket, elements)
}
