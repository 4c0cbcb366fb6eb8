//! Winograd's minimal filtering for 3 x 3 kernels at stride 1: 36 multiplications for what takes 144.
//!
//! The output is cut into squares of 4 x 4; the 6 x 6 pixels that a square sees, and the weight, are transformed so that
//! convolution becomes 36 independent products over the channels. The gradient of the weight is the same filtering with
//! the roles changed: the gradient's 4 x 4 square is the kernel and 3 x 3 taps come out. Sums are of larger numbers than
//! the direct way's, which costs about two digits of the seven that f32 has.

use super::{Geometry, Weight};
use crate::device::cpu::eight::{self, EIGHT, Eight};
use crate::device::cpu::panel::{self, Block, LANES, ROWS};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{Parts, Run};

mod squares;
mod transform;

use squares::{Squares, Window};
use transform::POINTS;

/// The side of a square of outputs.
const SIDE: usize = 4;

/// Squares that a tile transforms and multiplies at a time: a pair of panels.
const SQUARES: usize = 2 * LANES;

/// Output channels that a tile computes, in panels, where there are few squares.
const ROW_PANELS: usize = 22;

/// Floats of transformed operands of the weight's gradient: they stay in the last-level cache.
const TRANSFORMED: usize = 2 << 20;

/// Channels below which transforming costs more than it saves.
const FEW_CHANNELS: usize = 16;

/// What transforming a square of one channel costs, in multiplications.
const TRANSFORM: usize = 2160;

pub(super) fn suits(geometry: &Geometry) -> bool {
    let squares = geometry.to[0].div_ceil(SIDE) * geometry.to[1].div_ceil(SIDE);
    geometry.kernel == [3, 3]
        && geometry.stride == [1, 1]
        && geometry.dilation == [1, 1]
        && geometry.groups == 1
        && geometry.inputs >= FEW_CHANNELS
        && geometry.outputs >= FEW_CHANNELS
        // Squares at the edges are partly wasted.
        && 9 * geometry.output_plane() >= 54 * squares
        // What is saved goes by the product of the channels, transforms by their sum.
        && (9 * geometry.output_plane() - POINTS * squares) * geometry.inputs * geometry.outputs
            >= TRANSFORM * squares * (geometry.inputs + geometry.outputs)
}

pub(super) fn suits_weight(geometry: &Geometry) -> bool {
    suits(geometry)
}

/// Floats from one point's operands to the next. Some more than they are: channels are often a power of two, and points
/// that lie one apart would fight for the same lines of a cache.
fn stride(floats: usize) -> usize {
    floats + 2 * LANES
}

pub(super) fn forward(
    geometry: &Geometry,
    x: &[f32],
    weight: Weight<'_>,
    bias: Option<&[f32]>,
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let Geometry { inputs, outputs, .. } = *geometry;
    let row_panels = outputs.div_ceil(ROWS);
    let weight_stride = stride(row_panels * inputs * ROWS);
    let mut transformed = run.scratch(POINTS * weight_stride)?;
    transform_weight(geometry, weight, transformed.floats(), run)?;
    let transformed = &*transformed.floats();

    let squares = Squares::new(geometry);
    let blocks = squares.count.div_ceil(SQUARES);
    let pieces = if blocks >= 8 { 1 } else { row_panels.div_ceil(ROW_PANELS) };
    let panels_per_piece = row_panels.div_ceil(pieces);
    let pixel_stride = stride(inputs * LANES);
    let pixel_floats = SQUARES / LANES * POINTS * pixel_stride;
    let product_floats = POINTS * panels_per_piece * ROWS * SQUARES;
    let y = Parts::new(y);
    run.each_with(blocks * pieces, pixel_floats + product_floats, |tile, scratch| {
        let (first, piece) = (tile / pieces * SQUARES, tile % pieces);
        let rows = piece * panels_per_piece..row_panels.min((piece + 1) * panels_per_piece);
        let (pixels, products) = scratch.split_at_mut(pixel_floats);
        vectorized(
            #[inline(always)]
            || transform_pixels(&squares, x, first, pixels),
        );
        let depth = inputs;
        for point in 0..POINTS {
            for (index, row_panel) in rows.clone().enumerate() {
                let weights = &transformed[point * weight_stride + row_panel * depth * ROWS..][..depth * ROWS];
                let pixels = [0, 1].map(|part| &pixels[(part * POINTS + point) * pixel_stride..][..depth * LANES]);
                let mut blocks = [[[0.0; LANES]; ROWS]; 2];
                // The second half may be past the last square.
                match first + LANES < squares.count {
                    true => panel::multiply_pair(depth, weights, pixels, &mut blocks),
                    false => panel::multiply(depth, weights, pixels[0], &mut blocks[0]),
                }
                for (part, block) in blocks.iter().enumerate() {
                    for (row, values) in block.iter().enumerate() {
                        let at = ((index * ROWS + row) * POINTS + point) * SQUARES + part * LANES;
                        products[at..at + LANES].copy_from_slice(values);
                    }
                }
            }
        }
        let channels = rows.start * ROWS..outputs.min(rows.end * ROWS);
        // SAFETY: these channels of these squares are this tile's alone.
        vectorized(
            #[inline(always)]
            || unsafe { finish(&squares, products, channels, bias, first, &y) },
        );
    })
}

/// The weight as panels of output channels, one set for each point.
fn transform_weight(geometry: &Geometry, weight: Weight<'_>, into: &mut [f32], run: &Run<'_>) -> Result<()> {
    let Geometry { inputs, outputs, .. } = *geometry;
    let row_panels = outputs.div_ceil(ROWS);
    let stride = stride(row_panels * inputs * ROWS);
    let into = Parts::new(into);
    let together = (1024 / inputs).max(1);
    run.ranges(row_panels, together, |panels| {
        for panel in panels {
            vectorized(
                #[inline(always)]
                || {
                    for first in (0..inputs).step_by(EIGHT) {
                        // Some channels at a time, so that what is written for a point is not a few floats here and there.
                        let count = EIGHT.min(inputs - first);
                        let mut points = [[[0.0; ROWS]; EIGHT]; POINTS];
                        for channel in 0..count {
                            let taps = panel_taps(geometry, weight, panel * ROWS, first + channel);
                            for (points, values) in points.iter_mut().zip(transform::kernel(&taps)) {
                                points[channel].copy_from_slice(&values[..ROWS]);
                            }
                        }
                        for (point, values) in points.iter().enumerate() {
                            let at = point * stride + (panel * inputs + first) * ROWS;
                            let values = values[..count].as_flattened();
                            // SAFETY: a panel is one tile's alone.
                            unsafe { into.part(at..at + values.len()) }.copy_from_slice(values);
                        }
                    }
                },
            );
        }
    })
}

/// The taps of one input channel for [`ROWS`] output channels; zeros past the last of them.
#[inline(always)]
fn panel_taps(geometry: &Geometry, weight: Weight<'_>, first: usize, input: usize) -> [Eight; 9] {
    let Geometry { inputs, outputs, .. } = *geometry;
    let mut last = [0.0; EIGHT];
    let rows: [Eight; EIGHT] = std::array::from_fn(|row| {
        let output = first + row;
        if row >= ROWS || output >= outputs {
            return [0.0; EIGHT];
        }
        let kernel = if weight.reversed { input * outputs + output } else { output * inputs + input };
        match weight.data[kernel * 9..].first_chunk::<9>() {
            Some([taps @ .., end]) => {
                last[row] = *end;
                *taps
            }
            None => [0.0; EIGHT],
        }
    });
    let eight = eight::transpose(&rows);
    std::array::from_fn(|tap| {
        let tap = if weight.reversed { 8 - tap } else { tap };
        eight.get(tap).copied().unwrap_or(last)
    })
}

/// What some squares see, as panels of squares, one set for each point: `[part][point][channel][lane]`.
#[inline(always)]
fn transform_pixels(squares: &Squares<'_>, x: &[f32], first: usize, into: &mut [f32]) {
    let inputs = squares.geometry.inputs;
    let plane = squares.geometry.input_plane();
    let stride = stride(inputs * LANES);
    for start in (0..SQUARES).step_by(EIGHT) {
        let (part, lane) = (start / LANES, start % LANES);
        if first + part * LANES >= squares.count {
            return;
        }
        let windows: [Window; EIGHT] = std::array::from_fn(|offset| squares.seen(first + start + offset));
        for input in 0..inputs {
            let pixels = squares.pixels(|lane| {
                let window = &windows[lane];
                (window, &x[(window.image * inputs + input) * plane..][..plane])
            });
            let points = transform::pixels(&pixels);
            for (point, values) in points.iter().enumerate() {
                let at = (part * POINTS + point) * stride + input * LANES + lane;
                into[at..at + EIGHT].copy_from_slice(values);
            }
        }
    }
}

/// Turns the products of some channels into outputs.
///
/// # Safety
/// Nobody else writes these channels of these squares.
#[inline(always)]
unsafe fn finish(
    squares: &Squares<'_>,
    products: &[f32],
    channels: std::ops::Range<usize>,
    bias: Option<&[f32]>,
    first: usize,
    y: &Parts<'_, f32>,
) {
    let geometry = squares.geometry;
    let [height, width] = geometry.to;
    let places: [_; SQUARES] = std::array::from_fn(|offset| squares.place((first + offset).min(squares.count - 1)));
    for (channel, products) in channels.zip(products.chunks_exact(POINTS * SQUARES)) {
        let shift = bias.map_or(0.0, |bias| bias[channel]);
        for start in (0..SQUARES).step_by(EIGHT) {
            if first + start >= squares.count {
                break;
            }
            let mut points = [[0.0; EIGHT]; POINTS];
            for (points, products) in points.iter_mut().zip(products.chunks_exact(SQUARES)) {
                points.copy_from_slice(&products[start..start + EIGHT]);
            }
            let values = transform::outputs(&points).map(|values| values.map(|value| value + shift));
            // Two lines of each square.
            let (halves, _) = values.as_chunks::<EIGHT>();
            for (half, values) in halves.iter().enumerate() {
                let lines = eight::transpose(values);
                let count = EIGHT.min(squares.count - first - start);
                for (&(image, row, column), lines) in places[start..][..count].iter().zip(&lines) {
                    let plane = (image * geometry.outputs + channel) * height * width;
                    let (lines, _) = lines.as_chunks::<SIDE>();
                    for (row, line) in (row + 2 * half..height).zip(lines) {
                        let at = plane + row * width + column;
                        if column + SIDE <= width {
                            // SAFETY: by the contract.
                            let into = unsafe { y.part(at..at + SIDE) };
                            into.iter_mut().zip(line).for_each(|(into, value)| *into = *value);
                        } else {
                            // SAFETY: by the contract.
                            let into = unsafe { y.part(at..at + width - column) };
                            into.iter_mut().zip(line).for_each(|(into, value)| *into = *value);
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn gradient_weight(geometry: &Geometry, x: &[f32], dy: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
    let Geometry { inputs, outputs, .. } = *geometry;
    let squares = Squares::new(geometry);
    let (row_panels, column_panels) = (outputs.div_ceil(ROWS), inputs.div_ceil(LANES));
    let per_square = POINTS * (row_panels * ROWS + column_panels * LANES);
    let block = (TRANSFORMED / per_square).clamp(16, squares.count.max(16)).next_multiple_of(8).min(squares.count);
    let row_floats = POINTS * stride(row_panels * ROWS * block);
    let column_floats = POINTS * stride(column_panels * LANES * block);
    let mut scratch = run.scratch(row_floats + column_floats)?;
    let (rows, columns) = scratch.floats().split_at_mut(row_floats);
    for first in (0..squares.count).step_by(block) {
        let count = block.min(squares.count - first);
        let column_eights = column_panels * LANES / EIGHT;
        let (into_rows, into_columns) = (Parts::new(rows), Parts::new(columns));
        run.each(row_panels + column_eights, |tile| {
            vectorized(
                #[inline(always)]
                || {
                    if tile < row_panels {
                        // SAFETY: a panel of output channels is one tile's alone.
                        unsafe { transform_gradients(&squares, dy, tile, first..first + count, &into_rows) };
                    } else {
                        // SAFETY: eight input channels are one tile's alone.
                        unsafe {
                            transform_channels(
                                &squares,
                                x,
                                (tile - row_panels) * EIGHT,
                                first..first + count,
                                &into_columns,
                            )
                        };
                    }
                },
            );
        })?;
        let (rows, columns) = (&*rows, &*columns);
        let (row_stride, column_stride) = (stride(row_panels * ROWS * count), stride(column_panels * LANES * count));
        let into = Parts::new(dw);
        // Two panels of columns at a time.
        let column_pairs = column_panels.div_ceil(2);
        run.each(row_panels * column_pairs, |tile| {
            let (row_panel, first_column) = (tile / column_pairs, tile % column_pairs * 2);
            let second = (first_column + 1).min(column_panels - 1);
            let mut points: [[Block; POINTS]; 2] = [[[[0.0; LANES]; ROWS]; POINTS]; 2];
            for point in 0..POINTS {
                let rows = &rows[point * row_stride + row_panel * count * ROWS..][..count * ROWS];
                let columns = [first_column, second]
                    .map(|panel| &columns[point * column_stride + panel * count * LANES..][..count * LANES]);
                let mut blocks = [[[0.0; LANES]; ROWS]; 2];
                match second > first_column {
                    true => panel::multiply_pair(count, rows, columns, &mut blocks),
                    false => panel::multiply(count, rows, columns[0], &mut blocks[0]),
                }
                (points[0][point], points[1][point]) = (blocks[0], blocks[1]);
            }
            for (column_panel, points) in (first_column..=second).zip(&points) {
                // SAFETY: a block of channels is one tile's alone.
                vectorized(
                    #[inline(always)]
                    || unsafe { finish_weight(geometry, points, row_panel, column_panel, first > 0, &into) },
                );
            }
        })?;
    }
    Ok(())
}

/// The gradients of a panel of output channels, as rows: `[point][panel][square][row]`.
///
/// # Safety
/// Nobody else writes this panel.
#[inline(always)]
unsafe fn transform_gradients(
    squares: &Squares<'_>,
    dy: &[f32],
    panel: usize,
    range: std::ops::Range<usize>,
    into: &Parts<'_, f32>,
) {
    let outputs = squares.geometry.outputs;
    let plane = squares.geometry.output_plane();
    let count = range.len();
    let stride = stride(outputs.div_ceil(ROWS) * ROWS * count);
    for (index, square) in range.enumerate() {
        let window = squares.outputs(square);
        let gradients = squares.gradients(|lane| {
            let output = panel * ROWS + lane;
            if lane >= ROWS || output >= outputs {
                return (&Window::EMPTY, &[]);
            }
            (&window, &dy[(window.image * outputs + output) * plane..][..plane])
        });
        for (point, values) in transform::square(&gradients).iter().enumerate() {
            let at = point * stride + (panel * count + index) * ROWS;
            // SAFETY: by the contract.
            unsafe { into.part(at..at + ROWS) }.copy_from_slice(&values[..ROWS]);
        }
    }
}

/// What squares see of eight input channels, as panels of columns: `[point][panel][square][lane]`.
///
/// # Safety
/// Nobody else writes these channels.
#[inline(always)]
unsafe fn transform_channels(
    squares: &Squares<'_>,
    x: &[f32],
    channel: usize,
    range: std::ops::Range<usize>,
    into: &Parts<'_, f32>,
) {
    let inputs = squares.geometry.inputs;
    let plane = squares.geometry.input_plane();
    let count = range.len();
    let stride = stride(inputs.div_ceil(LANES) * LANES * count);
    for (index, square) in range.enumerate() {
        let window = squares.seen(square);
        let pixels = squares.pixels(|lane| {
            if channel + lane >= inputs {
                return (&Window::EMPTY, &[]);
            }
            (&window, &x[(window.image * inputs + channel + lane) * plane..][..plane])
        });
        for (point, values) in transform::pixels(&pixels).iter().enumerate() {
            let at = point * stride + (channel / LANES * count + index) * LANES + channel % LANES;
            // SAFETY: by the contract.
            unsafe { into.part(at..at + EIGHT) }.copy_from_slice(values);
        }
    }
}

/// Turns the products of a block of channels into taps.
///
/// # Safety
/// Nobody else writes the taps of these channels.
#[inline(always)]
unsafe fn finish_weight(
    geometry: &Geometry,
    points: &[Block; POINTS],
    row_panel: usize,
    column_panel: usize,
    accumulate: bool,
    into: &Parts<'_, f32>,
) {
    let Geometry { inputs, outputs, .. } = *geometry;
    let first_output = row_panel * ROWS;
    for output in first_output..outputs.min(first_output + ROWS) {
        let row = output - first_output;
        for start in (0..LANES).step_by(EIGHT) {
            let eight: [Eight; POINTS] =
                std::array::from_fn(|point| std::array::from_fn(|lane| points[point][row][start + lane]));
            let taps = transform::taps(&eight);
            let first = column_panel * LANES + start;
            for lane in 0..EIGHT.min(inputs.saturating_sub(first)) {
                let at = (output * inputs + first + lane) * 9;
                // SAFETY: by the contract.
                let into = unsafe { into.part(at..at + 9) };
                for (into, tap) in into.iter_mut().zip(&taps) {
                    *into = if accumulate { *into + tap[lane] } else { tap[lane] };
                }
            }
        }
    }
}
