//! Whole arenas at once.

use super::memory::{Input, Output};
use super::simd::vectorized;
use crate::error::Result;
use crate::op::Accumulate;
use crate::run::Run;

/// Elements per tile.
const TILE: usize = 1 << 15;

pub(super) fn accumulate(
    op: &Accumulate,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let from = inputs[0].floats()?;
    run.chunks(outputs[0].floats()?, TILE, |index, into| {
        let from = &from[index * TILE..][..into.len()];
        vectorized(|| into.iter_mut().zip(from).for_each(|(into, &from)| *into += op.scale * from));
    })
}
