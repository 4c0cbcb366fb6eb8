//! Rows folded into one row, column by column.

use super::fold::Fold;
use super::{Sizes, TILE};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{Parts, Run};

/// Columns that are folded side by side: their states stay in the first-level cache.
const WIDTH: usize = 1024;

/// Rows that are folded in f32.
const ROWS: usize = 256;

/// How the work is cut: into blocks of columns and rows.
struct Blocks {
    batches: usize,
    rows: usize,
    columns: usize,
    /// Rows per block.
    height: usize,
    /// Columns per block.
    width: usize,
}

/// One block: where it starts and how large it is.
struct Block {
    batch: usize,
    /// Which of the blocks of rows.
    part: usize,
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
}

impl Blocks {
    fn new(sizes: &Sizes) -> Self {
        let (rows, columns) = (sizes.folded_outer, sizes.kept_inner);
        let width = columns.min(WIDTH);
        Self { batches: sizes.kept_outer, rows, columns, height: (TILE / width).clamp(1, ROWS), width }
    }

    /// Blocks of rows.
    fn parts(&self) -> usize {
        self.rows.div_ceil(self.height)
    }

    fn count(&self) -> usize {
        self.batches * self.parts() * self.columns.div_ceil(self.width)
    }

    /// How many blocks make a tile.
    fn grain(&self) -> usize {
        (TILE / (self.rows.min(self.height) * self.width)).max(1)
    }

    #[inline(always)]
    fn block(&self, index: usize) -> Block {
        let across = self.columns.div_ceil(self.width);
        let (down, column) = (index / across, index % across * self.width);
        let (batch, part) = (down / self.parts(), down % self.parts());
        let row = part * self.height;
        Block {
            batch,
            part,
            row,
            rows: self.height.min(self.rows - row),
            column,
            columns: self.width.min(self.columns - column),
        }
    }

    /// The elements of a block, from its first to its last.
    #[inline(always)]
    fn elements<'a>(&self, x: &'a [f32], block: &Block) -> &'a [f32] {
        let start = (block.batch * self.rows + block.row) * self.columns + block.column;
        &x[start..start + (block.rows - 1) * self.columns + block.columns]
    }
}

/// Folds `[kept, folded, kept]` to `[kept, kept]`.
pub(super) fn fold<F: Fold>(fold: F, x: &[f32], sizes: &Sizes, y: &mut [F::Result], run: &Run<'_>) -> Result<()> {
    let blocks = Blocks::new(sizes);
    if blocks.parts() == 1 { fold_short(fold, x, &blocks, y, run) } else { fold_long(fold, x, &blocks, y, run) }
}

/// Few rows: a block's states are the results.
fn fold_short<F: Fold>(fold: F, x: &[f32], blocks: &Blocks, y: &mut [F::Result], run: &Run<'_>) -> Result<()> {
    let (count, grain) = (blocks.count(), blocks.grain());
    let y = Parts::new(y);
    run.each_with(count.div_ceil(grain), 2 * blocks.width, |tile, states| {
        vectorized(
            #[inline(always)]
            || {
                for index in tile * grain..count.min((tile + 1) * grain) {
                    let block = blocks.block(index);
                    let (first, second) = states.split_at_mut(blocks.width);
                    let (first, second) = (&mut first[..block.columns], &mut second[..block.columns]);
                    fold.columns(blocks.elements(x, &block), blocks.columns, first, second);
                    let start = block.batch * blocks.columns + block.column;
                    // SAFETY: blocks do not overlap, and each is in one tile.
                    let y = unsafe { y.part(start..start + block.columns) };
                    for ((y, &first), &second) in y.iter_mut().zip(&*first).zip(&*second) {
                        *y = fold.finish([f64::from(first), f64::from(second)], blocks.rows);
                    }
                }
            },
        );
    })
}

/// Many rows: the states of all blocks are kept, as `[batch, block of rows, 2, column]`, and merged in order.
fn fold_long<F: Fold>(fold: F, x: &[f32], blocks: &Blocks, y: &mut [F::Result], run: &Run<'_>) -> Result<()> {
    let (count, grain, parts, columns) = (blocks.count(), blocks.grain(), blocks.parts(), blocks.columns);
    let mut scratch = run.scratch(blocks.batches * parts * 2 * columns)?;
    let states = Parts::new(scratch.floats());
    run.ranges(count, grain, |range| {
        vectorized(
            #[inline(always)]
            || {
                for index in range {
                    let block = blocks.block(index);
                    let start = (block.batch * parts + block.part) * 2 * columns + block.column;
                    // SAFETY: blocks do not overlap, and each is in one tile.
                    let first = unsafe { states.part(start..start + block.columns) };
                    // SAFETY: as above.
                    let second = unsafe { states.part(start + columns..start + columns + block.columns) };
                    fold.columns(blocks.elements(x, &block), columns, first, second);
                }
            },
        );
    })?;
    let states = &*scratch.floats();
    let grain = (TILE / (parts * 2)).max(1);
    run.chunks(y, grain, |tile, y| {
        vectorized(
            #[inline(always)]
            || {
                for (index, y) in y.iter_mut().enumerate() {
                    let (batch, column) = ((tile * grain + index) / columns, (tile * grain + index) % columns);
                    let state = |part: usize| {
                        let at = (batch * parts + part) * 2 * columns + column;
                        [f64::from(states[at]), f64::from(states[at + columns])]
                    };
                    let mut all = (state(0), blocks.height);
                    for part in 1..parts {
                        let more = blocks.height.min(blocks.rows - part * blocks.height);
                        all = (fold.merge(all, (state(part), more)), all.1 + more);
                    }
                    *y = fold.finish(all.0, blocks.rows);
                }
            },
        );
    })
}
