//! Runs of elements that lie side by side, each folded into one.

use std::ops::Range;

use super::fold::{Fold, State};
use super::{Sizes, TILE};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::Run;

/// Folds `[kept, folded, kept, folded]` to `[kept, kept]`.
pub(super) fn fold<F: Fold>(fold: F, x: &[f32], sizes: &Sizes, y: &mut [F::Result], run: &Run<'_>) -> Result<()> {
    let count = sizes.folded();
    let parts = count.div_ceil(TILE);
    if parts <= 1 {
        let grain = (TILE / count.max(1)).max(1);
        return run.chunks(y, grain, |tile, y| {
            vectorized(
                #[inline(always)]
                || {
                    for (index, y) in y.iter_mut().enumerate() {
                        *y = fold.finish(fold_part(fold, x, sizes, tile * grain + index, 0..count), count);
                    }
                },
            );
        });
    }
    // Four floats hold a state.
    let mut scratch = run.scratch(y.len() * parts * 4)?;
    let states: &mut [State] = bytemuck::cast_slice_mut(scratch.floats());
    run.chunks(states, 1, |index, state| {
        let part = index % parts;
        let range = part * TILE..count.min((part + 1) * TILE);
        vectorized(
            #[inline(always)]
            || state.fill(fold_part(fold, x, sizes, index / parts, range)),
        );
    })?;
    for (y, states) in y.iter_mut().zip(states.chunks(parts)) {
        run.cancel.check()?;
        let mut all = (states[0], TILE);
        for (part, &state) in states.iter().enumerate().skip(1) {
            let more = TILE.min(count - part * TILE);
            all = (fold.merge(all, (state, more)), all.1 + more);
        }
        *y = fold.finish(all.0, count);
    }
    Ok(())
}

/// Folds part of the elements that one result is made of.
#[inline(always)]
fn fold_part<F: Fold>(fold: F, x: &[f32], sizes: &Sizes, result: usize, part: Range<usize>) -> State {
    let (outer, inner) = (result / sizes.kept_inner, result % sizes.kept_inner);
    let length = sizes.folded_inner;
    let (first, last) = (part.start / length, part.end.div_ceil(length));
    fold.runs((first..last).map(
        #[inline(always)]
        |row| {
            let start = ((outer * sizes.folded_outer + row) * sizes.kept_inner + inner) * length;
            let skipped = part.start.saturating_sub(row * length);
            &x[start + skipped..start + length.min(part.end - row * length)]
        },
    ))
}
