//! Convolution without gathering: every tap sees the same image, shifted.
//!
//! An image is copied once for each column of the kernel, shifted by it, as wide as the output and with its border of
//! zeros; rows that a stride keeps apart are kept apart. So what a tap sees from consecutive outputs lies side by side,
//! across the ends of rows too. Large images are copied in bands of some rows. The gradient of the weight reads the same
//! copies.

use std::ops::Range;

use super::Geometry;
use crate::device::cpu::panel::{self, Block, DOT_COLUMNS, DOT_ROWS, DotSums, LANES, Offsets, ROWS, Segments};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{Pace, Parts, Run};

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 19;

/// A weight up to this size has its gradient computed in parts, one for some images each, which are added in order.
const SMALL_WEIGHT: usize = 32 * 1024;

/// How many such parts, or pieces of the channels.
const PIECES: usize = 8;

/// Floats of copies that are made at a time: they stay in the second cache.
const COPIED: usize = 96 * 1024;

/// Floats of copies and gradients that are multiplied together: small images go several at a time, and stay in the first
/// cache.
const TOGETHER: usize = 8 * 1024;

/// The longest stride: with a longer one no tap sees most of the copy.
const LONGEST_STRIDE: usize = 8;

/// Columns that are copied at a time.
const STEP: usize = 8;

/// Taps that are multiplied at a stretch: the products of more are summed by themselves first.
const DEEP: usize = 1 << 16;

/// Outputs that are computed at a time.
const RUN: usize = 2 * LANES;

/// Whether copying is little beside multiplying.
pub(super) fn suits(geometry: &Geometry) -> bool {
    copies(geometry) && geometry.output_plane() >= RUN
}

/// Whether the gradient of the weight multiplies long rows.
pub(super) fn suits_weight(geometry: &Geometry) -> bool {
    copies(geometry) && geometry.output_plane() >= 3 * LANES
}

/// Whether copies are not much larger than what is computed of them.
fn copies(geometry: &Geometry) -> bool {
    if geometry.stride.iter().any(|&stride| stride > LONGEST_STRIDE) {
        return false;
    }
    let band = Band::new(geometry);
    let outputs = (band.rows * geometry.to[1]).saturating_mul(geometry.outputs * geometry.kernel[0]);
    band.channel <= 4 * outputs && band.channel.saturating_mul(geometry.inputs) < 1 << 24
}

/// Some rows of the output, and the copies that they are computed of.
#[derive(Clone, Copy)]
struct Band {
    /// Rows of the output.
    rows: usize,
    /// How many bands there are; the last may have fewer rows.
    count: usize,
    /// Rows of a copy that a stride has put together.
    height: usize,
    /// Floats of one copy, and of all copies of a channel.
    copy: usize,
    channel: usize,
}

impl Band {
    fn new(geometry: &Geometry) -> Self {
        let [height, width] = geometry.to;
        let (stride, columns) = (geometry.stride[0], geometry.kernel[1]);
        let reach = (geometry.kernel[0] - 1) * geometry.dilation[0] / stride;
        let room = COPIED / (geometry.inputs * columns * stride).saturating_mul(width).max(1);
        // What the next band copies again is not to be most of it.
        let rows = room.saturating_sub(reach).max(2 * reach).clamp(1, height);
        let count = height.div_ceil(rows);
        let rows = height.div_ceil(count);
        let height = rows + reach;
        let copy = stride.saturating_mul(height).saturating_mul(width);
        Self { rows, count, height, copy, channel: columns.saturating_mul(copy) }
    }

    /// The rows of band `index`.
    fn rows(&self, geometry: &Geometry, index: usize) -> Range<usize> {
        index * self.rows..geometry.to[0].min((index + 1) * self.rows)
    }

    /// Floats that hold a group's channels, with room to read a whole run from the last output on.
    fn floats(&self, geometry: &Geometry) -> usize {
        geometry.inputs * self.channel + RUN
    }

    /// Where each tap of each channel finds what the first output sees.
    fn offsets(&self, geometry: &Geometry, into: &mut [u32], run: &Run<'_>) -> Result<()> {
        let (taps, stride, width) = (geometry.taps(), geometry.stride[0], geometry.to[1]);
        run.chunks(into, DEEP, |tile, into| {
            for (index, into) in (tile * DEEP..).zip(into) {
                let (input, tap) = (index / taps, index % taps);
                let (down, column) = (tap / geometry.kernel[1] * geometry.dilation[0], tap % geometry.kernel[1]);
                let row = down % stride * self.height + down / stride;
                *into = (input * self.channel + column * self.copy + row * width) as u32;
            }
        })
    }

    /// Copies what a band of some channels sees.
    #[inline(always)]
    fn fill(&self, geometry: &Geometry, index: usize, x: &[f32], into: &mut [f32]) {
        let [height, width] = geometry.from;
        let stride = geometry.stride[0];
        let first = index * self.rows * stride;
        let to = geometry.to[1];
        for column in 0..geometry.kernel[1] {
            let columns = Columns::new(geometry, column);
            for (x, into) in x.chunks_exact(height * width).zip(into.chunks_exact_mut(self.channel)) {
                let into = &mut into[column * self.copy..][..self.copy];
                for phase in 0..stride {
                    let into = &mut into[phase * self.height * to..][..self.height * to];
                    // The rows that see the image lie together.
                    let start = geometry.padding[0].saturating_sub(first + phase).div_ceil(stride).min(self.height);
                    let end = (height + geometry.padding[0]).saturating_sub(first + phase).div_ceil(stride);
                    let end = end.clamp(start, self.height);
                    into[..start * to].fill(0.0);
                    into[end * to..].fill(0.0);
                    if start < end {
                        let x = &x[(first + phase + start * stride - geometry.padding[0]) * width..];
                        columns.copy(x, width * stride, &mut into[start * to..end * to], to);
                    }
                }
            }
        }
    }
}

/// What one column of the kernel sees of a line.
struct Columns {
    /// The outputs that look inside the line.
    inside: Range<usize>,
    /// Where the first of them looks.
    first: usize,
    stride: usize,
}

impl Columns {
    fn new(geometry: &Geometry, column: usize) -> Self {
        let (shift, stride) = (column * geometry.dilation[1], geometry.stride[1]);
        let start = geometry.padding[1].saturating_sub(shift).div_ceil(stride).min(geometry.to[1]);
        let end = (geometry.from[1] + geometry.padding[1]).saturating_sub(shift).div_ceil(stride);
        let inside = start..end.clamp(start, geometry.to[1]);
        let first = (start * stride + shift).saturating_sub(geometry.padding[1]);
        Self { inside, first, stride }
    }

    /// Copies lines that lie so far apart.
    #[inline(always)]
    fn copy(&self, x: &[f32], stride: usize, into: &mut [f32], width: usize) {
        let Range { start, end } = self.inside;
        if end - start < width {
            into.fill(0.0);
        }
        // A few columns at a time: a row by itself is a call, or a loop of a few rounds.
        let mut at = start;
        while at < end {
            let lines = into.chunks_exact_mut(width).enumerate();
            let first = self.first + (at - start) * self.stride;
            let last = first + (end - at - 1) * self.stride;
            match end - at {
                left if self.stride == 1 && left >= STEP => {
                    for (line, into) in lines {
                        let from = x[line * stride + first..].first_chunk::<STEP>();
                        if let (Some(from), Some(into)) = (from, into[at..].first_chunk_mut::<STEP>()) {
                            *into = *from;
                        }
                    }
                    at += STEP;
                }
                _ => {
                    for (line, into) in lines {
                        let from = x[line * stride + first..=line * stride + last].iter().step_by(self.stride);
                        into[at..end].iter_mut().zip(from).for_each(|(into, value)| *into = *value);
                    }
                    at = end;
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
    let band = Band::new(geometry);
    let (depth, from, to) = (geometry.depth(), geometry.input_plane(), geometry.output_plane());
    let mut table = run.scratch(depth)?;
    let table: &mut [u32] = bytemuck::cast_slice_mut(table.floats());
    band.offsets(geometry, table, run)?;
    let offsets = Offsets::new(table);

    let row_panels = outputs.div_ceil(ROWS);
    let work = band.rows * geometry.to[1] * outputs * depth;
    let bands = images * band.count;
    let bands_per_tile = (SMALL_TILE / work.max(1)).clamp(1, bands);
    let tiles = bands.div_ceil(bands_per_tile);
    // Where there are few bands, or many channels, tiles are of some output channels only.
    let pieces = if tiles * groups >= 8 { work >> 26 } else { work / SMALL_TILE / 4 };
    let panels_per_piece = row_panels.div_ceil(pieces.clamp(1, row_panels.min(8)));
    let pieces = row_panels.div_ceil(panels_per_piece);
    let y = Parts::new(y);
    run.paced_with(tiles * groups * pieces, band.floats(geometry), |pace, tile, copy| {
        let (first, group, piece) = (tile / pieces / groups * bands_per_tile, tile / pieces % groups, tile % pieces);
        let panels = piece * panels_per_piece..row_panels.min((piece + 1) * panels_per_piece);
        for index in first..bands.min(first + bands_per_tile) {
            let (image, index) = (index / band.count, index % band.count);
            let at = (image * groups + group) * inputs * from;
            let rows = band.rows(geometry, index);
            pace.step(copy.len())?;
            vectorized(
                #[inline(always)]
                || {
                    band.fill(geometry, index, &x[at..at + inputs * from], copy);
                    for panel in panels.clone() {
                        let weights = &packed[(group * row_panels + panel) * depth * ROWS..];
                        let channel = group * outputs + panel * ROWS;
                        let count = ROWS.min(outputs - panel * ROWS);
                        let start = (image * groups * outputs + channel) * to + rows.start * geometry.to[1];
                        let bias = bias.map(|bias| &bias[channel..channel + count]);
                        let into = Rows { y: &y, start, count, stride: to, length: rows.len() * geometry.to[1] };
                        // SAFETY: these rows of these channels of this image are this tile's alone.
                        unsafe { convolve(copy, weights, offsets, bias, into, pace)? };
                    }
                    Ok(())
                },
            )?;
        }
        Ok(())
    })
}

/// Where a panel of output channels goes: as many rows, each so many floats after the one before.
struct Rows<'a> {
    y: &'a Parts<'a, f32>,
    start: usize,
    count: usize,
    stride: usize,
    length: usize,
}

/// A panel of output channels of one band.
///
/// # Safety
/// Nobody else uses the rows.
#[inline(always)]
unsafe fn convolve(
    copy: &[f32],
    weights: &[f32],
    offsets: Offsets<'_>,
    bias: Option<&[f32]>,
    into: Rows<'_>,
    pace: &mut Pace<'_>,
) -> Result<()> {
    for at in (0..into.length).step_by(RUN) {
        let left = into.length - at;
        let mut blocks: [Block; 2] = [[[0.0; LANES]; ROWS]; 2];
        multiply(weights, [&copy[at..], &copy[at + LANES..]], offsets, &mut blocks, pace)?;
        for row in 0..into.count {
            let shift = bias.map_or(0.0, |bias| bias[row]);
            let start = into.start + row * into.stride + at;
            // SAFETY: by the contract.
            let y = unsafe { into.y.part(start..start + left.min(RUN)) };
            match y.first_chunk_mut::<RUN>() {
                Some(y) => {
                    let (y, _) = y.as_chunks_mut::<LANES>();
                    y.iter_mut().zip(&blocks).for_each(|(y, block)| *y = block[row].map(|value| value + shift));
                }
                None => {
                    let values = blocks[0][row].iter().chain(&blocks[1][row]);
                    y.iter_mut().zip(values).for_each(|(y, value)| *y = value + shift);
                }
            }
        }
    }
    Ok(())
}

/// The products of a panel and what all taps see.
#[inline(always)]
fn multiply(
    weights: &[f32],
    sources: [&[f32]; 2],
    offsets: Offsets<'_>,
    blocks: &mut [Block; 2],
    pace: &mut Pace<'_>,
) -> Result<()> {
    pace.step(offsets.len().min(DEEP) * ROWS * RUN)?;
    panel::multiply_at(weights, sources, offsets.part(0..offsets.len().min(DEEP)), blocks);
    for start in (DEEP..offsets.len()).step_by(DEEP) {
        let deep = start..offsets.len().min(start + DEEP);
        pace.step(deep.len() * ROWS * RUN)?;
        let mut more: [Block; 2] = [[[0.0; LANES]; ROWS]; 2];
        panel::multiply_at(&weights[start * ROWS..], sources, offsets.part(deep), &mut more);
        let sums = blocks.as_flattened_mut().as_flattened_mut();
        sums.iter_mut().zip(more.as_flattened().as_flattened()).for_each(|(sum, more)| *sum += more);
    }
    Ok(())
}

/// The gradient of the weight: dot products of the outputs' gradients and the shifted copies.
pub(super) fn gradient_weight(geometry: &Geometry, x: &[f32], dy: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
    let Geometry { images, groups, inputs, outputs, .. } = *geometry;
    let band = Band::new(geometry);
    let (depth, size) = (geometry.depth(), dw.len());
    let (from, to) = (geometry.input_plane(), geometry.output_plane());
    let mut table = run.scratch(depth)?;
    let table: &mut [u32] = bytemuck::cast_slice_mut(table.floats());
    band.offsets(geometry, table, run)?;
    let offsets = Offsets::new(table);

    let pieces = (images * to * size / SMALL_TILE).clamp(1, PIECES);
    let (parts, row_pieces) = if size <= SMALL_WEIGHT { (pieces.min(images), 1) } else { (1, pieces) };
    let images_per_part = images.div_ceil(parts);
    let parts = images.div_ceil(images_per_part);
    let rows_per_piece = outputs.div_ceil(row_pieces).next_multiple_of(DOT_ROWS);
    let row_pieces = outputs.div_ceil(rows_per_piece);
    let mut partial = run.scratch(if parts > 1 { parts * size } else { 0 })?;
    {
        let target = if parts > 1 { Parts::new(partial.floats()) } else { Parts::new(dw) };
        let copy_floats = band.floats(geometry).next_multiple_of(LANES);
        // Bands are for images that are large, and go one at a time.
        let together = match band.count {
            1 => (TOGETHER / (copy_floats + rows_per_piece * to)).clamp(1, images_per_part),
            _ => 1,
        };
        let sum_floats = rows_per_piece / DOT_ROWS * depth.div_ceil(DOT_COLUMNS) * size_of::<DotSums>() / 4;
        run.paced_with(parts * groups * row_pieces, sum_floats + together * copy_floats, |pace, tile, scratch| {
            let (sums, copies) = scratch.split_at_mut(sum_floats);
            pace.fill(sums, 0.0)?;
            let sums = sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<DOT_COLUMNS>().0.as_chunks_mut::<DOT_ROWS>().0;
            let (part, group, piece) = (tile / row_pieces / groups, tile / row_pieces % groups, tile % row_pieces);
            let rows = piece * rows_per_piece..outputs.min((piece + 1) * rows_per_piece);
            let start = part * size + (group * outputs + rows.start) * depth;
            // SAFETY: these rows of this part are this tile's alone.
            let into = unsafe { target.part(start..start + rows.len() * depth) };
            let (first, last) = (part * images_per_part, images.min((part + 1) * images_per_part));
            for some in (first..last).step_by(together) {
                let count = together.min(last - some);
                for index in 0..band.count {
                    for (image, copy) in (some..some + count).zip(copies.chunks_exact_mut(copy_floats)) {
                        let at = (image * groups + group) * inputs * from;
                        pace.step(copy_floats)?;
                        vectorized(
                            #[inline(always)]
                            || band.fill(geometry, index, &x[at..at + inputs * from], copy),
                        );
                    }
                    let lines = band.rows(geometry, index);
                    let at = ((some * groups + group) * outputs + rows.start) * to + lines.start * geometry.to[1];
                    let gradients = Images { data: &dy[at..], image: groups * outputs * to, row: to };
                    let copies = Images { data: copies, image: copy_floats, row: 0 };
                    let columns = lines.len() * geometry.to[1];
                    correlate(count, columns, (&gradients, rows.len()), (&copies, offsets), sums, pace)?;
                }
            }
            store(sums, depth, into, pace)
        })?;
    }
    if parts > 1 {
        super::add_parts(partial.floats(), dw, run)?;
    }
    Ok(())
}

/// Rows of some images.
struct Images<'a> {
    data: &'a [f32],
    /// Floats from one image to the next, and from one row to the next.
    image: usize,
    row: usize,
}

/// Adds the products of some rows of gradients with every tap, over so many images and so many columns of each.
fn correlate(
    images: usize,
    columns: usize,
    (gradients, rows): (&Images<'_>, usize),
    (copies, offsets): (&Images<'_>, Offsets<'_>),
    sums: &mut [DotSums],
    pace: &mut Pace<'_>,
) -> Result<()> {
    let depth = offsets.len();
    let mut sums = sums.iter_mut();
    for first in (0..depth).step_by(DOT_COLUMNS) {
        let taps = Segments {
            rows: std::array::from_fn(|offset| &copies.data[offsets.get((first + offset).min(depth - 1))..]),
            step: copies.image,
        };
        for (row, sums) in (0..rows).step_by(DOT_ROWS).zip(&mut sums) {
            let gradients = Segments {
                rows: std::array::from_fn(|offset| &gradients.data[(row + offset).min(rows - 1) * gradients.row..]),
                step: gradients.image,
            };
            pace.step(images * columns * DOT_ROWS * DOT_COLUMNS)?;
            panel::add_dots(images, columns, gradients, taps, sums);
        }
    }
    Ok(())
}

/// Turns the sums of [`correlate`] into rows of taps.
fn store(sums: &[DotSums], depth: usize, into: &mut [f32], pace: &mut Pace<'_>) -> Result<()> {
    let rows = into.len() / depth;
    let mut sums = sums.iter();
    for first in (0..depth).step_by(DOT_COLUMNS) {
        pace.step(rows * DOT_COLUMNS * LANES)?;
        for (row, sums) in (0..rows).step_by(DOT_ROWS).zip(&mut sums) {
            for (row, totals) in (row..rows).zip(panel::total(sums)) {
                let into = &mut into[row * depth + first..depth.min(first + DOT_COLUMNS) + row * depth];
                into.iter_mut().zip(totals).for_each(|(into, total)| *into = total);
            }
        }
    }
    Ok(())
}
