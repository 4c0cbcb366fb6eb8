//! The inner loops with vectors of sixteen: one vector is a row of a block.
//!
//! Six sums are too few to keep two multipliers busy, so every second step of the depth has sums of its own.

use std::arch::x86_64::{
    __m512, __mmask16, _mm_add_ps, _mm_storeu_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_extractf128_ps,
    _mm256_hadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps, _mm512_add_ps, _mm512_castps512_ps256,
    _mm512_extractf32x8_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps,
};

use super::runs::{ADDED, RUN, RUNS};
use super::{Block, DOT_COLUMNS, DOT_ROWS, DotSums, LANES, ROWS, Segments};

type Sums = [__m512; ROWS];

/// Both sums of each row, added.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn store(sums: [Sums; 2], block: &mut Block) {
    for (row, into) in block.iter_mut().enumerate() {
        // SAFETY: a row is one vector long.
        unsafe { _mm512_storeu_ps(into.as_mut_ptr(), _mm512_add_ps(sums[0][row], sums[1][row])) };
    }
}

/// # Safety
/// The panels have `depth` steps.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn multiply(depth: usize, mut rows: *const f32, mut columns: *const f32, block: &mut Block) {
    let mut sums = [[_mm512_setzero_ps(); ROWS]; 2];
    for _ in 0..depth / 2 {
        for (half, sums) in sums.iter_mut().enumerate() {
            // SAFETY: within the panels, by the contract.
            unsafe {
                let values = _mm512_loadu_ps(columns.add(half * LANES));
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_fmadd_ps(_mm512_set1_ps(*rows.add(half * ROWS + row)), values, *sum);
                }
            }
        }
        rows = rows.wrapping_add(2 * ROWS);
        columns = columns.wrapping_add(2 * LANES);
    }
    if depth % 2 == 1 {
        // SAFETY: as above.
        unsafe {
            let values = _mm512_loadu_ps(columns);
            for (row, sum) in sums[0].iter_mut().enumerate() {
                *sum = _mm512_fmadd_ps(_mm512_set1_ps(*rows.add(row)), values, *sum);
            }
        }
    }
    store(sums, block);
}

/// # Safety
/// The panel has as many steps as there are offsets, and at each there are [`LANES`] elements in both sources.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn multiply_at(
    mut rows: *const f32,
    sources: [*const f32; 2],
    offsets: &[u32],
    blocks: &mut [Block; 2],
) {
    let mut sums = [[_mm512_setzero_ps(); ROWS]; 2];
    for &offset in offsets {
        // SAFETY: by the contract.
        unsafe {
            let values = sources.map(|source| _mm512_loadu_ps(source.add(offset as usize)));
            let [first, second] = &mut sums;
            for (row, (first, second)) in first.iter_mut().zip(second).enumerate() {
                let factor = _mm512_set1_ps(*rows.add(row));
                *first = _mm512_fmadd_ps(factor, values[0], *first);
                *second = _mm512_fmadd_ps(factor, values[1], *second);
            }
        }
        rows = rows.wrapping_add(ROWS);
    }
    for (sums, block) in sums.iter().zip(blocks) {
        for (sum, into) in sums.iter().zip(block) {
            // SAFETY: a row is one vector long.
            unsafe { _mm512_storeu_ps(into.as_mut_ptr(), *sum) };
        }
    }
}

/// # Safety
/// The panel has as many steps as there are offsets, and at each there are twice [`LANES`] elements in the source; there is a
/// place for each row, and from each start and place on there are [`RUN`] sums that nobody else uses.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn add_runs(
    mut rows: *const f32,
    source: *const f32,
    offsets: &[u32],
    places: &[u32],
    starts: [usize; ADDED],
    into: *mut f32,
) {
    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
    for &offset in offsets {
        // SAFETY: by the contract.
        unsafe {
            let source = source.add(offset as usize);
            let (low, high) = (_mm512_loadu_ps(source), _mm512_loadu_ps(source.add(LANES)));
            for (row, [first, second]) in sums.iter_mut().enumerate() {
                let factor = _mm512_set1_ps(*rows.add(row));
                *first = _mm512_fmadd_ps(factor, low, *first);
                *second = _mm512_fmadd_ps(factor, high, *second);
            }
        }
        rows = rows.wrapping_add(ROWS);
    }
    for ([first, second], place) in sums.iter().zip(places) {
        let runs = [
            _mm512_castps512_ps256(*first),
            _mm512_extractf32x8_ps::<1>(*first),
            _mm512_castps512_ps256(*second),
            _mm512_extractf32x8_ps::<1>(*second),
        ];
        for (run, start) in runs.iter().zip(starts) {
            // SAFETY: by the contract.
            unsafe {
                let into = into.add(start + *place as usize);
                _mm256_storeu_ps(into, _mm256_add_ps(_mm256_loadu_ps(into), *run));
            }
        }
    }
}

/// # Safety
/// There are columns for each offset, and a run at each in all sources.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn multiply_runs(
    mut columns: *const f32,
    sources: [*const f32; RUNS],
    offsets: &[u32],
) -> [[[f32; LANES]; RUN]; RUNS] {
    let mut sums = [[_mm512_setzero_ps(); RUN]; RUNS];
    for &offset in offsets {
        // SAFETY: by the contract.
        unsafe {
            let values = _mm512_loadu_ps(columns);
            for (source, sums) in sources.iter().zip(&mut sums) {
                let source = source.add(offset as usize);
                for (pixel, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_fmadd_ps(_mm512_set1_ps(*source.add(pixel)), values, *sum);
                }
            }
        }
        columns = columns.wrapping_add(LANES);
    }
    let mut result = [[[0.0; LANES]; RUN]; RUNS];
    for (sum, into) in sums.as_flattened().iter().zip(result.as_flattened_mut()) {
        // SAFETY: as many floats as a vector has.
        unsafe { _mm512_storeu_ps(into.as_mut_ptr(), *sum) };
    }
    result
}

/// # Safety
/// The sources reach to the last pixel, and there are columns for each.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn add_outer(
    pixels: &[u32],
    sources: [*const f32; ROWS],
    mut columns: *const f32,
    block: &mut Block,
) {
    // SAFETY: a row of the block is one vector long.
    let before = std::array::from_fn(|row| unsafe { _mm512_loadu_ps(block[row].as_ptr()) });
    let mut sums = [before, [_mm512_setzero_ps(); ROWS]];
    let (pairs, last) = pixels.as_chunks::<2>();
    for pair in pairs {
        for ((half, &at), sums) in pair.iter().enumerate().zip(&mut sums) {
            // SAFETY: by the contract.
            unsafe {
                let values = _mm512_loadu_ps(columns.add(half * LANES));
                for (source, sum) in sources.iter().zip(sums) {
                    *sum = _mm512_fmadd_ps(_mm512_set1_ps(*source.add(at as usize)), values, *sum);
                }
            }
        }
        columns = columns.wrapping_add(2 * LANES);
    }
    for &at in last {
        // SAFETY: by the contract.
        unsafe {
            let values = _mm512_loadu_ps(columns);
            for (source, sum) in sources.iter().zip(&mut sums[0]) {
                *sum = _mm512_fmadd_ps(_mm512_set1_ps(*source.add(at as usize)), values, *sum);
            }
        }
    }
    store(sums, block);
}

/// # Safety
/// All rows have `segments` pieces of `depth` elements, and there is at least one.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn add_dots(
    segments: usize,
    depth: usize,
    a: Segments<'_, DOT_ROWS>,
    b: Segments<'_, DOT_COLUMNS>,
    into: &mut DotSums,
) {
    let mut sums = [[_mm512_setzero_ps(); DOT_COLUMNS]; DOT_ROWS];
    for (sums, into) in sums.as_flattened_mut().iter_mut().zip(into.as_flattened()) {
        // SAFETY: a vector's worth of lanes.
        *sums = unsafe { _mm512_loadu_ps(into.as_ptr()) };
    }
    let (mut rows, mut columns) = ([a.rows[0].as_ptr(); DOT_ROWS], [b.rows[0].as_ptr(); DOT_COLUMNS]);
    for (pointer, row) in rows.iter_mut().zip(a.rows) {
        *pointer = row.as_ptr();
    }
    for (pointer, column) in columns.iter_mut().zip(b.rows) {
        *pointer = column.as_ptr();
    }
    let whole = depth / LANES * LANES;
    // What is behind the last element is neither read nor counted.
    let mask: __mmask16 = (1 << (depth - whole)) - 1;
    for _ in 0..segments {
        for at in (0..whole).step_by(LANES) {
            // SAFETY: all these elements lie below `depth`.
            unsafe {
                let mut values = [_mm512_setzero_ps(); DOT_ROWS];
                for (values, row) in values.iter_mut().zip(rows) {
                    *values = _mm512_loadu_ps(row.add(at));
                }
                for (column, pointer) in columns.iter().enumerate() {
                    let factor = _mm512_loadu_ps(pointer.add(at));
                    for (row, values) in values.iter().enumerate() {
                        sums[row][column] = _mm512_fmadd_ps(*values, factor, sums[row][column]);
                    }
                }
            }
        }
        if mask != 0 {
            // SAFETY: only elements below `depth` are read.
            unsafe {
                let mut values = [_mm512_setzero_ps(); DOT_ROWS];
                for (values, row) in values.iter_mut().zip(rows) {
                    *values = _mm512_maskz_loadu_ps(mask, row.add(whole));
                }
                for (column, pointer) in columns.iter().enumerate() {
                    let factor = _mm512_maskz_loadu_ps(mask, pointer.add(whole));
                    for (row, values) in values.iter().enumerate() {
                        sums[row][column] = _mm512_fmadd_ps(*values, factor, sums[row][column]);
                    }
                }
            }
        }
        for row in &mut rows {
            *row = row.wrapping_add(a.step);
        }
        for column in &mut columns {
            *column = column.wrapping_add(b.step);
        }
    }
    for (sums, into) in sums.as_flattened().iter().zip(into.as_flattened_mut()) {
        // SAFETY: a vector's worth of lanes.
        unsafe { _mm512_storeu_ps(into.as_mut_ptr(), *sums) };
    }
}

/// # Safety
/// The features are there.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn total(sums: &DotSums) -> [[f32; DOT_COLUMNS]; DOT_ROWS] {
    let mut totals = [[0.0; DOT_COLUMNS]; DOT_ROWS];
    for (sums, totals) in sums.iter().zip(&mut totals) {
        let mut eights = [_mm256_setzero_ps(); DOT_COLUMNS];
        for (eight, sums) in eights.iter_mut().zip(sums) {
            // SAFETY: two vectors' worth of lanes.
            *eight = unsafe { _mm256_add_ps(_mm256_loadu_ps(sums.as_ptr()), _mm256_loadu_ps(sums.as_ptr().add(8))) };
        }
        let pairs = _mm256_hadd_ps(_mm256_hadd_ps(eights[0], eights[1]), _mm256_hadd_ps(eights[2], eights[3]));
        let total = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
        // SAFETY: four floats have room in four floats.
        unsafe { _mm_storeu_ps(totals.as_mut_ptr(), total) };
    }
    totals
}
