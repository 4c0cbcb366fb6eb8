//! Windows of one size at a stride.
//!
//! A row of windows is folded in two steps that both run along rows: first its input rows into one line, then the line,
//! shifted by each column of the window, into the result. At stride 2 the line is first parted into its even and its odd
//! elements, so that the second step reads what lies side by side.

use std::ops::Range;

use super::{Planes, TILE, choose, larger, position_of_largest};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::Window;
use crate::run::{Parts, Run};

/// Windows on planes.
#[derive(Clone, Copy)]
struct Windows {
    window: Window,
    planes: Planes,
}

/// The part of an axis that a window covers, and how many elements it has with the padding.
struct Covered {
    range: Range<usize>,
    padded: usize,
}

impl Windows {
    fn new(window: &Window, input: &Input<'_>, pooled: &Output<'_>) -> Self {
        Self { window: *window, planes: Planes::new(&input.layout.shape, &pooled.layout.shape) }
    }

    #[inline(always)]
    fn covered(&self, axis: usize, index: usize, size: usize) -> Covered {
        let padding = self.window.padding[axis];
        // Counted from the start of the padding.
        let start = index * self.window.stride[axis];
        let end = (start + self.window.kernel[axis]).min(size + 2 * padding);
        let range = start.saturating_sub(padding)..(end.saturating_sub(padding)).min(size);
        Covered { range, padded: end - start }
    }

    #[inline(always)]
    fn rows(&self, row: usize) -> Covered {
        self.covered(0, row, self.planes.height)
    }

    #[inline(always)]
    fn columns(&self, column: usize) -> Covered {
        self.covered(1, column, self.planes.width)
    }

    /// The columns of the window that lie inside the image for any window of a row, counted from its left.
    fn offsets(&self) -> Range<usize> {
        let padding = self.window.padding[1];
        let last = (self.planes.pooled_width - 1) * self.window.stride[1];
        padding.saturating_sub(last)..self.window.kernel[1].min(self.planes.width + padding)
    }

    /// The windows whose column at this offset lies inside the image, if any, and where the first of these columns is.
    #[inline(always)]
    fn inside(&self, offset: usize) -> Option<(Range<usize>, usize)> {
        let (stride, padding) = (self.window.stride[1], self.window.padding[1]);
        let first = steps(padding.saturating_sub(offset), stride);
        let end = steps(self.planes.width + padding - offset, stride).min(self.planes.pooled_width);
        (first < end).then(|| (first..end, first * stride + offset - padding))
    }

    /// What the means of a row are divided by, for each column: the columns of its window.
    #[inline(always)]
    fn count_columns(&self, counts: &mut [f32]) {
        for (column, count) in counts.iter_mut().enumerate() {
            *count = self.counted(&self.columns(column));
        }
    }

    /// What a mean is divided by: the elements of its window along one axis.
    #[inline(always)]
    fn counted(&self, covered: &Covered) -> f32 {
        (if self.window.count_padding { covered.padded } else { covered.range.len() }) as f32
    }

    /// Whether each window is two by two of its own, inside the image.
    fn quarters(&self) -> bool {
        let Window { kernel, stride, padding, .. } = self.window;
        let Planes { height, width, pooled_height, pooled_width, .. } = self.planes;
        kernel == [2, 2]
            && stride == [2, 2]
            && padding == [0, 0]
            && 2 * pooled_height <= height
            && 2 * pooled_width <= width
    }
}

/// How many steps of a stride a distance takes. A division by what is not known takes long.
#[inline(always)]
fn steps(distance: usize, stride: usize) -> usize {
    match stride {
        1 => distance,
        2 => distance.div_ceil(2),
        _ => distance.div_ceil(stride),
    }
}

pub(in super::super) fn max(
    window: &Window,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    fold(window, inputs, outputs, run, f32::NEG_INFINITY, larger, |_, _, _| {})
}

pub(in super::super) fn average(
    window: &Window,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    fold(window, inputs, outputs, run, 0.0, |sum, x| sum + x, divide)
}

#[inline(always)]
fn divide(rows: f32, columns: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(columns).for_each(|(y, columns)| *y /= rows * columns);
}

/// Folds each window by `f` from `start` on, then finishes each row of results: `finish` gets the rows that its windows
/// count, the columns that each counts, and what was folded.
fn fold(
    window: &Window,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
    start: f32,
    f: impl Fn(f32, f32) -> f32 + Copy + Sync,
    finish: impl Fn(f32, &[f32], &mut [f32]) + Copy + Sync,
) -> Result<()> {
    let windows = Windows::new(window, &inputs[0], &outputs[0]);
    let Planes { count, height, width, pooled_height, pooled_width } = windows.planes;
    let x = inputs[0].floats()?;
    let y = Parts::new(outputs[0].floats()?);
    let rows = count * pooled_height;
    let work = width * window.kernel[0].min(height) + pooled_width;
    let grain = (TILE / work).max(1);
    run.each_with(rows.div_ceil(grain), 2 * width + 2 + pooled_width, |tile, scratch| {
        let tile = tile * grain..rows.min((tile + 1) * grain);
        // SAFETY: each row of results belongs to one tile.
        let y = unsafe { y.part(tile.start * pooled_width..tile.end * pooled_width) };
        let (columns, scratch) = scratch.split_at_mut(pooled_width);
        let (line, parted) = scratch.split_at_mut(width);
        vectorized(
            #[inline(always)]
            || {
                windows.count_columns(columns);
                for (y, row) in y.chunks_exact_mut(pooled_width).zip(tile) {
                    let plane = &x[row / pooled_height * height * width..][..height * width];
                    let row = row % pooled_height;
                    if windows.quarters() {
                        fold_quarters(&plane[2 * row * width..][..2 * width], y, f);
                    } else {
                        let rows = windows.rows(row).range;
                        fold_rows(&plane[rows.start * width..rows.end * width], line, f);
                        y.fill(start);
                        fold_line(&windows, line, parted, y, f);
                    }
                    finish(windows.counted(&windows.rows(row)), columns, y);
                }
            },
        );
    })
}

/// Two rows into windows of two by two.
#[inline(always)]
fn fold_quarters(rows: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let (upper, lower) = rows.split_at(rows.len() / 2);
    let (upper, lower) = (upper.as_chunks::<2>().0, lower.as_chunks::<2>().0);
    for ((y, upper), lower) in y.iter_mut().zip(upper).zip(lower) {
        *y = f(f(upper[0], upper[1]), f(lower[0], lower[1]));
    }
}

/// All rows into one line.
#[inline(always)]
fn fold_rows(rows: &[f32], line: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let (first, others) = rows.split_at(line.len());
    line.copy_from_slice(first);
    for row in others.chunks_exact(line.len()) {
        line.iter_mut().zip(row).for_each(|(line, &x)| *line = f(*line, x));
    }
}

/// A line into the windows along it.
#[inline(always)]
fn fold_line(windows: &Windows, line: &[f32], parted: &mut [f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let stride = windows.window.stride[1];
    if stride == 2 {
        part(line, parted);
    }
    for offset in windows.offsets() {
        let Some((inside, first)) = windows.inside(offset) else { continue };
        let y = &mut y[inside];
        match stride {
            1 => y.iter_mut().zip(&line[first..]).for_each(|(y, &x)| *y = f(*y, x)),
            2 => {
                let half = &parted[first % 2 * line.len().div_ceil(2)..][first / 2..];
                y.iter_mut().zip(half).for_each(|(y, &x)| *y = f(*y, x));
            }
            _ => y.iter_mut().zip(line[first..].iter().step_by(stride)).for_each(|(y, &x)| *y = f(*y, x)),
        }
    }
}

/// The even elements of a line, then the odd ones.
#[inline(always)]
fn part(line: &[f32], parted: &mut [f32]) {
    let (even, odd) = parted.split_at_mut(line.len().div_ceil(2));
    let (pairs, last) = line.as_chunks::<2>();
    for ((even, odd), pair) in even.iter_mut().zip(odd).zip(pairs) {
        (*even, *odd) = (pair[0], pair[1]);
    }
    if let (Some(even), [last]) = (even.last_mut(), last) {
        *even = *last;
    }
}

pub(in super::super) fn max_gradient(
    window: &Window,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let planes = Planes::new(&inputs[0].layout.shape, &inputs[1].layout.shape);
    let windows = Windows { window: *window, planes };
    let (x, dy) = (inputs[0].floats()?, inputs[1].floats()?);
    let dx = Parts::new(outputs[0].floats()?);
    let grain = planes.grain();
    let (area, pooled) = (planes.area(), planes.pooled_area());
    let floats = planes.width + 2 + 2 * planes.pooled_width;
    run.each_with(planes.count.div_ceil(grain), floats, |tile, scratch| {
        let tile = tile * grain..planes.count.min((tile + 1) * grain);
        // SAFETY: each plane belongs to one tile.
        let dx = unsafe { dx.part(tile.start * area..tile.end * area) };
        let (x, dy) = (&x[tile.start * area..], &dy[tile.start * pooled..]);
        let planes = dx.chunks_exact_mut(area).zip(x.chunks_exact(area)).zip(dy.chunks_exact(pooled));
        vectorized(
            #[inline(always)]
            || {
                for ((dx, x), dy) in planes {
                    if windows.quarters() {
                        quarters_gradient(&windows.planes, x, dy, dx);
                    } else if window.stride[1] <= 2 && u32::try_from(area).is_ok() {
                        rows_gradient(&windows, x, dy, dx, scratch);
                    } else {
                        windows_gradient(&windows, x, dy, dx);
                    }
                }
            },
        );
    })
}

/// Each window of two by two has its elements to itself: every element is written once.
#[inline(always)]
fn quarters_gradient(planes: &Planes, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    let width = planes.width;
    if 2 * planes.pooled_height < planes.height || 2 * planes.pooled_width < width {
        dx.fill(0.0);
    }
    let rows = x.chunks_exact(2 * width).zip(dx.chunks_exact_mut(2 * width)).zip(dy.chunks_exact(planes.pooled_width));
    for ((x, dx), dy) in rows {
        let (upper, lower) = x.split_at(width);
        let (dx_upper, dx_lower) = dx.split_at_mut(width);
        quarters_row_gradient(
            [upper.as_chunks().0, lower.as_chunks().0],
            dy,
            dx_upper.as_chunks_mut().0,
            dx_lower.as_chunks_mut().0,
        );
    }
}

/// A row of windows of two by two. As arguments of a function, the compiler knows that the slices do not overlap.
#[inline(always)]
fn quarters_row_gradient(
    [upper, lower]: [&[[f32; 2]]; 2],
    dy: &[f32],
    dx_upper: &mut [[f32; 2]],
    dx_lower: &mut [[f32; 2]],
) {
    for ((((dx_upper, dx_lower), upper), lower), &dy) in dx_upper.iter_mut().zip(dx_lower).zip(upper).zip(lower).zip(dy)
    {
        // Each step keeps the earlier one unless the later is larger or NaN.
        let second = (upper[1] > upper[0]) | upper[1].is_nan();
        let most = choose(second, upper[1], upper[0]);
        let third = (lower[0] > most) | lower[0].is_nan();
        let most = choose(third, lower[0], most);
        let fourth = (lower[1] > most) | lower[1].is_nan();
        let above = choose(third | fourth, 0.0, dy);
        let below = choose(third, dy, 0.0);
        let (first, second) = (choose(second, 0.0, above), choose(second, above, 0.0));
        let (third, fourth) = (choose(fourth, 0.0, below), choose(fourth, dy, 0.0));
        *dx_upper = [first, second];
        *dx_lower = [third, fourth];
    }
}

/// Finds the largest of a row of windows side by side.
#[inline(always)]
fn rows_gradient(windows: &Windows, x: &[f32], dy: &[f32], dx: &mut [f32], scratch: &mut [f32]) {
    let Planes { width, pooled_width, .. } = windows.planes;
    let (parted, best) = scratch.split_at_mut(width + 2);
    let (most, positions) = best.split_at_mut(pooled_width);
    let positions: &mut [u32] = bytemuck::cast_slice_mut(positions);
    dx.fill(0.0);
    for (row, dy) in dy.chunks_exact(pooled_width).enumerate() {
        let rows = windows.rows(row).range;
        most.fill(f32::NEG_INFINITY);
        // Where nothing is larger than minus infinity, the first has it.
        for (column, position) in positions.iter_mut().enumerate() {
            let first = (column * windows.window.stride[1]).saturating_sub(windows.window.padding[1]);
            *position = (rows.start * width + first) as u32;
        }
        for row in rows {
            find_largest(windows, &x[row * width..][..width], row * width, parted, most, positions);
        }
        for (&position, &dy) in positions.iter().zip(dy) {
            dx[position as usize] += dy;
        }
    }
}

/// Updates the largest of each window along a row, and where it is; `base` is where the row begins.
#[inline(always)]
fn find_largest(
    windows: &Windows,
    line: &[f32],
    base: usize,
    parted: &mut [f32],
    most: &mut [f32],
    positions: &mut [u32],
) {
    let stride = windows.window.stride[1];
    if stride == 2 {
        part(line, parted);
    }
    for offset in windows.offsets() {
        let Some((inside, first)) = windows.inside(offset) else { continue };
        let line = match stride {
            1 => &line[first..],
            _ => &parted[first % 2 * line.len().div_ceil(2)..][first / 2..],
        };
        let (most, positions) = (&mut most[inside.clone()], &mut positions[inside]);
        let mut here = (base + first) as u32;
        for ((most, position), &x) in most.iter_mut().zip(positions).zip(line) {
            let later = (x > *most) | x.is_nan();
            *most = larger(*most, x);
            // Later is also further on.
            *position = choose(later, here, 0).max(*position);
            here = here.wrapping_add(stride as u32);
        }
    }
}

fn windows_gradient(windows: &Windows, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    let Planes { width, pooled_width, .. } = windows.planes;
    dx.fill(0.0);
    for (row, dy) in dy.chunks_exact(pooled_width).enumerate() {
        let rows = windows.rows(row).range;
        for (column, dy) in dy.iter().enumerate() {
            dx[position_of_largest(x, width, rows.clone(), windows.columns(column).range)] += dy;
        }
    }
}

pub(in super::super) fn average_gradient(
    window: &Window,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let planes = Planes::new(&outputs[0].layout.shape, &inputs[0].layout.shape);
    let windows = Windows { window: *window, planes };
    let dy = inputs[0].floats()?;
    let dx = Parts::new(outputs[0].floats()?);
    let grain = planes.grain();
    let (area, pooled) = (planes.area(), planes.pooled_area());
    run.each_with(planes.count.div_ceil(grain), planes.width + 2 * planes.pooled_width, |tile, scratch| {
        let tile = tile * grain..planes.count.min((tile + 1) * grain);
        // SAFETY: each plane belongs to one tile.
        let dx = unsafe { dx.part(tile.start * area..tile.end * area) };
        let dy = &dy[tile.start * pooled..];
        vectorized(
            #[inline(always)]
            || {
                let (columns, scratch) = scratch.split_at_mut(planes.pooled_width);
                windows.count_columns(columns);
                for (dx, dy) in dx.chunks_exact_mut(area).zip(dy.chunks_exact(pooled)) {
                    if windows.quarters() {
                        spread_quarters(&planes, dy, dx);
                    } else {
                        spread(&windows, dy, columns, dx, scratch);
                    }
                }
            },
        );
    })
}

/// Spreads the gradient of each window over its elements: along a line, then to all its rows.
#[inline(always)]
fn spread(windows: &Windows, dy: &[f32], columns: &[f32], dx: &mut [f32], scratch: &mut [f32]) {
    let Planes { width, pooled_width, .. } = windows.planes;
    let (line, shares) = scratch.split_at_mut(width);
    dx.fill(0.0);
    for (row, dy) in dy.chunks_exact(pooled_width).enumerate() {
        let rows = windows.rows(row);
        let count = windows.counted(&rows);
        for ((share, dy), columns) in shares.iter_mut().zip(dy).zip(columns) {
            *share = dy / (count * columns);
        }
        line.fill(0.0);
        for offset in windows.offsets() {
            let Some((inside, first)) = windows.inside(offset) else { continue };
            let places = line[first..].iter_mut().step_by(windows.window.stride[1]);
            places.zip(&shares[inside]).for_each(|(place, share)| *place += share);
        }
        for row in dx[rows.range.start * width..rows.range.end * width].chunks_exact_mut(width) {
            row.iter_mut().zip(&*line).for_each(|(dx, x)| *dx += x);
        }
    }
}

/// A quarter to each element of a window of two by two.
#[inline(always)]
fn spread_quarters(planes: &Planes, dy: &[f32], dx: &mut [f32]) {
    let width = planes.width;
    if 2 * planes.pooled_height < planes.height || 2 * planes.pooled_width < width {
        dx.fill(0.0);
    }
    for (dx, dy) in dx.chunks_exact_mut(2 * width).zip(dy.chunks_exact(planes.pooled_width)) {
        let (upper, lower) = dx.split_at_mut(width);
        for ((upper, lower), &dy) in upper.as_chunks_mut().0.iter_mut().zip(lower.as_chunks_mut().0).zip(dy) {
            *upper = [0.25 * dy; 2];
            *lower = [0.25 * dy; 2];
        }
    }
}
