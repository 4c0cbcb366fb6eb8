//! Rows to probabilities.

use crate::device::cpu::fold::{largest, sum, sums};
use crate::device::cpu::math::{exp, log};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::Run;
use crate::shape::Layout;

/// Elements per tile: an exponential each.
const TILE: usize = 1 << 14;

/// Runs `body` for each row of `y` with its index, vectorized.
fn rows(y: &mut Output<'_>, run: &Run<'_>, body: impl Fn(usize, &mut [f32]) + Sync) -> Result<()> {
    let length = y.layout.shape.from_end(0);
    if length == 0 {
        return Ok(());
    }
    let count = (TILE / length).max(1);
    run.chunks(y.floats()?, count * length, |tile, rows| {
        vectorized(
            #[inline(always)]
            || {
                for (row, y) in rows.chunks_exact_mut(length).enumerate() {
                    body(tile * count + row, y);
                }
            },
        );
    })
}

pub(in super::super) fn softmax(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let x = inputs[0].floats()?;
    rows(
        &mut outputs[0],
        run,
        #[inline(always)]
        |row, y| {
            softmax_row(&x[row * y.len()..][..y.len()], y);
        },
    )
}

pub(in super::super) fn log_softmax(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let x = inputs[0].floats()?;
    rows(
        &mut outputs[0],
        run,
        #[inline(always)]
        |row, y| {
            let x = &x[row * y.len()..][..y.len()];
            let most = largest(x);
            // The result's place holds the powers first: a loop of its own for them becomes vectors.
            for (y, &x) in y.iter_mut().zip(x) {
                *y = exp(x - most);
            }
            let rest = log(sum(y, |y| y) as f32);
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = (x - most) - rest);
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
        |row, y| {
            let x = &x[row * y.len()..][..y.len()];
            let start = start_of_row(&layout, row);
            // One place of the mask may stand for the whole row.
            match layout.strides().last() {
                Some(&0) if mask[start] == 0 => y.fill(0.0),
                Some(&0) => softmax_row(x, y),
                _ => masked_row(x, &mask[start..][..y.len()], y),
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

#[inline(always)]
fn softmax_row(x: &[f32], y: &mut [f32]) {
    let most = largest(x);
    for (y, &x) in y.iter_mut().zip(x) {
        *y = exp(x - most);
    }
    let factor = (1.0 / sum(y, |y| y)) as f32;
    y.iter_mut().for_each(|y| *y *= factor);
}

#[inline(always)]
fn masked_row(x: &[f32], mask: &[u8], y: &mut [f32]) {
    if mask.iter().all(|&mask| mask == 0) {
        return y.fill(0.0);
    }
    for ((y, &x), &mask) in y.iter_mut().zip(x).zip(mask) {
        *y = if mask == 0 { f32::NEG_INFINITY } else { x };
    }
    let most = largest(y);
    for ((y, &x), &mask) in y.iter_mut().zip(x).zip(mask) {
        // Powers that underflow take long, so that of what is masked is not taken.
        let power = exp(if mask == 0 { 0.0 } else { x - most });
        *y = if mask == 0 { 0.0 } else { power };
    }
    let factor = (1.0 / sum(y, |y| y)) as f32;
    if factor.is_finite() {
        return y.iter_mut().for_each(|y| *y *= factor);
    }
    for (y, &mask) in y.iter_mut().zip(mask) {
        *y = if mask == 0 { 0.0 } else { *y * factor };
    }
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
        |row, dx| {
            let (y, dy) = (&y[row * dx.len()..][..dx.len()], &dy[row * dx.len()..][..dx.len()]);
            let [along] = sums([y, dy], |[y, dy]| [y * dy]);
            let along = along as f32;
            dx.iter_mut().zip(y).zip(dy).for_each(|((dx, &y), &dy)| *dx = y * (dy - along));
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
        |row, dx| {
            let (y, dy) = (&y[row * dx.len()..][..dx.len()], &dy[row * dx.len()..][..dx.len()]);
            let total = sum(dy, |dy| dy) as f32;
            for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
                *dx = dy - exp(y) * total;
            }
        },
    )
}
