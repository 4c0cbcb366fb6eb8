//! Elements as levels of their bucket, packed. A tile is whole buckets, and their codes are whole words.

use super::two;
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::random;
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::codec::levels::{GROUP, factors, levels, scale};
use crate::op::{Dequantize, Quantize};
use crate::run::{Parts, Run};

/// Elements per tile, about.
const TILE: usize = 1 << 14;

/// Elements whose random numbers are made at a time.
const PIECE: usize = random::AT_ONCE;

/// Calls a function that is compiled for each width of a code.
macro_rules! by_bits {
    ($bits:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $bits {
            2 => $function::<2>($($argument),*),
            3 => $function::<3>($($argument),*),
            4 => $function::<4>($($argument),*),
            5 => $function::<5>($($argument),*),
            6 => $function::<6>($($argument),*),
            7 => $function::<7>($($argument),*),
            _ => $function::<8>($($argument),*),
        }
    };
}

/// Elements of a tile: whole buckets.
fn tile(bucket: usize) -> usize {
    bucket * (TILE / bucket).max(1)
}

pub(in super::super) fn quantize(
    op: &Quantize,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let x = inputs[0].floats()?;
    let [scales, codes] = two(op, outputs)?;
    let (scales, codes) = (Parts::new(scales.floats()?), Parts::new(codes.elements::<u32>()?));
    let bits = op.bits as usize;
    run.ranges(x.len(), tile(op.bucket), |range| {
        let buckets = range.start / op.bucket..range.end.div_ceil(op.bucket);
        let words = range.start / GROUP * bits..(range.end * bits).div_ceil(32);
        // SAFETY: a tile is whole buckets and starts with a whole word, so those of others begin where it ends.
        let (scales, codes) = unsafe { (scales.part(buckets), codes.part(words)) };
        let (x, start) = (&x[range.clone()], range.start);
        vectorized(
            #[inline(always)]
            || {
                x.chunks(op.bucket).zip(&mut *scales).for_each(|(x, into)| *into = scale(largest(x)));
                by_bits!(op.bits, encode(op, start, x, scales, codes));
            },
        );
    })
}

/// The largest in size, as bits: NaN is above all.
#[inline(always)]
fn largest(x: &[f32]) -> u32 {
    x.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff))
}

#[inline(always)]
fn encode<const BITS: usize>(op: &Quantize, start: usize, x: &[f32], scales: &[f32], words: &mut [u32]) {
    let highest = levels(BITS as u32);
    for (piece, x) in x.chunks(PIECE).enumerate() {
        let at = piece * PIECE;
        let chances = random::units(op.stream, ((start + at) / 4) as u64);
        let mut codes = [0_u32; PIECE];
        let mut done = 0;
        // A piece may be part of a bucket, or several.
        while done < x.len() {
            let bucket = (at + done) / op.bucket;
            let end = x.len().min((bucket + 1) * op.bucket - at);
            if let Some(factors) = factors(scales[bucket], highest) {
                let inside = done..end;
                let (codes, x, chances) = (&mut codes[inside.clone()], &x[inside.clone()], &chances[inside]);
                encode_bucket::<BITS>(factors, x, chances, codes);
            }
            done = end;
        }
        for (codes, words) in codes.chunks_exact(GROUP).zip(words[at / GROUP * BITS..].chunks_mut(BITS)) {
            pack::<BITS>(codes, words);
        }
    }
}

#[inline(always)]
fn encode_bucket<const BITS: usize>((lift, inverse): (f32, f32), x: &[f32], chances: &[f32], codes: &mut [u32]) {
    // Added to a whole number below 2^23, it makes that the lowest bits: a conversion is not done in vectors.
    const WHOLE: f32 = (1 << 23) as f32;
    let highest = levels(BITS as u32);
    for ((code, &x), &chance) in codes.iter_mut().zip(x).zip(chances) {
        let exact = x.abs() * lift * inverse;
        let below = exact.floor();
        let level = below + if chance < exact - below { 1.0 } else { 0.0 };
        let level = (level.min(highest as f32) + WHOLE).to_bits() & highest;
        let sign = x.to_bits() >> 31 & u32::from(level != 0);
        *code = level | sign << (BITS - 1);
    }
}

/// 32 codes as words; the last few words of all may not be there.
#[inline(always)]
fn pack<const BITS: usize>(codes: &[u32], words: &mut [u32]) {
    let mut packed = [0_u32; 8];
    for (index, &code) in codes.iter().enumerate() {
        let (word, shift) = (index * BITS / 32, index * BITS % 32);
        packed[word] |= code << shift;
        if shift + BITS > 32 {
            packed[word + 1] |= code >> (32 - shift);
        }
    }
    words.copy_from_slice(&packed[..words.len()]);
}

pub(in super::super) fn dequantize(
    op: &Dequantize,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (scales, codes) = (inputs[0].floats()?, inputs[1].elements::<u32>()?);
    let size = tile(op.bucket);
    run.chunks(outputs[0].floats()?, size, |tile, y| {
        let scales = &scales[tile * size / op.bucket..];
        let codes = &codes[tile * size / GROUP * op.bits as usize..];
        vectorized(
            #[inline(always)]
            || by_bits!(op.bits, decode(op.bucket, scales, codes, y)),
        );
    })
}

#[inline(always)]
fn decode<const BITS: usize>(bucket: usize, scales: &[f32], codes: &[u32], y: &mut [f32]) {
    let highest = levels(BITS as u32);
    for (group, (y, words)) in y.chunks_mut(GROUP).zip(codes.chunks(BITS)).enumerate() {
        let scale = scales[group * GROUP / bucket];
        let scale = if scale.is_finite() { scale } else { f32::NAN };
        let step = scale * (1.0 / highest as f32);
        let mut values = [0.0; GROUP];
        for (value, code) in values.iter_mut().zip(unpack::<BITS>(words)) {
            let level = code & highest;
            let size = if level == highest { scale } else { level as f32 * step };
            *value = f32::from_bits(size.to_bits() ^ (code >> (BITS - 1)) << 31);
        }
        y.copy_from_slice(&values[..y.len()]);
    }
}

/// 32 codes from their words; of the last ones those that are not there are zero.
#[inline(always)]
fn unpack<const BITS: usize>(words: &[u32]) -> [u32; GROUP] {
    let mut packed = [0_u32; 8];
    packed[..words.len()].copy_from_slice(words);
    std::array::from_fn(|index| {
        let (word, shift) = (index * BITS / 32, index * BITS % 32);
        let high = if shift + BITS > 32 { packed[word + 1] << (32 - shift) } else { 0 };
        (packed[word] >> shift | high) & ((1 << BITS) - 1)
    })
}
