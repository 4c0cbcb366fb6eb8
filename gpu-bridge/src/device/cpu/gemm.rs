//! The product of two matrices of any strides, cut into tiles.
//!
//! A tile goes through the depth in pieces, and in each through its columns in pieces, so that what is used again is still
//! in a cache. Columns are packed, unless they are used too few times for that to pay.

use std::ops::Range;

use super::panel::{self, DOT_COLUMNS, DOT_ROWS, Segments};
use crate::error::Result;
use crate::run::{Pace, Parts, Run};

mod block;
mod pack;
#[cfg(test)]
mod tests;
mod vector;

use block::{LANES, Operands, ROWS, Target};
use vector::with_vector;

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

/// The most that one tile is at a time, so that a cancelled call ends within a few milliseconds.
const LARGE_TILE: usize = 1 << 27;

/// The same where a factor is a vector: every element of the other one is used once, and perhaps lies far from the next.
const LARGE_VECTOR_TILE: usize = 1 << 23;

/// The most pieces that a product is cut into for the sake of threads alone.
const PIECES: usize = 8;

/// The depth after which a tile looks up from its work.
const DEPTH: usize = 1 << 13;

/// The depth and the columns that a tile works on at a time: a block of rows stays in the first cache, packed columns in
/// the second. Where rows are packed, it is so many at a time.
const KEEP_DEPTH: usize = 512;
const KEEP_COLUMNS: usize = 8 * LANES;
const KEEP_ROWS: usize = 8 * ROWS;

/// Up to so many rows, columns are read where they lie.
const IN_PLACE_ROWS: usize = 8 * ROWS;

/// Up to so many rows, columns that lie along the depth are not packed either.
const DOTTED_ROWS: usize = 2 * ROWS;

impl Sizes {
    /// Whether the operands lie so that rows need no packing, and are so few that columns are not worth it.
    fn suits_dots(&self, a: Matrix<'_>, b: Matrix<'_>) -> bool {
        a.column == 1 && b.row == 1 && b.column != 1 && self.m <= DOTTED_ROWS && self.k >= 16
    }

    /// Whether rows lie side by side, and are used often enough to be packed.
    fn packs_rows(&self, a: Matrix<'_>) -> bool {
        a.row == 1 && a.column != 1 && self.n > 2 * LANES
    }

    /// Floats that a tile of the product works in: some panels of columns, and the rows where they are packed.
    pub(super) fn scratch(&self, a: Matrix<'_>) -> usize {
        let depth = self.k.min(KEEP_DEPTH);
        let rows = if self.packs_rows(a) { self.m.min(KEEP_ROWS).div_ceil(ROWS) } else { 0 };
        self.column_scratch() + rows * pack::stride(depth, ROWS)
    }

    fn column_scratch(&self) -> usize {
        self.n.min(KEEP_COLUMNS).div_ceil(LANES) * pack::stride(self.k.min(KEEP_DEPTH), LANES)
    }

    /// Multiply-adds; a product without depth still writes its result. An axis that is repeated takes no memory, so this
    /// may be more than any number says.
    pub(super) fn work(&self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k.max(1))
    }

    /// Rows and columns of one tile. Depends on the sizes alone, so that results do not depend on threads.
    fn tile(&self) -> (usize, usize) {
        let (mut rows, mut columns) = (self.m, self.n);
        let mut pieces = 1;
        let depth = self.k.clamp(1, DEPTH);
        let large = if self.m == 1 || self.n == 1 { LARGE_VECTOR_TILE } else { LARGE_TILE };
        loop {
            let work = rows * columns * depth;
            let split = work > large || (pieces < PIECES && work >= 2 * SMALL_TILE);
            if !split || (rows < 64 && columns < 64) {
                return (rows.max(1), columns.max(1));
            }
            // Columns are packed anew for each tile, rows often not at all: so tiles are tall, if not too narrow.
            let tall = rows >= 128 && columns <= KEEP_COLUMNS;
            if tall || columns < 64 || rows >= 8 * columns {
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
    let scratch = Sizes { m: tile_rows, n: tile_columns, k }.scratch(a);
    run.paced_with(down * across, scratch, |pace, tile, scratch| {
        let rows = tile / across * tile_rows..m.min((tile / across + 1) * tile_rows);
        let columns = tile % across * tile_columns..n.min((tile % across + 1) * tile_columns);
        let sizes = Sizes { m: rows.len(), n: columns.len(), k };
        // SAFETY: the rows that a tile's pointer reaches overlap with those of others, but not in its columns, and the
        // product writes only those.
        let corner = unsafe { parts.pointer(rows.start * n + columns.start) };
        let to = Target { place: corner, stride: n, columns: columns.len(), scale, accumulate: false };
        // SAFETY: the tile lies inside `c`, and only this thread works on it.
        unsafe { deep_product(sizes, a.from(rows.start, 0), b.from(0, columns.start), to, scratch, pace)? };
        for row in rows {
            let at = row * n + columns.start;
            // SAFETY: this row of this tile is nobody else's.
            finish(row, columns.clone(), unsafe { parts.part(at..at + columns.len()) });
        }
        Ok(())
    })
}

/// `c = scale * a b` on this thread alone, with [`Sizes::scratch`] floats to work in.
pub(super) fn multiply_alone(
    sizes: Sizes,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    scale: f32,
    scratch: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<()> {
    let Sizes { m, n, k } = sizes;
    if m == 0 || n == 0 {
        return Ok(());
    }
    let c = &mut c[..m * n];
    let to = Target { place: c.as_mut_ptr(), stride: n, columns: n, scale, accumulate: false };
    let (rows, columns) = if sizes.work() <= LARGE_VECTOR_TILE { (m, n) } else { sizes.tile() };
    for row in (0..m).step_by(rows) {
        for column in (0..n).step_by(columns) {
            let sizes = Sizes { m: rows.min(m - row), n: columns.min(n - column), k };
            // SAFETY: it fits, and `c` is borrowed exclusively.
            unsafe {
                let to = Target { place: to.place.add(row * n + column), columns: sizes.n, ..to };
                deep_product(sizes, a.from(row, 0), b.from(0, column), to, scratch, pace)?;
            }
        }
    }
    Ok(())
}

/// A product of any depth, which looks up from its work every [`DEPTH`] steps of it.
///
/// # Safety
/// As for [`product`].
unsafe fn deep_product(
    sizes: Sizes,
    a: Matrix<'_>,
    b: Matrix<'_>,
    to: Target,
    scratch: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<()> {
    let mut done = 0;
    loop {
        let piece = Sizes { k: (sizes.k - done).min(DEPTH), ..sizes };
        pace.step(piece.work())?;
        let to = Target { accumulate: to.accumulate || done > 0, ..to };
        // SAFETY: by the contract.
        unsafe { product(piece, a.from(0, done), b.from(done, 0), to, scratch) };
        done += piece.k;
        if done >= sizes.k {
            return Ok(());
        }
    }
}

/// Columns that lie in panels of [`LANES`]: column `j` of a step lies at `j / LANES * panel + step * step + j % LANES`.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    pub data: &'a [f32],
    /// Floats from one panel to the next.
    pub panel: usize,
    /// Floats from one step of the depth to the next.
    pub step: usize,
}

/// The depth that a block of panels goes through at a time: a pair of panels stays in the first cache.
const PANEL_DEPTH: usize = 256;

/// `c = a b`, or added to what is there, on this thread alone and without packing anything. Rows of `c` lie `stride`
/// floats apart.
pub(super) fn multiply_panels(
    sizes: Sizes,
    a: Matrix<'_>,
    b: Panels<'_>,
    c: &mut [f32],
    stride: usize,
    accumulate: bool,
) {
    let Sizes { m, n, k } = sizes;
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    assert!(a.holds(m, k), "the rows hold what is multiplied");
    let last = n.div_ceil(LANES) - 1;
    assert!(last * b.panel + (k - 1) * b.step + LANES <= b.data.len(), "the panels hold what is multiplied");
    assert!(n <= stride && (m - 1) * stride + n <= c.len(), "the product has room");
    for first in (0..k).step_by(PANEL_DEPTH) {
        let depth = PANEL_DEPTH.min(k - first);
        for column in (0..n).step_by(2 * LANES) {
            let columns = b.data[column / LANES * b.panel + first * b.step..].as_ptr();
            let mut row = 0;
            while row < m {
                let count = block_rows(m - row);
                let rows = a.from(row, first).data.as_ptr();
                let from =
                    Operands { depth, rows, row_stride: a.row, row_step: a.column, columns, column_step: b.step };
                let left = n - column;
                // SAFETY: a block of the product, or two, of operands that hold them; asserted above.
                unsafe {
                    let place = c.as_mut_ptr().add(row * stride + column);
                    let to = Target { place, stride, columns: left, scale: 1.0, accumulate: accumulate || first > 0 };
                    match left > LANES {
                        true => {
                            let to = Target { columns: left.min(2 * LANES), ..to };
                            block::multiply_pair(count, from, columns.add(b.panel), to);
                        }
                        false => block::multiply(count, from, to),
                    }
                }
                row += count;
            }
        }
    }
}

/// # Safety
/// The target is valid for `m` rows of `n` columns, and nobody else uses it.
unsafe fn product(sizes: Sizes, a: Matrix<'_>, b: Matrix<'_>, to: Target, scratch: &mut [f32]) {
    let Sizes { m, n, k } = sizes;
    assert!(a.holds(m, k) && b.holds(k, n), "the operands hold what is multiplied");
    if k == 0 {
        for row in 0..m {
            if !to.accumulate {
                // SAFETY: a row of the target, by the contract.
                unsafe { std::slice::from_raw_parts_mut(to.place.add(row * to.stride), n) }.fill(0.0);
            }
        }
        return;
    }
    if n == 1 || m == 1 {
        // SAFETY: by the contract; a single row or column.
        return unsafe { with_vector(sizes, a, b, to) };
    }
    if sizes.suits_dots(a, b) {
        // SAFETY: by the contract.
        return unsafe { with_dots(sizes, a, b, to) };
    }
    let (panels, packed) = scratch.split_at_mut(sizes.column_scratch());
    for step in (0..k).step_by(KEEP_DEPTH) {
        let depth = KEEP_DEPTH.min(k - step);
        for column in (0..n).step_by(KEEP_COLUMNS) {
            let sizes = Sizes { m, n: KEEP_COLUMNS.min(n - column), k: depth };
            // SAFETY: some columns of the target.
            let place = unsafe { to.place.add(column) };
            let to = Target { place, accumulate: to.accumulate || step > 0, ..to };
            // SAFETY: the operands hold their part of what was asserted, and the target is what was promised.
            unsafe { by_panels(sizes, a.from(0, step), b.from(step, column), to, panels, packed) };
        }
    }
}

/// Rows of the next block: a block of one or two rows would take as long as one of four.
fn block_rows(left: usize) -> usize {
    match left {
        7 | 8 => left.div_ceil(2),
        _ => left.min(ROWS),
    }
}

/// A part of a product whose columns fit a cache: they are packed once, and a block of rows, in a nearer cache, goes
/// through all of them.
///
/// # Safety
/// The operands hold what is multiplied; the target is valid for all rows and columns, and nobody else uses it.
unsafe fn by_panels(sizes: Sizes, a: Matrix<'_>, b: Matrix<'_>, to: Target, panels: &mut [f32], packed: &mut [f32]) {
    let Sizes { m, n, k } = sizes;
    // Where columns are read in place, those that do not fill a block are packed all the same.
    let in_place = if b.column == 1 && m <= IN_PLACE_ROWS { n / LANES * LANES } else { 0 };
    pack::columns(b.from(0, in_place), k, n - in_place, panels);
    // Rows that lie along the depth are read where they are.
    let packs_rows = sizes.packs_rows(a);
    let mut row = 0;
    while row < m {
        let count = if packs_rows { ROWS.min(m - row) } else { block_rows(m - row) };
        if packs_rows && row % KEEP_ROWS == 0 {
            pack::rows(a.from(row, 0), KEEP_ROWS.min(m - row), k, packed);
        }
        let (rows, row_stride, row_step) = match packs_rows {
            true => (packed[row % KEEP_ROWS / ROWS * pack::stride(k, ROWS)..].as_ptr(), 1, ROWS),
            false => (a.from(row, 0).data.as_ptr(), a.row, a.column),
        };
        let source = |column: usize| match column < in_place {
            true => (b.from(0, column).data.as_ptr(), b.row),
            false => (panels[(column - in_place) / LANES * pack::stride(k, LANES)..].as_ptr(), LANES),
        };
        let mut column = 0;
        while column < n {
            let (columns, column_step) = source(column);
            let from = Operands { depth: k, rows, row_stride, row_step, columns, column_step };
            let left = n - column;
            // SAFETY: a block of the target, or two; rows and columns are packed for `k` steps, or in operands that hold
            // them.
            unsafe {
                let to = Target { place: to.place.add(row * to.stride + column), ..to };
                match (left > LANES).then(|| source(column + LANES)) {
                    Some((second, step)) if step == column_step => {
                        block::multiply_pair(count, from, second, Target { columns: left.min(2 * LANES), ..to });
                        column += 2 * LANES;
                    }
                    _ => {
                        block::multiply(count, from, Target { columns: left.min(LANES), ..to });
                        column += LANES;
                    }
                }
            }
        }
        row += count;
    }
}

/// Few rows and columns that both lie along the depth: nothing is packed.
///
/// # Safety
/// As for [`product`].
unsafe fn with_dots(sizes: Sizes, a: Matrix<'_>, b: Matrix<'_>, to: Target) {
    let Sizes { m, n, k } = sizes;
    for column in (0..n).step_by(DOT_COLUMNS) {
        let columns = std::array::from_fn(|i| &b.data[(column + i).min(n - 1) * b.column..][..k]);
        for row in (0..m).step_by(DOT_ROWS) {
            let rows = std::array::from_fn(|i| &a.data[(row + i).min(m - 1) * a.row..][..k]);
            let sums = panel::dots(1, k, Segments { rows, step: 0 }, Segments { rows: columns, step: 0 });
            for (row, sums) in (row..m).zip(&sums) {
                for (column, sum) in (column..n).zip(sums) {
                    // SAFETY: an element of the target.
                    unsafe { to.store(row, column, *sum) };
                }
            }
        }
    }
}

/// How many products make a tile: several where they are small.
pub(super) fn products_per_tile(sizes: Sizes) -> usize {
    (SMALL_TILE / sizes.work().max(1)).max(1)
}

/// Whether a product is so large that it is cut into tiles of its own, however many there are beside it.
pub(super) fn is_large(sizes: Sizes) -> bool {
    sizes.work() > LARGE_TILE
}
