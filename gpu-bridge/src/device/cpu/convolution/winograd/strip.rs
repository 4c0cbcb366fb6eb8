//! Strips of squares, side by side in an image, read and written sixteen channels at a time.
//!
//! In planes the pixels of a channel lie together, in a strip the channels of a pixel. A strip's lines are transformed
//! down its columns as a whole, because the columns of neighbouring squares overlap, and then across, square by square.

use std::ops::Range;

use super::SIDE;
use super::transform::{Gradients, LINE, Line, Outputs, Pixels, both_ways};
use crate::device::cpu::convolution::Geometry;
use crate::device::cpu::sixteen::{Floats, SIXTEEN, Sixteen};
use crate::run::Parts;

/// The most squares of a strip: what a strip takes does not depend on how wide an image is.
const LONGEST: usize = 32;

/// How far what a square sees reaches past its outputs.
const OVERLAP: usize = 2;

/// The strips of a whole batch.
#[derive(Clone, Copy)]
pub(super) struct Strips<'a> {
    pub(super) geometry: &'a Geometry,
    down: usize,
    across: usize,
    /// Squares of a strip; the last of a row may have fewer.
    pub(super) length: usize,
    per_row: usize,
    pub(super) count: usize,
}

/// Squares that lie side by side.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    image: usize,
    /// Of the first output.
    row: usize,
    column: usize,
    pub(super) squares: usize,
}

/// Where the points of a strip lie among those of others: vectors of sixteen channels.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Of the strip's first square's first point.
    pub(super) start: usize,
    pub(super) square_stride: usize,
    pub(super) point_stride: usize,
}

impl Place {
    #[inline(always)]
    fn at(&self, square: usize, point: usize) -> usize {
        self.start + square * self.square_stride + point * self.point_stride
    }
}

/// Channels of an operand that lies in planes: where each of them starts, and how long it is.
#[derive(Clone)]
pub(super) struct Channels {
    /// Channels of an image.
    pub(super) all: usize,
    /// At most sixteen of them.
    pub(super) range: Range<usize>,
}

impl Channels {
    /// The channels of panel `index`.
    pub(super) fn panel(all: usize, index: usize) -> Self {
        Self { all, range: index * SIXTEEN..all.min((index + 1) * SIXTEEN) }
    }

    /// Where the first of these channels of an image starts.
    fn start(&self, image: usize, plane: usize) -> usize {
        (image * self.all + self.range.start) * plane
    }
}

impl<'a> Strips<'a> {
    pub(super) fn new(geometry: &'a Geometry) -> Self {
        let (down, across) = (geometry.to[0].div_ceil(SIDE), geometry.to[1].div_ceil(SIDE));
        let length = across.div_ceil(across.div_ceil(LONGEST));
        let per_row = across.div_ceil(length);
        Self { geometry, down, across, length, per_row, count: geometry.images * down * per_row }
    }

    pub(super) fn get(&self, index: usize) -> Strip {
        let (row, piece) = (index / self.per_row, index % self.per_row);
        let first = piece * self.length;
        Strip {
            image: row / self.down,
            row: row % self.down * SIDE,
            column: first * SIDE,
            squares: self.length.min(self.across - first),
        }
    }

    /// Vectors that the longest strip takes.
    pub(super) fn room(&self) -> usize {
        LINE * (self.length * SIDE + OVERLAP)
    }

    /// Reads what a strip sees of the input, and transforms it.
    #[inline(always)]
    pub(super) fn transform_pixels<V: Sixteen>(
        &self,
        strip: Strip,
        x: &[f32],
        channels: &Channels,
        lines: &mut [Floats],
        into: &mut [Floats],
        place: Place,
    ) {
        let [above, before] = self.geometry.padding;
        let width = strip.squares * SIDE + OVERLAP;
        let window = Window {
            image: strip.image,
            top: strip.row as isize - above as isize,
            left: strip.column as isize - before as isize,
            height: LINE,
            width,
        };
        window.read::<V>(x, channels, self.geometry.from, lines);
        down::<Pixels, V, LINE>(lines, width);
        across::<Pixels, V, LINE>(lines, width, strip.squares, into, place);
    }

    /// Reads a strip of gradients, and transforms it.
    #[inline(always)]
    pub(super) fn transform_gradients<V: Sixteen>(
        &self,
        strip: Strip,
        dy: &[f32],
        channels: &Channels,
        lines: &mut [Floats],
        into: &mut [Floats],
        place: Place,
    ) {
        let width = strip.squares * SIDE;
        let window =
            Window { image: strip.image, top: strip.row as isize, left: strip.column as isize, height: SIDE, width };
        window.read::<V>(dy, channels, self.geometry.to, lines);
        down::<Gradients, V, SIDE>(lines, width);
        across::<Gradients, V, SIDE>(lines, width, strip.squares, into, place);
    }

    /// Turns points into outputs, and writes them to their planes.
    ///
    /// # Safety
    /// Nobody else uses these channels of this strip.
    #[inline(always)]
    pub(super) unsafe fn write_outputs<V: Sixteen>(
        &self,
        strip: Strip,
        channels: &Channels,
        bias: V,
        lines: &mut [Floats],
        (points, place): (&[Floats], Place),
        y: &Parts<'_, f32>,
    ) {
        let width = strip.squares * SIDE;
        for square in 0..strip.squares {
            let mut square_points = [[bias; LINE]; LINE];
            for (index, point) in square_points.as_flattened_mut().iter_mut().enumerate() {
                *point = V::load(&points[place.at(square, index)]);
            }
            let outputs = both_ways::<Outputs, V, LINE, SIDE>(square_points);
            for (row, outputs) in outputs.iter().enumerate() {
                for (column, output) in outputs.iter().enumerate() {
                    output.add(bias).store(&mut lines[row * width + square * SIDE + column]);
                }
            }
        }
        let [height, plane_width] = self.geometry.to;
        let (rows, columns) = (SIDE.min(height - strip.row), width.min(plane_width - strip.column));
        let start = channels.start(strip.image, height * plane_width) + strip.row * plane_width + strip.column;
        for_each_run(
            rows,
            columns,
            plane_width,
            #[inline(always)]
            |run| {
                let mut pixels = [bias; SIXTEEN];
                for (pixel, values) in pixels.iter_mut().enumerate().take(run.length) {
                    let (row, column) = run.place(pixel, columns);
                    *values = V::load(&lines[row * width + column]);
                }
                let planes = V::transpose(pixels);
                let start = start + run.row * plane_width + run.column;
                for (channel, values) in planes.iter().take(channels.range.len()).enumerate() {
                    let at = start + channel * height * plane_width;
                    // SAFETY: by the contract.
                    values.store_some(unsafe { y.part(at..at + run.length) });
                }
            },
        );
    }
}

/// Up to sixteen pixels that lie side by side in a plane.
#[derive(Clone, Copy)]
struct Run {
    row: usize,
    column: usize,
    length: usize,
}

impl Run {
    /// Row and column of one of its pixels, where a row has so many.
    #[inline(always)]
    fn place(&self, pixel: usize, columns: usize) -> (usize, usize) {
        let at = self.column + pixel;
        match at < columns {
            true => (self.row, at),
            false => (self.row + at / columns, at % columns),
        }
    }
}

/// Goes through part of a plane. Rows that are whole and short are joined.
#[inline(always)]
fn for_each_run(rows: usize, columns: usize, plane_width: usize, mut body: impl FnMut(Run)) {
    if columns == plane_width && columns < SIXTEEN {
        for start in (0..rows * columns).step_by(SIXTEEN) {
            let length = SIXTEEN.min(rows * columns - start);
            body(Run { row: start / columns, column: start % columns, length });
        }
        return;
    }
    for row in 0..rows {
        for column in (0..columns).step_by(SIXTEEN) {
            body(Run { row, column, length: SIXTEEN.min(columns - column) });
        }
    }
}

/// Part of an image, which may reach past its edges: zeros there.
struct Window {
    image: usize,
    top: isize,
    left: isize,
    height: usize,
    width: usize,
}

impl Window {
    #[inline(always)]
    fn read<V: Sixteen>(&self, x: &[f32], channels: &Channels, [height, width]: [usize; 2], lines: &mut [Floats]) {
        let inside = |at: isize, count: usize, size: usize| {
            let start = (-at).clamp(0, count as isize);
            start as usize..(size as isize - at).clamp(start, count as isize) as usize
        };
        let (rows, columns) = (inside(self.top, self.height, height), inside(self.left, self.width, width));
        let lines = &mut lines[..self.height * self.width];
        if columns.is_empty() || rows.is_empty() {
            lines.fill([0.0; SIXTEEN]);
            return;
        }
        for (row, line) in lines.chunks_exact_mut(self.width).enumerate() {
            match rows.contains(&row) {
                true => {
                    line[..columns.start].fill([0.0; SIXTEEN]);
                    line[columns.end..].fill([0.0; SIXTEEN]);
                }
                false => line.fill([0.0; SIXTEEN]),
            }
        }
        let plane = height * width;
        let first = (self.top + rows.start as isize) as usize * width + (self.left + columns.start as isize) as usize;
        let start = channels.start(self.image, plane) + first;
        for_each_run(
            rows.len(),
            columns.len(),
            width,
            #[inline(always)]
            |run| {
                let at = start + run.row * width + run.column;
                let mut planes = [V::splat(0.0); SIXTEEN];
                for (channel, values) in planes.iter_mut().enumerate().take(channels.range.len()) {
                    *values = V::load_some(&x[at + channel * plane..][..run.length]);
                }
                for (pixel, values) in V::transpose(planes).iter().enumerate().take(run.length) {
                    let (row, column) = run.place(pixel, columns.len());
                    values.store(&mut lines[(rows.start + row) * self.width + columns.start + column]);
                }
            },
        );
    }
}

/// Transforms the columns of a strip in place.
#[inline(always)]
fn down<T: Line<N, LINE>, V: Sixteen, const N: usize>(lines: &mut [Floats], width: usize) {
    let lines = &mut lines[..LINE * width];
    for column in 0..width {
        let mut line = [V::splat(0.0); N];
        for (row, value) in line.iter_mut().enumerate() {
            *value = V::load(&lines[row * width + column]);
        }
        for (row, value) in T::apply(line).iter().enumerate() {
            value.store(&mut lines[row * width + column]);
        }
    }
}

/// Transforms the rows of each square.
#[inline(always)]
fn across<T: Line<N, LINE>, V: Sixteen, const N: usize>(
    lines: &[Floats],
    width: usize,
    squares: usize,
    into: &mut [Floats],
    place: Place,
) {
    for square in 0..squares {
        for (row, lines) in lines[..LINE * width].chunks_exact(width).enumerate() {
            let mut line = [V::splat(0.0); N];
            for (value, from) in line.iter_mut().zip(&lines[square * SIDE..][..N]) {
                *value = V::load(from);
            }
            for (column, value) in T::apply(line).iter().enumerate() {
                value.store(&mut into[place.at(square, row * LINE + column)]);
            }
        }
    }
}
