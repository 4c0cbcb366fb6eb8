//! Rows by index.

use super::{Bits, TILE, by_width};
use crate::device::cpu::memory::{Indices, Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{GatherRows, OneHot, ScatterAddRows, Spec};
use crate::run::{Pace, Parts, Run};

/// The narrowest piece of a row that is worth looking through all indices for.
const NARROWEST: usize = 32;

pub(in super::super) fn gather_rows(
    op: &GatherRows,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    by_width!(inputs[0].dtype, gather(op.name(), &inputs[0], &inputs[1], &mut outputs[0], run))
}

fn gather<T: Bits>(
    op: &'static str,
    table: &Input<'_>,
    index: &Input<'_>,
    output: &mut Output<'_>,
    run: &Run<'_>,
) -> Result<()> {
    let count = table.layout.shape[0];
    let width: usize = table.layout.shape[1..].iter().product();
    let rows = index.layout.shape.elements();
    let (table, index) = (T::read(table)?, index.indices()?);
    let into = Parts::new(T::write(output)?);
    // A tile is some rows, or a piece of one that is long.
    let piece = width.clamp(1, TILE);
    let pieces = width.div_ceil(piece).max(1);
    let grain = TILE / piece;
    let units = rows * pieces;
    run.try_each(units.div_ceil(grain), |tile| {
        for unit in tile * grain..units.min((tile + 1) * grain) {
            let (row, first) = (unit / pieces, unit % pieces * piece);
            let last = width.min(first + piece);
            let from = index.checked(row, count, op, "row")? * width;
            // SAFETY: each unit has a piece of the result to itself.
            let into = unsafe { into.part(row * width + first..row * width + last) };
            into.copy_from_slice(&table[from + first..from + last]);
        }
        Ok(())
    })
}

/// Sums are made in the order of the rows, whoever makes them.
pub(in super::super) fn scatter_add_rows(
    op: &ScatterAddRows,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let width: usize = outputs[0].layout.shape[1..].iter().product();
    let count = inputs[1].layout.shape.elements();
    let (rows, index) = (inputs[0].floats()?, inputs[1].indices()?);
    run.try_each(count.div_ceil(TILE), |tile| {
        (tile * TILE..count.min((tile + 1) * TILE))
            .try_for_each(|row| index.checked(row, op.count, op.name(), "row").map(drop))
    })?;
    let sums = outputs[0].floats()?;
    if op.count / 4 >= count && width >= NARROWEST {
        add_by_rows(rows, index, count, sums, width, run)
    } else {
        run.chunks(sums, TILE, |_, sums| sums.fill(0.0))?;
        add_by_columns(rows, index, count, sums, width, run)
    }
}

/// Where most sums stay zero, as for the gradient of an embedding, setting them to zero is most of the work. A tile owns
/// some of them and looks through all indices for its own.
fn add_by_rows(
    rows: &[f32],
    index: Indices<'_>,
    count: usize,
    sums: &mut [f32],
    width: usize,
    run: &Run<'_>,
) -> Result<()> {
    // Looking through the indices must stay a small part of it.
    let owned = (8 * TILE / width).max(count / width).max(1);
    run.paced_chunks(sums, owned * width, |pace, tile, sums| {
        pace.fill(sums, 0.0)?;
        let first = tile * owned;
        let end = first + sums.len() / width;
        for row in 0..count {
            let to = index.get(row) as usize;
            pace.step(1)?;
            if (first..end).contains(&to) {
                add(&rows[row * width..][..width], &mut sums[(to - first) * width..][..width], pace)?;
            }
        }
        Ok(())
    })
}

/// A tile owns some columns and goes through all rows: whatever the indices are, all tiles have the same work.
fn add_by_columns(
    rows: &[f32],
    index: Indices<'_>,
    count: usize,
    sums: &mut [f32],
    width: usize,
    run: &Run<'_>,
) -> Result<()> {
    let tiles = (count * width / TILE).clamp(1, 16);
    let owned = width.div_ceil(tiles).next_multiple_of(NARROWEST);
    let sums = Parts::new(sums);
    run.paced_ranges(width, owned, |pace: &mut Pace<'_>, columns| {
        for row in 0..count {
            let at = index.get(row) as usize * width;
            // SAFETY: the columns of different tiles do not overlap.
            let sums = unsafe { sums.part(at + columns.start..at + columns.end) };
            add(&rows[row * width..][columns.clone()], sums, pace)?;
        }
        Ok(())
    })
}

#[inline(always)]
fn add(from: &[f32], sums: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
    pace.stepped(from.len(), |range| {
        let (from, sums) = (&from[range.clone()], &mut sums[range]);
        vectorized(
            #[inline(always)]
            || sums.iter_mut().zip(from).for_each(|(sum, &x)| *sum += x),
        );
    })
}

pub(in super::super) fn one_hot(
    op: &OneHot,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let index = inputs[0].indices()?;
    let rows = inputs[0].layout.shape.elements();
    let into = Parts::new(outputs[0].floats()?);
    let grain = (TILE / op.classes).max(1);
    run.paced(rows.div_ceil(grain), |pace, tile| {
        for row in tile * grain..rows.min((tile + 1) * grain) {
            let class = index.checked(row, op.classes, op.name(), "class")?;
            // SAFETY: each row is one tile's.
            let into = unsafe { into.part(row * op.classes..(row + 1) * op.classes) };
            pace.fill(into, 0.0)?;
            into[class] = 1.0;
        }
        Ok(())
    })
}
