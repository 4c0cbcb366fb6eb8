//! Elements from one place to another, whatever the order of the axes on either side.
//!
//! First the axes are joined as far as both sides allow. Then there are two ways: row after row of the result, where the
//! input runs along with it or nothing better can be done; and where the input runs along another axis, in square blocks
//! that are read along the one and written along the other, so that each cache line is touched once.

use super::{Bits, TILE};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{Parts, Run};
use crate::shape::{MAX_RANK, Shape};

/// The side of the squares in which axes are swapped. The compiler makes more of 16 than of 8 or 32.
const SQUARE: usize = 16;

/// How many elements a tile goes along the input's axis: that many bytes of a page are read together, which is kind to
/// the page tables.
const STRIP: usize = 256;

/// Two buffers walked through at once: sizes and strides, outermost axis first, in the order of the result.
pub(super) struct Walk {
    rank: usize,
    sizes: [usize; MAX_RANK],
    from: [usize; MAX_RANK],
    into: [usize; MAX_RANK],
}

impl Walk {
    /// Axes of one element are left out, and axes that follow each other on both sides are joined. There is always at
    /// least one axis.
    pub(super) fn new(shape: &Shape, from: &[usize], into: &[usize]) -> Self {
        let mut walk = Self { rank: 0, sizes: [1; MAX_RANK], from: [1; MAX_RANK], into: [1; MAX_RANK] };
        for (axis, &size) in shape.iter().enumerate() {
            if size == 1 {
                continue;
            }
            let follows = walk.rank > 0
                && walk.from[walk.rank - 1] == from[axis] * size
                && walk.into[walk.rank - 1] == into[axis] * size;
            let place = if follows { walk.rank - 1 } else { walk.rank };
            walk.sizes[place] *= size;
            (walk.from[place], walk.into[place]) = (from[axis], into[axis]);
            walk.rank = place + 1;
        }
        walk.rank = walk.rank.max(1);
        walk
    }

    /// The same without one axis, which is given apart.
    fn without(&self, axis: usize) -> (Self, Axis) {
        let taken = Axis { size: self.sizes[axis], from: self.from[axis], into: self.into[axis] };
        let mut rest = Self { rank: self.rank - 1, ..*self };
        rest.sizes.copy_within(axis + 1.., axis);
        rest.from.copy_within(axis + 1.., axis);
        rest.into.copy_within(axis + 1.., axis);
        (rest, taken)
    }

    fn elements(&self) -> usize {
        self.sizes[..self.rank].iter().product()
    }

    /// Where an element lies on both sides, counted row after row.
    fn at(&self, mut index: usize) -> (usize, usize) {
        let (mut from, mut into) = (0, 0);
        for axis in (0..self.rank).rev() {
            let coordinate = index % self.sizes[axis];
            index /= self.sizes[axis];
            from += coordinate * self.from[axis];
            into += coordinate * self.into[axis];
        }
        (from, into)
    }

    /// The axis other than the last along which the input runs, if the result does not run along with it.
    fn crossing(&self) -> Option<usize> {
        let last = self.rank - 1;
        if self.into[last] != 1 || self.from[last] <= 1 {
            return None;
        }
        (0..last)
            .filter(|&axis| self.from[axis] != 0)
            .min_by_key(|&axis| self.from[axis])
            .filter(|&axis| self.from[axis] < self.from[last])
    }
}

/// One axis on both sides.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    from: usize,
    into: usize,
}

/// Moves all elements. Those of the result lie from `start` of `into` on; no other element of `into` is touched.
pub(super) fn transfer<T: Bits>(
    walk: &Walk,
    from: &[T],
    into: &Parts<'_, T>,
    start: usize,
    run: &Run<'_>,
) -> Result<()> {
    if walk.elements() == 0 {
        return Ok(());
    }
    match walk.crossing() {
        Some(axis) => across(walk, axis, from, into, start, run),
        None => along(walk, from, into, start, run),
    }
}

/// Row after row of the result.
fn along<T: Bits>(walk: &Walk, from: &[T], into: &Parts<'_, T>, start: usize, run: &Run<'_>) -> Result<()> {
    let (outer, row) = walk.without(walk.rank - 1);
    let piece = row.size.min(TILE);
    let pieces = row.size.div_ceil(piece);
    run.ranges(outer.elements() * pieces, TILE / piece, |range| {
        let mut places = Places::new(&outer, range.start / pieces);
        for unit in range {
            let first = unit % pieces * piece;
            let count = piece.min(row.size - first);
            let to = start + places.into + first * row.into;
            // SAFETY: rows of the result do not interleave, nor do pieces of a row.
            let to = unsafe { into.part(to..to + (count - 1) * row.into + 1) };
            copy_row(&from[places.from + first * row.from..], row.from, to, row.into);
            if first + count == row.size {
                places.step(&outer);
            }
        }
    })
}

/// Fills the places of a row that are `step_into` apart with elements that are `step_from` apart.
fn copy_row<T: Bits>(from: &[T], step_from: usize, into: &mut [T], step_into: usize) {
    match (step_from, step_into) {
        // Calling a function to copy a few elements takes longer than copying them.
        (step, 1) if into.len() < 16 => into.iter_mut().enumerate().for_each(|(at, into)| *into = from[at * step]),
        (1, 1) => into.copy_from_slice(&from[..into.len()]),
        (0, 1) => into.fill(from[0]),
        (2, 1) => vectorized(
            #[inline(always)]
            || into.iter_mut().zip(from.chunks(2)).for_each(|(into, from)| *into = from[0]),
        ),
        (0, step) => into.iter_mut().step_by(step).for_each(|into| *into = from[0]),
        (from_step, 1) => into.iter_mut().zip(from.iter().step_by(from_step)).for_each(|(into, &from)| *into = from),
        (from_step, into_step) => {
            let from = from.iter().step_by(from_step);
            into.iter_mut().step_by(into_step).zip(from).for_each(|(into, &from)| *into = from);
        }
    }
}

/// In blocks: along the last axis of the result, and along the axis where the input's elements are closest.
fn across<T: Bits>(
    walk: &Walk,
    axis: usize,
    from: &[T],
    into: &Parts<'_, T>,
    start: usize,
    run: &Run<'_>,
) -> Result<()> {
    let (rest, row) = walk.without(walk.rank - 1);
    let (outer, column) = rest.without(axis);
    let strip = column.size.min(STRIP.max(TILE / row.size));
    let width = row.size.min((TILE / strip).next_multiple_of(SQUARE));
    let (strips, widths) = (column.size.div_ceil(strip), row.size.div_ceil(width));
    run.ranges(outer.elements() * strips * widths, TILE / (strip * width), |range| {
        for unit in range {
            let (at_from, at_into) = outer.at(unit / (strips * widths));
            let (first_column, first_row) = (unit / widths % strips * strip, unit % widths * width);
            let columns = strip.min(column.size - first_column);
            let rows = width.min(row.size - first_row);
            let from = &from[at_from + first_column * column.from + first_row * row.from..];
            let to = start + at_into + first_column * column.into + first_row;
            let (column, row) = (Axis { size: columns, ..column }, Axis { size: rows, ..row });
            vectorized(
                #[inline(always)]
                || match (column.size, row.size) {
                    // Channels of images, first to last or last to first.
                    (3, _) if column.from == 1 && row.from == 3 => part_channels::<T, 3>(from, into, to, column, row),
                    (4, _) if column.from == 1 && row.from == 4 => part_channels::<T, 4>(from, into, to, column, row),
                    (_, 3) if column.from == 1 && column.into == 3 => {
                        join_channels::<T, 3>(from, into, to, column, row)
                    }
                    (_, 4) if column.from == 1 && column.into == 4 => {
                        join_channels::<T, 4>(from, into, to, column, row)
                    }
                    _ => swap(from, into, to, column, row),
                },
            );
        }
    })
}

/// Each channel of pixels of `N` to a row of its own.
#[inline(always)]
fn part_channels<T: Bits, const N: usize>(from: &[T], into: &Parts<'_, T>, start: usize, column: Axis, row: Axis) {
    for channel in 0..N {
        let to = start + channel * column.into;
        // SAFETY: rows of the result do not interleave, nor do pieces of a row.
        let to = unsafe { into.part(to..to + row.size) };
        to.iter_mut().zip(from.chunks_exact(N)).for_each(|(to, pixel)| *to = pixel[channel]);
    }
}

/// `N` channels to pixels.
#[inline(always)]
fn join_channels<T: Bits, const N: usize>(from: &[T], into: &Parts<'_, T>, start: usize, column: Axis, row: Axis) {
    // SAFETY: these rows of the result follow each other, and no other tile has them.
    let to = unsafe { into.part(start..start + N * column.size) };
    let channels: [&[T]; N] = std::array::from_fn(|channel| &from[channel * row.from..][..column.size]);
    for (at, pixel) in to.chunks_exact_mut(N).enumerate() {
        (0..N).for_each(|channel| pixel[channel] = channels[channel][at]);
    }
}

/// One tile: every element of every column, in squares.
#[inline(always)]
fn swap<T: Bits>(from: &[T], into: &Parts<'_, T>, start: usize, column: Axis, row: Axis) {
    for r in (0..row.size).step_by(SQUARE) {
        let rows = SQUARE.min(row.size - r);
        for c in (0..column.size).step_by(SQUARE) {
            let columns = SQUARE.min(column.size - c);
            let from = &from[c * column.from + r * row.from..];
            let start = start + c * column.into + r;
            if rows == SQUARE && columns == SQUARE && column.from == 1 {
                swap_square(from, row.from, into, start, column.into);
                continue;
            }
            for c in 0..columns {
                // SAFETY: rows of the result do not interleave, nor do pieces of a row.
                let to = unsafe { into.part(start + c * column.into..start + c * column.into + rows) };
                to.iter_mut().enumerate().for_each(|(r, to)| *to = from[c * column.from + r * row.from]);
            }
        }
    }
}

/// A full square goes through a small one of its own: it is read along one axis, then written along the other.
#[inline(always)]
fn swap_square<T: Bits>(from: &[T], row_from: usize, into: &Parts<'_, T>, start: usize, column_into: usize) {
    let mut square = [[T::zeroed(); SQUARE]; SQUARE];
    for (r, line) in square.iter_mut().enumerate() {
        line.copy_from_slice(&from[r * row_from..][..SQUARE]);
    }
    for c in 0..SQUARE {
        let to = start + c * column_into;
        // SAFETY: rows of the result do not interleave, nor do pieces of a row.
        let to = unsafe { into.part(to..to + SQUARE) };
        to.iter_mut().zip(&square).for_each(|(to, line)| *to = line[c]);
    }
}

/// Where a walk stands.
struct Places {
    coordinates: [usize; MAX_RANK],
    from: usize,
    into: usize,
}

impl Places {
    fn new(walk: &Walk, index: usize) -> Self {
        let (from, into) = walk.at(index);
        let mut places = Self { coordinates: [0; MAX_RANK], from, into };
        let mut rest = index;
        for axis in (0..walk.rank).rev() {
            places.coordinates[axis] = rest % walk.sizes[axis];
            rest /= walk.sizes[axis];
        }
        places
    }

    /// On to the next element, row after row.
    fn step(&mut self, walk: &Walk) {
        for axis in (0..walk.rank).rev() {
            self.coordinates[axis] += 1;
            self.from += walk.from[axis];
            self.into += walk.into[axis];
            if self.coordinates[axis] < walk.sizes[axis] {
                return;
            }
            self.coordinates[axis] = 0;
            self.from -= walk.from[axis] * walk.sizes[axis];
            self.into -= walk.into[axis] * walk.sizes[axis];
        }
    }
}
