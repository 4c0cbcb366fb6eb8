//! The gradient of the weight as a sum of outer products: at each pixel, the gradients of sixteen output channels times
//! what some taps see there.
//!
//! The gradients are laid out with the channels side by side once; what a tap sees is read where it is, or in a copy
//! with its border of zeros. Nothing is summed across a vector, so short rows cost no more than long ones.

use std::ops::Range;

use super::Geometry;
use crate::device::cpu::panel::{Block, LANES, Offsets, ROWS, add_outer};
use crate::error::Result;
use crate::run::{Parts, Run};

/// The most floats that the gradients may take once more.
const GRADIENTS: usize = 4 << 20;

/// Floats of gradients that are multiplied at a time: they stay in the first-level cache.
const TOGETHER: usize = 4 * 1024;

/// Floats of copied images that are multiplied at a time.
const COPIES: usize = 64 * 1024;

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 18;

/// The most pieces that the taps are cut into.
const PIECES: usize = 8;

/// Whether the output channels fill their panels, and the gradients are not too many.
pub(super) fn suits(geometry: &Geometry) -> bool {
    let lanes = geometry.outputs.next_multiple_of(LANES);
    let gradients = geometry.images.saturating_mul(geometry.groups * lanes).saturating_mul(geometry.output_plane());
    let padded = Padded::new(geometry);
    4 * geometry.outputs >= 3 * lanes
        && gradients <= GRADIENTS
        // Places are counted in 32 bits, those of the images that are multiplied together.
        && geometry.groups.saturating_mul(geometry.inputs).saturating_mul(padded.plane()) <= 1 << 22
        && padded.plane() <= 4 * geometry.input_plane().max(16)
}

/// An image with its border.
#[derive(Clone, Copy)]
struct Padded {
    height: usize,
    width: usize,
}

impl Padded {
    fn new(geometry: &Geometry) -> Self {
        let size = |axis: usize| geometry.from[axis].saturating_add(geometry.padding[axis].saturating_mul(2));
        Self { height: size(0), width: size(1) }
    }

    fn plane(&self) -> usize {
        self.height.saturating_mul(self.width)
    }

    /// Copies one channel into its border, which is zeros already.
    fn fill(&self, geometry: &Geometry, x: &[f32], into: &mut [f32]) {
        let start = geometry.padding[0] * self.width + geometry.padding[1];
        for (x, into) in x.chunks_exact(geometry.from[1]).zip(into[start..].chunks_mut(self.width)) {
            into[..x.len()].copy_from_slice(x);
        }
    }
}

pub(super) fn gradient_weight(geometry: &Geometry, x: &[f32], dy: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
    let Geometry { images, groups, outputs, .. } = *geometry;
    let (pixels, depth, taps) = (geometry.output_plane(), geometry.depth(), geometry.taps());
    let panels = outputs.div_ceil(LANES);
    let mut gradients = run.scratch(groups * panels * images * pixels * LANES)?;
    lay_out(geometry, dy, gradients.floats(), run)?;
    let gradients = &*gradients.floats();

    let row_panels = depth.div_ceil(ROWS);
    let pieces = (images * pixels * depth * outputs / SMALL_TILE).clamp(1, PIECES.min(row_panels));
    let panels_per_piece = row_panels.div_ceil(pieces);
    let pieces = row_panels.div_ceil(panels_per_piece);
    let padded = Padded::new(geometry);
    // A piece starts and ends amid the taps of a channel.
    let channels = (panels_per_piece * ROWS).div_ceil(taps) + 1;
    let each = if geometry.padding == [0, 0] { 0 } else { channels * padded.plane() };
    let together = (TOGETHER / (pixels * LANES)).min(COPIES / each.max(1)).clamp(1, images);
    let copy_floats = together * each;
    let sum_floats = panels * panels_per_piece * ROWS * LANES;
    let dw = Parts::new(dw);
    run.each_with(groups * pieces, copy_floats + sum_floats + together * pixels, |tile, scratch| {
        let (group, piece) = (tile / pieces, tile % pieces);
        let (copy, scratch) = scratch.split_at_mut(copy_floats);
        let (sums, table) = scratch.split_at_mut(sum_floats);
        let table: &mut [u32] = bytemuck::cast_slice_mut(table);
        let rows = piece * panels_per_piece * ROWS..depth.min((piece + 1) * panels_per_piece * ROWS);
        let task = Task { geometry, padded, x, gradients, group, rows };
        copy.fill(0.0);
        sums.fill(0.0);
        task.places(table);
        for first in (0..images).step_by(together) {
            let some = first..images.min(first + together);
            task.add(some.clone(), Offsets::new(&table[..some.len() * pixels]), copy, sums);
        }
        // SAFETY: these taps of this group are this tile's alone.
        unsafe { task.store(sums, &dw) };
    })
}

/// Lays the gradients out as panels of output channels: group, panel, image, pixel, channel.
fn lay_out(geometry: &Geometry, dy: &[f32], into: &mut [f32], run: &Run<'_>) -> Result<()> {
    let Geometry { images, groups, outputs, .. } = *geometry;
    let pixels = geometry.output_plane();
    let panels = outputs.div_ceil(LANES);
    // Some microseconds a tile.
    let together = (1_usize << 14).div_ceil(pixels * LANES);
    run.chunks(into, together * pixels * LANES, |piece, into| {
        for (index, into) in into.chunks_exact_mut(pixels * LANES).enumerate() {
            let place = piece * together + index;
            let (image, panel, group) = (place % images, place / images % panels, place / images / panels);
            let first = panel * LANES;
            let count = LANES.min(outputs - first);
            let dy = &dy[((image * groups + group) * outputs + first) * pixels..][..count * pixels];
            if count == LANES {
                let channels: [&[f32]; LANES] = std::array::from_fn(|lane| &dy[lane * pixels..][..pixels]);
                for (pixel, into) in into.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    into.iter_mut().zip(channels).for_each(|(into, channel)| *into = channel[pixel]);
                }
                continue;
            }
            into.fill(0.0);
            for (lane, dy) in dy.chunks_exact(pixels).enumerate() {
                into.iter_mut().skip(lane).step_by(LANES).zip(dy).for_each(|(into, dy)| *into = *dy);
            }
        }
    })
}

/// What a tile works on.
struct Task<'a> {
    geometry: &'a Geometry,
    padded: Padded,
    x: &'a [f32],
    gradients: &'a [f32],
    group: usize,
    /// Taps of channels.
    rows: Range<usize>,
}

impl Task<'_> {
    /// The channels that some of the taps belong to.
    fn channels(&self) -> Range<usize> {
        let taps = self.geometry.taps();
        self.rows.start / taps..(self.rows.end - 1) / taps + 1
    }

    fn is_copied(&self) -> bool {
        self.geometry.padding != [0, 0]
    }

    /// Where the first tap of each output of some images looks, from that of the first on.
    fn places(&self, table: &mut [u32]) {
        let Geometry { inputs, groups, stride, to, .. } = *self.geometry;
        let channels = if self.is_copied() { self.channels().len() } else { groups * inputs };
        for (image, table) in table.chunks_exact_mut(to[0] * to[1]).enumerate() {
            for (row, table) in table.chunks_exact_mut(to[1]).enumerate() {
                let start = (image * channels * self.padded.height + row * stride[0]) * self.padded.width;
                table.iter_mut().enumerate().for_each(|(column, at)| *at = (start + column * stride[1]) as u32);
            }
        }
    }

    /// Adds what some images give.
    fn add(&self, images: Range<usize>, places: Offsets<'_>, copy: &mut [f32], sums: &mut [f32]) {
        let Geometry { inputs, groups, kernel, dilation, .. } = *self.geometry;
        let (pixels, taps) = (self.geometry.output_plane(), self.geometry.taps());
        let channels = self.channels();
        let at = |image: usize| ((image * groups + self.group) * inputs + channels.start) * self.geometry.input_plane();
        let source = if self.is_copied() {
            let (from, plane) = (self.geometry.input_plane(), self.padded.plane());
            for (copy, image) in copy.chunks_exact_mut(channels.len() * plane).zip(images.clone()) {
                let x = self.x[at(image)..].chunks_exact(from);
                copy.chunks_exact_mut(plane).zip(x).for_each(|(copy, x)| self.padded.fill(self.geometry, x, copy));
            }
            &*copy
        } else {
            &self.x[at(images.start)..]
        };
        let offset = |row: usize| {
            let row = row.min(self.rows.end - 1);
            let (channel, tap) = (row / taps - channels.start, row % taps);
            let (down, over) = (tap / kernel[1] * dilation[0], tap % kernel[1] * dilation[1]);
            (channel * self.padded.height + down) * self.padded.width + over
        };
        let panel_floats = self.geometry.images * pixels * LANES;
        let panels = self.geometry.outputs.div_ceil(LANES);
        let gradients = self.gradients[self.group * panels * panel_floats..].chunks_exact(panel_floats);
        let sums = sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<ROWS>().0;
        for (gradients, sums) in gradients.zip(sums.chunks_exact_mut(sums.len() / panels)) {
            let gradients = &gradients[images.start * pixels * LANES..];
            for (first, block) in self.rows.clone().step_by(ROWS).zip(sums) {
                let block: &mut Block = block;
                add_outer(places, source, std::array::from_fn(|row| offset(first + row)), gradients, block);
            }
        }
    }

    /// # Safety
    /// Nobody else writes the gradients of these taps.
    unsafe fn store(&self, sums: &[f32], dw: &Parts<'_, f32>) {
        let depth = self.geometry.depth();
        let outputs = self.geometry.outputs;
        let panel_floats = sums.len() / outputs.div_ceil(LANES);
        for output in 0..outputs {
            let at = (self.group * outputs + output) * depth;
            // SAFETY: by the contract.
            let dw = unsafe { dw.part(at + self.rows.start..at + self.rows.end) };
            let sums = sums[output / LANES * panel_floats + output % LANES..].iter().step_by(LANES);
            dw.iter_mut().zip(sums).for_each(|(dw, sum)| *dw = *sum);
        }
    }
}
