//! Windows of one size at a stride.
//!
//! A row of windows is folded in two steps that both run along rows: first its input rows into one line, then the line,
//! shifted by each column of the window, into the result. At stride 2 the line is first parted into its even and its odd
//! elements, so that the second step reads what lies side by side. Both run in blocks, held in registers.

use std::ops::Range;

use super::{Planes, STRETCH, TILE, larger};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::Window;
use crate::run::{Pace, Parts, Run};

/// Windows on planes.
#[derive(Clone, Copy)]
pub(super) struct Windows {
    pub(super) window: Window,
    pub(super) planes: Planes,
}

/// The part of an axis that a window covers, and how many elements it has with the padding.
pub(super) struct Covered {
    pub(super) range: Range<usize>,
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
    pub(super) fn rows(&self, row: usize) -> Covered {
        self.covered(0, row, self.planes.height)
    }

    #[inline(always)]
    pub(super) fn columns(&self, column: usize) -> Covered {
        self.covered(1, column, self.planes.width)
    }

    /// The windows of a row that have all their columns inside the image, where they can be worked on in blocks: at a
    /// stride of 1 if there are enough of them, at a stride of 2 always, as parted lines have room for a block after them.
    #[inline(always)]
    pub(super) fn whole_columns(&self) -> Range<usize> {
        let (kernel, stride, padding) = (self.window.kernel[1], self.window.stride[1], self.window.padding[1]);
        if stride > 2 || self.planes.width + padding < kernel {
            return 0..0;
        }
        let first = steps(padding, stride);
        let end = (steps(self.planes.width + padding - kernel + 1, stride)).min(self.planes.pooled_width);
        let least = if stride == 1 { BLOCK } else { 1 };
        if end < first + least { 0..0 } else { first..end }
    }

    /// Floats of a parted line, with room to read a whole block from any window on.
    pub(super) fn parted(&self) -> usize {
        self.planes.width + 2 + BLOCK
    }

    /// The elements at an offset in the windows from `column` on, which are whole: of a line at stride 1, of its parts at
    /// stride 2.
    #[inline(always)]
    pub(super) fn along<'a>(&self, line: &'a [f32], parted: &'a [f32], column: usize, offset: usize) -> &'a [f32] {
        let padding = self.window.padding[1];
        if self.window.stride[1] == 1 {
            return &line[column + offset - padding..];
        }
        let first = 2 * column + offset - padding;
        &parted[first % 2 * line.len().div_ceil(2) + first / 2..]
    }

    /// What the means of a row are divided by, for each column: the columns of its window.
    #[inline(always)]
    pub(super) fn count_columns(&self, counts: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
        pace.stepped(counts.len(), |range| {
            for (column, count) in range.clone().zip(&mut counts[range]) {
                *count = self.counted(&self.columns(column));
            }
        })
    }

    /// What a mean is divided by: the elements of its window along one axis.
    #[inline(always)]
    pub(super) fn counted(&self, covered: &Covered) -> f32 {
        (if self.window.count_padding { covered.padded } else { covered.range.len() }) as f32
    }

    /// Elements that the windows of a row have, those that lie outside the image among them.
    pub(super) fn row_work(&self) -> usize {
        let Planes { height, width, pooled_width, .. } = self.planes;
        let [rows, columns] = self.window.kernel;
        width * rows.min(height) + pooled_width.saturating_mul(columns.min(width))
    }

    /// Whether each window is two by two of its own, inside the image.
    pub(super) fn quarters(&self) -> bool {
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
pub(super) fn steps(distance: usize, stride: usize) -> usize {
    match stride {
        1 => distance,
        2 => distance.div_ceil(2),
        _ => distance.div_ceil(stride),
    }
}

/// Windows that are worked on together, in vectors.
pub(super) const BLOCK: usize = 8;

/// Where blocks start that cover a length; the last may overlap the one before. None if it is shorter than a block.
#[inline(always)]
pub(super) fn blocks(length: usize) -> impl Iterator<Item = usize> {
    let count = if length < BLOCK { 0 } else { length.div_ceil(BLOCK) };
    (0..count).map(move |block| (block * BLOCK).min(length - BLOCK))
}

/// Like [`blocks`], with one block that is not full for what is shorter.
#[inline(always)]
pub(super) fn covering(length: usize) -> impl Iterator<Item = usize> {
    (0..length.div_ceil(BLOCK)).map(move |block| (block * BLOCK).min(length.saturating_sub(BLOCK)))
}

/// The first elements of a slice that has as many. What lies in an array of its own, the compiler need not expect to
/// change under it.
#[inline(always)]
pub(super) fn block<T: Copy, const SIZE: usize>(slice: &[T]) -> [T; SIZE] {
    std::array::from_fn(|lane| slice[..SIZE][lane])
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
    // The most common windows once more: the compiler unrolls what it knows the size of.
    let three = Windows { window: Window { kernel: [3, 3], stride: [2, 2], ..*window }, ..windows };
    let Planes { count, height, width, pooled_height, pooled_width } = windows.planes;
    let x = inputs[0].floats()?;
    let y = Parts::new(outputs[0].floats()?);
    let rows = count * pooled_height;
    let work = width * window.kernel[0].min(height) + pooled_width;
    let grain = (TILE / work).max(1);
    let long = windows.row_work() > STRETCH;
    run.paced_with(rows.div_ceil(grain), width + windows.parted() + pooled_width, |pace, tile, scratch| {
        let tile = tile * grain..rows.min((tile + 1) * grain);
        // SAFETY: each row of results belongs to one tile.
        let y = unsafe { y.part(tile.start * pooled_width..tile.end * pooled_width) };
        let (columns, scratch) = scratch.split_at_mut(pooled_width);
        let (line, parted) = scratch.split_at_mut(width);
        vectorized(
            #[inline(always)]
            || {
                windows.count_columns(columns, pace)?;
                let (mut plane, mut row) = (tile.start / pooled_height, tile.start % pooled_height);
                for y in y.chunks_exact_mut(pooled_width) {
                    let x = &x[plane * height * width..][..height * width];
                    if long {
                        let rows = windows.rows(row).range;
                        fold_rows_slowly(&x[rows.start * width..rows.end * width], line, pace, f)?;
                        fold_line_slowly(&windows, line, y, start, pace, f)?;
                    } else if windows.quarters() {
                        fold_quarters(&x[2 * row * width..][..2 * width], y, f);
                    } else {
                        let rows = windows.rows(row).range;
                        fold_rows(&x[rows.start * width..rows.end * width], line, f);
                        if three.window == windows.window {
                            fold_line(&three, line, parted, y, start, f);
                        } else {
                            fold_line(&windows, line, parted, y, start, f);
                        }
                    }
                    let counted = windows.counted(&windows.rows(row));
                    pace.pieces(y.len(), |range| finish(counted, &columns[range.clone()], &mut y[range]))?;
                    row += 1;
                    if row == pooled_height {
                        (plane, row) = (plane + 1, 0);
                    }
                }
                pace.step(y.len())
            },
        )
    })
}

/// Like [`fold_rows`], for many or long rows.
#[inline(always)]
fn fold_rows_slowly(rows: &[f32], line: &mut [f32], pace: &mut Pace<'_>, f: impl Fn(f32, f32) -> f32) -> Result<()> {
    let width = line.len();
    let (first, rest) = rows.split_at(width);
    pace.pieces(width, |range| line[range.clone()].copy_from_slice(&first[range]))?;
    for row in rest.chunks_exact(width) {
        pace.stepped(width, |range| {
            line[range.clone()].iter_mut().zip(&row[range]).for_each(|(line, &x)| *line = f(*line, x));
        })?;
    }
    Ok(())
}

/// Like [`fold_line`], for windows of many columns: each of them is folded by itself, in lanes, as far as they fill.
#[inline(always)]
fn fold_line_slowly(
    windows: &Windows,
    line: &[f32],
    y: &mut [f32],
    start: f32,
    pace: &mut Pace<'_>,
    f: impl Fn(f32, f32) -> f32,
) -> Result<()> {
    const LANES: usize = 16;
    for (column, y) in y.iter_mut().enumerate() {
        let (chunks, rest) = line[windows.columns(column).range].as_chunks::<LANES>();
        pace.step(rest.len() + LANES)?;
        let mut lanes = [start; LANES];
        for chunks in chunks.chunks(STRETCH / LANES) {
            pace.step(chunks.len() * LANES)?;
            for chunk in chunks {
                lanes = std::array::from_fn(|lane| f(lanes[lane], chunk[lane]));
            }
        }
        *y = lanes.into_iter().chain(rest.iter().copied()).fold(start, &f);
    }
    Ok(())
}

/// Two rows into windows of two by two.
#[inline(always)]
fn fold_quarters(rows: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let (upper, lower) = rows.split_at(rows.len() / 2);
    let (upper, lower) = (upper.as_chunks::<2>().0, lower.as_chunks::<2>().0);
    for at in blocks(y.len()) {
        fold_quarter_block::<BLOCK>(&upper[at..], &lower[at..], &mut y[at..], &f);
    }
    if y.len() == BLOCK / 2 {
        fold_quarter_block::<{ BLOCK / 2 }>(upper, lower, y, &f);
    } else if y.len() < BLOCK {
        for ((y, upper), lower) in y.iter_mut().zip(upper).zip(lower) {
            *y = fold_quarter(*upper, *lower, &f);
        }
    }
}

#[inline(always)]
fn fold_quarter_block<const SIZE: usize>(
    upper: &[[f32; 2]],
    lower: &[[f32; 2]],
    y: &mut [f32],
    f: &impl Fn(f32, f32) -> f32,
) {
    let (upper, lower): ([_; SIZE], [_; SIZE]) = (block(upper), block(lower));
    let folded: [_; SIZE] = std::array::from_fn(|lane| fold_quarter(upper[lane], lower[lane], f));
    y[..SIZE].copy_from_slice(&folded);
}

#[inline(always)]
fn fold_quarter(upper: [f32; 2], lower: [f32; 2], f: &impl Fn(f32, f32) -> f32) -> f32 {
    f(f(upper[0], upper[1]), f(lower[0], lower[1]))
}

/// All rows into one line.
#[inline(always)]
fn fold_rows(rows: &[f32], line: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let width = line.len();
    for at in blocks(width) {
        let mut folded: [f32; BLOCK] = block(&rows[at..]);
        for row in rows[width..].chunks_exact(width) {
            let row: [f32; BLOCK] = block(&row[at..]);
            folded = std::array::from_fn(|lane| f(folded[lane], row[lane]));
        }
        line[at..at + BLOCK].copy_from_slice(&folded);
    }
    if width < BLOCK {
        line.copy_from_slice(&rows[..width]);
        for row in rows[width..].chunks_exact(width) {
            line.iter_mut().zip(row).for_each(|(line, &x)| *line = f(*line, x));
        }
    }
}

/// A line into the windows along it.
#[inline(always)]
fn fold_line(
    windows: &Windows,
    line: &[f32],
    parted: &mut [f32],
    y: &mut [f32],
    start: f32,
    f: impl Fn(f32, f32) -> f32,
) {
    let whole = windows.whole_columns();
    if windows.window.stride[1] == 2 && !whole.is_empty() {
        part(line, parted);
    }
    for at in covering(whole.len()) {
        let at = whole.start + at;
        let mut folded = [start; BLOCK];
        for offset in 0..windows.window.kernel[1] {
            let columns: [f32; BLOCK] = block(windows.along(line, parted, at, offset));
            folded = std::array::from_fn(|lane| f(folded[lane], columns[lane]));
        }
        if whole.len() >= BLOCK {
            y[at..at + BLOCK].copy_from_slice(&folded);
        } else {
            y[whole.clone()].iter_mut().zip(folded).for_each(|(y, folded)| *y = folded);
        }
    }
    for column in (0..whole.start).chain(whole.end..y.len()) {
        y[column] = line[windows.columns(column).range].iter().fold(start, |folded, &x| f(folded, x));
    }
}

/// The even elements of a line, then the odd ones.
#[inline(always)]
pub(super) fn part(line: &[f32], parted: &mut [f32]) {
    let (even, odd) = parted.split_at_mut(line.len().div_ceil(2));
    let (pairs, last) = line.as_chunks::<2>();
    for at in blocks(pairs.len()) {
        let pairs: [[f32; 2]; BLOCK] = block(&pairs[at..]);
        even[at..at + BLOCK].copy_from_slice(&pairs.map(|pair| pair[0]));
        odd[at..at + BLOCK].copy_from_slice(&pairs.map(|pair| pair[1]));
    }
    if pairs.len() < BLOCK {
        for ((even, odd), pair) in even.iter_mut().zip(odd).zip(pairs) {
            (*even, *odd) = (pair[0], pair[1]);
        }
    }
    if let (Some(even), [last]) = (even.last_mut(), last) {
        *even = *last;
    }
}
