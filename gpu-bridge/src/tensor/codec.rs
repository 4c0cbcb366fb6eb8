//! Tensors as what is sent of them: the steps of [`crate::codec`].

use super::Tensor;
use crate::context::Tensors;
use crate::error::{Error, Result};
use crate::op::{AddAt, CastSaturating, Dequantize, Largest, Quantize, Significant, Stream};

impl Tensor {
    /// The nearest f16; what is finite stays so, at most the largest f16.
    pub fn cast_saturating(&self) -> Result<Self> {
        self.context.run_one(CastSaturating, &[self])
    }

    /// The scale of each bucket, and the elements as codes of so many bits, by chance of the two beside each.
    pub fn quantize(&self, bits: u32, bucket: usize, stream: Stream) -> Result<(Self, Self)> {
        two("quantize", self.context.run(Quantize { bits, bucket, stream }, &[self])?)
    }

    /// So many elements again, of which these are the scales; see [`Self::quantize`].
    pub fn dequantize(&self, codes: &Self, bits: u32, bucket: usize, elements: usize) -> Result<Self> {
        self.context.run_one(Dequantize { bits, bucket, elements }, &[self, codes])
    }

    /// The `count` elements that are largest in size, and their indices (u32), in the order of their indices.
    pub fn largest(&self, count: usize) -> Result<(Self, Self)> {
        two("largest", self.context.run(Largest { count }, &[self])?)
    }

    /// These changes where they are at least `threshold` times their weight in size, else zeros; and how many they are.
    pub fn significant(&self, weights: &Self, threshold: f32) -> Result<(Self, Self)> {
        two("significant", self.context.run(Significant { threshold }, &[self, weights])?)
    }

    /// In place: adds `scale * values`, each at its index, counted row after row. The indices (u32) must rise.
    pub fn add_at(&self, values: &Self, indices: &Self, scale: f32) -> Result<()> {
        self.context.run(AddAt { scale }, &[self, values, indices]).map(drop)
    }
}

fn two(op: &'static str, results: Tensors) -> Result<(Tensor, Tensor)> {
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => Err(Error::Internal { op, reason: "it has two results".into() }),
    }
}
