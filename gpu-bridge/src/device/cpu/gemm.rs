//! The product of two matrices of any strides, cut into tiles.

use std::ops::Range;

use super::simd::vectorized;
use crate::error::Result;
use crate::run::{Parts, Run};

/// A matrix in a slice: element (i, j) lies at `i * row + j * column`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub data: &'a [f32],
    pub row: usize,
    pub column: usize,
}

impl<'a> Matrix<'a> {
    pub(super) fn new(data: &'a [f32], row: usize, column: usize) -> Self {
        Self { data, row, column }
    }

    pub(super) fn transposed(self) -> Self {
        Self { data: self.data, row: self.column, column: self.row }
    }

    /// The part that starts at this element.
    fn from(self, row: usize, column: usize) -> Self {
        let start = (row * self.row + column * self.column).min(self.data.len());
        Self { data: &self.data[start..], ..self }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }
}

/// The sizes of a product: `[m, k] x [k, n]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// Work that is worth a tile of its own, in multiply-adds: a few microseconds.
const SMALL_TILE: usize = 1 << 17;

/// The most that one tile is, so that a cancelled call ends within a few milliseconds.
const LARGE_TILE: usize = 1 << 27;

/// The most pieces that a product is cut into for the sake of threads alone.
const PIECES: usize = 8;

/// The depth after which a tile looks up from its work.
const DEPTH: usize = 1 << 13;

impl Sizes {
    fn work(&self) -> usize {
        self.m * self.n * self.k
    }

    /// Rows and columns of one tile. Depends on the sizes alone, so that results do not depend on threads.
    fn tile(&self) -> (usize, usize) {
        let (mut rows, mut columns) = (self.m, self.n);
        let mut pieces = 1;
        let depth = self.k.clamp(1, DEPTH);
        loop {
            let work = rows * columns * depth;
            let split = work > LARGE_TILE || (pieces < PIECES && work >= 2 * SMALL_TILE);
            if !split || (rows < 32 && columns < 32) {
                return (rows.max(1), columns.max(1));
            }
            if rows >= columns {
                rows = rows.div_ceil(2).next_multiple_of(16);
            } else {
                columns = columns.div_ceil(2).next_multiple_of(16);
            }
            pieces *= 2;
        }
    }
}

/// `c = scale * a b`, on all threads; `finish` is given each piece of a row of `c` (row, columns, elements) while it is
/// still in the cache.
pub(super) fn multiply(
    sizes: Sizes,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    scale: f32,
    run: &Run<'_>,
    finish: impl Fn(usize, Range<usize>, &mut [f32]) + Sync,
) -> Result<()> {
    let Sizes { m, n, k } = sizes;
    if m == 0 || n == 0 {
        return Ok(());
    }
    let (tile_rows, tile_columns) = sizes.tile();
    let (down, across) = (m.div_ceil(tile_rows), n.div_ceil(tile_columns));
    let parts = Parts::new(&mut c[..m * n]);
    run.try_each(down * across, |tile| {
        let rows = tile / across * tile_rows..m.min((tile / across + 1) * tile_rows);
        let columns = tile % across * tile_columns..n.min((tile % across + 1) * tile_columns);
        let sizes = Sizes { m: rows.len(), n: columns.len(), k };
        // SAFETY: the rows that a tile's pointer reaches overlap with those of others, but not in its columns, and the
        // product writes only those.
        let corner = unsafe { parts.pointer(rows.start * n + columns.start) };
        let mut done = 0;
        loop {
            run.cancel.check()?;
            let depth = (k - done).min(DEPTH);
            let (a, b) = (a.from(rows.start, done), b.from(done, columns.start));
            // SAFETY: the tile lies inside `c`, and only this thread works on it.
            unsafe { product(Sizes { k: depth, ..sizes }, a, b, corner, n, scale, done > 0) };
            done += depth;
            if done >= k {
                break;
            }
        }
        for row in rows {
            let at = row * n + columns.start;
            // SAFETY: this row of this tile is nobody else's.
            finish(row, columns.clone(), unsafe { parts.part(at..at + columns.len()) });
        }
        Ok(())
    })
}

/// `c (+)= scale * a b` on this thread alone, `c` with rows `stride` apart.
pub(super) fn multiply_alone(
    sizes: Sizes,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    stride: usize,
    scale: f32,
    accumulate: bool,
) {
    if sizes.m == 0 || sizes.n == 0 {
        return;
    }
    assert!((sizes.m - 1) * stride + sizes.n <= c.len(), "the product fits");
    // SAFETY: it fits, and `c` is borrowed exclusively.
    unsafe { product(sizes, a, b, c.as_mut_ptr(), stride, scale, accumulate) }
}

/// # Safety
/// `c` is valid for `m` rows of `n` elements, `stride` apart, and nobody else uses them.
unsafe fn product(
    sizes: Sizes,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: *mut f32,
    stride: usize,
    scale: f32,
    accumulate: bool,
) {
    let Sizes { m, n, k } = sizes;
    assert!(a.holds(m, k) && b.holds(k, n), "the operands hold what is multiplied");
    if k == 0 {
        for row in 0..m {
            if !accumulate {
                // SAFETY: a row of `c`, by the contract.
                unsafe { std::slice::from_raw_parts_mut(c.add(row * stride), n) }.fill(0.0);
            }
        }
        return;
    }
    if n == 1 || m == 1 {
        // SAFETY: by the contract; a single row or column.
        return unsafe { with_vector(sizes, a, b, c, stride, scale, accumulate) };
    }
    // SAFETY: bounds of `a` and `b` are asserted above, those of `c` are the contract.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c,
            1,
            stride as isize,
            accumulate,
            a.data.as_ptr(),
            a.column as isize,
            a.row as isize,
            b.data.as_ptr(),
            b.column as isize,
            b.row as isize,
            1.0,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// The product of a matrix and a vector, which wants neither packing nor tiles.
///
/// # Safety
/// As for [`product`], with `m` or `n` 1.
unsafe fn with_vector(
    sizes: Sizes,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: *mut f32,
    stride: usize,
    scale: f32,
    accumulate: bool,
) {
    // A row times a matrix is a transposed matrix times a column.
    let (rows, matrix, vector, step) = match sizes.n {
        1 => (sizes.m, a, Matrix::new(b.data, b.row, 1), stride),
        _ => (sizes.n, b.transposed(), Matrix::new(a.data, a.column, 1), 1),
    };
    let store = |row: usize, sum: f32| {
        // SAFETY: `row` is below the number of results.
        let place = unsafe { &mut *c.add(row * step) };
        *place = if accumulate { *place + scale * sum } else { scale * sum };
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

/// Whether a product is so small that several of them belong into one tile.
pub(super) fn products_per_tile(sizes: Sizes) -> usize {
    (SMALL_TILE / sizes.work().max(1)).max(1)
}
