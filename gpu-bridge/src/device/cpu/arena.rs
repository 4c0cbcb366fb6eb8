//! Whole arenas at once. All of it is bound by memory: each operand is read and written once, in one pass.

use smallvec::SmallVec;

use super::memory::{Input, Output};
use super::simd::vectorized;
use crate::error::Result;
use crate::op::{Accumulate, AdmmGradient, Blend, ClipNorm, WeightedAverage};
use crate::run::Run;

mod optimizer;

pub(super) use optimizer::optimize;

/// Elements per tile.
const TILE: usize = 1 << 15;

/// Elements that are summed over all inputs before they are stored: they stay in the first-level cache.
const BLOCK: usize = 256;

/// Inputs that are read side by side: about as many streams as hardware prefetchers follow.
const STREAMS: usize = 8;

/// Elements that are summed in registers.
const LANES: usize = 16;

/// From this many elements on a result does not stay in any cache, so it is stored past them. Measured with 8 inputs of
/// 25 million: 1.3 times the bytes per second.
const UNCACHED: usize = 1 << 21;

pub(super) fn accumulate(
    op: &Accumulate,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let from = inputs[0].floats()?;
    run.chunks(outputs[0].floats()?, TILE, |tile, into| {
        let from = &from[tile * TILE..][..into.len()];
        vectorized(
            #[inline(always)]
            || into.iter_mut().zip(from).for_each(|(into, &from)| *into += op.scale * from),
        );
    })
}

pub(super) fn blend(op: &Blend, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let from = inputs[0].floats()?;
    run.chunks(outputs[0].floats()?, TILE, |tile, into| {
        let from = &from[tile * TILE..][..into.len()];
        vectorized(
            #[inline(always)]
            || into.iter_mut().zip(from).for_each(|(into, &from)| *into += op.amount * (from - *into)),
        );
    })
}

pub(super) fn clip_norm(op: &ClipNorm, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let scale = op.scale(inputs[0].floats()?[0]);
    if scale == 1.0 {
        return Ok(());
    }
    run.chunks(outputs[0].floats()?, TILE, |_, gradients| {
        vectorized(
            #[inline(always)]
            || gradients.iter_mut().for_each(|gradient| *gradient *= scale),
        );
    })
}

pub(super) fn admm_gradient(
    op: &AdmmGradient,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (x, z, u) = (inputs[0].floats()?, inputs[1].floats()?, inputs[2].floats()?);
    run.chunks(outputs[0].floats()?, TILE, |tile, gradients| {
        let start = tile * TILE;
        let count = gradients.len();
        let (x, z, u) = (&x[start..][..count], &z[start..][..count], &u[start..][..count]);
        vectorized(
            #[inline(always)]
            || {
                for (((gradient, &x), &z), &u) in gradients.iter_mut().zip(x).zip(z).zip(u) {
                    *gradient += op.rho * (x - z + u);
                }
            },
        );
    })
}

pub(super) fn admm_dual(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (x, z) = (inputs[0].floats()?, inputs[1].floats()?);
    run.chunks(outputs[0].floats()?, TILE, |tile, u| {
        let (x, z) = (&x[tile * TILE..][..u.len()], &z[tile * TILE..][..u.len()]);
        vectorized(
            #[inline(always)]
            || u.iter_mut().zip(x).zip(z).for_each(|((u, &x), &z)| *u += x - z),
        );
    })
}

pub(super) fn weighted_average(
    op: &WeightedAverage,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let inputs = inputs.iter().map(Input::floats).collect::<Result<SmallVec<[&[f32]; 16]>>>()?;
    let average = outputs[0].floats()?;
    let past_caches = average.len() >= UNCACHED;
    run.paced_chunks(average, TILE, |pace, tile, average| {
        for (block, average) in average.chunks_mut(BLOCK).enumerate() {
            let mut sums = [0.0; BLOCK];
            let start = tile * TILE + block * BLOCK;
            for (inputs, weights) in inputs.chunks(STREAMS).zip(op.weights.chunks(STREAMS)) {
                pace.step(STREAMS * BLOCK)?;
                vectorized(
                    #[inline(always)]
                    || add_weighted(&mut sums[..average.len()], inputs, weights, start),
                );
            }
            store(average, &sums, past_caches);
        }
        if past_caches {
            finish_stores();
        }
        Ok(())
    })
}

/// Adds some inputs, from an element on, in order.
#[inline(always)]
fn add_weighted(sums: &mut [f32], inputs: &[&[f32]], weights: &[f32], start: usize) {
    let mut pieces = sums.chunks_exact_mut(LANES);
    let mut at = start;
    for piece in &mut pieces {
        let mut lanes = [0.0; LANES];
        lanes.copy_from_slice(piece);
        for (input, &weight) in inputs.iter().zip(weights) {
            let input = &input[at..][..LANES];
            lanes.iter_mut().zip(input).for_each(|(lane, &x)| *lane += weight * x);
        }
        piece.copy_from_slice(&lanes);
        at += LANES;
    }
    for (index, sum) in pieces.into_remainder().iter_mut().enumerate() {
        for (input, &weight) in inputs.iter().zip(weights) {
            *sum += weight * input[at + index];
        }
    }
}

/// Copies what belongs to one tile, past the caches if asked to and possible. [`finish_stores`] must follow.
#[inline(always)]
fn store(into: &mut [f32], from: &[f32; BLOCK], past_caches: bool) {
    #[cfg(target_arch = "x86_64")]
    if past_caches && into.len() == BLOCK && into.as_ptr().align_offset(16) == 0 {
        use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
        for (into, from) in into.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
            // SAFETY: four floats on both sides; the target is aligned to 16 bytes, just checked. SSE is part of x86-64.
            unsafe { _mm_stream_ps(into.as_mut_ptr(), _mm_loadu_ps(from.as_ptr())) };
        }
        return;
    }
    let _ = past_caches;
    into.copy_from_slice(&from[..into.len()]);
}

/// Makes what was stored past the caches visible to the thread that hears of the tile being done.
fn finish_stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
