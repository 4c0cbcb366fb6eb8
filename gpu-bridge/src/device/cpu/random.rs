//! Constants, counts and random numbers. The head of `op/random.rs` defines every bit of them.

use super::memory::{Input, Output};
use super::simd::vectorized;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::op::{Dropout, Fill, Iota, Normal, Stream, Uniform};
use crate::run::Run;

mod normal;

/// Elements per tile of what only writes memory.
const TILE: usize = 1 << 16;

/// Elements per tile of random numbers: a multiple of what is made at a time.
const RANDOM_TILE: usize = 1 << 14;

pub(super) fn fill(op: &Fill, outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let output = &mut outputs[0];
    match op.dtype {
        DType::F32 => fill_with(op.value as f32, output, run),
        DType::F16 => fill_with(half::f16::from_f64(op.value), output, run),
        DType::U8 => fill_with(op.value as u8, output, run),
        DType::I32 => fill_with(op.value as i32, output, run),
        DType::U32 => fill_with(op.value as u32, output, run),
    }
}

fn fill_with<T: Element>(value: T, output: &mut Output<'_>, run: &Run<'_>) -> Result<()> {
    run.chunks(output.elements::<T>()?, TILE, |_, part| part.fill(value))
}

pub(super) fn iota(op: &Iota, outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let output = &mut outputs[0];
    match op.dtype {
        DType::F32 => count(op, output, run, |bits| bits as i32 as f32),
        DType::F16 => count(op, output, run, |bits| half::f16::from_f32(bits as i32 as f32)),
        DType::U8 => count(op, output, run, |bits| bits as u8),
        DType::I32 => count(op, output, run, |bits| bits as i32),
        DType::U32 => count(op, output, run, |bits| bits),
    }
}

/// Every value fits 32 bits, so it is right however often its parts wrap around.
fn count<T: Element>(op: &Iota, output: &mut Output<'_>, run: &Run<'_>, f: impl Fn(u32) -> T + Sync) -> Result<()> {
    let (start, step) = (op.start as u32, op.step as u32);
    run.chunks(output.elements::<T>()?, TILE, |index, part| {
        let first = start.wrapping_add(step.wrapping_mul((index * TILE) as u32));
        vectorized(
            #[inline(always)]
            || {
                (0_u32..).zip(part).for_each(|(at, place)| *place = f(first.wrapping_add(step.wrapping_mul(at))));
            },
        );
    })
}

pub(super) fn uniform(op: &Uniform, outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (low, span, highest) = (op.low, op.high - op.low, op.high.next_down());
    run.chunks(outputs[0].floats()?, RANDOM_TILE, |tile, y| {
        generate(
            op.stream,
            tile,
            y,
            #[inline(always)]
            |words, y, _| {
                let words = interleave(words.map(|word| word.map(|bits| (bits >> 8) as f32 * UNIT)));
                y.iter_mut().zip(&words).for_each(|(y, &u)| *y = (low + span * u).min(highest));
            },
        );
    })
}

pub(super) fn normal(op: &Normal, outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (mean, deviation) = (op.mean, op.deviation);
    run.chunks(outputs[0].floats()?, RANDOM_TILE, |tile, y| {
        generate(
            op.stream,
            tile,
            y,
            #[inline(always)]
            |[a, b, c, d], y, _| {
                let ([x0, x1], [x2, x3]) = (normal::pair(a, b), normal::pair(c, d));
                let normal = interleave([x0, x1, x2, x3]);
                y.iter_mut().zip(&normal).for_each(|(y, &x)| *y = mean + deviation * x);
            },
        );
    })
}

pub(super) fn dropout(op: &Dropout, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let x = inputs[0].floats()?;
    let (threshold, scale) = (op.threshold(), op.scale());
    run.chunks(outputs[0].floats()?, RANDOM_TILE, |tile, y| {
        let x = &x[tile * RANDOM_TILE..][..y.len()];
        generate(
            op.stream,
            tile,
            y,
            #[inline(always)]
            |words, y, at| {
                // All bits or none: what is dropped is zero whatever it was.
                let masks = interleave(words.map(|word| word.map(|bits| if bits >= threshold { u32::MAX } else { 0 })));
                let x = &x[at..][..y.len()];
                for ((y, &x), &mask) in y.iter_mut().zip(x).zip(&masks) {
                    *y = f32::from_bits((x * scale).to_bits() & mask);
                }
            },
        );
    })
}

/// A number of 24 bits times this is in `[0, 1)`.
const UNIT: f32 = 1.0 / (1 << 24) as f32;

/// How many blocks are made at a time: enough that the compiler makes a loop of vectors of it.
const LANES: usize = 64;

/// How many elements come of as many blocks.
pub(super) const AT_ONCE: usize = 4 * LANES;

/// One word of each of as many blocks.
type Lanes<T> = [T; LANES];

/// Calls `body` for the pieces of a tile, as many elements at a time as come of [`LANES`] blocks, and in the end for what
/// is left: with the words of those blocks, the piece, and where in the tile it starts.
#[inline(always)]
fn generate(stream: Stream, tile: usize, y: &mut [f32], body: impl Fn([Lanes<u32>; 4], &mut [f32], usize)) {
    const WIDTH: usize = AT_ONCE;
    let first = (tile * RANDOM_TILE / 4) as u64;
    vectorized(
        #[inline(always)]
        || {
            let whole = y.len() / WIDTH * WIDTH;
            let (whole, rest) = y.split_at_mut(whole);
            for (piece, y) in whole.chunks_exact_mut(WIDTH).enumerate() {
                body(blocks(stream, first + (piece * LANES) as u64), y, piece * WIDTH);
            }
            if !rest.is_empty() {
                body(blocks(stream, first + (whole.len() / 4) as u64), rest, whole.len());
            }
        },
    );
}

/// Numbers in `[0, 1)` for consecutive elements, from the first of a block on.
#[inline(always)]
pub(super) fn units(stream: Stream, block: u64) -> [f32; AT_ONCE] {
    interleave(blocks(stream, block).map(|word| word.map(|bits| (bits >> 8) as f32 * UNIT)))
}

/// Consecutive blocks of a stream: all first words, all second words and so on.
#[inline(always)]
fn blocks(stream: Stream, first: u64) -> [Lanes<u32>; 4] {
    let mut words = [[0; LANES]; 4];
    let [w0, w1, w2, w3] = &mut words;
    let halves = |wide: u64| (wide as u32, (wide >> 32) as u32);
    let (first, first_high) = halves(first);
    for lane in 0..LANES {
        let mut c0 = first.wrapping_add(lane as u32);
        let mut c1 = first_high.wrapping_add(u32::from(c0 < first));
        let (mut c2, mut c3) = halves(stream.offset);
        let (mut k0, mut k1) = halves(stream.seed);
        for _ in 0..Stream::ROUNDS {
            let p = u64::from(Stream::MULTIPLIERS[0]) * u64::from(c0);
            let q = u64::from(Stream::MULTIPLIERS[1]) * u64::from(c2);
            (c0, c1) = ((q >> 32) as u32 ^ c1 ^ k0, q as u32);
            (c2, c3) = ((p >> 32) as u32 ^ c3 ^ k1, p as u32);
            k0 = k0.wrapping_add(Stream::KEY_STEPS[0]);
            k1 = k1.wrapping_add(Stream::KEY_STEPS[1]);
        }
        (w0[lane], w1[lane], w2[lane], w3[lane]) = (c0, c1, c2, c3);
    }
    words
}

/// Block after block.
#[inline(always)]
fn interleave<T: Copy + Default>([w0, w1, w2, w3]: [Lanes<T>; 4]) -> [T; AT_ONCE] {
    let mut mixed = [T::default(); AT_ONCE];
    for (lane, block) in mixed.chunks_exact_mut(4).enumerate() {
        block.copy_from_slice(&[w0[lane], w1[lane], w2[lane], w3[lane]]);
    }
    mixed
}
