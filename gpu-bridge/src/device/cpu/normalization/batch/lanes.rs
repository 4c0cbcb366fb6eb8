//! Batch normalization with loops along all channels of an image: a lane is one place of one channel.
//!
//! A channel with few places would make short loops. So sums are taken lane by lane over the images, then over the lanes
//! of a channel, and what a channel is normalized by is spread over its lanes.

use std::ops::Range;

use super::{Activation, Backward, Batch, Channel, Forward, near, statistics};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{Pace, Run};

/// The least lanes of a tile.
const LEAST: usize = 64;

/// Images whose lanes are summed in f32 before they are added to the rest: errors do not grow with the batch.
const BLOCK: usize = 64;

impl Batch {
    /// The lanes of an image.
    fn lanes(&self) -> usize {
        self.channels * self.plane
    }

    /// Runs `body` for groups of channels, with `arrays` arrays to work in that have an element for each lane.
    fn groups(
        &self,
        arrays: usize,
        run: &Run<'_>,
        body: impl Fn(Range<usize>, &mut [f32], &mut Pace<'_>) -> Result<()> + Sync,
    ) -> Result<()> {
        let grain = self.grain(LEAST);
        let longest = grain.min(self.channels) * self.plane;
        run.paced_with(self.channels.div_ceil(grain), arrays * longest, |pace, tile, scratch| {
            let channels = tile * grain..self.channels.min((tile + 1) * grain);
            let lanes = channels.len() * self.plane;
            vectorized(
                #[inline(always)]
                || body(channels, &mut scratch[..arrays * lanes], pace),
            )
        })
    }

    /// Runs `body` for each image.
    #[inline(always)]
    fn each_image(&self, lanes: usize, pace: &mut Pace<'_>, mut body: impl FnMut(usize)) -> Result<()> {
        for first in (0..self.images).step_by(BLOCK) {
            pace.step(BLOCK * lanes)?;
            (first..self.images.min(first + BLOCK)).for_each(&mut body);
        }
        Ok(())
    }
}

/// Splits scratch memory into arrays of one length.
#[inline(always)]
fn split<const N: usize>(scratch: &mut [f32]) -> [&mut [f32]; N] {
    let len = scratch.len() / N;
    let mut rest = scratch;
    std::array::from_fn(|_| {
        let (array, after) = std::mem::take(&mut rest).split_at_mut(len);
        rest = after;
        array
    })
}

pub(super) fn forward(batch: Batch, tensors: &Forward<'_>, activation: impl Activation, run: &Run<'_>) -> Result<()> {
    batch.groups(
        3,
        run,
        #[inline(always)]
        |channels, scratch, pace| {
            let first = channels.start * batch.plane;
            let moments = tensors.moments.of(
                channels.clone(),
                #[inline(always)]
                |mean, variance| take_statistics(batch, tensors.x, first, scratch, (mean, variance), pace),
            )?;
            normalize(batch, tensors, channels, moments, scratch, activation, pace)
        },
    )
}

/// Of the channels from lane `first` on.
#[inline(always)]
fn take_statistics(
    batch: Batch,
    x: &[f32],
    first: usize,
    scratch: &mut [f32],
    (mean, variance): (&mut [f32], &mut [f32]),
    pace: &mut Pace<'_>,
) -> Result<()> {
    let plane = batch.plane;
    let [nears, totals, squares] = split(scratch);
    // A few images give a better value near the mean than one, where a channel has few places.
    let images = batch.images.min(16);
    lane_sums(batch, [x], first, images, [], [&mut *totals, &mut *squares], pace, |[x], []| [x, 0.0])?;
    for (nears, totals) in nears.chunks_exact_mut(plane).zip(totals.chunks_exact(plane)) {
        nears.fill(near(total(totals) / (images * plane) as f64));
    }
    lane_sums(batch, [x], first, batch.images, [nears], [&mut *totals, &mut *squares], pace, |[x], [near]| {
        let difference = x - near;
        [difference, difference * difference]
    })?;
    let channels = nears.chunks_exact(plane).zip(totals.chunks_exact(plane)).zip(squares.chunks_exact(plane));
    for (((nears, totals), squares), (mean, variance)) in channels.zip(mean.iter_mut().zip(variance)) {
        (*mean, *variance) = statistics(nears[0], total(totals), total(squares), batch.count());
    }
    Ok(())
}

#[inline(always)]
fn total(lanes: &[f32]) -> f64 {
    lanes.iter().map(|&lane| f64::from(lane)).sum()
}

#[inline(always)]
fn normalize(
    batch: Batch,
    tensors: &Forward<'_>,
    channels: Range<usize>,
    (mean, variance): (&[f32], &[f32]),
    scratch: &mut [f32],
    activation: impl Activation,
    pace: &mut Pace<'_>,
) -> Result<()> {
    let [means, factors, shifts] = split(scratch);
    let constants = [&mut *means, &mut *factors, &mut *shifts];
    spread(batch, channels.clone(), constants, |at, index| tensors.channel(index, mean[at], variance[at]));
    batch.each_image(means.len(), pace, |image| {
        let start = image * batch.lanes() + channels.start * batch.plane;
        // SAFETY: each channel belongs to one tile.
        let y = unsafe { tensors.y.part(start..start + means.len()) };
        let x = &tensors.x[start..start + means.len()];
        for ((((y, &x), &mean), &factor), &shift) in y.iter_mut().zip(x).zip(&*means).zip(&*factors).zip(&*shifts) {
            *y = activation.apply((x - mean) * factor + shift);
        }
    })
}

/// Writes what normalizes each channel to all of its lanes: means, factors and shifts.
#[inline(always)]
fn spread(
    batch: Batch,
    channels: Range<usize>,
    [means, factors, shifts]: [&mut [f32]; 3],
    channel: impl Fn(usize, usize) -> Channel,
) {
    for (at, index) in channels.enumerate() {
        let channel = channel(at, index);
        let lanes = at * batch.plane..(at + 1) * batch.plane;
        means[lanes.clone()].fill(channel.mean);
        factors[lanes.clone()].fill(channel.rstd * channel.scale);
        shifts[lanes].fill(channel.shift);
    }
}

/// For each lane from `first` on, as many as `into` has, the two sums over `images` images of what `f` gives for the
/// elements of a lane and what `constants` hold for it.
#[expect(clippy::too_many_arguments, reason = "they say what is summed, and where to")]
#[inline(always)]
fn lane_sums<const M: usize, const C: usize>(
    batch: Batch,
    tensors: [&[f32]; M],
    first: usize,
    images: usize,
    constants: [&[f32]; C],
    into: [&mut [f32]; 2],
    pace: &mut Pace<'_>,
    f: impl Fn([f32; M], [f32; C]) -> [f32; 2] + Copy,
) -> Result<()> {
    let [a, b] = into;
    let lanes = a.len();
    let mut lane = 0;
    macro_rules! advance_by {
        ($count:literal) => {
            while lanes - lane >= $count {
                let constants = constants.map(|constant| &constant[lane..lane + $count]);
                let sums = some_lanes::<$count, M, C>(batch, tensors, first + lane, images, constants, pace, f)?;
                a[lane..lane + $count].copy_from_slice(&sums[0]);
                b[lane..lane + $count].copy_from_slice(&sums[1]);
                lane += $count;
            }
        };
    }
    advance_by!(16);
    advance_by!(4);
    advance_by!(1);
    Ok(())
}

#[inline(always)]
fn some_lanes<const L: usize, const M: usize, const C: usize>(
    batch: Batch,
    tensors: [&[f32]; M],
    first: usize,
    images: usize,
    constants: [&[f32]; C],
    pace: &mut Pace<'_>,
    f: impl Fn([f32; M], [f32; C]) -> [f32; 2] + Copy,
) -> Result<[[f32; L]; 2]> {
    let constants: [[f32; C]; L] = std::array::from_fn(|lane| constants.map(|constant| constant[lane]));
    let mut totals = [[0.0; L]; 2];
    for block in (0..images).step_by(BLOCK) {
        pace.step(BLOCK * L)?;
        let mut sums = [[0.0; L]; 2];
        for image in block..images.min(block + BLOCK) {
            let start = image * batch.lanes() + first;
            let elements = tensors.map(|tensor| &tensor[start..start + L]);
            for lane in 0..L {
                let values = f(elements.map(|elements| elements[lane]), constants[lane]);
                sums[0][lane] += values[0];
                sums[1][lane] += values[1];
            }
        }
        for lane in 0..L {
            totals[0][lane] += sums[0][lane];
            totals[1][lane] += sums[1][lane];
        }
    }
    Ok(totals)
}

pub(super) fn gradient(batch: Batch, tensors: &Backward<'_>, activation: impl Activation, run: &Run<'_>) -> Result<()> {
    let plane = batch.plane;
    batch.groups(
        5,
        run,
        #[inline(always)]
        |channels, scratch, pace| {
            // SAFETY: each channel belongs to one tile.
            let (dscale, dshift) =
                unsafe { (tensors.dscale.part(channels.clone()), tensors.dshift.part(channels.clone())) };
            let [means, factors, shifts, alongs, directs] = split(scratch);
            let constants = [&mut *means, &mut *factors, &mut *shifts];
            spread(batch, channels.clone(), constants, |_, index| tensors.channel(index));
            let first = channels.start * plane;
            let (means, factors, shifts) = (&*means, &*factors, &*shifts);
            let constants = [means, factors, shifts];
            let into = [&mut *alongs, &mut *directs];
            let read = [tensors.x, tensors.dy];
            lane_sums(batch, read, first, batch.images, constants, into, pace, |[x, dy], constants| {
                let [mean, factor, shift] = constants;
                let dz = activation.back((x - mean) * factor + shift, dy);
                [dz * (x - mean), dz]
            })?;
            for (at, index) in channels.enumerate() {
                let rstd = tensors.channel(index).rstd;
                let lanes = at * plane..(at + 1) * plane;
                let along = total(&alongs[lanes.clone()]) * f64::from(rstd);
                let direct = total(&directs[lanes.clone()]);
                (dscale[at], dshift[at]) = (along as f32, direct as f32);
                let (direct, along) = tensors.corrections(direct, along, batch.count());
                alongs[lanes.clone()].fill(along * rstd);
                directs[lanes].fill(direct);
            }
            batch.each_image(means.len(), pace, |image| {
                let start = image * batch.lanes() + first;
                let here = start..start + means.len();
                // SAFETY: each channel belongs to one tile.
                let dx = unsafe { tensors.dx.part(here.clone()) };
                let elements = dx.iter_mut().zip(&tensors.x[here.clone()]).zip(&tensors.dy[here]);
                let channels = means.iter().zip(factors).zip(shifts).zip(&*alongs).zip(&*directs);
                for (((dx, &x), &dy), ((((&mean, &factor), &shift), &along), &direct)) in elements.zip(channels) {
                    let dz = activation.back((x - mean) * factor + shift, dy);
                    *dx = factor * (dz - direct - (x - mean) * along);
                }
            })
        },
    )
}
