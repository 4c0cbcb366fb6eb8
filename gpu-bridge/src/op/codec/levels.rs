//! Elements as one of a few levels of what their bucket holds.
//!
//! # A bucket
//! The elements, counted row after row, are cut into buckets of the same length, the last of which may be shorter. The
//! scale of a bucket is the largest of its elements in size. An element `x` is `t = |x| * levels / scale` levels, and
//! becomes one of the two whole numbers beside `t`, the upper one with probability `t - floor(t)`: so its mean is `x`.
//!
//! The largest and not the Euclidean length is the scale since it is the smallest that no element exceeds, which makes
//! the steps between levels as small as they can be; a length would make most elements zero, which pays only where zeros
//! are then written in fewer bits than other levels. It is also the same whatever the order in which a device looks.
//!
//! # A code
//! `bits` wide: the level in the low bits, the sign above (none for level 0). Element `i` has bits `i * bits` and
//! following of a row of words, counted from the lowest bit of each, so 32 elements are `bits` words. Its random number
//! is `(bits(i) >> 8) * 2^-24` of the stream.
//!
//! # Bits of the result
//! Devices agree where they divide alike: `t = (|x| * lift) * (levels / (scale * lift))`, each operation rounded, where
//! `lift` is 2^-64 for a scale from 2^64 on, 2^64 for one below 2^-64, else 1, so that nothing overflows and nothing is
//! lost. Back again it is `scale` for the highest level, else `level * (scale * (1 / levels))`.

use smallvec::smallvec;

use super::super::random::Stream;
use super::super::{Inputs, Meta, Outputs, Spec};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;

/// How wide a code can be.
const BITS: std::ops::RangeInclusive<u32> = 2..=8;

/// A bucket is a multiple of this many elements: their codes are whole words, whatever the bits.
pub(crate) const GROUP: usize = 32;

/// The most elements of a bucket.
const LARGEST_BUCKET: usize = 1 << 20;

/// `x`: the scale of each bucket, and the codes of all elements (u32). A bucket that holds a NaN or an infinity has the
/// scale NaN, and all of it comes back as NaN. One that holds nothing above the smallest normal number counts as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantize {
    /// Of a code: from 2 to 8.
    pub bits: u32,
    /// Elements per scale: a multiple of 32, at most 2^20.
    pub bucket: usize,
    pub stream: Stream,
}

/// How many levels above zero a code can have.
pub(crate) const fn levels(bits: u32) -> u32 {
    (1 << (bits - 1)) - 1
}

/// What an element is multiplied with, one after the other, to be counted in levels. Nothing for a scale that makes all
/// of the bucket zeros or NaN.
#[inline(always)]
pub(crate) fn factors(scale: f32, levels: u32) -> Option<(f32, f32)> {
    const FAR: f32 = (1_u64 << 63) as f32 * 2.0;
    if !(scale.is_finite() && scale > 0.0) {
        return None;
    }
    let lift = match scale {
        high if high >= FAR => 1.0 / FAR,
        low if low < 1.0 / FAR => FAR,
        _ => 1.0,
    };
    Some((lift, levels as f32 / (scale * lift)))
}

/// The scale of a bucket from the largest of its elements, as bits without a sign.
#[inline(always)]
pub(crate) fn scale(largest: u32) -> f32 {
    match f32::from_bits(largest) {
        largest if !largest.is_finite() => f32::NAN,
        largest if largest < f32::MIN_POSITIVE => 0.0,
        largest => largest,
    }
}

/// The scales and the codes of so many elements.
pub(crate) fn parts(op: &'static str, elements: usize, bits: u32, bucket: usize) -> Result<[Meta; 2]> {
    if !BITS.contains(&bits) {
        return Err(Error::argument(op, format!("{bits} bits: it takes from {} to {}", BITS.start(), BITS.end())));
    }
    if bucket == 0 || !bucket.is_multiple_of(GROUP) || bucket > LARGEST_BUCKET {
        let reason = format!("buckets of {bucket}: it takes a multiple of {GROUP}, at most {LARGEST_BUCKET}");
        return Err(Error::argument(op, reason));
    }
    let scales = Shape::new(&[elements.div_ceil(bucket)])?;
    let codes = Shape::new(&[elements.saturating_mul(bits as usize).div_ceil(32)])?;
    Ok([Meta::f32(scales), Meta::new(codes, DType::U32)])
}

impl Spec for Quantize {
    fn name(&self) -> &'static str {
        "quantize"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        let [scales, codes] = parts(inputs.op, x.shape.elements(), self.bits, self.bucket)?;
        Ok(smallvec![scales, codes])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.iter().map(|x| 20 * x.shape.elements() as u64).sum()
    }
}

/// `scales, codes` of [`Quantize`]: the elements again, `[elements]`, each at its level. A scale that is not finite makes
/// NaN of all its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dequantize {
    pub bits: u32,
    pub bucket: usize,
    pub elements: usize,
}

impl Spec for Dequantize {
    fn name(&self) -> &'static str {
        "dequantize"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, _] = inputs.exactly()?;
        inputs.typed(0, DType::F32)?;
        inputs.typed(1, DType::U32)?;
        let elements = Shape::new(&[self.elements])?;
        let [scales, codes] = parts(inputs.op, self.elements, self.bits, self.bucket)?;
        inputs.shaped(0, &scales.shape)?;
        inputs.shaped(1, &codes.shape)?;
        Ok(smallvec![Meta::f32(elements)])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        outputs.iter().map(|y| 4 * y.shape.elements() as u64).sum()
    }
}
