//! Products of sixteen columns with runs of pixels that are read where they lie, and products that are added to runs where
//! they lie.

use super::{Block, LANES, Offsets, ROWS, multiply_at};
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

/// Runs that products are added to at a time.
pub(in super::super) const ADDED: usize = 2 * LANES / RUN;

/// The product of a panel of rows and two of columns, side by side at each offset of the source, added to `sums`: each
/// row's [`ADDED`] runs at `starts`, from the row's own place on. Rows that have no place are dropped.
#[inline]
pub(in super::super) fn add_runs(
    rows: &[f32],
    source: &[f32],
    offsets: Offsets<'_>,
    places: &[u32],
    starts: [usize; ADDED],
    sums: &mut [f32],
) {
    let inside = |place: &u32| starts.iter().all(|start| start + *place as usize + RUN <= sums.len());
    assert!(places.len() <= ROWS && places.iter().all(inside), "every run lies inside the sums");
    #[cfg(target_arch = "x86_64")]
    if super::has_avx512() && places.len() == ROWS {
        let rows = &rows[..offsets.len() * ROWS];
        let source = &source[..offsets.reach + 2 * LANES];
        // SAFETY: the features are there, the panel has as many steps as there are offsets, all lie inside, and so do the
        // runs.
        return unsafe {
            super::avx512::add_runs(rows.as_ptr(), source.as_ptr(), offsets.steps, places, starts, sums.as_mut_ptr())
        };
    }
    let mut blocks: [Block; 2] = [[[0.0; LANES]; ROWS]; 2];
    multiply_at(rows, [source, &source[LANES..]], offsets, &mut blocks);
    vectorized(
        #[inline(always)]
        || add_blocks(&blocks, places, starts, sums),
    );
}

#[inline(always)]
pub(super) fn add_blocks(blocks: &[Block; 2], places: &[u32], starts: [usize; ADDED], sums: &mut [f32]) {
    for (block, starts) in blocks.iter().zip(starts.as_chunks::<{ ADDED / 2 }>().0) {
        for (values, place) in block.iter().zip(places) {
            for (values, start) in values.as_chunks::<RUN>().0.iter().zip(starts) {
                if let Some(sums) = sums[start + *place as usize..].first_chunk_mut::<RUN>() {
                    *sums = std::array::from_fn(|lane| sums[lane] + values[lane]);
                }
            }
        }
    }
}
