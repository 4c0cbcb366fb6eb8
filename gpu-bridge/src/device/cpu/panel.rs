//! The inner loops of convolution: small blocks of a product, kept in registers.
//!
//! Operands are packed into *panels*, in the order in which the loops read them: [`ROWS`] rows or [`LANES`] columns side
//! by side, depth after depth. So a kernel can gather what it multiplies straight into place, and nothing is packed
//! twice.

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
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there, and both panels have `depth` steps.
        return unsafe { multiply_avx2(depth, rows.as_ptr(), columns.as_ptr(), block) };
    }
    vectorized(|| {
        *block = [[0.0; LANES]; ROWS];
        for (row, column) in rows.chunks_exact(ROWS).zip(columns.chunks_exact(LANES)) {
            for (sums, &factor) in block.iter_mut().zip(row) {
                sums.iter_mut().zip(column).for_each(|(sum, &x)| *sum += factor * x);
            }
        }
    });
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

/// The dot products of some rows of `a` with some rows of `b`, all `depth` long: for operands that lie along the depth
/// already. Rows past the end of a matrix may be given as any other row and their results ignored.
#[inline]
pub(super) fn dots(depth: usize, a: [&[f32]; DOT_ROWS], b: [&[f32]; DOT_COLUMNS]) -> [[f32; DOT_COLUMNS]; DOT_ROWS] {
    let (a, b) = (a.map(|row| &row[..depth]), b.map(|row| &row[..depth]));
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there, and all rows have `depth` elements.
        return unsafe { dots_avx2(depth, a.map(<[f32]>::as_ptr), b.map(<[f32]>::as_ptr)) };
    }
    a.map(|a| b.map(|b| vectorized(|| dot(a, b))))
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
/// All rows have `depth` elements.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn dots_avx2(
    depth: usize,
    a: [*const f32; DOT_ROWS],
    b: [*const f32; DOT_COLUMNS],
) -> [[f32; DOT_COLUMNS]; DOT_ROWS] {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps};
    let mut sums = [[_mm256_setzero_ps(); DOT_COLUMNS]; DOT_ROWS];
    let whole = depth / 8 * 8;
    let mut at = 0;
    while at < whole {
        // SAFETY: `at + 8` is at most `depth`.
        unsafe {
            let columns = b.map(|row| _mm256_loadu_ps(row.add(at)));
            for (row, sums) in a.iter().zip(&mut sums) {
                let factor = _mm256_loadu_ps(row.add(at));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm256_fmadd_ps(factor, column, *sum);
                }
            }
        }
        at += 8;
    }
    let mut result = [[0.0; DOT_COLUMNS]; DOT_ROWS];
    for (row, sums) in sums.iter().enumerate() {
        for (column, sum) in sums.iter().enumerate() {
            let mut lanes = [0.0_f32; 8];
            // SAFETY: eight floats have room in eight floats.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), *sum) };
            let mut total =
                ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
            for at in whole..depth {
                // SAFETY: `at` is below `depth`.
                total += unsafe { *a[row].add(at) * *b[column].add(at) };
            }
            result[row][column] = total;
        }
    }
    result
}
