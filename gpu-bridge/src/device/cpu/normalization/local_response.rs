//! Normalization of each element by its neighbours in the channels around it.
//!
//! The work is cut into columns: all channels of a few places of one image, so that a channel's neighbours are at hand.
//! Where an element has few neighbours they are simply added up. Where it has many, that would be most of the work, and
//! windows that slide share sums instead ([`each_window`]): the work then does not depend on how many neighbours there are.

use std::ops::Range;

use crate::device::cpu::math::{exp, log};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::LocalResponseNorm;
use crate::run::{Pace, Parts, Run};

/// The most places of an image that are worked on together.
const PLACES: usize = 64;

/// The fewest: a cache line.
const FEWEST_PLACES: usize = 16;

/// Up to so many neighbours are added up for each element.
const FEW: usize = 32;

/// Floats of sums that a tile keeps: they stay in the second-level cache unless there are very many channels.
const KEPT: usize = 1 << 16;

/// Images, channels and places of each of the columns.
struct Columns {
    channels: usize,
    plane: usize,
    /// Places that are worked on together.
    places: usize,
    per_image: usize,
    count: usize,
}

/// Some places of one image.
struct Column {
    start: usize,
    places: usize,
}

impl Columns {
    fn of(op: &LocalResponseNorm, input: &Input<'_>) -> Self {
        let shape = &input.layout.shape;
        let (channels, plane) = (shape[1], shape[2..].iter().product::<usize>());
        let most = if op.size <= FEW { PLACES } else { (KEPT / channels.max(1)).clamp(FEWEST_PLACES, PLACES) };
        let places = most.min(plane.max(1));
        let per_image = plane.div_ceil(places);
        Self { channels, plane, places, per_image, count: shape[0] * per_image }
    }

    fn get(&self, index: usize) -> Column {
        let (image, part) = (index / self.per_image, index % self.per_image);
        let place = part * self.places;
        Column { start: image * self.channels * self.plane + place, places: self.places.min(self.plane - place) }
    }

    /// Where a channel of a column lies.
    #[inline(always)]
    fn range(&self, column: &Column, channel: usize) -> Range<usize> {
        let start = column.start + channel * self.plane;
        start..start + column.places
    }

    /// How many columns make a tile of about 16,000 elements.
    fn grain(&self) -> usize {
        ((1 << 14) / (self.channels * self.places).max(1)).max(1)
    }

    /// Floats that [`each_window`] works in.
    fn sums(&self, op: &LocalResponseNorm) -> usize {
        match op.size <= FEW {
            true => self.places,
            false => (op.size.min(self.channels) + 2) * self.places,
        }
    }
}

/// How many channels before and after its own a window has.
#[derive(Clone, Copy)]
struct Reach {
    before: usize,
    after: usize,
}

impl Reach {
    /// Of the channels whose squares count for one.
    fn new(op: &LocalResponseNorm) -> Self {
        Self { before: op.size / 2, after: (op.size - 1) / 2 }
    }

    /// Of the channels for which one counts.
    fn reversed(self) -> Self {
        Self { before: self.after, after: self.before }
    }

    /// The channels of the window around one.
    #[inline(always)]
    fn window(self, channel: usize, channels: usize) -> Range<usize> {
        channel.saturating_sub(self.before)..channels.min(channel.saturating_add(self.after).saturating_add(1))
    }

    fn size(self) -> usize {
        self.before + self.after + 1
    }
}

/// Calls `each` with every channel and the sums of the terms in the window around it, place by place. `add` adds the terms
/// of a channel to sums.
///
/// A large window is the end of one block of channels, as long as a window, and the start of the next. So the sums from
/// each channel to the end of its block are kept, the sum from the start of a block grows with the channels, and one of
/// each makes a window. Nothing is ever subtracted: a large or infinite term leaves no trace in windows without it.
#[inline(always)]
fn each_window(
    channels: usize,
    places: usize,
    reach: Reach,
    scratch: &mut [f32],
    pace: &mut Pace<'_>,
    add: impl Fn(usize, &mut [f32]),
    mut each: impl FnMut(usize, &[f32]),
) -> Result<()> {
    let size = reach.size();
    let (sums, scratch) = scratch.split_at_mut(places);
    if size <= FEW {
        for channel in 0..channels {
            pace.step(size * places)?;
            sums.fill(0.0);
            reach.window(channel, channels).for_each(|neighbour| add(neighbour, sums));
            each(channel, sums);
        }
        return Ok(());
    }
    // From the start of the block that a window ends in, up to the window's end.
    let (from_start, to_end) = scratch.split_at_mut(places);
    from_start.fill(0.0);
    let mut added = 0;
    let mut kept = None;
    for channel in 0..channels {
        let window = reach.window(channel, channels);
        while added < window.end {
            pace.step(places)?;
            if added % size == 0 {
                from_start.fill(0.0);
            }
            add(added, from_start);
            added += 1;
        }
        pace.step(2 * places)?;
        let (first_block, last_block) = (window.start / size, (window.end - 1) / size);
        if window.start.is_multiple_of(size) && first_block == last_block {
            each(channel, from_start);
            continue;
        }
        let block = first_block * size..channels.min((first_block + 1) * size);
        if kept != Some(first_block) {
            kept = Some(first_block);
            sums.fill(0.0);
            for neighbour in block.clone().rev() {
                pace.step(places)?;
                add(neighbour, sums);
                to_end[(neighbour - block.start) * places..][..places].copy_from_slice(sums);
            }
        }
        let to_end = &to_end[(window.start - block.start) * places..][..places];
        if first_block == last_block {
            // A window that ends with the last channel.
            each(channel, to_end);
        } else {
            for ((sum, &end), &start) in sums.iter_mut().zip(to_end).zip(&*from_start) {
                *sum = end + start;
            }
            each(channel, sums);
        }
    }
    Ok(())
}

/// `x^power` of what is positive; NaN of what is negative.
#[inline(always)]
fn power(x: f32, power: f32) -> f32 {
    exp(power * log(x))
}

/// Calls `each` with every channel of a column and `k + alpha / size * sum of squares`, place by place.
#[inline(always)]
fn each_divisor(
    op: &LocalResponseNorm,
    columns: &Columns,
    x: &[f32],
    column: &Column,
    scratch: &mut [f32],
    pace: &mut Pace<'_>,
    mut each: impl FnMut(usize, &[f32; PLACES]),
) -> Result<()> {
    let factor = op.alpha / op.size as f32;
    each_window(
        columns.channels,
        column.places,
        Reach::new(op),
        scratch,
        pace,
        #[inline(always)]
        |channel, sums| {
            let x = &x[columns.range(column, channel)];
            sums.iter_mut().zip(x).for_each(|(sum, &x)| *sum += x * x);
        },
        #[inline(always)]
        |channel, sums| {
            let mut divisors = [0.0; PLACES];
            divisors.iter_mut().zip(sums).for_each(|(divisor, sum)| *divisor = op.k + factor * sum);
            each(channel, &divisors);
        },
    )
}

pub(in super::super) fn local_response(
    op: &LocalResponseNorm,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let columns = Columns::of(op, &inputs[0]);
    let x = inputs[0].floats()?;
    let y = Parts::new(outputs[0].floats()?);
    let grain = columns.grain();
    run.paced_with(columns.count.div_ceil(grain), columns.sums(op), |pace, tile, scratch| {
        let range = tile * grain..columns.count.min((tile + 1) * grain);
        vectorized(
            #[inline(always)]
            || {
                for column in range.map(|index| columns.get(index)) {
                    each_divisor(
                        op,
                        &columns,
                        x,
                        &column,
                        scratch,
                        pace,
                        #[inline(always)]
                        |channel, divisors| {
                            let here = columns.range(&column, channel);
                            // SAFETY: each column belongs to one tile.
                            let y = unsafe { y.part(here.clone()) };
                            for ((y, &x), &divisor) in y.iter_mut().zip(&x[here]).zip(divisors) {
                                *y = x * power(divisor, -op.beta);
                            }
                        },
                    )?;
                }
                Ok(())
            },
        )
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
    let columns = Columns::of(op, &inputs[0]);
    let (x, dy) = (inputs[0].floats()?, inputs[1].floats()?);
    let dx = Parts::new(outputs[0].floats()?);
    let grain = columns.grain();
    let factor = 2.0 * op.alpha / op.size as f32 * op.beta;
    let floats = columns.sums(op) + columns.channels * columns.places;
    run.paced_with(columns.count.div_ceil(grain), floats, |pace, tile, scratch| {
        let range = tile * grain..columns.count.min((tile + 1) * grain);
        let (scratch, indirect) = scratch.split_at_mut(columns.sums(op));
        vectorized(
            #[inline(always)]
            || {
                for column in range.map(|index| columns.get(index)) {
                    let places = column.places;
                    each_divisor(
                        op,
                        &columns,
                        x,
                        &column,
                        scratch,
                        pace,
                        #[inline(always)]
                        |channel, divisors| {
                            let here = columns.range(&column, channel);
                            // SAFETY: each column belongs to one tile.
                            let dx = unsafe { dx.part(here.clone()) };
                            let indirect = &mut indirect[channel * places..][..places];
                            let read = x[here.clone()].iter().zip(&dy[here]).zip(divisors);
                            for ((dx, indirect), ((&x, &dy), &divisor)) in dx.iter_mut().zip(indirect).zip(read) {
                                let direct = dy * power(divisor, -op.beta);
                                *indirect = direct * x / divisor;
                                *dx = direct;
                            }
                        },
                    )?;
                    each_window(
                        columns.channels,
                        places,
                        Reach::new(op).reversed(),
                        scratch,
                        pace,
                        #[inline(always)]
                        |channel, sums| {
                            let indirect = &indirect[channel * places..][..places];
                            sums.iter_mut().zip(indirect).for_each(|(sum, &indirect)| *sum += indirect);
                        },
                        #[inline(always)]
                        |channel, sums| {
                            let here = columns.range(&column, channel);
                            // SAFETY: as above.
                            let dx = unsafe { dx.part(here.clone()) };
                            for ((dx, &sum), &x) in dx.iter_mut().zip(sums).zip(&x[here]) {
                                *dx -= factor * x * sum;
                            }
                        },
                    )?;
                }
                Ok(())
            },
        )
    })
}
