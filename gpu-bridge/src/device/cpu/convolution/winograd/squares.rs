//! Where squares lie in the planes, and reading them: eight at a time, of eight squares or of eight channels.

use std::ops::Range;

use super::SIDE;
use super::transform::POINTS;
use crate::device::cpu::convolution::Geometry;
use crate::device::cpu::eight::{self, EIGHT, Eight};

/// The side of what a square sees.
const SEEN: usize = 6;

/// The squares of a whole batch.
#[derive(Clone, Copy)]
pub(super) struct Squares<'a> {
    pub(super) geometry: &'a Geometry,
    down: usize,
    across: usize,
    pub(super) count: usize,
}

/// Part of a plane that a square reads: where its corner is, and which of its lines and lanes are inside.
#[derive(Clone)]
pub(super) struct Window {
    pub(super) image: usize,
    start: isize,
    lines: Range<usize>,
    lanes: Range<usize>,
}

impl Window {
    /// Nothing but zeros.
    pub(super) const EMPTY: Self = Self { image: 0, start: 0, lines: 0..0, lanes: 0..0 };

    /// The window of `side` by `side` whose corner lies so far after (or before) that of a plane.
    fn new(image: usize, [row, column]: [isize; 2], side: usize, [height, width]: [usize; 2]) -> Self {
        let inside = |at: isize, size: usize| {
            let start = (-at).clamp(0, side as isize);
            start as usize..(size as isize - at).clamp(start, side as isize) as usize
        };
        Self { image, start: row * width as isize + column, lines: inside(row, height), lanes: inside(column, width) }
    }

    #[inline(always)]
    fn line(&self, plane: &[f32], line: usize, width: usize) -> Eight {
        if !self.lines.contains(&line) {
            return [0.0; EIGHT];
        }
        eight::load(plane, self.start + (line * width) as isize, self.lanes.clone())
    }
}

impl<'a> Squares<'a> {
    pub(super) fn new(geometry: &'a Geometry) -> Self {
        let (down, across) = (geometry.to[0].div_ceil(SIDE), geometry.to[1].div_ceil(SIDE));
        Self { geometry, down, across, count: geometry.images * down * across }
    }

    /// The image of a square, and the row and column of its first output.
    #[inline(always)]
    pub(super) fn place(&self, square: usize) -> (usize, usize, usize) {
        let (image, rest) = (square / (self.down * self.across), square % (self.down * self.across));
        (image, rest / self.across * SIDE, rest % self.across * SIDE)
    }

    /// What a square sees of the input; nothing past the last square.
    pub(super) fn seen(&self, square: usize) -> Window {
        if square >= self.count {
            return Window::EMPTY;
        }
        let (image, row, column) = self.place(square);
        let [above, before] = self.geometry.padding.map(|padding| padding as isize);
        Window::new(image, [row as isize - above, column as isize - before], SEEN, self.geometry.from)
    }

    /// The outputs of a square.
    pub(super) fn outputs(&self, square: usize) -> Window {
        let (image, row, column) = self.place(square);
        Window::new(image, [row as isize, column as isize], SIDE, self.geometry.to)
    }

    /// The pixels of the input in eight windows of eight planes.
    #[inline(always)]
    pub(super) fn pixels<'b>(&self, read: impl Fn(usize) -> (&'b Window, &'b [f32])) -> [Eight; POINTS] {
        let mut pixels = [[0.0; EIGHT]; POINTS];
        gather::<SEEN>(self.geometry.from[1], read, &mut pixels);
        pixels
    }

    /// The outputs, or their gradients, in eight windows of eight planes.
    #[inline(always)]
    pub(super) fn gradients<'b>(&self, read: impl Fn(usize) -> (&'b Window, &'b [f32])) -> [Eight; SIDE * SIDE] {
        let mut gradients = [[0.0; EIGHT]; SIDE * SIDE];
        gather::<SIDE>(self.geometry.to[1], read, &mut gradients);
        gradients
    }
}

#[inline(always)]
fn gather<'b, const N: usize>(width: usize, read: impl Fn(usize) -> (&'b Window, &'b [f32]), into: &mut [Eight]) {
    for (line, into) in into.chunks_exact_mut(N).enumerate() {
        let rows = std::array::from_fn(|lane| {
            let (window, plane) = read(lane);
            window.line(plane, line, width)
        });
        into.copy_from_slice(&eight::transpose(&rows)[..N]);
    }
}
