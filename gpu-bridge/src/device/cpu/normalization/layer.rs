//! Normalization of each row by its own mean and variance.

use super::{near, results, statistics};
use crate::device::cpu::fold::{paced_sum, paced_sums};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::LayerNorm;
use crate::run::{Pace, Parts, Run};

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
    run.paced_ranges(mean.len(), (TILE / channels).max(1), |pace, rows| {
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
                    (*mean, *rstd) = row_statistics(x, op.epsilon, pace)?;
                    let (mean, rstd) = (*mean, *rstd);
                    pace.pieces(channels, |range| {
                        let (x, scale, shift) = (&x[range.clone()], &scale[range.clone()], &shift[range.clone()]);
                        for (((y, &x), &scale), &shift) in y[range].iter_mut().zip(x).zip(scale).zip(shift) {
                            *y = (x - mean) * rstd * scale + shift;
                        }
                    })?;
                }
                Ok(())
            },
        )
    })
}

/// The mean of a row, and one over its deviation.
#[inline(always)]
fn row_statistics(x: &[f32], epsilon: f32, pace: &mut Pace<'_>) -> Result<(f32, f32)> {
    let near = near(paced_sum(x, pace, |x| x)? / x.len() as f64);
    let [total, squares] = paced_sums([x], pace, |[x]| [x - near, (x - near) * (x - near)])?;
    let (mean, variance) = statistics(near, total, squares, x.len());
    Ok((mean, (1.0 / (f64::from(variance) + f64::from(epsilon)).sqrt()) as f32))
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
    run.paced_ranges(rows, per_tile, |pace, rows| {
        let tile = rows.start / per_tile;
        let all = rows.start * channels..rows.end * channels;
        // SAFETY: each row, and each partial sum, belongs to one tile.
        let (dx, partial) =
            unsafe { (dx.part(all.clone()), partial.part(tile * 2 * channels..(tile + 1) * 2 * channels)) };
        pace.fill(partial, 0.0)?;
        let (dscale, dshift) = partial.split_at_mut(channels);
        let (x, dy) = (&x[all.clone()], &dy[all]);
        let (mean, rstd) = (&mean[rows.clone()], &rstd[rows]);
        vectorized(
            #[inline(always)]
            || {
                let rows = x.chunks_exact(channels).zip(dy.chunks_exact(channels)).zip(dx.chunks_exact_mut(channels));
                for (((x, dy), dx), (&mean, &rstd)) in rows.zip(mean.iter().zip(rstd)) {
                    pace.step(channels.min(TILE))?;
                    gradient_row([x, dy, scale], mean, rstd, dx, pace)?;
                    pace.pieces(channels, |range| {
                        let (x, dy) = (&x[range.clone()], &dy[range.clone()]);
                        let (dscale, dshift) = (&mut dscale[range.clone()], &mut dshift[range]);
                        for (((&x, &dy), dscale), dshift) in x.iter().zip(dy).zip(dscale).zip(dshift) {
                            *dscale += dy * ((x - mean) * rstd);
                            *dshift += dy;
                        }
                    })?;
                }
                Ok(())
            },
        )
    })?;
    let sums = scratch.floats();
    combine(sums, dscale.floats()?, 0, run)?;
    combine(sums, dshift.floats()?, 1, run)
}

#[inline(always)]
fn gradient_row([x, dy, scale]: [&[f32]; 3], mean: f32, rstd: f32, dx: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
    let [direct, along] = paced_sums([x, dy, scale], pace, |[x, dy, scale]| {
        let g = dy * scale;
        [g, g * ((x - mean) * rstd)]
    })?;
    let count = x.len() as f64;
    let (direct, along) = ((direct / count) as f32, (along / count) as f32);
    pace.pieces(dx.len(), |range| {
        let (x, dy, scale) = (&x[range.clone()], &dy[range.clone()], &scale[range.clone()]);
        for (((dx, &x), &dy), &scale) in dx[range].iter_mut().zip(x).zip(dy).zip(scale) {
            *dx = rstd * (dy * scale - direct - (x - mean) * rstd * along);
        }
    })
}

/// Adds up one of the two halves of each tile's sums, in the order of the tiles.
fn combine(sums: &[f32], into: &mut [f32], half: usize, run: &Run<'_>) -> Result<()> {
    let channels = into.len();
    run.chunks(into, TILE, |tile, into| {
        let here = tile * TILE..tile * TILE + into.len();
        into.fill(0.0);
        for sums in sums.chunks_exact(channels).skip(half).step_by(2) {
            vectorized(
                #[inline(always)]
                || into.iter_mut().zip(&sums[here.clone()]).for_each(|(into, sum)| *into += sum),
            );
        }
    })
}
