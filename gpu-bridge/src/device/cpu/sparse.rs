//! Sparse rows (CSR), and the two steps of k-means.

use std::ops::Range;

use super::memory::{Indices, Input, Output};
use super::simd::vectorized;
use crate::error::{Error, Result};
use crate::op::{CsrMatMul, CsrTransposedMatMul, CsrValuesGradient, Spec};
use crate::run::{Pace, Parts, Run};

mod kmeans;

pub(super) use kmeans::{accumulate as kmeans_accumulate, assign as kmeans_assign};

/// Multiplications per tile, where rows have about equally many stored values.
const WORK: usize = 1 << 14;

/// Multiplications of a long row before a tile looks up from its work.
const STRETCH: usize = 1 << 18;

/// The most tiles that a sum over all rows is cut into.
const BLOCKS: usize = 8;

/// A dense operand that is as wide is cut by its columns, a cache line each, so that tiles share no result.
const WIDE: usize = 16;

/// Sums that are added side by side.
const LANES: usize = 8;

/// The places of the stored values, checked so far that each row lies within them.
struct Rows<'a> {
    op: &'static str,
    offsets: &'a [u32],
    columns: &'a [u32],
}

impl<'a> Rows<'a> {
    fn checked(op: &'static str, offsets: &'a Input<'_>, columns: &'a Input<'_>, run: &Run<'_>) -> Result<Self> {
        let rows = Self { op, offsets: offsets.elements()?, columns: columns.elements()? };
        let (first, last) = (rows.offsets[0], rows.offsets[rows.count()] as usize);
        if first != 0 {
            return Err(Error::argument(op, format!("the first offset is {first}, not 0")));
        }
        if last != rows.columns.len() {
            let stored = rows.columns.len();
            return Err(Error::argument(op, format!("the last offset is {last}, there are {stored} stored values")));
        }
        run.try_each(rows.count().div_ceil(STRETCH), |tile| {
            let offsets = &rows.offsets[tile * STRETCH..rows.offsets.len().min((tile + 1) * STRETCH + 1)];
            let falls = vectorized(
                #[inline(always)]
                || offsets.iter().zip(&offsets[1..]).fold(false, |falls, (start, end)| falls | (start > end)),
            );
            if falls {
                let row = tile * STRETCH + offsets.windows(2).position(|pair| pair[0] > pair[1]).unwrap_or(0);
                return Err(Error::argument(op, format!("the offsets fall at row {row}")));
            }
            Ok(())
        })?;
        Ok(rows)
    }

    fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Where the stored values of some rows are.
    #[inline(always)]
    fn stored(&self, rows: Range<usize>) -> Range<usize> {
        self.offsets[rows.start] as usize..self.offsets[rows.end] as usize
    }

    /// The column of a stored value; an error if there are not that many.
    #[inline(always)]
    fn column(&self, at: usize, count: usize) -> Result<usize> {
        let column = self.columns[at] as usize;
        if column < count {
            return Ok(column);
        }
        Indices::U32(self.columns).checked(at, count, self.op, "column")
    }

    /// How many rows make a tile, if each stored value is `each` multiplications.
    fn per_tile(&self, each: usize) -> usize {
        let work = self.columns.len().saturating_mul(each).saturating_add(self.count());
        (WORK.saturating_mul(self.count()) / work.max(1)).max(1)
    }

    /// Calls `body` for each stored value of a row, if each is `each` multiplications. A body goes through what is wide in
    /// pieces.
    #[inline(always)]
    fn each_stored(
        &self,
        row: usize,
        each: usize,
        pace: &mut Pace<'_>,
        mut body: impl FnMut(usize, &mut Pace<'_>) -> Result<()>,
    ) -> Result<()> {
        // To look a value up is work, too, even if nothing is multiplied with it.
        let each = each.max(1);
        let stored = self.stored(row..row + 1);
        let together = (STRETCH / each).max(1);
        pace.step(1)?;
        for start in stored.clone().step_by(together) {
            let end = stored.end.min(start + together);
            pace.step((end - start).saturating_mul(each).min(STRETCH))?;
            for at in start..end {
                body(at, pace)?;
            }
        }
        Ok(())
    }

    /// The rows of one of `blocks` blocks that have about equally many stored values.
    fn block(&self, block: usize, blocks: usize) -> Range<usize> {
        let starts = &self.offsets[..self.count()];
        let edge = |block: usize| match block {
            0 => 0,
            _ if block == blocks => self.count(),
            _ => starts.partition_point(|&start| (start as usize) < self.columns.len() / blocks * block),
        };
        edge(block)..edge(block + 1)
    }
}

/// The rows and columns of a dense operand; a vector is one column.
fn sizes(dense: &Input<'_>) -> (usize, usize) {
    match dense.layout.shape[..] {
        [rows, wide] => (rows, wide),
        _ => (dense.layout.shape.elements(), 1),
    }
}

pub(super) fn matmul(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let rows = Rows::checked(CsrMatMul.name(), &inputs[0], &inputs[1], run)?;
    let (values, x) = (inputs[2].floats()?, inputs[3].floats()?);
    let (count, wide) = sizes(&inputs[3]);
    let y = Parts::new(outputs[0].floats()?);
    let grain = rows.per_tile(wide);
    run.paced(rows.count().div_ceil(grain), |pace, tile| {
        let range = tile * grain..rows.count().min((tile + 1) * grain);
        // SAFETY: each tile has rows of its own.
        let y = unsafe { y.part(range.start * wide..range.end * wide) };
        vectorized(
            #[inline(always)]
            || {
                if wide == 1 {
                    return y.iter_mut().zip(range).try_for_each(|(y, row)| {
                        *y = product(&rows, row, values, &x[..count], pace)?;
                        Ok(())
                    });
                }
                pace.fill(y, 0.0)?;
                for row in range.clone() {
                    let y = &mut y[(row - range.start) * wide..][..wide];
                    rows.each_stored(row, wide, pace, |at, pace| {
                        add_scaled(y, values[at], &x[rows.column(at, count)? * wide..][..wide], pace)
                    })?;
                }
                Ok(())
            },
        )
    })
}

/// One sparse row times a vector.
#[inline(always)]
fn product(rows: &Rows<'_>, row: usize, values: &[f32], x: &[f32], pace: &mut Pace<'_>) -> Result<f32> {
    let mut sums = [0.0; 4];
    let stored = rows.stored(row..row + 1);
    let mut at = stored.start;
    while at + sums.len() <= stored.end {
        let end = stored.end.min(at + STRETCH);
        pace.step(end - at)?;
        while at + sums.len() <= end {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum += values[at + lane] * x[rows.column(at + lane, x.len())?];
            }
            at += sums.len();
        }
    }
    for at in at..stored.end {
        sums[0] += values[at] * x[rows.column(at, x.len())?];
    }
    Ok((sums[0] + sums[1]) + (sums[2] + sums[3]))
}

#[inline(always)]
fn add_scaled(into: &mut [f32], scale: f32, from: &[f32], pace: &mut Pace<'_>) -> Result<()> {
    pace.pieces(into.len(), |range| {
        into[range.clone()].iter_mut().zip(&from[range]).for_each(|(into, &from)| *into += scale * from);
    })
}

pub(super) fn transposed_matmul(
    op: &CsrTransposedMatMul,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let rows = Rows::checked(op.name(), &inputs[0], &inputs[1], run)?;
    let transposed =
        Transposed { rows, values: inputs[2].floats()?, r: inputs[3].floats()?, wide: sizes(&inputs[3]).1, op };
    let y = outputs[0].floats()?;
    let stored = transposed.rows.columns.len();
    let tiles = (stored.saturating_mul(transposed.wide) / WORK).clamp(1, BLOCKS);
    if transposed.wide >= WIDE {
        return transposed.by_columns(y, tiles, run);
    }
    // Each block of rows has a sum of its own, which must be worth adding up.
    transposed.by_rows(y, tiles.min(stored / op.columns.max(1)).max(1), run)
}

struct Transposed<'a> {
    rows: Rows<'a>,
    values: &'a [f32],
    r: &'a [f32],
    wide: usize,
    op: &'a CsrTransposedMatMul,
}

impl Transposed<'_> {
    /// Each tile computes some columns of the result from all rows.
    fn by_columns(&self, y: &mut [f32], tiles: usize, run: &Run<'_>) -> Result<()> {
        let width = self.wide.div_ceil(tiles).next_multiple_of(WIDE);
        let y = Parts::new(y);
        run.paced(self.wide.div_ceil(width), |pace, tile| {
            let range = tile * width..self.wide.min((tile + 1) * width);
            // SAFETY: each tile has columns of its own, and holds one piece at a time.
            let piece = |row: usize| unsafe { y.part(row * self.wide + range.start..row * self.wide + range.end) };
            vectorized(
                #[inline(always)]
                || {
                    for row in 0..self.op.columns {
                        pace.step(1 + range.len().min(STRETCH))?;
                        pace.fill(piece(row), 0.0)?;
                    }
                    for row in 0..self.rows.count() {
                        let r = &self.r[row * self.wide..][range.clone()];
                        self.rows.each_stored(row, range.len(), pace, |at, pace| {
                            add_scaled(piece(self.rows.column(at, self.op.columns)?), self.values[at], r, pace)
                        })?;
                    }
                    Ok(())
                },
            )
        })
    }

    /// Each tile sums some of the rows; the sums are added in order.
    fn by_rows(&self, y: &mut [f32], blocks: usize, run: &Run<'_>) -> Result<()> {
        let size = y.len();
        let mut scratch = run.scratch((blocks - 1) * size)?;
        let (sums, rest) = (Parts::new(y), Parts::new(scratch.floats()));
        run.paced(blocks, |pace, block| {
            // SAFETY: each block has a sum of its own.
            let sum = unsafe {
                match block {
                    0 => sums.part(0..size),
                    _ => rest.part((block - 1) * size..block * size),
                }
            };
            vectorized(
                #[inline(always)]
                || self.sum_rows(self.rows.block(block, blocks), sum, pace),
            )
        })?;
        if blocks == 1 || size == 0 {
            return Ok(());
        }
        let rest = scratch.floats();
        run.chunks(y, WORK, |tile, y| {
            for sum in rest.chunks_exact(size) {
                vectorized(
                    #[inline(always)]
                    || y.iter_mut().zip(&sum[tile * WORK..]).for_each(|(y, sum)| *y += sum),
                );
            }
        })
    }

    #[inline(always)]
    fn sum_rows(&self, range: Range<usize>, sum: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
        pace.fill(sum, 0.0)?;
        for row in range {
            let r = &self.r[row * self.wide..][..self.wide];
            self.rows.each_stored(row, self.wide, pace, |at, pace| {
                let column = self.rows.column(at, self.op.columns)?;
                add_scaled(&mut sum[column * self.wide..][..self.wide], self.values[at], r, pace)
            })?;
        }
        Ok(())
    }
}

pub(super) fn values_gradient(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let rows = Rows::checked(CsrValuesGradient.name(), &inputs[0], &inputs[1], run)?;
    let (x, dy) = (inputs[2].floats()?, inputs[3].floats()?);
    let (count, wide) = sizes(&inputs[2]);
    let gradients = Parts::new(outputs[0].floats()?);
    let grain = rows.per_tile(wide);
    run.paced(rows.count().div_ceil(grain), |pace, tile| {
        let range = tile * grain..rows.count().min((tile + 1) * grain);
        let start = rows.stored(range.clone()).start;
        // SAFETY: each tile has rows of its own, and the offsets never fall, so it has stored values of its own.
        let gradients = unsafe { gradients.part(rows.stored(range.clone())) };
        vectorized(
            #[inline(always)]
            || {
                if wide == 1 {
                    for row in range {
                        rows.each_stored(row, 1, pace, |at, _| {
                            gradients[at - start] = x[rows.column(at, count)?] * dy[row];
                            Ok(())
                        })?;
                    }
                    return Ok(());
                }
                for row in range {
                    let dy = &dy[row * wide..][..wide];
                    rows.each_stored(row, wide, pace, |at, pace| {
                        gradients[at - start] = dot(&x[rows.column(at, count)? * wide..][..wide], dy, pace)?;
                        Ok(())
                    })?;
                }
                Ok(())
            },
        )
    })
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32], pace: &mut Pace<'_>) -> Result<f32> {
    let mut sums = [0.0; LANES];
    let mut rest = 0.0;
    // Only the last piece has elements that fill no lanes.
    pace.pieces(a.len(), |range| {
        let (a, b) = (a[range.clone()].chunks_exact(LANES), b[range].chunks_exact(LANES));
        rest = a.remainder().iter().zip(b.remainder()).fold(0.0, |sum, (&a, &b)| sum + a * b);
        for (a, b) in a.zip(b) {
            sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (&a, &b))| *sum += a * b);
        }
    })?;
    Ok(sums.into_iter().fold(rest, |sum, lane| sum + lane))
}
