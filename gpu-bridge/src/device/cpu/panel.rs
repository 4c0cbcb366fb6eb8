//! The inner loops of convolution: small blocks of a product, kept in registers.
//!
//! Operands are packed into *panels*, in the order in which the loops read them: [`ROWS`] rows or [`LANES`] columns side
//! by side, depth after depth. So a kernel can gather what it multiplies straight into place, and nothing is packed
//! twice.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
mod avx512;
mod outer;
mod runs;
#[cfg(test)]
mod tests;

pub(super) use outer::add_outer;
pub(super) use runs::{ADDED, RUN, RUNS, add_runs, multiply_runs};

#[cfg(target_arch = "x86_64")]
use super::simd::has_avx512;
use super::simd::vectorized;

/// Rows of a block.
pub(super) const ROWS: usize = 6;

/// Columns of a block: two vectors of eight.
pub(super) const LANES: usize = 16;

/// A block of the product.
pub(super) type Block = [[f32; LANES]; ROWS];

/// The product of a panel of rows (`depth x ROWS`) and one of columns (`depth x LANES`).
#[inline]
pub(super) fn multiply(depth: usize, rows: &[f32], columns: &[f32], block: &mut Block) {
    let (rows, columns) = (&rows[..depth * ROWS], &columns[..depth * LANES]);
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features are there, and both panels have `depth` steps.
        return unsafe { avx512::multiply(depth, rows.as_ptr(), columns.as_ptr(), block) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there, and both panels have `depth` steps.
        return unsafe { multiply_avx2(depth, rows.as_ptr(), columns.as_ptr(), block) };
    }
    vectorized(
        #[inline(always)]
        || {
            *block = [[0.0; LANES]; ROWS];
            for (row, column) in rows.chunks_exact(ROWS).zip(columns.chunks_exact(LANES)) {
                for (sums, &factor) in block.iter_mut().zip(row) {
                    sums.iter_mut().zip(column).for_each(|(sum, &x)| *sum += factor * x);
                }
            }
        },
    );
}

/// # Safety
/// The panels have `depth` steps.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_avx2(depth: usize, mut rows: *const f32, mut columns: *const f32, block: &mut Block) {
    use std::arch::x86_64::{
        _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    for _ in 0..depth {
        // SAFETY: within the panels, by the contract.
        unsafe {
            let (low, high) = (_mm256_loadu_ps(columns), _mm256_loadu_ps(columns.add(8)));
            for (row, sum) in sums.iter_mut().enumerate() {
                let factor = _mm256_broadcast_ss(&*rows.add(row));
                sum[0] = _mm256_fmadd_ps(factor, low, sum[0]);
                sum[1] = _mm256_fmadd_ps(factor, high, sum[1]);
            }
            rows = rows.add(ROWS);
            columns = columns.add(LANES);
        }
    }
    for (row, sum) in block.iter_mut().zip(sums) {
        // SAFETY: a row is two vectors long.
        unsafe {
            _mm256_storeu_ps(row.as_mut_ptr(), sum[0]);
            _mm256_storeu_ps(row.as_mut_ptr().add(8), sum[1]);
        }
    }
}

/// Rows and columns of a block of dot products.
pub(super) const DOT_ROWS: usize = 3;
pub(super) const DOT_COLUMNS: usize = 4;

/// Rows that are multiplied: each goes on in `segments` pieces, `step` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Segments<'a, const N: usize> {
    /// From the first element of each row on.
    pub rows: [&'a [f32]; N],
    pub step: usize,
}

impl<const N: usize> Segments<'_, N> {
    fn hold(&self, segments: usize, depth: usize) -> bool {
        self.rows.iter().all(|row| (segments - 1) * self.step + depth <= row.len())
    }
}

/// Sums of dot products, lane by lane, for as long as more is to be added.
pub(super) type DotSums = [[[f32; LANES]; DOT_COLUMNS]; DOT_ROWS];

/// The dot products of some rows of `a` with some rows of `b`, over `segments` pieces of `depth` elements each: for
/// operands that lie along the depth already. Rows past the end of a matrix may be given as any other row and their
/// results ignored.
#[inline]
pub(super) fn dots(
    segments: usize,
    depth: usize,
    a: Segments<'_, DOT_ROWS>,
    b: Segments<'_, DOT_COLUMNS>,
) -> [[f32; DOT_COLUMNS]; DOT_ROWS] {
    let mut sums = [[[0.0; LANES]; DOT_COLUMNS]; DOT_ROWS];
    add_dots(segments, depth, a, b, &mut sums);
    total(&sums)
}

/// What [`dots`] computes, added to sums.
#[inline]
pub(super) fn add_dots(
    segments: usize,
    depth: usize,
    a: Segments<'_, DOT_ROWS>,
    b: Segments<'_, DOT_COLUMNS>,
    sums: &mut DotSums,
) {
    if segments == 0 {
        return;
    }
    assert!(a.hold(segments, depth) && b.hold(segments, depth), "the rows are long enough");
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features are there, and all rows have all segments.
        return unsafe { avx512::add_dots(segments, depth, a, b, sums) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there, and all rows have all segments.
        return unsafe { add_dots_avx2(segments, depth, a, b, sums) };
    }
    for (row, sums) in a.rows.iter().zip(sums) {
        for (column, sums) in b.rows.iter().zip(sums) {
            for segment in 0..segments {
                let (row, column) = (&row[segment * a.step..][..depth], &column[segment * b.step..][..depth]);
                vectorized(
                    #[inline(always)]
                    || add_products(row, column, sums),
                );
            }
        }
    }
}

#[inline(always)]
fn add_products(a: &[f32], b: &[f32], sums: &mut [f32; LANES]) {
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    for ((a, b), sum) in a_rest.iter().zip(b_rest).zip(sums) {
        *sum += a * b;
    }
}

/// # Safety
/// All rows have `segments` pieces of `depth` elements.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_dots_avx2(
    segments: usize,
    depth: usize,
    a: Segments<'_, DOT_ROWS>,
    b: Segments<'_, DOT_COLUMNS>,
    into: &mut DotSums,
) {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps};
    // Only half of the lanes are used.
    let mut sums = [[_mm256_setzero_ps(); DOT_COLUMNS]; DOT_ROWS];
    for (sums, into) in sums.as_flattened_mut().iter_mut().zip(into.as_flattened()) {
        // SAFETY: there are twice as many lanes.
        *sums = unsafe { _mm256_loadu_ps(into.as_ptr()) };
    }
    let whole = depth / 8 * 8;
    let (mut rows, mut columns) = (a.rows.map(<[f32]>::as_ptr), b.rows.map(<[f32]>::as_ptr));
    for _ in 0..segments {
        let mut at = 0;
        while at < whole {
            // Twelve sums, three rows and one column at a time: all sixteen registers.
            // SAFETY: `at + 8` is at most `depth`.
            unsafe {
                let rows = rows.map(|row| _mm256_loadu_ps(row.add(at)));
                for (column, pointer) in columns.iter().enumerate() {
                    let factor = _mm256_loadu_ps(pointer.add(at));
                    for (row, values) in rows.iter().enumerate() {
                        sums[row][column] = _mm256_fmadd_ps(*values, factor, sums[row][column]);
                    }
                }
            }
            at += 8;
        }
        rows = rows.map(|row| row.wrapping_add(a.step));
        columns = columns.map(|column| column.wrapping_add(b.step));
    }
    for (sums, into) in sums.as_flattened().iter().zip(into.as_flattened_mut()) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(into.as_mut_ptr(), *sums) };
    }
    for segment in 0..segments {
        for at in whole..depth {
            for (into, row) in into.iter_mut().zip(a.rows) {
                for (into, column) in into.iter_mut().zip(b.rows) {
                    into[at - whole] += row[segment * a.step + at] * column[segment * b.step + at];
                }
            }
        }
    }
}

/// What all lanes come to.
#[inline]
pub(super) fn total(sums: &DotSums) -> [[f32; DOT_COLUMNS]; DOT_ROWS] {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features are there.
        return unsafe { avx512::total(sums) };
    }
    sums.map(|sums| {
        sums.map(|lanes| {
            let mut lanes = lanes;
            for width in [8, 4, 2, 1] {
                for lane in 0..width {
                    lanes[lane] += lanes[lane + width];
                }
            }
            lanes[0]
        })
    })
}

/// Where each step of the depth is found, relative to the first.
#[derive(Clone, Copy)]
pub(super) struct Offsets<'a> {
    steps: &'a [u32],
    reach: usize,
}

impl<'a> Offsets<'a> {
    pub(super) fn new(steps: &'a [u32]) -> Self {
        Self { steps, reach: steps.iter().copied().max().unwrap_or(0) as usize }
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Some of the steps.
    pub(super) fn part(self, steps: Range<usize>) -> Self {
        Self { steps: &self.steps[steps], ..self }
    }

    pub(super) fn get(&self, step: usize) -> usize {
        self.steps[step] as usize
    }
}

/// Like [`multiply`] with columns that lie side by side already, each step of the depth at an offset of its own; two
/// sources at a time.
#[inline]
pub(super) fn multiply_at(rows: &[f32], sources: [&[f32]; 2], offsets: Offsets<'_>, blocks: &mut [Block; 2]) {
    let rows = &rows[..offsets.len() * ROWS];
    assert!(sources.iter().all(|source| offsets.reach + LANES <= source.len()), "every step lies inside the source");
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        let sources = sources.map(<[f32]>::as_ptr);
        // SAFETY: the features are there, the panel has as many steps as there are offsets, and all lie inside.
        return unsafe { avx512::multiply_at(rows.as_ptr(), sources, offsets.steps, blocks) };
    }
    for (source, block) in sources.into_iter().zip(blocks) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            // SAFETY: the features are there, the panel has as many steps as there are offsets, and all lie inside.
            unsafe { multiply_at_avx2(rows.as_ptr(), source.as_ptr(), offsets.steps, block) };
            continue;
        }
        vectorized(
            #[inline(always)]
            || {
                *block = [[0.0; LANES]; ROWS];
                for (row, &offset) in rows.chunks_exact(ROWS).zip(offsets.steps) {
                    let columns = &source[offset as usize..][..LANES];
                    for (sums, &factor) in block.iter_mut().zip(row) {
                        sums.iter_mut().zip(columns).for_each(|(sum, &x)| *sum += factor * x);
                    }
                }
            },
        );
    }
}

/// # Safety
/// The panel has as many steps as there are offsets, and at each there are [`LANES`] elements in the source.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_at_avx2(mut rows: *const f32, source: *const f32, offsets: &[u32], block: &mut Block) {
    use std::arch::x86_64::{
        _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    for &offset in offsets {
        // SAFETY: by the contract.
        unsafe {
            let columns = source.add(offset as usize);
            let (low, high) = (_mm256_loadu_ps(columns), _mm256_loadu_ps(columns.add(8)));
            for (row, sum) in sums.iter_mut().enumerate() {
                let factor = _mm256_broadcast_ss(&*rows.add(row));
                sum[0] = _mm256_fmadd_ps(factor, low, sum[0]);
                sum[1] = _mm256_fmadd_ps(factor, high, sum[1]);
            }
            rows = rows.add(ROWS);
        }
    }
    for (row, sum) in block.iter_mut().zip(sums) {
        // SAFETY: a row is two vectors long.
        unsafe {
            _mm256_storeu_ps(row.as_mut_ptr(), sum[0]);
            _mm256_storeu_ps(row.as_mut_ptr().add(8), sum[1]);
        }
    }
}
