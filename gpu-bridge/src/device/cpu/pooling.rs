//! Windows to one element: maxima and means of images.

mod adaptive;
mod gradient;
mod window;

pub(super) use adaptive::{adaptive_average, adaptive_average_gradient, adaptive_max, adaptive_max_gradient};
pub(super) use gradient::{average_gradient, max_gradient};
pub(super) use window::{average, max};

use std::ops::Range;

use crate::error::Result;
use crate::run::Pace;
use crate::shape::Shape;

/// Input elements per tile.
const TILE: usize = 1 << 15;

/// Elements of windows that a tile goes through between two looks up from its work. Windows overlap, so that a single row
/// of them may have any number of elements: rows with more are gone through at a slower pace.
const STRETCH: usize = 1 << 18;

/// Images of one channel, and what they are pooled to.
#[derive(Clone, Copy)]
struct Planes {
    count: usize,
    height: usize,
    width: usize,
    pooled_height: usize,
    pooled_width: usize,
}

impl Planes {
    /// `[n, c, h, w]` pooled to `[n, c, ...]`.
    fn new(input: &Shape, pooled: &Shape) -> Self {
        Self {
            count: input[0] * input[1],
            height: input[2],
            width: input[3],
            pooled_height: pooled[2],
            pooled_width: pooled[3],
        }
    }

    fn area(&self) -> usize {
        self.height * self.width
    }

    fn pooled_area(&self) -> usize {
        self.pooled_height * self.pooled_width
    }

    /// How many planes make a tile.
    fn grain(&self) -> usize {
        (TILE / self.area().max(self.pooled_area())).max(1)
    }
}

/// The larger of two; NaN if either is.
#[inline(always)]
fn larger(most: f32, x: f32) -> f32 {
    choose((x > most) | x.is_nan(), x, most)
}

/// One of two values, never by a branch, which would keep a loop from becoming vectors.
#[inline(always)]
fn choose<T>(condition: bool, yes: T, no: T) -> T {
    std::hint::select_unpredictable(condition, yes, no)
}

/// Where the largest of a window lies: the first of equals, the last NaN.
fn position_of_largest(
    plane: &[f32],
    width: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    pace: &mut Pace<'_>,
) -> Result<usize> {
    let mut most = f32::NEG_INFINITY;
    let mut position = rows.start * width + columns.start;
    for row in rows {
        let first = row * width + columns.start;
        let line = &plane[first..][..columns.len()];
        pace.stepped(line.len(), |range| {
            for (at, &x) in range.clone().zip(&line[range]) {
                if x > most || x.is_nan() {
                    most = x;
                    position = first + at;
                }
            }
        })?;
    }
    Ok(position)
}
