//! The gradient of the weight as a sum of outer products: at each pixel, the gradients of sixteen output channels times
//! what some taps see there.
//!
//! The gradients are laid out with the channels side by side; what a tap sees is read where it is, or in a copy
//! with its border of zeros. Nothing is summed across a vector, so short rows cost no more than long ones.

use std::ops::Range;

use super::Geometry;
use crate::device::cpu::panel::{Block, LANES, Offsets, ROWS, add_outer};
use crate::device::cpu::sixteen::{self, Floats, Kernel, SIXTEEN, Sixteen};
use crate::error::Result;
use crate::run::{Pace, Parts, Run};

/// Floats of gradients that are multiplied at a time: they stay in the first-level cache.
const TOGETHER: usize = 4 * 1024;

/// The most floats of gradients of one image.
const GRADIENTS: usize = 1 << 20;

/// Floats of copied images that are multiplied at a time.
const COPIES: usize = 64 * 1024;

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 18;

/// The most pieces that the taps are cut into, or parts that the images are.
const PIECES: usize = 8;

/// A weight up to this size is computed in parts, one for some images each, which are added in order.
const SMALL_WEIGHT: usize = 32 * 1024;

/// Whether the output channels fill their panels, and images are not too large.
pub(super) fn suits(geometry: &Geometry) -> bool {
    let lanes = geometry.outputs.next_multiple_of(LANES);
    let padded = Padded::new(geometry);
    4 * geometry.outputs >= 3 * lanes
        && geometry.output_plane().saturating_mul(lanes) <= GRADIENTS
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
    let (pixels, depth, taps, size) = (geometry.output_plane(), geometry.depth(), geometry.taps(), dw.len());
    let (panels, row_panels) = (outputs.div_ceil(LANES), depth.div_ceil(ROWS));
    let work = images * pixels * depth * outputs / SMALL_TILE;
    let (parts, pieces) = match size <= SMALL_WEIGHT {
        true => (work.clamp(1, PIECES.min(images)), 1),
        false => (1, work.clamp(1, PIECES.min(row_panels))),
    };
    let images_per_part = images.div_ceil(parts);
    let parts = images.div_ceil(images_per_part);
    let panels_per_piece = row_panels.div_ceil(pieces);
    let pieces = row_panels.div_ceil(panels_per_piece);
    let padded = Padded::new(geometry);
    // A piece starts and ends amid the taps of a channel.
    let channels = (panels_per_piece * ROWS).div_ceil(taps) + 1;
    let each = if geometry.padding == [0, 0] { 0 } else { channels * padded.plane() };
    let together = (TOGETHER / (pixels * LANES)).min(COPIES / each.max(1)).clamp(1, images_per_part);
    let floats = [
        together * each,
        panels * panels_per_piece * ROWS * LANES,
        panels * together * pixels * LANES,
        together * pixels,
    ];
    let mut partial = run.scratch(if parts > 1 { parts * size } else { 0 })?;
    {
        let target = if parts > 1 { Parts::new(partial.floats()) } else { Parts::new(dw) };
        run.paced_with(parts * groups * pieces, floats.iter().sum(), |pace, tile, scratch| {
            let (part, group, piece) = (tile / pieces / groups, tile / pieces % groups, tile % pieces);
            let (copy, scratch) = scratch.split_at_mut(floats[0]);
            let (sums, scratch) = scratch.split_at_mut(floats[1]);
            let (gradients, table) = scratch.split_at_mut(floats[2]);
            let table: &mut [u32] = bytemuck::cast_slice_mut(table);
            let rows = piece * panels_per_piece * ROWS..depth.min((piece + 1) * panels_per_piece * ROWS);
            let task = Task { geometry, padded, x, dy, group, rows };
            pace.fill(copy, 0.0)?;
            pace.fill(sums, 0.0)?;
            task.places(table);
            let last = images.min((part + 1) * images_per_part);
            for first in (part * images_per_part..last).step_by(together) {
                let some = first..last.min(first + together);
                pace.step(gradients.len() + copy.len())?;
                task.lay_out(some.clone(), gradients);
                task.add(some.clone(), Offsets::new(&table[..some.len() * pixels]), gradients, copy, sums, pace)?;
            }
            // SAFETY: these taps of this group are this tile's alone, in its part.
            unsafe { task.store(sums, part * size, &target, pace) }
        })?;
    }
    if parts > 1 {
        super::add_parts(partial.floats(), dw, run)?;
    }
    Ok(())
}

/// Planes of up to sixteen channels become pixels of sixteen channels; zeros for those that are missing.
struct TurnOver<'a> {
    planes: &'a [f32],
    pixels: usize,
    into: &'a mut [Floats],
}

impl Kernel for TurnOver<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Sixteen>(self) {
        for (some, into) in self.into.chunks_mut(SIXTEEN).enumerate() {
            let mut channels = [V::splat(0.0); SIXTEEN];
            for (values, plane) in channels.iter_mut().zip(self.planes.chunks_exact(self.pixels)) {
                *values = V::load_some(&plane[some * SIXTEEN..][..into.len()]);
            }
            for (values, into) in V::transpose(channels).iter().zip(into) {
                values.store(into);
            }
        }
    }
}

/// What a tile works on.
struct Task<'a> {
    geometry: &'a Geometry,
    padded: Padded,
    x: &'a [f32],
    dy: &'a [f32],
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

    /// Lays the gradients of some images out as panels of output channels: panel, image, pixel, channel.
    fn lay_out(&self, images: Range<usize>, into: &mut [f32]) {
        let Geometry { groups, outputs, .. } = *self.geometry;
        let pixels = self.geometry.output_plane();
        for (index, into) in
            into.chunks_exact_mut(pixels * LANES).take(images.len() * outputs.div_ceil(LANES)).enumerate()
        {
            let (panel, image) = (index / images.len(), images.start + index % images.len());
            let first = panel * LANES;
            let count = LANES.min(outputs - first);
            let planes = &self.dy[((image * groups + self.group) * outputs + first) * pixels..][..count * pixels];
            sixteen::run(TurnOver { planes, pixels, into: into.as_chunks_mut().0 });
        }
    }

    /// Adds what some images give.
    fn add(
        &self,
        images: Range<usize>,
        places: Offsets<'_>,
        gradients: &[f32],
        copy: &mut [f32],
        sums: &mut [f32],
        pace: &mut Pace<'_>,
    ) -> Result<()> {
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
        let panels = self.geometry.outputs.div_ceil(LANES);
        let gradients = gradients.chunks_exact(images.len() * pixels * LANES);
        let sums = sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<ROWS>().0;
        for (gradients, sums) in gradients.zip(sums.chunks_exact_mut(sums.len() / panels)) {
            for (first, block) in self.rows.clone().step_by(ROWS).zip(sums) {
                pace.step(images.len() * pixels * ROWS * LANES)?;
                let block: &mut Block = block;
                add_outer(places, source, std::array::from_fn(|row| offset(first + row)), gradients, block);
            }
        }
        Ok(())
    }

    /// # Safety
    /// Nobody else writes the gradients of these taps.
    unsafe fn store(&self, sums: &[f32], base: usize, dw: &Parts<'_, f32>, pace: &mut Pace<'_>) -> Result<()> {
        let depth = self.geometry.depth();
        let outputs = self.geometry.outputs;
        let panel_floats = sums.len() / outputs.div_ceil(LANES);
        for output in 0..outputs {
            pace.step(4 * self.rows.len())?;
            let at = base + (self.group * outputs + output) * depth;
            // SAFETY: by the contract.
            let dw = unsafe { dw.part(at + self.rows.start..at + self.rows.end) };
            let sums = sums[output / LANES * panel_floats + output % LANES..].iter().step_by(LANES);
            dw.iter_mut().zip(sums).for_each(|(dw, sum)| *dw = *sum);
        }
        Ok(())
    }
}
