//! The inner loops of convolution: small blocks of a product, kept in registers.
//!
//! Operands are packed into *panels*, in the order in which the loops read them: [`ROWS`] rows or [`LANES`] columns side
//! by side, depth after depth. So a kernel can gather what it multiplies straight into place, and nothing is packed
//! twice.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod outer;
#[cfg(test)]
mod tests;

pub(super) use outer::add_outer;

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
    if segments == 0 {
        return [[0.0; DOT_COLUMNS]; DOT_ROWS];
    }
    assert!(a.hold(segments, depth) && b.hold(segments, depth), "the rows are long enough");
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features are there, and all rows have all segments.
        return unsafe { avx512::dots(segments, depth, a, b) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there, and all rows have all segments.
        return unsafe { dots_avx2(segments, depth, a, b) };
    }
    a.rows.map(|row| {
        b.rows.map(|column| {
            let piece = |segment: usize| {
                let (row, column) = (&row[segment * a.step..][..depth], &column[segment * b.step..][..depth]);
                vectorized(
                    #[inline(always)]
                    || dot(row, column),
                )
            };
            (0..segments).map(piece).sum()
        })
    })
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (a_blocks, b_blocks) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a_blocks.remainder().iter().zip(b_blocks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_blocks.zip(b_blocks) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// # Safety
/// All rows have `segments` pieces of `depth` elements.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn dots_avx2(
    segments: usize,
    depth: usize,
    a: Segments<'_, DOT_ROWS>,
    b: Segments<'_, DOT_COLUMNS>,
) -> [[f32; DOT_COLUMNS]; DOT_ROWS] {
    use std::arch::x86_64::{
        _mm_add_ps, _mm_storeu_ps, _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_hadd_ps,
        _mm256_loadu_ps, _mm256_setzero_ps,
    };
    let mut sums = [[_mm256_setzero_ps(); DOT_COLUMNS]; DOT_ROWS];
    let whole = depth / 8 * 8;
    let (mut rows, mut columns) = (a.rows.map(<[f32]>::as_ptr), b.rows.map(<[f32]>::as_ptr));
    for segment in 0..segments {
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
        if segment + 1 < segments {
            // SAFETY: there is another piece.
            unsafe {
                rows = rows.map(|row| row.add(a.step));
                columns = columns.map(|column| column.add(b.step));
            }
        }
    }
    let mut result = [[0.0; DOT_COLUMNS]; DOT_ROWS];
    for (result, sums) in result.iter_mut().zip(&sums) {
        let pairs = _mm256_hadd_ps(_mm256_hadd_ps(sums[0], sums[1]), _mm256_hadd_ps(sums[2], sums[3]));
        let total = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
        // SAFETY: four floats have room in four floats.
        unsafe { _mm_storeu_ps(result.as_mut_ptr(), total) };
    }
    for segment in 0..segments {
        for at in whole..depth {
            for (result, row) in result.iter_mut().zip(a.rows) {
                for (result, column) in result.iter_mut().zip(b.rows) {
                    *result += row[segment * a.step + at] * column[segment * b.step + at];
                }
            }
        }
    }
    result
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

    pub(super) fn get(&self, step: usize) -> usize {
        self.steps[step] as usize
    }
}

/// Like [`multiply`] with columns that lie side by side already, in two halves, each step of the depth at an offset of
/// its own.
#[inline]
pub(super) fn multiply_at(rows: &[f32], halves: [&[f32]; 2], offsets: Offsets<'_>, block: &mut Block) {
    let depth = offsets.steps.len();
    let rows = &rows[..depth * ROWS];
    assert!(halves.iter().all(|half| offsets.reach + LANES / 2 <= half.len()), "every step lies inside the source");
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features are there, the panel has as many steps as there are offsets, and all lie inside.
        return unsafe { avx512::multiply_at(rows.as_ptr(), halves.map(<[f32]>::as_ptr), offsets.steps, block) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there, the panel has as many steps as there are offsets, and all lie inside.
        return unsafe { multiply_at_avx2(rows.as_ptr(), halves.map(<[f32]>::as_ptr), offsets.steps, block) };
    }
    vectorized(
        #[inline(always)]
        || {
            *block = [[0.0; LANES]; ROWS];
            for (row, &offset) in rows.chunks_exact(ROWS).zip(offsets.steps) {
                let [low, high] = halves.map(|half| &half[offset as usize..][..LANES / 2]);
                for (sums, &factor) in block.iter_mut().zip(row) {
                    sums.iter_mut().zip(low.iter().chain(high)).for_each(|(sum, &x)| *sum += factor * x);
                }
            }
        },
    );
}

/// # Safety
/// The panel has as many steps as there are offsets, and at each there is half of [`LANES`] elements in both halves.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_at_avx2(mut rows: *const f32, halves: [*const f32; 2], offsets: &[u32], block: &mut Block) {
    use std::arch::x86_64::{
        _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    for &offset in offsets {
        // SAFETY: by the contract.
        unsafe {
            let [low, high] = halves.map(|half| _mm256_loadu_ps(half.add(offset as usize)));
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
