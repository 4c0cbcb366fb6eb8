//! The product of a matrix and a vector: every element of the matrix is used once, so nothing is packed.

use super::block::Target;
use super::{Matrix, Sizes};
use crate::device::cpu::simd::vectorized;

/// The product of a matrix and a vector, which wants neither packing nor tiles.
///
/// # Safety
/// As for a product, with `m` or `n` 1.
pub(super) unsafe fn with_vector(sizes: Sizes, a: Matrix<'_>, b: Matrix<'_>, to: Target) {
    // A row times a matrix is a transposed matrix times a column.
    let (rows, matrix, vector) = match sizes.n {
        1 => (sizes.m, a, Matrix::new(b.data, b.row, 1)),
        _ => (sizes.n, b.transposed(), Matrix::new(a.data, a.column, 1)),
    };
    let store = |index: usize, sum: f32| {
        let (row, column) = if sizes.n == 1 { (index, 0) } else { (0, index) };
        // SAFETY: `index` is below the number of results.
        unsafe { to.store(row, column, sum) };
    };
    if matrix.column == 1 && vector.row == 1 {
        let vector = &vector.data[..sizes.k];
        vectorized(
            #[inline(always)]
            || {
                for row in 0..rows {
                    store(row, dot(&matrix.data[row * matrix.row..][..sizes.k], vector));
                }
            },
        );
        return;
    }
    if matrix.row == 1 {
        // Rows lie side by side: a block of sums goes down the matrix together.
        vectorized(
            #[inline(always)]
            || {
                for start in (0..rows).step_by(WIDTH) {
                    let count = WIDTH.min(rows - start);
                    let mut sums = [0.0_f32; WIDTH];
                    for depth in 0..sizes.k {
                        let factor = vector.data[depth * vector.row];
                        let row = &matrix.data[depth * matrix.column + start..][..count];
                        sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += factor * x);
                    }
                    for (row, &sum) in sums[..count].iter().enumerate() {
                        store(start + row, sum);
                    }
                }
            },
        );
        return;
    }
    for row in 0..rows {
        let products =
            (0..sizes.k).map(|i| matrix.data[row * matrix.row + i * matrix.column] * vector.data[i * vector.row]);
        store(row, products.sum());
    }
}

/// Sums that are carried side by side.
const WIDTH: usize = 32;

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; WIDTH];
    let (a_blocks, b_blocks) = (a.chunks_exact(WIDTH), b.chunks_exact(WIDTH));
    let rest: f32 = a_blocks.remainder().iter().zip(b_blocks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_blocks.zip(b_blocks) {
        for lane in 0..WIDTH {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let mut width = WIDTH / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0] + rest
}
