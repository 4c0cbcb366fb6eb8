//! Batch normalization with loops along the places of a channel.

use std::ops::Range;

use super::{Activation, Backward, Batch, Channel, Forward, near, statistics};
use crate::device::cpu::fold::{sum, sums};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{PIECE, Pace, Run};

impl Batch {
    /// Runs `body` for what a channel has in each image: where it lies, in pieces if it is long.
    #[inline(always)]
    fn each_plane(self, channel: usize, pace: &mut Pace<'_>, mut body: impl FnMut(Range<usize>)) -> Result<()> {
        let stride = self.channels * self.plane;
        for image in 0..self.images {
            let start = image * stride + channel * self.plane;
            pace.step(self.plane.min(PIECE))?;
            pace.pieces(self.plane, |range| body(start + range.start..start + range.end))?;
        }
        Ok(())
    }
}

pub(super) fn forward(batch: Batch, tensors: &Forward<'_>, activation: impl Activation, run: &Run<'_>) -> Result<()> {
    run.paced_ranges(batch.channels, batch.grain(0), |pace, channels| {
        vectorized(
            #[inline(always)]
            || {
                for index in channels {
                    let (mean, variance) = tensors.moments.of(
                        index..index + 1,
                        #[inline(always)]
                        |mean, variance| {
                            (mean[0], variance[0]) = channel_statistics(batch, tensors.x, index, pace)?;
                            Ok(())
                        },
                    )?;
                    let channel = tensors.channel(index, mean[0], variance[0]);
                    normalize(batch, tensors, index, channel, activation, pace)?;
                }
                Ok(())
            },
        )
    })
}

#[inline(always)]
fn channel_statistics(batch: Batch, x: &[f32], channel: usize, pace: &mut Pace<'_>) -> Result<(f32, f32)> {
    let first = &x[channel * batch.plane..][..batch.plane.min(PIECE)];
    let near = near(sum(first, |x| x) / first.len() as f64);
    let (mut total, mut squares) = (0.0, 0.0);
    batch.each_plane(channel, pace, |plane| {
        let [sum, square] = sums([&x[plane]], |[x]| [x - near, (x - near) * (x - near)]);
        total += sum;
        squares += square;
    })?;
    Ok(statistics(near, total, squares, batch.count()))
}

#[inline(always)]
fn normalize(
    batch: Batch,
    tensors: &Forward<'_>,
    index: usize,
    channel: Channel,
    activation: impl Activation,
    pace: &mut Pace<'_>,
) -> Result<()> {
    let Channel { mean, rstd, scale, shift } = channel;
    let factor = rstd * scale;
    batch.each_plane(index, pace, |plane| {
        // SAFETY: each channel belongs to one tile.
        let y = unsafe { tensors.y.part(plane.clone()) };
        for (y, &x) in y.iter_mut().zip(&tensors.x[plane]) {
            *y = activation.apply((x - mean) * factor + shift);
        }
    })
}

pub(super) fn gradient(batch: Batch, tensors: &Backward<'_>, activation: impl Activation, run: &Run<'_>) -> Result<()> {
    run.paced_ranges(batch.channels, batch.grain(0), |pace, channels| {
        // SAFETY: each channel belongs to one tile.
        let (dscale, dshift) =
            unsafe { (tensors.dscale.part(channels.clone()), tensors.dshift.part(channels.clone())) };
        vectorized(
            #[inline(always)]
            || {
                for ((index, dscale), dshift) in channels.zip(dscale).zip(dshift) {
                    let channel = tensors.channel(index);
                    let (along, direct) = channel_sums(batch, tensors, index, channel, activation, pace)?;
                    (*dscale, *dshift) = (along as f32, direct as f32);
                    let corrections = tensors.corrections(direct, along, batch.count());
                    spread(batch, tensors, index, channel, corrections, activation, pace)?;
                }
                Ok(())
            },
        )
    })
}

/// The gradients of scale and shift.
#[inline(always)]
fn channel_sums(
    batch: Batch,
    tensors: &Backward<'_>,
    index: usize,
    channel: Channel,
    activation: impl Activation,
    pace: &mut Pace<'_>,
) -> Result<(f64, f64)> {
    let Channel { mean, rstd, scale, shift } = channel;
    let factor = rstd * scale;
    let (mut along, mut direct) = (0.0, 0.0);
    batch.each_plane(index, pace, |plane| {
        let [a, d] = sums([&tensors.x[plane.clone()], &tensors.dy[plane]], |[x, dy]| {
            let dz = activation.back((x - mean) * factor + shift, dy);
            [dz * (x - mean), dz]
        });
        along += a;
        direct += d;
    })?;
    Ok((along * f64::from(rstd), direct))
}

#[inline(always)]
fn spread(
    batch: Batch,
    tensors: &Backward<'_>,
    index: usize,
    channel: Channel,
    (direct, along): (f32, f32),
    activation: impl Activation,
    pace: &mut Pace<'_>,
) -> Result<()> {
    let Channel { mean, rstd, scale, shift } = channel;
    let factor = rstd * scale;
    let along = along * rstd;
    batch.each_plane(index, pace, |plane| {
        // SAFETY: each channel belongs to one tile.
        let dx = unsafe { tensors.dx.part(plane.clone()) };
        for ((dx, &x), &dy) in dx.iter_mut().zip(&tensors.x[plane.clone()]).zip(&tensors.dy[plane]) {
            let dz = activation.back((x - mean) * factor + shift, dy);
            *dx = factor * (dz - direct - (x - mean) * along);
        }
    })
}
