//! The gradient of the input at stride 1 where an image is much larger than its output: what each run of eight outputs
//! sends back through some taps is added to the image while it is still in registers or next to them.

use super::Geometry;
use crate::device::cpu::panel::{self, ADDED, LANES, Offsets, ROWS, RUN};
use crate::error::Result;
use crate::run::{Pace, Parts, Run};

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 19;

/// The most floats that a tile works in.
const WORKED_IN: usize = 1 << 18;

/// Whether runs are not mostly empty, and an image fits into the cache.
pub(super) fn suits(geometry: &Geometry) -> bool {
    let border = Border::new(geometry);
    let lanes = geometry.to[1].next_multiple_of(RUN);
    geometry.stride == [1, 1]
        && lanes <= 2 * geometry.to[1]
        && geometry.output_plane() >= LANES
        && border.floats(geometry).saturating_add(geometry.outputs.saturating_mul(ADDED * RUN)) <= WORKED_IN
}

/// An image with room for what is sent past its edges.
#[derive(Clone, Copy)]
struct Border {
    height: usize,
    width: usize,
}

impl Border {
    fn new(geometry: &Geometry) -> Self {
        let size = |axis: usize| {
            let seen = geometry.to[axis] + (geometry.kernel[axis] - 1) * geometry.dilation[axis];
            seen.max(geometry.from[axis].saturating_add(geometry.padding[axis]))
        };
        Self { height: size(0), width: size(1) }
    }

    /// Floats of a group's channels, and of a run past the end.
    fn floats(&self, geometry: &Geometry) -> usize {
        geometry.inputs.saturating_mul(self.height).saturating_mul(self.width).saturating_add(RUN)
    }

    /// Where a row, a tap of a channel, sends what comes from the first output.
    fn offset(&self, geometry: &Geometry, row: usize) -> usize {
        let (tap, input) = place(geometry, row);
        let (down, over) = (tap / geometry.kernel[1], tap % geometry.kernel[1]);
        (input * self.height + down * geometry.dilation[0]) * self.width + over * geometry.dilation[1]
    }
}

/// The tap and the channel of a row. Channels follow each other, then the taps of a column: what they add either lies
/// apart or in the same place. A sum that was just written and is read again a few floats further must wait for memory.
fn place(geometry: &Geometry, row: usize) -> (usize, usize) {
    let (index, input) = (row / geometry.inputs, row % geometry.inputs);
    let [height, width] = geometry.kernel;
    (index % height * width + index / height, input)
}

pub(super) fn gradient_input(
    geometry: &Geometry,
    dy: &[f32],
    weight: &[f32],
    dx: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let Geometry { images, groups, inputs, outputs, .. } = *geometry;
    let (depth, from, to) = (geometry.depth(), geometry.input_plane(), geometry.output_plane());
    let row_panels = depth.div_ceil(ROWS);
    let panel_floats = outputs * ROWS;
    let mut packed = run.scratch(groups * row_panels * panel_floats + depth + outputs)?;
    let (packed, tables) = packed.floats().split_at_mut(groups * row_panels * panel_floats);
    pack(geometry, weight, packed, run)?;
    let border = Border::new(geometry);
    let (table, steps) = bytemuck::cast_slice_mut::<_, u32>(tables).split_at_mut(depth);
    table.iter_mut().enumerate().for_each(|(row, into)| *into = border.offset(geometry, row) as u32);
    steps.iter_mut().enumerate().for_each(|(output, into)| *into = (output * ADDED * RUN) as u32);
    let (packed, table, steps) = (&*packed, &*table, Offsets::new(steps));

    let images_per_tile = (SMALL_TILE / (to * depth * outputs).max(1)).clamp(1, images);
    let sums_floats = border.floats(geometry);
    let dx = Parts::new(dx);
    let floats = sums_floats + outputs * ADDED * RUN;
    run.paced_with(images.div_ceil(images_per_tile) * groups, floats, |pace, tile, scratch| {
        let (first, group) = (tile / groups * images_per_tile, tile % groups);
        let (sums, columns) = scratch.split_at_mut(sums_floats);
        let weights = &packed[group * row_panels * panel_floats..][..row_panels * panel_floats];
        let packed = Packed { weights, table, steps };
        for image in first..images.min(first + images_per_tile) {
            let index = image * groups + group;
            let dy = &dy[index * outputs * to..][..outputs * to];
            pace.step(2 * sums_floats)?;
            sums.fill(0.0);
            send(geometry, border, dy, &packed, columns, sums, pace)?;
            // SAFETY: the channels of this group of this image are this tile's alone.
            let dx = unsafe { dx.part(index * inputs * from..(index + 1) * inputs * from) };
            for (dx, sums) in dx.chunks_exact_mut(from).zip(sums.chunks_exact(border.height * border.width)) {
                let start = geometry.padding[0] * border.width + geometry.padding[1];
                for (dx, sums) in dx.chunks_exact_mut(geometry.from[1]).zip(sums[start..].chunks(border.width)) {
                    dx.copy_from_slice(&sums[..dx.len()]);
                }
            }
        }
        Ok(())
    })
}

/// What is the same for all images.
struct Packed<'a> {
    /// Panels of taps.
    weights: &'a [f32],
    /// Where each tap sends to.
    table: &'a [u32],
    /// Where the columns of each output channel lie.
    steps: Offsets<'a>,
}

/// Lays the weight out as panels of taps, whose depth are the output channels.
fn pack(geometry: &Geometry, weight: &[f32], packed: &mut [f32], run: &Run<'_>) -> Result<()> {
    let (outputs, depth) = (geometry.outputs, geometry.depth());
    let row_panels = depth.div_ceil(ROWS);
    let together = ((1 << 15) / (outputs * ROWS)).max(1);
    run.paced_chunks(packed, together * outputs * ROWS, |pace, tile, packed| {
        for (index, panel) in packed.chunks_exact_mut(outputs * ROWS).enumerate() {
            pace.step(4 * panel.len())?;
            pack_panel(geometry, weight, row_panels, tile * together + index, panel);
        }
        Ok(())
    })
}

fn pack_panel(geometry: &Geometry, weight: &[f32], row_panels: usize, index: usize, panel: &mut [f32]) {
    let (outputs, depth) = (geometry.outputs, geometry.depth());
    let (group, first) = (index / row_panels, index % row_panels * ROWS);
    let count = ROWS.min(depth - first);
    for (output, into) in panel.chunks_exact_mut(ROWS).enumerate() {
        let weight = &weight[(group * outputs + output) * depth..][..depth];
        for (row, into) in into[..count].iter_mut().enumerate() {
            let (tap, input) = place(geometry, first + row);
            *into = weight[input * geometry.taps() + tap];
        }
        into[count..].fill(0.0);
    }
}

/// Adds what all outputs of an image send back.
fn send(
    geometry: &Geometry,
    border: Border,
    dy: &[f32],
    packed: &Packed<'_>,
    columns: &mut [f32],
    sums: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<()> {
    let [height, width] = geometry.to;
    let runs_per_row = width.div_ceil(RUN);
    let runs = height * runs_per_row;
    let start = |run: usize| (run / runs_per_row, run % runs_per_row * RUN);
    for run in (0..runs).step_by(ADDED) {
        // Where the runs start; those past the last are zeros.
        let places: [_; ADDED] = std::array::from_fn(|offset| start((run + offset).min(runs - 1)));
        for (offset, (row, column)) in places.into_iter().enumerate() {
            let count = if run + offset < runs { RUN.min(width - column) } else { 0 };
            let dy = dy.chunks_exact(height * width);
            for (into, dy) in columns.as_chunks_mut::<RUN>().0.iter_mut().skip(offset).step_by(ADDED).zip(dy) {
                let dy = &dy[row * width + column..][..count];
                match dy.first_chunk::<RUN>() {
                    Some(dy) => *into = *dy,
                    None => {
                        into[..count].copy_from_slice(dy);
                        into[count..].fill(0.0);
                    }
                }
            }
        }
        let starts = places.map(|(row, column)| row * border.width + column);
        for (weights, offsets) in packed.weights.chunks_exact(geometry.outputs * ROWS).zip(packed.table.chunks(ROWS)) {
            pace.step(weights.len() * ADDED * RUN)?;
            panel::add_runs(weights, columns, packed.steps, offsets, starts, sums);
        }
    }
    Ok(())
}
