//! Convolution without gathering: every tap sees the same image, shifted.
//!
//! An image is copied once with its border of zeros, split by the stride into phases (every second pixel, and so on), so
//! that what a tap sees from consecutive outputs lies side by side. Outputs are computed in runs of eight along a row,
//! two runs at a time, of two rows if they are short; the last run of a row overlaps the one before, or is partly
//! dropped. The gradient of the weight reads the same copy, through rows as wide as the copy's.

use super::Geometry;
use crate::device::cpu::panel::{self, Block, DOT_COLUMNS, DOT_ROWS, LANES, Offsets, ROWS, Segments};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{Parts, Run};

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 18;

/// A weight up to this size has its gradient computed in parts, one for some images each, which are added in order.
const SMALL_WEIGHT: usize = 32 * 1024;

/// How many such parts, or pieces of the channels.
const PIECES: usize = 8;

/// Floats of copies and gradients that are multiplied together: small images go several at a time.
const TOGETHER: usize = 32 * 1024;

/// The longest stride: with a longer one no tap sees most of the copy.
const LONGEST_STRIDE: usize = 8;

/// Outputs of a run.
const RUN: usize = LANES / 2;

/// Whether little of the copy and few outputs are wasted.
pub(super) fn suits(geometry: &Geometry) -> bool {
    let runs = geometry.to[0].saturating_mul(geometry.to[1].div_ceil(RUN));
    let lanes = runs.next_multiple_of(2).saturating_mul(RUN);
    copies(geometry) && geometry.output_plane() >= 2 * LANES && lanes.saturating_mul(2) <= 3 * geometry.output_plane()
}

/// Whether the gradient of the weight multiplies few zeros.
pub(super) fn suits_weight(geometry: &Geometry) -> bool {
    if !copies(geometry) {
        return false;
    }
    let Phased { columns, .. } = Phased::new(geometry);
    columns >= 3 * LANES && columns.saturating_mul(2) <= 3 * geometry.output_plane()
}

/// Whether a copy is not much larger than its image.
fn copies(geometry: &Geometry) -> bool {
    if geometry.stride.iter().any(|&stride| stride > LONGEST_STRIDE) {
        return false;
    }
    let Phased { columns, channel, .. } = Phased::new(geometry);
    columns <= 4 * geometry.output_plane() && channel.saturating_mul(geometry.inputs) < 1 << 31
}

/// The copy of an image's channels.
#[derive(Clone, Copy)]
struct Phased {
    /// Rows and columns of one phase.
    height: usize,
    width: usize,
    /// Elements of one channel, all phases.
    channel: usize,
    /// Outputs of one channel, with those that are dropped.
    columns: usize,
}

impl Phased {
    fn new(geometry: &Geometry) -> Self {
        let size = |axis: usize| {
            geometry.to[axis] + (geometry.kernel[axis] - 1) * geometry.dilation[axis] / geometry.stride[axis]
        };
        let (height, width) = (size(0), size(1));
        let phases = geometry.stride[0] * geometry.stride[1];
        let channel = phases.saturating_mul(height).saturating_mul(width);
        Self { height, width, channel, columns: geometry.to[0].saturating_mul(width) }
    }

    /// Floats that hold a group's channels, with room to read a whole panel or run from the last output on.
    fn floats(&self, geometry: &Geometry) -> usize {
        geometry.inputs * self.channel + self.columns.next_multiple_of(LANES) - self.columns + LANES
    }

    /// Where each tap of each channel finds what the first output sees.
    fn offsets(&self, geometry: &Geometry, into: &mut [u32]) {
        let taps = geometry.taps();
        for (index, into) in into.iter_mut().enumerate() {
            let (input, tap) = (index / taps, index % taps);
            let down = tap / geometry.kernel[1] * geometry.dilation[0];
            let over = tap % geometry.kernel[1] * geometry.dilation[1];
            let phase = down % geometry.stride[0] * geometry.stride[1] + over % geometry.stride[1];
            let shift = down / geometry.stride[0] * self.width + over / geometry.stride[1];
            *into = (input * self.channel + phase * self.height * self.width + shift) as u32;
        }
    }

    /// Copies the channels of a group of an image.
    fn fill(&self, geometry: &Geometry, x: &[f32], into: &mut [f32]) {
        let [height, width] = geometry.from;
        let [down, across] = geometry.stride;
        let plane = self.height * self.width;
        into.fill(0.0);
        for (x, into) in x.chunks_exact(height * width).zip(into.chunks_exact_mut(self.channel)) {
            for (row, line) in x.chunks_exact(width).enumerate() {
                let row = row + geometry.padding[0];
                if row / down >= self.height {
                    break;
                }
                let start = (row % down * across) * plane + row / down * self.width;
                if across == 1 {
                    let into = &mut into[start..start + self.width];
                    let count = width.min(self.width - geometry.padding[1].min(self.width));
                    into[geometry.padding[1].min(self.width)..][..count].copy_from_slice(&line[..count]);
                    continue;
                }
                for phase in 0..across {
                    // The first pixel of the line that belongs to this phase.
                    let first = (phase + across - geometry.padding[1] % across) % across;
                    let column = (first + geometry.padding[1]) / across;
                    let into = &mut into[start + phase * plane..][..self.width];
                    let pixels = line.iter().skip(first).step_by(across);
                    into.iter_mut().skip(column).zip(pixels).for_each(|(into, pixel)| *into = *pixel);
                }
            }
        }
    }
}

/// Forward, with the weight packed as panels of rows.
pub(super) fn forward(
    geometry: &Geometry,
    x: &[f32],
    packed: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let Geometry { images, groups, inputs, outputs, .. } = *geometry;
    let phased = Phased::new(geometry);
    let (depth, from, to) = (geometry.depth(), geometry.input_plane(), geometry.output_plane());
    let mut table = run.scratch(depth)?;
    let table: &mut [u32] = bytemuck::cast_slice_mut(table.floats());
    phased.offsets(geometry, table);
    let offsets = Offsets::new(table);

    let row_panels = outputs.div_ceil(ROWS);
    let work = geometry.output_plane() * outputs * depth;
    let images_per_tile = (SMALL_TILE / work.max(1)).clamp(1, images);
    let tiles = images.div_ceil(images_per_tile);
    // A large image by itself is cut by its output channels.
    let pieces = if tiles * groups >= 8 { 1 } else { (work / SMALL_TILE / 4).clamp(1, row_panels.min(8)) };
    let panels_per_piece = row_panels.div_ceil(pieces);
    let pieces = row_panels.div_ceil(panels_per_piece);
    let y = Parts::new(y);
    run.each_with(tiles * groups * pieces, phased.floats(geometry), |tile, copy| {
        let (first, group, piece) = (tile / pieces / groups * images_per_tile, tile / pieces % groups, tile % pieces);
        let rows = piece * panels_per_piece..row_panels.min((piece + 1) * panels_per_piece);
        for image in first..images.min(first + images_per_tile) {
            let at = (image * groups + group) * inputs * from;
            phased.fill(geometry, &x[at..at + inputs * from], copy);
            let channels = (image * groups + group) * outputs;
            // SAFETY: these channels of this image are this tile's alone.
            let y =
                unsafe { y.part((channels + rows.start * ROWS) * to..(channels + outputs.min(rows.end * ROWS)) * to) };
            let weights = &packed[(group * row_panels + rows.start) * depth * ROWS..];
            let bias = bias.map(|bias| &bias[group * outputs + rows.start * ROWS..]);
            vectorized(
                #[inline(always)]
                || convolve(geometry, &phased, copy, weights, offsets, bias, y),
            );
        }
    })
}

/// Some output channels of one image.
#[inline(always)]
fn convolve(
    geometry: &Geometry,
    phased: &Phased,
    copy: &[f32],
    weights: &[f32],
    offsets: Offsets<'_>,
    bias: Option<&[f32]>,
    y: &mut [f32],
) {
    let (depth, plane) = (geometry.depth(), geometry.output_plane());
    let [height, width] = geometry.to;
    let runs_per_row = width.div_ceil(RUN);
    let runs = height * runs_per_row;
    // The row and column where a run starts.
    let place = |run: usize| (run / runs_per_row, (run % runs_per_row * RUN).min(width.saturating_sub(RUN)));
    let count = width.min(RUN);
    for run in (0..runs).step_by(2) {
        // The last run may be by itself: then it is computed twice.
        let places = [run, (run + 1).min(runs - 1)].map(place);
        let halves = places.map(|(row, column)| &copy[row * phased.width + column..]);
        for (panel, y) in y.chunks_mut(ROWS * plane).enumerate() {
            let mut block: Block = [[0.0; LANES]; ROWS];
            panel::multiply_at(&weights[panel * depth * ROWS..], halves, offsets, &mut block);
            for (channel, (y, values)) in y.chunks_exact_mut(plane).zip(&block).enumerate() {
                let shift = bias.map_or(0.0, |bias| bias[panel * ROWS + channel]);
                for ((row, column), values) in places.into_iter().zip(values.as_chunks::<RUN>().0) {
                    let at = row * width + column;
                    // What is written past the end of a short row is overwritten by the next. Two loops, because two
                    // copies would become one of unknown size, which is a call.
                    match y[at..].first_chunk_mut::<RUN>() {
                        Some(into) => *into = values.map(|value| value + shift),
                        None => y[at..at + count].iter_mut().zip(values).for_each(|(y, value)| *y = value + shift),
                    }
                }
            }
        }
    }
}

/// The gradient of the weight: dot products of the outputs' gradients and the shifted copy.
pub(super) fn gradient_weight(geometry: &Geometry, x: &[f32], dy: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
    let Geometry { images, groups, inputs, outputs, .. } = *geometry;
    let phased = Phased::new(geometry);
    let (depth, size) = (geometry.depth(), dw.len());
    let mut table = run.scratch(depth)?;
    let table: &mut [u32] = bytemuck::cast_slice_mut(table.floats());
    phased.offsets(geometry, table);
    let offsets = Offsets::new(table);

    let pieces = (images * phased.columns * size / SMALL_TILE).clamp(1, PIECES);
    let (parts, row_pieces) = if size <= SMALL_WEIGHT { (pieces.min(images), 1) } else { (1, pieces) };
    let images_per_part = images.div_ceil(parts);
    let parts = images.div_ceil(images_per_part);
    let rows_per_piece = outputs.div_ceil(row_pieces).next_multiple_of(DOT_ROWS);
    let row_pieces = outputs.div_ceil(rows_per_piece);
    let mut partial = run.scratch(if parts > 1 { parts * size } else { 0 })?;
    {
        let target = if parts > 1 { Parts::new(partial.floats()) } else { Parts::new(dw) };
        let copy_floats = phased.floats(geometry).next_multiple_of(LANES);
        let gradient_floats = rows_per_piece * phased.columns;
        let together = (TOGETHER / (copy_floats + gradient_floats)).clamp(1, images_per_part);
        run.each_with(parts * groups * row_pieces, together * (copy_floats + gradient_floats), |tile, scratch| {
            let (part, group, piece) = (tile / row_pieces / groups, tile / row_pieces % groups, tile % row_pieces);
            let (copies, gradients) = scratch.split_at_mut(together * copy_floats);
            let rows = piece * rows_per_piece..outputs.min((piece + 1) * rows_per_piece);
            let start = part * size + (group * outputs + rows.start) * depth;
            // SAFETY: these rows of this part are this tile's alone.
            let into = unsafe { target.part(start..start + rows.len() * depth) };
            let (from, to) = (geometry.input_plane(), geometry.output_plane());
            let (first, last) = (part * images_per_part, images.min((part + 1) * images_per_part));
            for some in (first..last).step_by(together) {
                let count = together.min(last - some);
                for offset in 0..count {
                    let at = ((some + offset) * groups + group) * inputs * from;
                    phased.fill(
                        geometry,
                        &x[at..at + inputs * from],
                        &mut copies[offset * copy_floats..][..copy_floats],
                    );
                    let at = (((some + offset) * groups + group) * outputs + rows.start) * to;
                    let dy = &dy[at..at + rows.len() * to];
                    spread_rows(geometry, &phased, dy, &mut gradients[offset * gradient_floats..]);
                }
                let images = Images { count, columns: phased.columns, copies, copy_floats, gradients, gradient_floats };
                correlate(&images, offsets, depth, some > first, into);
            }
        })?;
    }
    if parts > 1 {
        super::add_parts(partial.floats(), dw, run)?;
    }
    Ok(())
}

/// Gradients with their rows as far apart as the copy's, zeros between them.
fn spread_rows(geometry: &Geometry, phased: &Phased, dy: &[f32], into: &mut [f32]) {
    for (dy, into) in dy.chunks_exact(geometry.to[1]).zip(into.chunks_exact_mut(phased.width)) {
        into[..dy.len()].copy_from_slice(dy);
        into[dy.len()..].fill(0.0);
    }
}

/// Some images that are multiplied together.
struct Images<'a> {
    count: usize,
    /// Outputs of a channel.
    columns: usize,
    copies: &'a [f32],
    copy_floats: usize,
    gradients: &'a [f32],
    gradient_floats: usize,
}

/// Adds the products of some rows of gradients with every tap.
fn correlate(images: &Images<'_>, offsets: Offsets<'_>, depth: usize, accumulate: bool, into: &mut [f32]) {
    let rows = into.len() / depth;
    for first in (0..depth).step_by(DOT_COLUMNS) {
        let taps = Segments {
            rows: std::array::from_fn(|offset| &images.copies[offsets.get((first + offset).min(depth - 1))..]),
            step: images.copy_floats,
        };
        for row in (0..rows).step_by(DOT_ROWS) {
            let gradients = Segments {
                rows: std::array::from_fn(|offset| &images.gradients[(row + offset).min(rows - 1) * images.columns..]),
                step: images.gradient_floats,
            };
            let products = panel::dots(images.count, images.columns, gradients, taps);
            for (row, products) in (row..rows).zip(products) {
                let into = &mut into[row * depth + first..depth.min(first + DOT_COLUMNS) + row * depth];
                for (into, product) in into.iter_mut().zip(products) {
                    *into = if accumulate { *into + product } else { product };
                }
            }
        }
    }
}
