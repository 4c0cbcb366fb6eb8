//! Convolution with kernels so large that a copy of what a few outputs see would not fit a lease's memory.
//!
//! The products are summed in pieces of the kernel. Pixels and weights are gathered for one piece at a time, so the
//! memory that is needed does not depend on the size of the kernel.

use std::ops::Range;

use super::columns::store;
use super::{Geometry, Weight};
use crate::device::cpu::panel::{self, Block, LANES, ROWS};
use crate::error::Result;
use crate::run::{Parts, Run};

/// Products of an output from which on a kernel is large.
const DEEP: usize = 1 << 16;

/// Products that are summed at a stretch.
const STRETCH: usize = 1 << 12;

/// Panels of output pixels that share the packed weights, and panels of output channels that share the gathered pixels.
const COLUMN_PANELS: usize = 4;
const ROW_PANELS: usize = 8;

pub(super) fn suits(geometry: &Geometry) -> bool {
    geometry.depth() > DEEP
}

pub(super) fn forward(
    geometry: &Geometry,
    x: &[f32],
    weight: Weight<'_>,
    bias: Option<&[f32]>,
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let columns = geometry.images * geometry.output_plane();
    let panels = columns.div_ceil(LANES);
    let row_panels = geometry.outputs.div_ceil(ROWS);
    let (column_tiles, row_tiles) = (panels.div_ceil(COLUMN_PANELS), row_panels.div_ceil(ROW_PANELS));
    let pixel_floats = COLUMN_PANELS * STRETCH * LANES;
    let weight_floats = STRETCH * ROWS;
    let sum_floats = COLUMN_PANELS * ROW_PANELS * ROWS * LANES;
    let y = Parts::new(y);
    let tiles = geometry.groups * column_tiles * row_tiles;
    run.paced_with(tiles, pixel_floats + weight_floats + sum_floats, |pace, tile, scratch| {
        let (pixels, rest) = scratch.split_at_mut(pixel_floats);
        let (weights, sums) = rest.split_at_mut(weight_floats);
        let sums: &mut [Block] = sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<ROWS>().0;
        let (group, row_tile, column_tile) =
            (tile / row_tiles / column_tiles, tile % row_tiles, tile / row_tiles % column_tiles);
        let rows = row_tile * ROW_PANELS..row_panels.min((row_tile + 1) * ROW_PANELS);
        let columns_here = column_tile * COLUMN_PANELS..panels.min((column_tile + 1) * COLUMN_PANELS);
        sums.as_flattened_mut().as_flattened_mut().fill(0.0);
        for start in (0..geometry.depth()).step_by(STRETCH) {
            let steps = start..geometry.depth().min(start + STRETCH);
            for (panel, pixels) in columns_here.clone().zip(pixels.chunks_exact_mut(STRETCH * LANES)) {
                // Finding a pixel takes longer than multiplying it.
                pace.step(steps.len() * LANES * 8)?;
                gather(geometry, group, x, (panel * LANES, columns), steps.clone(), pixels);
            }
            for (row_panel, sums) in rows.clone().zip(sums.chunks_exact_mut(COLUMN_PANELS)) {
                pace.step(steps.len() * ROWS * LANES * columns_here.len())?;
                pack(geometry, group, weight, row_panel * ROWS, steps.clone(), weights);
                for ((pixels, sums), _) in pixels.chunks_exact(STRETCH * LANES).zip(sums).zip(columns_here.clone()) {
                    add_products(steps.len(), weights, pixels, sums);
                }
            }
        }
        for (row_panel, sums) in rows.zip(sums.chunks_exact(COLUMN_PANELS)) {
            for (panel, block) in columns_here.clone().zip(sums) {
                // SAFETY: every output belongs to one group, row and column, and so to one tile.
                unsafe { store(geometry, group, row_panel, panel * LANES, columns, block, bias, &y) };
            }
        }
        Ok(())
    })
}

fn add_products(steps: usize, weights: &[f32], pixels: &[f32], sums: &mut Block) {
    let mut block: Block = [[0.0; LANES]; ROWS];
    panel::multiply(steps, weights, pixels, &mut block);
    let sums = sums.as_flattened_mut();
    sums.iter_mut().zip(block.as_flattened()).for_each(|(sum, product)| *sum += product);
}

/// A place in the kernel: the channel, and the tap in its rows and columns.
#[derive(Clone, Copy)]
struct Place {
    input: usize,
    tap: [usize; 2],
}

impl Place {
    fn new(geometry: &Geometry, step: usize) -> Self {
        let (input, tap) = (step / geometry.taps(), step % geometry.taps());
        Self { input, tap: [tap / geometry.kernel[1], tap % geometry.kernel[1]] }
    }

    fn advance(&mut self, geometry: &Geometry) {
        self.tap[1] += 1;
        if self.tap[1] == geometry.kernel[1] {
            self.tap = [self.tap[0] + 1, 0];
        }
        if self.tap[0] == geometry.kernel[0] {
            *self = Self { input: self.input + 1, tap: [0, 0] };
        }
    }
}

/// What [`LANES`] consecutive outputs, counted from the first of `columns`, see at these steps of the kernel. Outputs
/// past the last see zeros.
fn gather(
    geometry: &Geometry,
    group: usize,
    x: &[f32],
    (column, columns): (usize, usize),
    steps: Range<usize>,
    pixels: &mut [f32],
) {
    let Geometry { inputs, groups, from, to, .. } = *geometry;
    let (plane, output_plane) = (geometry.input_plane(), geometry.output_plane());
    let outputs: [Option<(usize, [usize; 2])>; LANES] = std::array::from_fn(|lane| {
        let (image, pixel) = ((column + lane) / output_plane, (column + lane) % output_plane);
        let base = (image * groups + group) * inputs * plane;
        (column + lane < columns).then_some((base, [pixel / to[1], pixel % to[1]]))
    });
    // Outputs side by side in one row see pixels side by side.
    let run = outputs[0]
        .filter(|&(_, [_, across])| geometry.stride[1] == 1 && across + LANES <= to[1] && column + LANES <= columns);
    let mut place = Place::new(geometry, steps.start);
    for pixels in pixels.as_chunks_mut::<LANES>().0.iter_mut().take(steps.len()) {
        let Place { input, tap } = place;
        place.advance(geometry);
        if let Some((base, [row, across])) = run {
            let first = geometry.source(1, across, tap[1]).filter(|first| first + LANES <= from[1]);
            match (geometry.source(0, row, tap[0]), first) {
                (None, _) => {
                    pixels.fill(0.0);
                    continue;
                }
                (Some(row), Some(first)) => {
                    let at = base + input * plane + row * from[1] + first;
                    pixels.copy_from_slice(&x[at..at + LANES]);
                    continue;
                }
                // Some of them see the border.
                (Some(_), None) => {}
            }
        }
        for (pixel, output) in pixels.iter_mut().zip(&outputs) {
            let source = output.and_then(|(base, [row, across])| {
                let row = geometry.source(0, row, tap[0])?;
                Some(base + input * plane + row * from[1] + geometry.source(1, across, tap[1])?)
            });
            *pixel = source.map_or(0.0, |source| x[source]);
        }
    }
}

/// A panel of the weights of output channels from `first` on at these steps; channels past the last are zeros.
fn pack(geometry: &Geometry, group: usize, weight: Weight<'_>, first: usize, steps: Range<usize>, packed: &mut [f32]) {
    for row in 0..ROWS {
        let output = first + row;
        let into = packed.iter_mut().skip(row).step_by(ROWS).take(steps.len());
        if output >= geometry.outputs {
            into.for_each(|place| *place = 0.0);
            continue;
        }
        for (into, step) in into.zip(steps.clone()) {
            *into = weight.at(geometry, group, output, step / geometry.taps(), step % geometry.taps());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Crew;
    use crate::device::cpu::Cpu;
    use crate::heap::Heap;
    use crate::run::Cancel;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * 7919 + seed * 104_729) % 2_003) as f32 / 1_001.0 - 1.0).collect()
    }

    /// Product by product, in double precision.
    fn naive(geometry: &Geometry, x: &[f32], weight: Weight<'_>, bias: &[f32]) -> Vec<f64> {
        let Geometry { images, groups, inputs, outputs, to, kernel, .. } = *geometry;
        let mut y = Vec::new();
        for (image, group, output) in
            (0..images * groups * outputs).map(|at| (at / outputs / groups, at / outputs % groups, at % outputs))
        {
            for (row, across) in (0..to[0] * to[1]).map(|at| (at / to[1], at % to[1])) {
                let mut sum = f64::from(bias[group * outputs + output]);
                for step in 0..geometry.depth() {
                    let (input, tap) = (step / geometry.taps(), step % geometry.taps());
                    let from =
                        geometry.source(0, row, tap / kernel[1]).zip(geometry.source(1, across, tap % kernel[1]));
                    if let Some((down, over)) = from {
                        let channel = (image * groups + group) * inputs + input;
                        let pixel = x[channel * geometry.input_plane() + down * geometry.from[1] + over];
                        sum += f64::from(pixel) * f64::from(weight.at(geometry, group, output, input, tap));
                    }
                }
                y.push(sum);
            }
        }
        y
    }

    #[test]
    fn convolutions_in_pieces_agree_with_naive_ones() {
        let plain = Geometry {
            images: 1,
            groups: 1,
            inputs: 1,
            outputs: 1,
            from: [70, 90],
            to: [0, 0],
            kernel: [65, 66],
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
        };
        let geometries = [
            plain,
            Geometry { images: 3, inputs: 2, outputs: 7, padding: [2, 3], ..plain },
            Geometry { groups: 2, inputs: 3, outputs: 50, from: [40, 40], kernel: [39, 37], ..plain },
            Geometry { images: 2, inputs: 5, stride: [2, 3], padding: [9, 40], kernel: [31, 29], ..plain },
            Geometry { inputs: 5, dilation: [2, 1], padding: [30, 0], kernel: [31, 29], ..plain },
            Geometry { images: 21, inputs: 4_500, outputs: 9, from: [1, 1], kernel: [1, 1], ..plain },
        ];
        for (number, geometry) in geometries.into_iter().enumerate() {
            let size = |axis: usize| {
                let reach = (geometry.kernel[axis] - 1) * geometry.dilation[axis];
                (geometry.from[axis] + 2 * geometry.padding[axis] - reach - 1) / geometry.stride[axis] + 1
            };
            let geometry = Geometry { to: [size(0), size(1)], ..geometry };
            let channels = geometry.groups * geometry.outputs;
            let x = numbers(geometry.images * geometry.groups * geometry.inputs * geometry.input_plane(), 1);
            let (data, bias) = (numbers(channels * geometry.depth(), 2), numbers(channels, 3));
            for (threads, reversed) in [(1, false), (2, false), (1, true)] {
                let weight = Weight { data: &data, reversed };
                let (crew, cancel) = (Crew::new(threads), Cancel::default());
                let heap = Heap::new(Arc::new(Cpu::new()), 64 << 20);
                let run = Run { crew: &crew, threads, cancel: &cancel, heap: &heap, turn: None };
                let mut y = vec![f32::NAN; geometry.images * channels * geometry.output_plane()];
                forward(&geometry, &x, weight, Some(&bias), &mut y, &run).unwrap();
                for (index, (found, wanted)) in y.iter().zip(naive(&geometry, &x, weight, &bias)).enumerate() {
                    let apart = (f64::from(*found) - wanted).abs();
                    assert!(apart < 2e-3, "geometry {number}, reversed {reversed}: {index} is {found}, not {wanted}");
                }
            }
        }
    }
}
