//! Normalization of each element by its neighbours in the channels around it.
//!
//! The work is cut into columns: all channels of a few places of one image, so that a channel's neighbours are at hand.

use std::ops::Range;

use crate::device::cpu::math::{exp, log};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::LocalResponseNorm;
use crate::run::{Parts, Run};

/// Places of an image that are worked on together.
const PLACES: usize = 64;

/// Images, channels and places of each of the columns.
struct Columns {
    channels: usize,
    plane: usize,
    per_image: usize,
    count: usize,
}

/// Some places of one image.
struct Column {
    start: usize,
    places: usize,
}

impl Columns {
    fn of(input: &Input<'_>) -> Self {
        let shape = &input.layout.shape;
        let plane: usize = shape[2..].iter().product();
        let per_image = plane.div_ceil(PLACES);
        Self { channels: shape[1], plane, per_image, count: shape[0] * per_image }
    }

    fn get(&self, index: usize) -> Column {
        let (image, part) = (index / self.per_image, index % self.per_image);
        let place = part * PLACES;
        Column { start: image * self.channels * self.plane + place, places: PLACES.min(self.plane - place) }
    }

    /// Where a channel of a column lies.
    fn range(&self, column: &Column, channel: usize) -> Range<usize> {
        let start = column.start + channel * self.plane;
        start..start + column.places
    }

    /// How many columns make a tile of about 16,000 elements.
    fn grain(&self) -> usize {
        ((1 << 14) / (self.channels * PLACES).max(1)).max(1)
    }
}

/// The channels whose squares count for this one.
fn window(op: &LocalResponseNorm, channel: usize, channels: usize) -> Range<usize> {
    let after = (op.size - 1) / 2;
    channel.saturating_sub(op.size / 2)..channels.min(channel.saturating_add(after).saturating_add(1))
}

/// The channels for which this one counts.
fn reverse_window(op: &LocalResponseNorm, channel: usize, channels: usize) -> Range<usize> {
    let before = op.size / 2;
    channel.saturating_sub((op.size - 1) / 2)..channels.min(channel.saturating_add(before).saturating_add(1))
}

/// `x^power` of what is positive; NaN of what is negative.
#[inline(always)]
fn power(x: f32, power: f32) -> f32 {
    exp(power * log(x))
}

/// `k + alpha / size * sum of squares`, of one channel of a column.
#[inline(always)]
fn divisors(op: &LocalResponseNorm, columns: &Columns, x: &[f32], column: &Column, channel: usize, into: &mut [f32]) {
    into.fill(0.0);
    for neighbour in window(op, channel, columns.channels) {
        let x = &x[columns.range(column, neighbour)];
        into.iter_mut().zip(x).for_each(|(into, &x)| *into += x * x);
    }
    let factor = op.alpha / op.size as f32;
    into.iter_mut().for_each(|into| *into = op.k + factor * *into);
}

pub(in super::super) fn local_response(
    op: &LocalResponseNorm,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let columns = Columns::of(&inputs[0]);
    let x = inputs[0].floats()?;
    let y = Parts::new(outputs[0].floats()?);
    run.ranges(columns.count, columns.grain(), |range| {
        vectorized(
            #[inline(always)]
            || {
                for column in range.map(|index| columns.get(index)) {
                    for channel in 0..columns.channels {
                        let here = columns.range(&column, channel);
                        // SAFETY: each column belongs to one tile.
                        let y = unsafe { y.part(here.clone()) };
                        divisors(op, &columns, x, &column, channel, y);
                        for (y, &x) in y.iter_mut().zip(&x[here]) {
                            *y = x * power(*y, -op.beta);
                        }
                    }
                }
            },
        );
    })
}

/// ```text
/// dx = dy d^-beta - 2 alpha / size beta x (sum of dy x d^(-beta - 1) over those for which x counts)
/// ```
pub(in super::super) fn local_response_gradient(
    op: &LocalResponseNorm,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let columns = Columns::of(&inputs[0]);
    let (x, dy) = (inputs[0].floats()?, inputs[1].floats()?);
    let dx = Parts::new(outputs[0].floats()?);
    let grain = columns.grain();
    let factor = 2.0 * op.alpha / op.size as f32 * op.beta;
    run.each_with(columns.count.div_ceil(grain), columns.channels * PLACES, |tile, scratch| {
        let range = tile * grain..columns.count.min((tile + 1) * grain);
        vectorized(
            #[inline(always)]
            || {
                for column in range.map(|index| columns.get(index)) {
                    let places = column.places;
                    for channel in 0..columns.channels {
                        let here = columns.range(&column, channel);
                        // SAFETY: each column belongs to one tile.
                        let dx = unsafe { dx.part(here.clone()) };
                        divisors(op, &columns, x, &column, channel, dx);
                        let indirect = &mut scratch[channel * PLACES..][..places];
                        for (((dx, indirect), &x), &dy) in
                            dx.iter_mut().zip(indirect).zip(&x[here.clone()]).zip(&dy[here])
                        {
                            let direct = dy * power(*dx, -op.beta);
                            *indirect = direct * x / *dx;
                            *dx = direct;
                        }
                    }
                    for channel in 0..columns.channels {
                        let here = columns.range(&column, channel);
                        // SAFETY: as above.
                        let dx = unsafe { dx.part(here.clone()) };
                        for neighbour in reverse_window(op, channel, columns.channels) {
                            let indirect = &scratch[neighbour * PLACES..][..places];
                            for ((dx, &indirect), &x) in dx.iter_mut().zip(indirect).zip(&x[here.clone()]) {
                                *dx -= factor * x * indirect;
                            }
                        }
                    }
                }
            },
        );
    })
}
