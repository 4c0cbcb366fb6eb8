//! A tensor in fewer bytes, on its device.

use super::{Codec, Parts, half, plain, qsgd, sparse, wire};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// What a [`Codec`] made of a tensor, or what came from another worker.
#[derive(Clone, Debug)]
pub struct Encoded {
    codec: Codec,
    elements: usize,
    /// As [`Codec::parts`] says: what is sent, in this order.
    parts: Parts,
}

impl Encoded {
    pub(super) fn new(codec: Codec, elements: usize, parts: Parts) -> Result<Self> {
        let encoded = Self { codec, elements, parts };
        let want = codec.parts(elements, encoded.sent())?;
        if !want.iter().copied().eq(encoded.parts.iter().map(Tensor::meta)) {
            return Err(Error::Internal { op: "encode", reason: format!("{:?} is not {want:?}", encoded.parts) });
        }
        Ok(encoded)
    }

    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// How many elements are decoded from it.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// How many elements are sent: all, or some with their indices.
    pub fn sent(&self) -> usize {
        match (self.codec, self.parts.first()) {
            (Codec::TopK { .. } | Codec::Significance { .. }, Some(indices)) => indices.shape().elements(),
            _ => self.elements,
        }
    }

    /// Bytes of the frame that it becomes.
    pub fn bytes(&self) -> usize {
        wire::HEADER + self.parts.iter().map(|part| part.meta().bytes()).sum::<usize>()
    }

    /// The elements again, flat: those that were not sent are zero.
    pub fn decode(&self) -> Result<Tensor> {
        match (self.codec, &self.parts[..]) {
            (Codec::Plain, [part]) => plain::decode(part),
            (Codec::F16, [part]) => half::decode(part),
            (Codec::Qsgd { bits, bucket }, [scales, codes]) => qsgd::decode(scales, codes, bits, bucket, self.elements),
            (Codec::TopK { .. } | Codec::Significance { .. }, [indices, values]) => {
                sparse::decode(indices, values, self.elements)
            }
            _ => Err(Error::Internal { op: "decode", reason: format!("`{}` is not {:?}", self.codec, self.parts) }),
        }
    }

    /// In place: adds `scale` times the elements to a tensor of f32 that has as many, of any shape. What was not sent costs
    /// nothing.
    pub fn add_to(&self, sum: &Tensor, scale: f32) -> Result<()> {
        if sum.shape().elements() != self.elements {
            let reason = format!("{} elements do not fit {:?}", self.elements, sum.shape());
            return Err(Error::shape("add-to", reason));
        }
        let sum = sum.detach();
        match (self.codec, &self.parts[..]) {
            (Codec::TopK { .. } | Codec::Significance { .. }, [indices, values]) => sum.add_at(values, indices, scale),
            (Codec::Plain, [part]) => sum.accumulate(&part.reshape(&sum.shape())?, scale),
            _ => sum.accumulate(&self.decode()?.reshape(&sum.shape())?, scale),
        }
    }

    /// As bytes that say all that is needed to decode them: see [`Self::from_wire`].
    pub fn to_wire(&self) -> Result<Vec<u8>> {
        wire::write(self.codec, self.elements, self.sent(), &self.parts)
    }

    /// What [`Self::to_wire`] gave, on a device. Bytes that are anything else are refused, as are more than `at_most`
    /// elements: nothing is allocated or run before all lengths and indices are known to be right.
    pub fn from_wire(context: &Context, bytes: &[u8], at_most: usize) -> Result<Self> {
        let frame = wire::read(bytes, at_most)?;
        let mut parts = Parts::new();
        for (meta, bytes) in &frame.parts {
            parts.push(wire::upload(context, *meta, bytes)?);
        }
        Self::new(frame.codec, frame.elements, parts)
    }
}
