//! Batch normalization with loops along the places of a channel.

use std::ops::Range;

use super::{Activation, Backward, Batch, Channel, Forward, near, statistics};
use crate::device::cpu::fold::{sum, sums};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::Run;

impl Batch {
    /// Where a channel lies, image by image.
    #[inline(always)]
    fn planes(self, channel: usize) -> impl Iterator<Item = Range<usize>> {
        let stride = self.channels * self.plane;
        let start = channel * self.plane;
        (0..self.images).map(move |image| image * stride + start..image * stride + start + self.plane)
    }
}

pub(super) fn forward(batch: Batch, tensors: &Forward<'_>, activation: impl Activation, run: &Run<'_>) -> Result<()> {
    run.ranges(batch.channels, batch.grain(0), |channels| {
        vectorized(
            #[inline(always)]
            || {
                for index in channels {
                    let (mean, variance) = tensors.moments.of(
                        index..index + 1,
                        #[inline(always)]
                        |mean, variance| (mean[0], variance[0]) = channel_statistics(batch, tensors.x, index),
                    );
                    normalize(batch, tensors, index, tensors.channel(index, mean[0], variance[0]), activation);
                }
            },
        );
    })
}

#[inline(always)]
fn channel_statistics(batch: Batch, x: &[f32], channel: usize) -> (f32, f32) {
    let first = &x[channel * batch.plane..][..batch.plane];
    let near = near(sum(first, |x| x) / batch.plane as f64);
    let (mut total, mut squares) = (0.0, 0.0);
    for plane in batch.planes(channel) {
        let [sum, square] = sums([&x[plane]], |[x]| [x - near, (x - near) * (x - near)]);
        total += sum;
        squares += square;
    }
    statistics(near, total, squares, batch.count())
}

#[inline(always)]
fn normalize(batch: Batch, tensors: &Forward<'_>, index: usize, channel: Channel, activation: impl Activation) {
    let Channel { mean, rstd, scale, shift } = channel;
    let factor = rstd * scale;
    for plane in batch.planes(index) {
        // SAFETY: each channel belongs to one tile.
        let y = unsafe { tensors.y.part(plane.clone()) };
        for (y, &x) in y.iter_mut().zip(&tensors.x[plane]) {
            *y = activation.apply((x - mean) * factor + shift);
        }
    }
}

pub(super) fn gradient(batch: Batch, tensors: &Backward<'_>, activation: impl Activation, run: &Run<'_>) -> Result<()> {
    run.ranges(batch.channels, batch.grain(0), |channels| {
        // SAFETY: each channel belongs to one tile.
        let (dscale, dshift) =
            unsafe { (tensors.dscale.part(channels.clone()), tensors.dshift.part(channels.clone())) };
        vectorized(
            #[inline(always)]
            || {
                for ((index, dscale), dshift) in channels.zip(dscale).zip(dshift) {
                    let channel = tensors.channel(index);
                    let (along, direct) = channel_sums(batch, tensors, index, channel, activation);
                    (*dscale, *dshift) = (along as f32, direct as f32);
                    let (direct, along) = tensors.corrections(direct, along, batch.count());
                    spread(batch, tensors, index, channel, (direct, along), activation);
                }
            },
        );
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
) -> (f64, f64) {
    let Channel { mean, rstd, scale, shift } = channel;
    let factor = rstd * scale;
    let (mut along, mut direct) = (0.0, 0.0);
    for plane in batch.planes(index) {
        let [a, d] = sums([&tensors.x[plane.clone()], &tensors.dy[plane]], |[x, dy]| {
            let dz = activation.back((x - mean) * factor + shift, dy);
            [dz * (x - mean), dz]
        });
        along += a;
        direct += d;
    }
    (along * f64::from(rstd), direct)
}

#[inline(always)]
fn spread(
    batch: Batch,
    tensors: &Backward<'_>,
    index: usize,
    channel: Channel,
    (direct, along): (f32, f32),
    activation: impl Activation,
) {
    let Channel { mean, rstd, scale, shift } = channel;
    let factor = rstd * scale;
    let along = along * rstd;
    for plane in batch.planes(index) {
        // SAFETY: each channel belongs to one tile.
        let dx = unsafe { tensors.dx.part(plane.clone()) };
        for ((dx, &x), &dy) in dx.iter_mut().zip(&tensors.x[plane.clone()]).zip(&tensors.dy[plane]) {
            let dz = activation.back((x - mean) * factor + shift, dy);
            *dx = factor * (dz - direct - (x - mean) * along);
        }
    }
}
