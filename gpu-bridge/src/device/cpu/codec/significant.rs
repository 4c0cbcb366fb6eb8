//! Changes that are large beside what they change.

use super::{TILE, two};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::Significant;
use crate::run::{Parts, Run};

pub(in super::super) fn significant(
    op: &Significant,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (changes, weights) = (inputs[0].floats()?, inputs[1].floats()?);
    let [kept, count] = two(op, outputs)?;
    let kept = Parts::new(kept.floats()?);
    let mut scratch = run.scratch(changes.len().div_ceil(TILE))?;
    let counts = bytemuck::cast_slice_mut::<f32, u32>(scratch.floats());
    run.chunks(counts, 1, |tile, count| {
        let range = tile * TILE..changes.len().min((tile + 1) * TILE);
        let (changes, weights) = (&changes[range.clone()], &weights[range.clone()]);
        // SAFETY: the ranges of different tiles do not overlap.
        let kept = unsafe { kept.part(range) };
        vectorized(
            #[inline(always)]
            || count[0] = keep(op, changes, weights, kept),
        );
    })?;
    count.elements::<u32>()?[0] = counts.iter().sum();
    Ok(())
}

/// Copies what is worth sending, zeros in place of the rest, and says how many it was.
#[inline(always)]
fn keep(op: &Significant, changes: &[f32], weights: &[f32], kept: &mut [f32]) -> u32 {
    let mut count = 0;
    for ((kept, &change), &weight) in kept.iter_mut().zip(changes).zip(weights) {
        let keeps = op.keeps(change, weight);
        *kept = if keeps { change } else { 0.0 };
        count += u32::from(keeps);
    }
    count
}
