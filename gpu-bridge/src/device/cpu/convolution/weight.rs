//! The gradient of the weight: each output channel's gradient against the pixels that a tap saw.
//!
//! Both lie along the pixels already, so these are dot products of rows. Small images are joined until rows are long.

use super::Geometry;
use crate::device::cpu::panel::{DOT_COLUMNS, DOT_ROWS, Segments, dots};
use crate::error::Result;
use crate::run::{Pace, Parts, Run};

/// Floats of gathered pixels that a tile works on at a time.
const GATHERED: usize = 64 * 1024;

/// Pixels that make a row long enough.
const LONG: usize = 256;

/// A weight up to this size is computed in parts, one for some images each, which are then added in order.
const SMALL_WEIGHT: usize = 32 * 1024;

/// How many parts, or pieces of the channels.
const PIECES: usize = 8;

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 19;

pub(super) fn gradient(geometry: &Geometry, x: &[f32], dy: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
    let Geometry { images, groups, inputs, outputs, .. } = *geometry;
    let (pixels, taps) = (geometry.output_plane(), geometry.taps());
    let joined = LONG.div_ceil(pixels).min(images);
    let work = images * pixels * dw.len();
    let pieces = (work / SMALL_TILE).clamp(1, PIECES);
    let (parts, channel_pieces) = if dw.len() <= SMALL_WEIGHT { (pieces, 1) } else { (1, pieces) };
    let images_per_part = images.div_ceil(parts).next_multiple_of(joined);
    let parts = images.div_ceil(images_per_part);
    let per_piece = inputs.div_ceil(channel_pieces);
    let channel_pieces = inputs.div_ceil(per_piece);
    let row = joined * pixels;
    let block = (GATHERED / (taps * row)).clamp(1, per_piece);

    let mut partial = run.scratch(if parts > 1 { parts * dw.len() } else { 0 })?;
    let size = dw.len();
    {
        let target = if parts > 1 { Parts::new(partial.floats()) } else { Parts::new(dw) };
        run.paced_with(parts * groups * channel_pieces, (block * taps + outputs) * row, |pace, tile, scratch| {
            let (part, group, piece) =
                (tile / channel_pieces / groups, tile / channel_pieces % groups, tile % channel_pieces);
            let (gathered, joined_dy) = scratch.split_at_mut(block * taps * row);
            let task = Task { geometry, x, dy, group, part, size };
            let channels = piece * per_piece..inputs.min((piece + 1) * per_piece);
            let mut first_image = part * images_per_part;
            let last_image = images.min((part + 1) * images_per_part);
            let mut accumulate = false;
            while first_image < last_image {
                let count = joined.min(last_image - first_image);
                let dy_rows = task.join(first_image, count, joined_dy, pace)?;
                let mut first = channels.start;
                while first < channels.end {
                    let some = first..channels.end.min(first + block);
                    let x_rows = task.gather(first_image, count, some.clone(), gathered, pace)?;
                    let depth = count * pixels;
                    // SAFETY: the channels of a tile are its alone.
                    unsafe { task.multiply(depth, (dy_rows, x_rows), some.clone(), accumulate, &target, pace)? };
                    first = some.end;
                }
                accumulate = true;
                first_image += count;
            }
            Ok(())
        })?;
    }
    if parts > 1 {
        super::add_parts(partial.floats(), dw, run)?;
    }
    Ok(())
}

/// What a tile works on.
struct Task<'a> {
    geometry: &'a Geometry,
    x: &'a [f32],
    dy: &'a [f32],
    group: usize,
    part: usize,
    /// Elements of the whole weight.
    size: usize,
}

impl<'a> Task<'a> {
    /// The gradients of all output channels, each a row over some images.
    fn join<'b>(&self, image: usize, count: usize, into: &'b mut [f32], pace: &mut Pace<'_>) -> Result<&'b [f32]>
    where
        'a: 'b,
    {
        let Geometry { groups, outputs, .. } = *self.geometry;
        let pixels = self.geometry.output_plane();
        let at = |image: usize| (image * groups + self.group) * outputs * pixels;
        if count == 1 {
            return Ok(&self.dy[at(image)..][..outputs * pixels]);
        }
        for (output, row) in into.chunks_exact_mut(count * pixels).take(outputs).enumerate() {
            pace.step(count * pixels)?;
            for (offset, row) in row.chunks_exact_mut(pixels).enumerate() {
                row.copy_from_slice(&self.dy[at(image + offset) + output * pixels..][..pixels]);
            }
        }
        Ok(into)
    }

    /// What each tap of some input channels saw, each a row over some images.
    fn gather<'b>(
        &self,
        image: usize,
        count: usize,
        channels: std::ops::Range<usize>,
        into: &'b mut [f32],
        pace: &mut Pace<'_>,
    ) -> Result<&'b [f32]>
    where
        'a: 'b,
    {
        let Geometry { groups, inputs, kernel, .. } = *self.geometry;
        let (pixels, plane, taps) = (self.geometry.output_plane(), self.geometry.input_plane(), self.geometry.taps());
        let at = |image: usize| ((image * groups + self.group) * inputs + channels.start) * plane;
        if count == 1 && self.geometry.is_pointwise() {
            return Ok(&self.x[at(image)..][..channels.len() * plane]);
        }
        for (index, row) in into.chunks_exact_mut(count * pixels).take(channels.len() * taps).enumerate() {
            pace.step(count * pixels)?;
            let (channel, tap) = (index / taps, index % taps);
            for (offset, row) in row.chunks_exact_mut(pixels).enumerate() {
                let x = &self.x[at(image + offset) + channel * plane..][..plane];
                gather_tap(self.geometry, x, [tap / kernel[1], tap % kernel[1]], row);
            }
        }
        Ok(into)
    }

    /// # Safety
    /// Nobody else writes the gradients of these channels, in this part.
    unsafe fn multiply(
        &self,
        depth: usize,
        (dy, x): (&[f32], &[f32]),
        channels: std::ops::Range<usize>,
        accumulate: bool,
        target: &Parts<'_, f32>,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        let taps = self.geometry.taps();
        let (outputs, columns) = (self.geometry.outputs, channels.len() * taps);
        let stride = self.geometry.depth();
        let base = self.part * self.size + self.group * outputs * stride + channels.start * taps;
        for column in (0..columns).step_by(DOT_COLUMNS) {
            let b = Segments {
                rows: std::array::from_fn(|offset| &x[(column + offset).min(columns - 1) * depth..][..depth]),
                step: 0,
            };
            let wide = DOT_COLUMNS.min(columns - column);
            for output in (0..outputs).step_by(DOT_ROWS) {
                pace.step(depth * DOT_ROWS * DOT_COLUMNS)?;
                let a = Segments {
                    rows: std::array::from_fn(|offset| &dy[(output + offset).min(outputs - 1) * depth..][..depth]),
                    step: 0,
                };
                let products = dots(1, depth, a, b);
                for (row, products) in (output..outputs).zip(products) {
                    let at = base + row * stride + column;
                    // SAFETY: by the contract.
                    let into = unsafe { target.part(at..at + wide) };
                    for (into, product) in into.iter_mut().zip(products) {
                        *into = if accumulate { *into + product } else { product };
                    }
                }
            }
        }
        Ok(())
    }
}

/// What one tap of one channel sees from every output of an image.
fn gather_tap(geometry: &Geometry, x: &[f32], [down, over]: [usize; 2], into: &mut [f32]) {
    let width = geometry.from[1];
    let start = over * geometry.dilation[1];
    for (row, into) in into.chunks_exact_mut(geometry.to[1]).enumerate() {
        let Some(source_row) = geometry.source(0, row, down) else {
            into.fill(0.0);
            continue;
        };
        let line = &x[source_row * width..][..width];
        if geometry.stride[1] == 1 && start >= geometry.padding[1] && start - geometry.padding[1] + into.len() <= width
        {
            into.copy_from_slice(&line[start - geometry.padding[1]..][..into.len()]);
        } else {
            for (across, into) in into.iter_mut().enumerate() {
                *into = geometry.source(1, across, over).map_or(0.0, |source| line[source]);
            }
        }
    }
}
