//! Convolution of maps too small for runs along their rows: sixteen images side by side, pixel after pixel.
//!
//! The images are copied once into such batches, with their border of zeros, so that what a tap sees in all sixteen is
//! one pair of vectors, wherever it looks.

use super::Geometry;
use crate::device::cpu::panel::{self, Block, LANES, Offsets, ROWS};
use crate::error::Result;
use crate::run::{Parts, Run};

/// The most floats of a group of a batch: they share the second-level cache with the weight.
const BATCH_FLOATS: usize = 1 << 16;

/// The largest map.
const LARGE: usize = 64;

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 18;

/// How many tiles there are where there is enough work.
const TILES: usize = 8;

/// Floats, or offsets, that are worth a tile when images are copied.
const COPIED: usize = 1 << 14;

/// Whether maps are small, batches mostly full and borders not too wide.
pub(super) fn suits(geometry: &Geometry) -> bool {
    let plane = Border::new(geometry).plane();
    geometry.output_plane() <= LARGE
        && plane <= 4 * LARGE
        && 4 * geometry.images >= 3 * geometry.images.next_multiple_of(LANES)
        && geometry.inputs.saturating_mul(plane * LANES) <= BATCH_FLOATS
}

/// A map with its border.
#[derive(Clone, Copy)]
struct Border {
    height: usize,
    width: usize,
}

impl Border {
    fn new(geometry: &Geometry) -> Self {
        let size = |axis: usize| geometry.from[axis].saturating_add(geometry.padding[axis].saturating_mul(2));
        Self { height: size(0), width: size(1) }
    }

    fn plane(&self) -> usize {
        self.height.saturating_mul(self.width)
    }

    /// Where each tap of each channel finds what the first output sees.
    fn offsets(&self, geometry: &Geometry, into: &mut [u32], run: &Run<'_>) -> Result<()> {
        let taps = geometry.taps();
        run.chunks(into, COPIED, |tile, into| {
            for (index, into) in (tile * COPIED..).zip(into) {
                let (input, tap) = (index / taps, index % taps);
                let down = tap / geometry.kernel[1] * geometry.dilation[0];
                let over = tap % geometry.kernel[1] * geometry.dilation[1];
                *into = (((input * self.height + down) * self.width + over) * LANES) as u32;
            }
        })
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
    let border = Border::new(geometry);
    let depth = geometry.depth();
    let mut table = run.scratch(depth)?;
    let table: &mut [u32] = bytemuck::cast_slice_mut(table.floats());
    border.offsets(geometry, table, run)?;
    let offsets = Offsets::new(table);
    let batches = images.div_ceil(LANES);
    let group_floats = inputs * border.plane() * LANES;
    let mut copy = run.scratch(batches * groups * group_floats)?;
    interleave(geometry, border, x, copy.floats(), run)?;
    let copy = &*copy.floats();

    let (plane, row_panels) = (geometry.output_plane(), outputs.div_ceil(ROWS));
    let work = LANES * plane * outputs * depth;
    let pieces = TILES.div_ceil(batches * groups).min(work / SMALL_TILE).clamp(1, row_panels);
    let panels_per_piece = row_panels.div_ceil(pieces);
    let pieces = row_panels.div_ceil(panels_per_piece);
    let y = Parts::new(y);
    run.paced_with(batches * groups * pieces, plane * ROWS * LANES, |pace, tile, blocks| {
        let (batch, group, piece) = (tile / pieces / groups, tile / pieces % groups, tile % pieces);
        let copy = &copy[(batch * groups + group) * group_floats..][..group_floats];
        let blocks = blocks.as_chunks_mut::<LANES>().0.as_chunks_mut::<ROWS>().0;
        for panel in piece * panels_per_piece..row_panels.min((piece + 1) * panels_per_piece) {
            let weights = &packed[(group * row_panels + panel) * depth * ROWS..];
            pace.step(plane * ROWS * LANES * depth)?;
            multiply(geometry, border, copy, weights, offsets, blocks);
            let first = panel * ROWS;
            for (row, output) in (first..outputs.min(first + ROWS)).enumerate() {
                let channel = group * outputs + output;
                let shift = bias.map_or(0.0, |bias| bias[channel]);
                for (lane, image) in (batch * LANES..images.min((batch + 1) * LANES)).enumerate() {
                    let at = (image * groups * outputs + channel) * plane;
                    // SAFETY: these channels of these images are this tile's alone.
                    let y = unsafe { y.part(at..at + plane) };
                    y.iter_mut().zip(&*blocks).for_each(|(y, block)| *y = block[row][lane] + shift);
                }
            }
        }
        Ok(())
    })
}

/// Some channels of all outputs of a batch.
fn multiply(
    geometry: &Geometry,
    border: Border,
    copy: &[f32],
    weights: &[f32],
    offsets: Offsets<'_>,
    blocks: &mut [Block],
) {
    let source = |pixel: usize| {
        let (row, column) = (pixel / geometry.to[1], pixel % geometry.to[1]);
        &copy[(row * geometry.stride[0] * border.width + column * geometry.stride[1]) * LANES..]
    };
    let (pairs, last) = blocks.as_chunks_mut::<2>();
    for (index, pair) in pairs.iter_mut().enumerate() {
        panel::multiply_at(weights, [source(2 * index), source(2 * index + 1)], offsets, pair);
    }
    for block in last {
        let alone = source(2 * pairs.len());
        let mut pair = [*block; 2];
        panel::multiply_at(weights, [alone; 2], offsets, &mut pair);
        *block = pair[0];
    }
}

/// Copies all images: batch, channel, row, column, image.
fn interleave(geometry: &Geometry, border: Border, x: &[f32], into: &mut [f32], run: &Run<'_>) -> Result<()> {
    let channels = geometry.groups * geometry.inputs;
    let (from, plane) = (geometry.input_plane(), border.plane());
    let together = COPIED.div_ceil(plane * LANES);
    run.chunks(into, together * plane * LANES, |piece, into| {
        for (index, into) in into.chunks_exact_mut(plane * LANES).enumerate() {
            let (batch, channel) = ((piece * together + index) / channels, (piece * together + index) % channels);
            let first = batch * LANES;
            // Lanes past the last image repeat it; nobody looks at what comes of them.
            let images: [&[f32]; LANES] = std::array::from_fn(|lane| {
                let image = (first + lane).min(geometry.images - 1);
                &x[(image * channels + channel) * from..][..from]
            });
            let into = into.as_chunks_mut::<LANES>().0;
            if plane != from {
                into.fill([0.0; LANES]);
            }
            for row in 0..geometry.from[0] {
                let start = (row + geometry.padding[0]) * border.width + geometry.padding[1];
                for (column, into) in into[start..][..geometry.from[1]].iter_mut().enumerate() {
                    let at = row * geometry.from[1] + column;
                    into.iter_mut().zip(images).for_each(|(into, image)| *into = image[at]);
                }
            }
        }
    })
}
