//! Winograd's minimal filtering for 3 x 3 kernels at stride 1: 36 multiplications for what takes 144.
//!
//! The output is cut into squares of 4 x 4; the 6 x 6 pixels that a square sees, and the weight, are transformed so that
//! convolution becomes 36 independent products over the channels. The gradient of the weight is the same filtering with
//! the roles changed: the gradient's 4 x 4 square is the kernel and 3 x 3 taps come out. Sums are of larger numbers than
//! the direct way's, which costs about two digits of the seven that f32 has.

use super::{Geometry, Weight};
use crate::device::cpu::panel::{self, Block, LANES, ROWS};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{Parts, Run};

mod transform;

use transform::{EIGHT, Eight, POINTS};

/// The side of a square of outputs.
const SIDE: usize = 4;

/// Squares that a tile transforms and multiplies at a time.
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

/// The squares of a whole batch.
#[derive(Clone, Copy)]
struct Squares<'a> {
    geometry: &'a Geometry,
    down: usize,
    across: usize,
    count: usize,
}

impl<'a> Squares<'a> {
    fn new(geometry: &'a Geometry) -> Self {
        let (down, across) = (geometry.to[0].div_ceil(SIDE), geometry.to[1].div_ceil(SIDE));
        Self { geometry, down, across, count: geometry.images * down * across }
    }

    /// The image of a square, and the row and column of its first output.
    #[inline(always)]
    fn place(&self, square: usize) -> (usize, usize, usize) {
        let (image, rest) = (square / (self.down * self.across), square % (self.down * self.across));
        (image, rest / self.across * SIDE, rest % self.across * SIDE)
    }

    /// The pixels that a square sees in a plane of the input; zeros outside it.
    #[inline(always)]
    fn pixels(&self, plane: &[f32], row: usize, column: usize) -> [f32; POINTS] {
        let [height, width] = self.geometry.from;
        let [above, before] = self.geometry.padding;
        let mut pixels = [0.0; POINTS];
        if row >= above && column >= before && row - above + 6 <= height && column - before + 6 <= width {
            let start = (row - above) * width + column - before;
            for (line, pixels) in pixels.chunks_exact_mut(6).enumerate() {
                pixels.copy_from_slice(&plane[start + line * width..][..6]);
            }
            return pixels;
        }
        for (line, pixels) in pixels.chunks_exact_mut(6).enumerate() {
            let Some(row) = (row + line).checked_sub(above).filter(|&row| row < height) else { continue };
            for (offset, pixel) in pixels.iter_mut().enumerate() {
                if let Some(column) = (column + offset).checked_sub(before).filter(|&column| column < width) {
                    *pixel = plane[row * width + column];
                }
            }
        }
        pixels
    }

    /// The outputs of a square in a plane of the output; zeros outside it.
    #[inline(always)]
    fn outputs(&self, plane: &[f32], row: usize, column: usize) -> [f32; SIDE * SIDE] {
        let [height, width] = self.geometry.to;
        let mut outputs = [0.0; SIDE * SIDE];
        for (line, outputs) in (row..height.min(row + SIDE)).zip(outputs.chunks_exact_mut(SIDE)) {
            let count = SIDE.min(width - column);
            outputs[..count].copy_from_slice(&plane[line * width + column..][..count]);
        }
        outputs
    }
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
    let mut transformed = run.scratch(POINTS * row_panels * inputs * ROWS)?;
    transform_weight(geometry, weight, transformed.floats(), run)?;
    let transformed = &*transformed.floats();

    let squares = Squares::new(geometry);
    let blocks = squares.count.div_ceil(SQUARES);
    let pieces = if blocks >= 8 { 1 } else { row_panels.div_ceil(ROW_PANELS) };
    let panels_per_piece = row_panels.div_ceil(pieces);
    let pixel_floats = POINTS * inputs * SQUARES;
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
        let half = POINTS * inputs * LANES;
        for point in 0..POINTS {
            for (index, row_panel) in rows.clone().enumerate() {
                let weights = &transformed[(point * row_panels + row_panel) * depth * ROWS..][..depth * ROWS];
                for part in 0..SQUARES / LANES {
                    if first + part * LANES >= squares.count {
                        break;
                    }
                    let pixels = &pixels[part * half + point * depth * LANES..][..depth * LANES];
                    let mut block: Block = [[0.0; LANES]; ROWS];
                    panel::multiply(depth, weights, pixels, &mut block);
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
    let into = Parts::new(into);
    let together = (1024 / inputs).max(1);
    run.ranges(row_panels, together, |panels| {
        for panel in panels {
            vectorized(
                #[inline(always)]
                || {
                    for input in 0..inputs {
                        let taps: [Eight; 9] = std::array::from_fn(|tap| {
                            std::array::from_fn(|row| {
                                let output = panel * ROWS + row;
                                if row < ROWS && output < outputs {
                                    weight.at(geometry, 0, output, input, tap)
                                } else {
                                    0.0
                                }
                            })
                        });
                        let points = transform::kernel(&taps);
                        for (point, values) in points.iter().enumerate() {
                            let at = ((point * row_panels + panel) * inputs + input) * ROWS;
                            // SAFETY: a panel is one tile's alone.
                            unsafe { into.part(at..at + ROWS) }.copy_from_slice(&values[..ROWS]);
                        }
                    }
                },
            );
        }
    })
}

/// What some squares see, as panels of squares, one set for each point: `[part][point][channel][lane]`.
#[inline(always)]
fn transform_pixels(squares: &Squares<'_>, x: &[f32], first: usize, into: &mut [f32]) {
    let inputs = squares.geometry.inputs;
    let plane = squares.geometry.input_plane();
    for start in (0..SQUARES).step_by(EIGHT) {
        let (part, lane) = (start / LANES, start % LANES);
        if first + part * LANES >= squares.count {
            return;
        }
        let places: [Option<(usize, usize, usize)>; EIGHT] = std::array::from_fn(|offset| {
            let square = first + start + offset;
            (square < squares.count).then(|| squares.place(square))
        });
        for input in 0..inputs {
            let mut pixels = [[0.0; EIGHT]; POINTS];
            for (offset, place) in places.iter().enumerate() {
                if let Some((image, row, column)) = *place {
                    let plane = &x[(image * inputs + input) * plane..][..plane];
                    let square = squares.pixels(plane, row, column);
                    pixels.iter_mut().zip(square).for_each(|(lanes, pixel)| lanes[offset] = pixel);
                }
            }
            let points = transform::pixels(&pixels);
            for (point, values) in points.iter().enumerate() {
                let at = ((part * POINTS + point) * inputs + input) * LANES + lane;
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
    for (channel, products) in channels.zip(products.chunks_exact(POINTS * SQUARES)) {
        let shift = bias.map_or(0.0, |bias| bias[channel]);
        for start in (0..SQUARES).step_by(EIGHT) {
            if first + start >= squares.count {
                break;
            }
            let points: [Eight; POINTS] =
                std::array::from_fn(|point| std::array::from_fn(|lane| products[point * SQUARES + start + lane]));
            let values = transform::outputs(&points);
            for lane in 0..EIGHT.min(squares.count - first - start) {
                let (image, row, column) = squares.place(first + start + lane);
                let plane = (image * geometry.outputs + channel) * height * width;
                let count = SIDE.min(width - column);
                for (line, values) in (row..height.min(row + SIDE)).zip(values.chunks_exact(SIDE)) {
                    let at = plane + line * width + column;
                    // SAFETY: by the contract.
                    let into = unsafe { y.part(at..at + count) };
                    into.iter_mut().zip(values).for_each(|(into, lanes)| *into = lanes[lane] + shift);
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
    let (row_floats, column_floats) = (POINTS * row_panels * ROWS * block, POINTS * column_panels * LANES * block);
    let mut scratch = run.scratch(row_floats + column_floats)?;
    let (rows, columns) = scratch.floats().split_at_mut(row_floats);
    for first in (0..squares.count).step_by(block) {
        let count = block.min(squares.count - first);
        let (row_eights, column_eights) = (outputs.div_ceil(EIGHT), column_panels * LANES / EIGHT);
        let (into_rows, into_columns) = (Parts::new(rows), Parts::new(columns));
        run.each(row_eights + column_eights, |tile| {
            vectorized(
                #[inline(always)]
                || {
                    if tile < row_eights {
                        // SAFETY: eight output channels are one tile's alone.
                        unsafe { transform_gradients(&squares, dy, tile * EIGHT, first..first + count, &into_rows) };
                    } else {
                        // SAFETY: eight input channels are one tile's alone.
                        unsafe {
                            transform_channels(
                                &squares,
                                x,
                                (tile - row_eights) * EIGHT,
                                first..first + count,
                                &into_columns,
                            )
                        };
                    }
                },
            );
        })?;
        let (rows, columns) = (&*rows, &*columns);
        let into = Parts::new(dw);
        run.each(row_panels * column_panels, |tile| {
            let (row_panel, column_panel) = (tile / column_panels, tile % column_panels);
            let mut points: [Block; POINTS] = [[[0.0; LANES]; ROWS]; POINTS];
            for (point, block) in points.iter_mut().enumerate() {
                let rows = &rows[(point * row_panels + row_panel) * count * ROWS..][..count * ROWS];
                let columns = &columns[(point * column_panels + column_panel) * count * LANES..][..count * LANES];
                panel::multiply(count, rows, columns, block);
            }
            // SAFETY: a block of channels is one tile's alone.
            vectorized(
                #[inline(always)]
                || unsafe { finish_weight(geometry, &points, row_panel, column_panel, first > 0, &into) },
            );
        })?;
    }
    Ok(())
}

/// The gradients of eight output channels, as panels of rows: `[point][panel][square][row]`.
///
/// # Safety
/// Nobody else writes these channels.
#[inline(always)]
unsafe fn transform_gradients(
    squares: &Squares<'_>,
    dy: &[f32],
    channel: usize,
    range: std::ops::Range<usize>,
    into: &Parts<'_, f32>,
) {
    let outputs = squares.geometry.outputs;
    let plane = squares.geometry.output_plane();
    let row_panels = outputs.div_ceil(ROWS);
    let count = range.len();
    for (index, square) in range.enumerate() {
        let (image, row, column) = squares.place(square);
        let mut values = [[0.0; EIGHT]; SIDE * SIDE];
        for lane in 0..EIGHT.min(outputs - channel) {
            let plane = &dy[(image * outputs + channel + lane) * plane..][..plane];
            let square = squares.outputs(plane, row, column);
            values.iter_mut().zip(square).for_each(|(lanes, value)| lanes[lane] = value);
        }
        let points = transform::square(&values);
        // The last channel's eight also clear what is left of the last panel.
        let end = if channel + EIGHT >= outputs { row_panels * ROWS } else { channel + EIGHT };
        for (point, values) in points.iter().enumerate() {
            for output in channel..end {
                let at = ((point * row_panels + output / ROWS) * count + index) * ROWS + output % ROWS;
                // SAFETY: by the contract.
                let place = unsafe { into.part(at..at + 1) };
                place.fill(values.get(output - channel).copied().unwrap_or(0.0));
            }
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
    let column_panels = inputs.div_ceil(LANES);
    let count = range.len();
    for (index, square) in range.enumerate() {
        let (image, row, column) = squares.place(square);
        let mut pixels = [[0.0; EIGHT]; POINTS];
        for lane in 0..EIGHT.min(inputs.saturating_sub(channel)) {
            let plane = &x[(image * inputs + channel + lane) * plane..][..plane];
            let square = squares.pixels(plane, row, column);
            pixels.iter_mut().zip(square).for_each(|(lanes, pixel)| lanes[lane] = pixel);
        }
        let points = transform::pixels(&pixels);
        for (point, values) in points.iter().enumerate() {
            let at = ((point * column_panels + channel / LANES) * count + index) * LANES + channel % LANES;
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
