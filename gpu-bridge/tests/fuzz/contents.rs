//! What new tensors hold: described, so that every device is given the same.

use half::f16;
use weft_gpu::op::Meta;
use weft_gpu::{Context, DType, Element, Result, Tensor};

use crate::bytes::Noise;

/// The elements of a new tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contents {
    /// Around zero; whole numbers for integers.
    Noise(u64),
    /// NaN, infinities, zeros, the smallest and the largest.
    Hostile(u64),
    /// Whole numbers below a count.
    Below(usize, u64),
    /// What starts at 0 and does not fall, up to a last one: the offsets of sparse rows.
    Rising(usize, u64),
}

impl Contents {
    pub fn upload(self, context: &Context, meta: &Meta) -> Result<Tensor> {
        match meta.dtype {
            DType::F32 => self.typed::<f32>(context, meta, |x| x, |bits| f32::from_bits(bits as u32)),
            DType::F16 => self.typed::<f16>(context, meta, f16::from_f32, |bits| f16::from_bits(bits as u16)),
            DType::U8 => self.typed::<u8>(context, meta, |x| x as u8, |bits| bits as u8),
            DType::I32 => self.typed::<i32>(context, meta, |x| x as i32, |bits| bits as i32),
            DType::U32 => self.typed::<u32>(context, meta, |x| x as u32, |bits| bits as u32),
        }
    }

    fn typed<T: Element>(
        self,
        context: &Context,
        meta: &Meta,
        value: fn(f32) -> T,
        bits: fn(u64) -> T,
    ) -> Result<Tensor> {
        let count = meta.shape.elements();
        let elements: Vec<T> = match self {
            Self::Noise(seed) => {
                let mut noise = Noise(seed);
                (0..count).map(|_| value(4.0 * noise.unit() - 2.0)).collect()
            }
            Self::Hostile(seed) => {
                let mut noise = Noise(seed);
                let mut element = |_| {
                    if noise.next() & 1 == 0 { bits(noise.next()) } else { value(noise.hostile_float()) }
                };
                (0..count).map(&mut element).collect()
            }
            Self::Below(below, seed) => {
                let mut noise = Noise(seed);
                (0..count).map(|_| value((noise.next() % below.max(1) as u64) as f32)).collect()
            }
            Self::Rising(last, seed) => {
                let mut noise = Noise(seed);
                let mut places: Vec<u64> = (0..count).map(|_| noise.next() % (last as u64 + 1)).collect();
                places.sort_unstable();
                if let [first, .., end] = &mut places[..] {
                    (*first, *end) = (0, last as u64);
                }
                places.into_iter().map(|place| value(place as f32)).collect()
            }
        };
        context.tensor(&meta.shape, &elements)
    }
}
