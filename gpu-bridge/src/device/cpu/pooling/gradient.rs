//! The gradients of windows of one size at a stride.

use std::ops::Range;

use super::window::{BLOCK, Windows, block, blocks, covering, part, steps};
use super::{Planes, STRETCH, choose, position_of_largest};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::Window;
use crate::run::{Pace, Parts, Run};

pub(in super::super) fn max_gradient(
    window: &Window,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let planes = Planes::new(&inputs[0].layout.shape, &inputs[1].layout.shape);
    let windows = Windows { window: *window, planes };
    // The most common windows once more: the compiler unrolls what it knows the size of.
    let three = Windows { window: Window { kernel: [3, 3], stride: [2, 2], ..*window }, planes };
    let (x, dy) = (inputs[0].floats()?, inputs[1].floats()?);
    let dx = Parts::new(outputs[0].floats()?);
    let grain = planes.grain();
    let (area, pooled) = (planes.area(), planes.pooled_area());
    // Windows of so many elements are gone through one by one.
    let long = windows.planes.pooled_width.saturating_mul(window.kernel[0].saturating_mul(window.kernel[1])) > STRETCH;
    let blocks = !long && !windows.whole_columns().is_empty() && u32::try_from(area).is_ok();
    let floats = if blocks { window.kernel[0].min(planes.height) * windows.parted() } else { 0 };
    run.paced_with(planes.count.div_ceil(grain), floats, |pace, tile, scratch| {
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
                        quarters_gradient(&windows.planes, x, dy, dx, pace)?;
                    } else if blocks && three.window == windows.window {
                        rows_gradient(&three, x, dy, dx, scratch, pace)?;
                    } else if blocks {
                        rows_gradient(&windows, x, dy, dx, scratch, pace)?;
                    } else {
                        windows_gradient(&windows, x, dy, dx, pace)?;
                    }
                }
                Ok(())
            },
        )
    })
}

/// Each window of two by two has its elements to itself: every element is written once.
#[inline(always)]
fn quarters_gradient(planes: &Planes, x: &[f32], dy: &[f32], dx: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
    let width = planes.width;
    if 2 * planes.pooled_height < planes.height || 2 * planes.pooled_width < width {
        pace.fill(dx, 0.0)?;
    }
    let rows = x.chunks_exact(2 * width).zip(dx.chunks_exact_mut(2 * width)).zip(dy.chunks_exact(planes.pooled_width));
    for ((x, dx), dy) in rows {
        let (upper, lower) = x.split_at(width);
        let (dx_upper, dx_lower) = dx.split_at_mut(width);
        let (upper, lower) = (upper.as_chunks().0, lower.as_chunks().0);
        let (dx_upper, dx_lower) = (dx_upper.as_chunks_mut().0, dx_lower.as_chunks_mut().0);
        pace.stepped(dy.len(), |range| {
            let (upper, lower) = (&upper[range.clone()], &lower[range.clone()]);
            let (dx_upper, dx_lower) = (&mut dx_upper[range.clone()], &mut dx_lower[range.clone()]);
            quarters_of_a_row(upper, lower, &dy[range], dx_upper, dx_lower);
        })?;
    }
    Ok(())
}

/// As many windows of two by two as there are gradients.
#[inline(always)]
fn quarters_of_a_row(
    upper: &[[f32; 2]],
    lower: &[[f32; 2]],
    dy: &[f32],
    dx_upper: &mut [[f32; 2]],
    dx_lower: &mut [[f32; 2]],
) {
    for at in blocks(dy.len()) {
        quarter_block::<BLOCK>(&upper[at..], &lower[at..], &dy[at..], &mut dx_upper[at..], &mut dx_lower[at..]);
    }
    if dy.len() == BLOCK / 2 {
        quarter_block::<{ BLOCK / 2 }>(upper, lower, dy, dx_upper, dx_lower);
    } else if dy.len() < BLOCK {
        let count = dy.len();
        let (upper, lower, dy) = (short_block(upper), short_block(lower), short_block(dy));
        let dx: [_; BLOCK] = std::array::from_fn(|lane| quarter_gradient(upper[lane], lower[lane], dy[lane]));
        dx_upper[..count].copy_from_slice(&dx.map(|dx| dx[0])[..count]);
        dx_lower[..count].copy_from_slice(&dx.map(|dx| dx[1])[..count]);
    }
}

#[inline(always)]
fn quarter_block<const SIZE: usize>(
    upper: &[[f32; 2]],
    lower: &[[f32; 2]],
    dy: &[f32],
    dx_upper: &mut [[f32; 2]],
    dx_lower: &mut [[f32; 2]],
) {
    let (upper, lower, dy): ([_; SIZE], [_; SIZE], [_; SIZE]) = (block(upper), block(lower), block(dy));
    let dx: [_; SIZE] = std::array::from_fn(|lane| quarter_gradient(upper[lane], lower[lane], dy[lane]));
    dx_upper[..SIZE].copy_from_slice(&dx.map(|dx| dx[0]));
    dx_lower[..SIZE].copy_from_slice(&dx.map(|dx| dx[1]));
}

/// A block of what may be shorter than one.
#[inline(always)]
fn short_block<T: Copy + Default>(slice: &[T]) -> [T; BLOCK] {
    let mut block = [T::default(); BLOCK];
    let count = slice.len().min(BLOCK);
    block[..count].copy_from_slice(&slice[..count]);
    block
}

/// All of `dy` to the largest of four.
#[inline(always)]
fn quarter_gradient(upper: [f32; 2], lower: [f32; 2], dy: f32) -> [[f32; 2]; 2] {
    // Each step keeps the earlier one unless the later is larger or NaN.
    let second = (upper[1] > upper[0]) | upper[1].is_nan();
    let most = choose(second, upper[1], upper[0]);
    let third = (lower[0] > most) | lower[0].is_nan();
    let most = choose(third, lower[0], most);
    let fourth = (lower[1] > most) | lower[1].is_nan();
    let above = choose(third | fourth, 0.0, dy);
    let below = choose(third, dy, 0.0);
    [[choose(second, 0.0, above), choose(second, above, 0.0)], [choose(fourth, 0.0, below), choose(fourth, dy, 0.0)]]
}

/// Finds the largest of the windows of a row in blocks.
#[inline(always)]
fn rows_gradient(
    windows: &Windows,
    x: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    scratch: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<()> {
    let Planes { width, pooled_width, .. } = windows.planes;
    let whole = windows.whole_columns();
    pace.fill(dx, 0.0)?;
    for (row, dy) in dy.chunks_exact(pooled_width).enumerate() {
        let rows = windows.rows(row).range;
        pace.step(rows.len() * (width + windows.window.kernel[1] * pooled_width))?;
        if windows.window.stride[1] == 2 {
            for (row, parted) in rows.clone().zip(scratch.chunks_exact_mut(windows.parted())) {
                part(&x[row * width..][..width], parted);
            }
        }
        let mut done = whole.start;
        for at in covering(whole.len()) {
            let at = whole.start + at;
            let positions = find_largest(windows, x, scratch, rows.clone(), at);
            let end = whole.end.min(at + BLOCK);
            for column in done..end {
                dx[positions[column - at] as usize] += dy[column];
            }
            done = end;
        }
        for column in (0..whole.start).chain(whole.end..pooled_width) {
            let columns = windows.columns(column).range;
            dx[position_of_largest(x, width, rows.clone(), columns, pace)?] += dy[column];
        }
    }
    Ok(())
}

/// Where the largest of each window of a block is. The windows are whole; `parted` holds the parts of their rows.
#[inline(always)]
fn find_largest(windows: &Windows, x: &[f32], parted: &[f32], rows: Range<usize>, at: usize) -> [u32; BLOCK] {
    let Windows { window, planes: Planes { width, .. } } = windows;
    let first = rows.start * width + at * window.stride[1] - window.padding[1];
    let mut most = [f32::NEG_INFINITY; BLOCK];
    let mut positions = [0; BLOCK];
    for (index, row) in rows.enumerate() {
        let parted = if window.stride[1] == 2 { &parted[index * windows.parted()..][..windows.parted()] } else { &[] };
        let line = &x[row * width..][..*width];
        for offset in 0..window.kernel[1] {
            let columns: [f32; BLOCK] = block(windows.along(line, parted, at, offset));
            let here = (index * width + offset) as u32;
            for lane in 0..BLOCK {
                let later = (columns[lane] > most[lane]) | columns[lane].is_nan();
                most[lane] = choose(later, columns[lane], most[lane]);
                positions[lane] = choose(later, here, positions[lane]);
            }
        }
    }
    std::array::from_fn(|lane| positions[lane] + (first + lane * window.stride[1]) as u32)
}

fn windows_gradient(windows: &Windows, x: &[f32], dy: &[f32], dx: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
    let Planes { width, pooled_width, .. } = windows.planes;
    pace.fill(dx, 0.0)?;
    for (row, dy) in dy.chunks_exact(pooled_width).enumerate() {
        let rows = windows.rows(row).range;
        for (column, dy) in dy.iter().enumerate() {
            dx[position_of_largest(x, width, rows.clone(), windows.columns(column).range, pace)?] += dy;
        }
    }
    Ok(())
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
    run.paced_with(planes.count.div_ceil(grain), planes.width + 2 * planes.pooled_width, |pace, tile, scratch| {
        let tile = tile * grain..planes.count.min((tile + 1) * grain);
        // SAFETY: each plane belongs to one tile.
        let dx = unsafe { dx.part(tile.start * area..tile.end * area) };
        let dy = &dy[tile.start * pooled..];
        vectorized(
            #[inline(always)]
            || {
                let (columns, scratch) = scratch.split_at_mut(planes.pooled_width);
                windows.count_columns(columns, pace)?;
                for (dx, dy) in dx.chunks_exact_mut(area).zip(dy.chunks_exact(pooled)) {
                    if windows.quarters() {
                        spread_quarters(&planes, dy, dx, pace)?;
                    } else {
                        spread(&windows, dy, columns, dx, scratch, pace)?;
                    }
                }
                Ok(())
            },
        )
    })
}

impl Windows {
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
}

/// Spreads the gradient of each window over its elements: along a line, then to all its rows.
#[inline(always)]
fn spread(
    windows: &Windows,
    dy: &[f32],
    columns: &[f32],
    dx: &mut [f32],
    scratch: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<()> {
    let Planes { width, pooled_width, .. } = windows.planes;
    let (line, shares) = scratch.split_at_mut(width);
    pace.fill(dx, 0.0)?;
    for (row, dy) in dy.chunks_exact(pooled_width).enumerate() {
        let rows = windows.rows(row);
        let count = windows.counted(&rows);
        pace.stepped(pooled_width, |range| {
            let windows = shares[range.clone()].iter_mut().zip(&dy[range.clone()]).zip(&columns[range]);
            windows.for_each(|((share, dy), columns)| *share = dy / (count * columns));
        })?;
        pace.fill(line, 0.0)?;
        for offset in windows.offsets() {
            pace.step(1)?;
            let Some((inside, first)) = windows.inside(offset) else { continue };
            let (shares, stride) = (&shares[inside], windows.window.stride[1]);
            pace.stepped(shares.len(), |range| {
                let places = line[first + range.start * stride..].iter_mut().step_by(stride);
                places.zip(&shares[range]).for_each(|(place, share)| *place += share);
            })?;
        }
        for row in dx[rows.range.start * width..rows.range.end * width].chunks_exact_mut(width) {
            pace.stepped(width, |range| {
                row[range.clone()].iter_mut().zip(&line[range]).for_each(|(dx, x)| *dx += x);
            })?;
        }
    }
    Ok(())
}

/// A quarter to each element of a window of two by two.
#[inline(always)]
fn spread_quarters(planes: &Planes, dy: &[f32], dx: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
    let width = planes.width;
    if 2 * planes.pooled_height < planes.height || 2 * planes.pooled_width < width {
        pace.fill(dx, 0.0)?;
    }
    for (dx, dy) in dx.chunks_exact_mut(2 * width).zip(dy.chunks_exact(planes.pooled_width)) {
        let (upper, lower) = dx.split_at_mut(width);
        let (upper, lower) = (upper.as_chunks_mut().0, lower.as_chunks_mut().0);
        pace.stepped(dy.len(), |range| {
            let pairs = upper[range.clone()].iter_mut().zip(&mut lower[range.clone()]);
            for ((upper, lower), &dy) in pairs.zip(&dy[range]) {
                *upper = [0.25 * dy; 2];
                *lower = [0.25 * dy; 2];
            }
        })?;
    }
    Ok(())
}
