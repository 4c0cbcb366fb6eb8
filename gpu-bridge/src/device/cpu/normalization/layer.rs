//! Normalization of each row by its own mean and variance.

use super::{near, results, statistics};
use crate::device::cpu::fold::{sum, sums};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::LayerNorm;
use crate::run::{Parts, Run};

/// Elements per tile.
const TILE: usize = 1 << 15;

/// The most tiles whose partial sums are kept.
const MOST_TILES: usize = 64;

pub(in super::super) fn layer(
    op: &LayerNorm,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (x, scale, shift) = (inputs[0].floats()?, inputs[1].floats()?, inputs[2].floats()?);
    let [y, mean, rstd] = results(outputs)?;
    let (y, mean, rstd) = (Parts::new(y.floats()?), Parts::new(mean.floats()?), Parts::new(rstd.floats()?));
    let channels = scale.len();
    run.ranges(mean.len(), (TILE / channels).max(1), |rows| {
        // SAFETY: each row belongs to one tile.
        let (y, mean, rstd) = unsafe {
            (y.part(rows.start * channels..rows.end * channels), mean.part(rows.clone()), rstd.part(rows.clone()))
        };
        let x = &x[rows.start * channels..rows.end * channels];
        vectorized(
            #[inline(always)]
            || {
                let rows = x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)).zip(mean).zip(rstd);
                for (((x, y), mean), rstd) in rows {
                    (*mean, *rstd) = row_statistics(x, op.epsilon);
                    let (mean, rstd) = (*mean, *rstd);
                    for (((y, &x), &scale), &shift) in y.iter_mut().zip(x).zip(scale).zip(shift) {
                        *y = (x - mean) * rstd * scale + shift;
                    }
                }
            },
        );
    })
}

/// The mean of a row, and one over its deviation.
#[inline(always)]
fn row_statistics(x: &[f32], epsilon: f32) -> (f32, f32) {
    let near = near(sum(x, |x| x) / x.len() as f64);
    let [total, squares] = sums([x], |[x]| [x - near, (x - near) * (x - near)]);
    let (mean, variance) = statistics(near, total, squares, x.len());
    (mean, (1.0 / (f64::from(variance) + f64::from(epsilon)).sqrt()) as f32)
}

pub(in super::super) fn layer_gradient(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (x, scale, mean) = (inputs[0].floats()?, inputs[1].floats()?, inputs[2].floats()?);
    let (rstd, dy) = (inputs[3].floats()?, inputs[4].floats()?);
    let [dx, dscale, dshift] = results(outputs)?;
    let (channels, rows) = (scale.len(), mean.len());
    let per_tile = (TILE / channels).max(rows.div_ceil(MOST_TILES)).max(1);
    let tiles = rows.div_ceil(per_tile);
    // Each tile sums the gradients of scale and shift over its own rows.
    let mut scratch = run.scratch(tiles * 2 * channels)?;
    let partial = Parts::new(scratch.floats());
    let dx = Parts::new(dx.floats()?);
    run.ranges(rows, per_tile, |rows| {
        let tile = rows.start / per_tile;
        let all = rows.start * channels..rows.end * channels;
        // SAFETY: each row, and each partial sum, belongs to one tile.
        let (dx, partial) =
            unsafe { (dx.part(all.clone()), partial.part(tile * 2 * channels..(tile + 1) * 2 * channels)) };
        partial.fill(0.0);
        let (dscale, dshift) = partial.split_at_mut(channels);
        let (x, dy) = (&x[all.clone()], &dy[all]);
        let (mean, rstd) = (&mean[rows.clone()], &rstd[rows]);
        vectorized(
            #[inline(always)]
            || {
                let rows = x.chunks_exact(channels).zip(dy.chunks_exact(channels)).zip(dx.chunks_exact_mut(channels));
                for (((x, dy), dx), (&mean, &rstd)) in rows.zip(mean.iter().zip(rstd)) {
                    gradient_row([x, dy, scale], mean, rstd, dx);
                    for (((&x, &dy), dscale), dshift) in x.iter().zip(dy).zip(&mut *dscale).zip(&mut *dshift) {
                        *dscale += dy * ((x - mean) * rstd);
                        *dshift += dy;
                    }
                }
            },
        );
    })?;
    let sums = scratch.floats();
    combine(sums, dscale.floats()?, 0);
    combine(sums, dshift.floats()?, 1);
    Ok(())
}

#[inline(always)]
fn gradient_row([x, dy, scale]: [&[f32]; 3], mean: f32, rstd: f32, dx: &mut [f32]) {
    let [direct, along] = sums([x, dy, scale], |[x, dy, scale]| {
        let g = dy * scale;
        [g, g * ((x - mean) * rstd)]
    });
    let count = x.len() as f64;
    let (direct, along) = ((direct / count) as f32, (along / count) as f32);
    for (((dx, &x), &dy), &scale) in dx.iter_mut().zip(x).zip(dy).zip(scale) {
        *dx = rstd * (dy * scale - direct - (x - mean) * rstd * along);
    }
}

/// Adds up one of the two halves of each tile's sums, in the order of the tiles.
fn combine(sums: &[f32], into: &mut [f32], half: usize) {
    into.fill(0.0);
    for sums in sums.chunks_exact(into.len()).skip(half).step_by(2) {
        vectorized(
            #[inline(always)]
            || into.iter_mut().zip(sums).for_each(|(into, sum)| *into += sum),
        );
    }
}
