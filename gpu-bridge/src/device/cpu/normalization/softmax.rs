//! Rows to probabilities.

use crate::device::cpu::fold::{paced_largest, paced_sum, paced_sums};
use crate::device::cpu::math::{exp, log};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{Pace, Run};
use crate::shape::Layout;

/// Elements per tile: an exponential each.
const TILE: usize = 1 << 14;

/// Runs `body` for each row of `y` with its index, vectorized.
fn rows(
    y: &mut Output<'_>,
    run: &Run<'_>,
    body: impl Fn(usize, &mut [f32], &mut Pace<'_>) -> Result<()> + Sync,
) -> Result<()> {
    let length = y.layout.shape.from_end(0);
    if length == 0 {
        return Ok(());
    }
    let count = (TILE / length).max(1);
    run.paced_chunks(y.floats()?, count * length, |pace, tile, rows| {
        vectorized(
            #[inline(always)]
            || {
                for (row, y) in rows.chunks_exact_mut(length).enumerate() {
                    body(tile * count + row, y, pace)?;
                }
                Ok(())
            },
        )
    })
}

pub(in super::super) fn softmax(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let x = inputs[0].floats()?;
    rows(
        &mut outputs[0],
        run,
        #[inline(always)]
        |row, y, pace| softmax_row(&x[row * y.len()..][..y.len()], y, pace),
    )
}

pub(in super::super) fn log_softmax(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let x = inputs[0].floats()?;
    rows(
        &mut outputs[0],
        run,
        #[inline(always)]
        |row, y, pace| {
            let x = &x[row * y.len()..][..y.len()];
            let most = paced_largest(x, pace)?;
            // The result's place holds the powers first: a loop of its own for them becomes vectors.
            powers(x, most, y, pace)?;
            let rest = log(paced_sum(y, pace, |y| y)? as f32);
            pace.pieces(y.len(), |range| {
                y[range.clone()].iter_mut().zip(&x[range]).for_each(|(y, &x)| *y = (x - most) - rest);
            })
        },
    )
}

pub(in super::super) fn masked_softmax(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (x, mask) = (inputs[0].floats()?, inputs[1].elements::<u8>()?);
    let layout = Layout::contiguous(inputs[1].layout.shape).expand(&outputs[0].layout.shape);
    rows(
        &mut outputs[0],
        run,
        #[inline(always)]
        |row, y, pace| {
            let x = &x[row * y.len()..][..y.len()];
            let start = start_of_row(&layout, row);
            // One place of the mask may stand for the whole row.
            match layout.strides().last() {
                Some(&0) if mask[start] == 0 => pace.fill(y, 0.0),
                Some(&0) => softmax_row(x, y, pace),
                _ => masked_row(x, &mask[start..][..y.len()], y, pace),
            }
        },
    )
}

/// Where a row of the last axis begins.
#[inline(always)]
fn start_of_row(layout: &Layout, row: usize) -> usize {
    let outer = layout.shape.rank() - 1;
    let mut rest = row;
    let mut start = 0;
    for (&size, &stride) in layout.shape[..outer].iter().zip(layout.strides()).rev() {
        start += rest % size * stride;
        rest /= size;
    }
    start
}

/// `e^(x - most)` of each element.
#[inline(always)]
fn powers(x: &[f32], most: f32, y: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
    pace.pieces(y.len(), |range| {
        for (y, &x) in y[range.clone()].iter_mut().zip(&x[range]) {
            *y = exp(x - most);
        }
    })
}

#[inline(always)]
fn softmax_row(x: &[f32], y: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
    let most = paced_largest(x, pace)?;
    powers(x, most, y, pace)?;
    let factor = (1.0 / paced_sum(y, pace, |y| y)?) as f32;
    pace.pieces(y.len(), |range| y[range].iter_mut().for_each(|y| *y *= factor))
}

#[inline(always)]
fn masked_row(x: &[f32], mask: &[u8], y: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
    let mut any = false;
    pace.pieces(mask.len(), |range| any = any || mask[range].iter().any(|&mask| mask != 0))?;
    if !any {
        return pace.fill(y, 0.0);
    }
    pace.pieces(y.len(), |range| {
        for ((y, &x), &mask) in y[range.clone()].iter_mut().zip(&x[range.clone()]).zip(&mask[range]) {
            *y = if mask == 0 { f32::NEG_INFINITY } else { x };
        }
    })?;
    let most = paced_largest(y, pace)?;
    pace.pieces(y.len(), |range| {
        for ((y, &x), &mask) in y[range.clone()].iter_mut().zip(&x[range.clone()]).zip(&mask[range]) {
            // Powers that underflow take long, so that of what is masked is not taken.
            let power = exp(if mask == 0 { 0.0 } else { x - most });
            *y = if mask == 0 { 0.0 } else { power };
        }
    })?;
    let factor = (1.0 / paced_sum(y, pace, |y| y)?) as f32;
    pace.pieces(y.len(), |range| {
        if factor.is_finite() {
            return y[range].iter_mut().for_each(|y| *y *= factor);
        }
        for (y, &mask) in y[range.clone()].iter_mut().zip(&mask[range]) {
            *y = if mask == 0 { 0.0 } else { *y * factor };
        }
    })
}

/// `y (dy - sum(y dy))`
pub(in super::super) fn softmax_gradient(
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (y, dy) = (inputs[0].floats()?, inputs[1].floats()?);
    rows(
        &mut outputs[0],
        run,
        #[inline(always)]
        |row, dx, pace| {
            let (y, dy) = (&y[row * dx.len()..][..dx.len()], &dy[row * dx.len()..][..dx.len()]);
            let [along] = paced_sums([y, dy], pace, |[y, dy]| [y * dy])?;
            let along = along as f32;
            pace.pieces(dx.len(), |range| {
                let (y, dy) = (&y[range.clone()], &dy[range.clone()]);
                dx[range].iter_mut().zip(y).zip(dy).for_each(|((dx, &y), &dy)| *dx = y * (dy - along));
            })
        },
    )
}

/// `dy - e^y sum(dy)`
pub(in super::super) fn log_softmax_gradient(
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (y, dy) = (inputs[0].floats()?, inputs[1].floats()?);
    rows(
        &mut outputs[0],
        run,
        #[inline(always)]
        |row, dx, pace| {
            let (y, dy) = (&y[row * dx.len()..][..dx.len()], &dy[row * dx.len()..][..dx.len()]);
            let total = paced_sum(dy, pace, |dy| dy)? as f32;
            pace.pieces(dx.len(), |range| {
                for ((dx, &y), &dy) in dx[range.clone()].iter_mut().zip(&y[range.clone()]).zip(&dy[range]) {
                    *dx = dy - exp(y) * total;
                }
            })
        },
    )
}
