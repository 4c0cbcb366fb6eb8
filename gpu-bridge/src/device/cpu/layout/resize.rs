//! Images of another size. Where pixels come from is worked out once per axis; see the spec for how.

use super::TILE;
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::{Resampling, Resize, ResizeGradient};
use crate::run::{PIECE, Pace, Parts, Run, Scratch};
use crate::shape::Shape;

/// Per pixel of the result along one axis: the pixel it comes from, and how much the next one weighs.
#[derive(Clone, Copy)]
struct Sources<'a> {
    nearer: &'a [u32],
    weights: &'a [f32],
    /// How many pixels there are to come from.
    size: usize,
}

impl<'a> Sources<'a> {
    fn new(mode: Resampling, from: usize, to: usize, room: &'a mut [f32], run: &Run<'_>) -> Result<Self> {
        let (nearer, weights) = room.split_at_mut(to);
        let nearer: &mut [u32] = bytemuck::cast_slice_mut(nearer);
        let (wide_from, wide_to) = (from as u64, to as u64);
        let (nearer_parts, weight_parts) = (Parts::new(&mut *nearer), Parts::new(&mut *weights));
        run.ranges(to, TILE, |range| {
            // SAFETY: the ranges of different tiles do not overlap.
            let (nearer, weights) = unsafe { (nearer_parts.part(range.clone()), weight_parts.part(range.clone())) };
            for (index, (nearer, weight)) in (range.start as u64..).zip(nearer.iter_mut().zip(weights)) {
                (*nearer, *weight) = match mode {
                    Resampling::Nearest => ((index * wide_from / wide_to) as u32, 0.0),
                    Resampling::Bilinear => {
                        let place = ((2 * index + 1) * wide_from).saturating_sub(wide_to);
                        let unit = 2 * wide_to;
                        ((place / unit) as u32, (place % unit) as f32 / unit as f32)
                    }
                };
            }
        })?;
        Ok(Self { nearer, weights, size: from })
    }

    /// The two pixels that one comes from, and how much the second weighs.
    #[inline(always)]
    fn of(self, index: usize) -> (usize, usize, f32) {
        let nearer = self.nearer[index] as usize;
        (nearer, (nearer + 1).min(self.size - 1), self.weights[index])
    }

    /// The pixels that come from any of these.
    fn reached_from(self, first: usize, end: usize) -> std::ops::Range<usize> {
        let first = self.nearer.partition_point(|&nearer| (nearer as usize) + 1 < first);
        first..self.nearer.partition_point(|&nearer| (nearer as usize) < end).max(first)
    }
}

/// The sources of both axes of the result: rows, then columns.
fn tables<'a>(
    mode: Resampling,
    from: &Shape,
    to: &Shape,
    scratch: &'a mut Scratch,
    run: &Run<'_>,
) -> Result<(Sources<'a>, Sources<'a>)> {
    let (rows, columns) = scratch.floats().split_at_mut(2 * to[2]);
    Ok((Sources::new(mode, from[2], to[2], rows, run)?, Sources::new(mode, from[3], to[3], columns, run)?))
}

/// The first where the second weighs nothing, even if the second is not finite.
#[inline(always)]
fn mix(a: f32, b: f32, weight: f32) -> f32 {
    if weight == 0.0 { a } else { (1.0 - weight) * a + weight * b }
}

pub(in super::super) fn resize(
    op: &Resize,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (from, to) = (inputs[0].layout.shape, outputs[0].layout.shape);
    let mut scratch = run.scratch(2 * (to[2] + to[3]))?;
    let (rows, columns) = tables(op.mode, &from, &to, &mut scratch, run)?;
    let x = inputs[0].floats()?;
    let y = Parts::new(outputs[0].floats()?);
    let (height, width) = (from[2], from[3]);
    let lines = to[0] * to[1] * to[2];
    let grain = (TILE / to[3].max(width)).max(1);
    run.paced_with(lines.div_ceil(grain), width, |pace, tile, mixed| {
        for line in tile * grain..lines.min((tile + 1) * grain) {
            let (plane, row) = (line / to[2], line % to[2]);
            let line_of = |row: usize| &x[(plane * height + row) * width..][..width];
            // SAFETY: each line is one tile's.
            let y = unsafe { y.part(line * to[3]..(line + 1) * to[3]) };
            let (upper, lower, weight) = rows.of(row);
            let (upper, lower) = (line_of(upper), line_of(lower));
            if weight == 0.0 {
                along_columns(op.mode, upper, y, columns, pace)?;
                continue;
            }
            pace.pieces(width, |range| {
                vectorized(
                    #[inline(always)]
                    || {
                        let pairs = upper[range.clone()].iter().zip(&lower[range.clone()]);
                        mixed[range].iter_mut().zip(pairs).for_each(|(mixed, (&a, &b))| *mixed = mix(a, b, weight));
                    },
                );
            })?;
            along_columns(op.mode, mixed, y, columns, pace)?;
        }
        Ok(())
    })
}

fn along_columns(mode: Resampling, x: &[f32], y: &mut [f32], columns: Sources<'_>, pace: &mut Pace<'_>) -> Result<()> {
    pace.pieces(y.len(), |range| {
        let (y, nearer, weights) = (&mut y[range.clone()], &columns.nearer[range.clone()], &columns.weights[range]);
        match mode {
            Resampling::Nearest => y.iter_mut().zip(nearer).for_each(|(y, &nearer)| *y = x[nearer as usize]),
            Resampling::Bilinear => {
                for ((y, &left), &weight) in y.iter_mut().zip(nearer).zip(weights) {
                    let left = left as usize;
                    let right = (left + 1).min(x.len() - 1);
                    *y = mix(x[left], x[right], weight);
                }
            }
        }
    })
}

/// Tiles own rows of the result, which is the size of the input: each goes through the lines of `dy` that reach its rows,
/// in order.
pub(in super::super) fn resize_gradient(
    op: &ResizeGradient,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (large, small) = (inputs[0].layout.shape, outputs[0].layout.shape);
    let mut scratch = run.scratch(2 * (large[2] + large[3]))?;
    let (rows, columns) = tables(op.mode, &small, &large, &mut scratch, run)?;
    let dy = inputs[0].floats()?;
    let dx = Parts::new(outputs[0].floats()?);
    let (height, width) = (op.height, op.width);
    // The work of a row is what it gets from `dy`, or to be set to zero.
    let row_work = width.max(large[2].div_ceil(height) * large[3]);
    let strip = (TILE / row_work).clamp(1, height);
    let strips = height.div_ceil(strip);
    let grain = (TILE / (strip * row_work)).max(1);
    let units = small[0] * small[1] * strips;
    run.paced_with(units.div_ceil(grain), width, |pace, tile, folded| {
        for unit in tile * grain..units.min((tile + 1) * grain) {
            let (plane, first) = (unit / strips, unit % strips * strip);
            let end = height.min(first + strip);
            // SAFETY: each strip is one tile's.
            let dx = unsafe { dx.part((plane * height + first) * width..(plane * height + end) * width) };
            pace.fill(dx, 0.0)?;
            for line in rows.reached_from(first, end) {
                let dy = &dy[(plane * large[2] + line) * large[3]..][..large[3]];
                pace.step(dy.len().min(PIECE) + 2 * width.min(PIECE))?;
                fold_columns(op.mode, dy, folded, columns, pace)?;
                let (upper, lower, weight) = rows.of(line);
                for (row, weight) in [(upper, 1.0 - weight), (lower, weight)] {
                    if weight != 0.0 && (first..end).contains(&row) {
                        let dx = &mut dx[(row - first) * width..][..width];
                        pace.pieces(width, |range| {
                            let (dx, folded) = (&mut dx[range.clone()], &folded[range]);
                            vectorized(
                                #[inline(always)]
                                || dx.iter_mut().zip(folded).for_each(|(dx, &x)| *dx += weight * x),
                            );
                        })?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// Gives each pixel of a line to the ones that it came from.
fn fold_columns(
    mode: Resampling,
    dy: &[f32],
    folded: &mut [f32],
    columns: Sources<'_>,
    pace: &mut Pace<'_>,
) -> Result<()> {
    pace.fill(folded, 0.0)?;
    pace.pieces(dy.len(), |range| {
        let (dy, nearer, weights) = (&dy[range.clone()], &columns.nearer[range.clone()], &columns.weights[range]);
        match mode {
            Resampling::Nearest => dy.iter().zip(nearer).for_each(|(&dy, &at)| folded[at as usize] += dy),
            Resampling::Bilinear => {
                for ((&dy, &left), &weight) in dy.iter().zip(nearer).zip(weights) {
                    let left = left as usize;
                    let right = (left + 1).min(folded.len() - 1);
                    folded[left] += (1.0 - weight) * dy;
                    if weight != 0.0 {
                        folded[right] += weight * dy;
                    }
                }
            }
        }
    })
}
