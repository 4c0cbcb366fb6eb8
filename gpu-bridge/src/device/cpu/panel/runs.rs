//! Products of sixteen columns with runs of pixels that are read where they lie.

use super::{LANES, Offsets};
use crate::device::cpu::simd::vectorized;

/// Pixels of a run, and how many runs there are at a time.
pub(in super::super) const RUN: usize = 8;
pub(in super::super) const RUNS: usize = 3;

/// For each pixel of some runs, the sum over the depth of what lies there, at an offset of the step, times [`LANES`] columns.
#[inline]
pub(in super::super) fn multiply_runs(
    columns: &[f32],
    sources: [&[f32]; RUNS],
    offsets: Offsets<'_>,
) -> [[[f32; LANES]; RUN]; RUNS] {
    let columns = &columns[..offsets.len() * LANES];
    let sources = sources.map(|source| &source[..offsets.reach + RUN]);
    #[cfg(target_arch = "x86_64")]
    if super::has_avx512() {
        let sources = sources.map(<[f32]>::as_ptr);
        // SAFETY: the features are there, the columns have as many steps as there are offsets, and all lie inside.
        return unsafe { super::avx512::multiply_runs(columns.as_ptr(), sources, offsets.steps) };
    }
    plain(columns, sources, offsets.steps)
}

/// On any machine.
pub(super) fn plain(columns: &[f32], sources: [&[f32]; RUNS], offsets: &[u32]) -> [[[f32; LANES]; RUN]; RUNS] {
    let mut sums = [[[0.0; LANES]; RUN]; RUNS];
    vectorized(
        #[inline(always)]
        || {
            for (source, sums) in sources.into_iter().zip(&mut sums) {
                for (&offset, columns) in offsets.iter().zip(columns.as_chunks::<LANES>().0) {
                    for (&factor, sums) in source[offset as usize..].iter().zip(&mut *sums) {
                        sums.iter_mut().zip(columns).for_each(|(sum, &x)| *sum += factor * x);
                    }
                }
            }
        },
    );
    sums
}
