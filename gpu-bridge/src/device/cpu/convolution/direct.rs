//! Convolution with sixteen output channels side by side: nothing is copied, every pixel is read where it lies.
//!
//! For images without a border, and vectors that hold sixteen floats: 24 outputs of sixteen channels are computed at a
//! time, all in registers.

use super::{Geometry, Weight};
use crate::device::cpu::panel::{LANES, Offsets, RUN, RUNS, multiply_runs};
use crate::device::cpu::simd::has_avx512;
use crate::device::cpu::sixteen::{self, Floats, Kernel, SIXTEEN, Sixteen};
use crate::error::Result;
use crate::run::{Parts, Run};

/// The most outputs of a channel: they stay in the second cache, sixteen channels of them.
const LARGE: usize = 4096;

/// The most products of an output: their weights stay in the first cache.
const DEEP: usize = 512;

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 19;

pub(super) fn suits(geometry: &Geometry) -> bool {
    has_avx512()
        && geometry.stride == [1, 1]
        && geometry.padding == [0, 0]
        && geometry.groups == 1
        && 4 * geometry.outputs >= 3 * geometry.outputs.next_multiple_of(LANES)
        && geometry.depth() <= DEEP
        && geometry.to[1] >= RUN
        && geometry.output_plane() <= LARGE
        && geometry.inputs.saturating_mul(geometry.input_plane()) <= 1 << 24
}

pub(super) fn forward(
    geometry: &Geometry,
    x: &[f32],
    weight: Weight<'_>,
    bias: Option<&[f32]>,
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let Geometry { images, inputs, outputs, .. } = *geometry;
    let (depth, from, to) = (geometry.depth(), geometry.input_plane(), geometry.output_plane());
    let panels = outputs.div_ceil(LANES);
    let mut packed = run.scratch(panels * depth * LANES + depth)?;
    let (packed, table) = packed.floats().split_at_mut(panels * depth * LANES);
    pack(geometry, weight, packed, run)?;
    let table: &mut [u32] = bytemuck::cast_slice_mut(table);
    for (index, into) in table.iter_mut().enumerate() {
        let (input, tap) = (index / geometry.taps(), index % geometry.taps());
        let (down, over) = (tap / geometry.kernel[1], tap % geometry.kernel[1]);
        let row = input * geometry.from[0] + down * geometry.dilation[0];
        *into = (row * geometry.from[1] + over * geometry.dilation[1]) as u32;
    }
    let (packed, offsets) = (&*packed, Offsets::new(table));

    let images_per_tile = (SMALL_TILE / (to * outputs * depth).max(1)).clamp(1, images);
    let y = Parts::new(y);
    run.paced_with(images.div_ceil(images_per_tile), to * LANES, |pace, tile, sums| {
        for image in tile * images_per_tile..images.min((tile + 1) * images_per_tile) {
            let x = &x[image * inputs * from..][..inputs * from];
            for (panel, weights) in packed.chunks_exact(depth * LANES).enumerate() {
                pace.step(to * depth * LANES)?;
                let sums: &mut [Floats] = sums.as_chunks_mut().0;
                multiply(geometry, x, weights, offsets, sums);
                let channels = panel * LANES..outputs.min((panel + 1) * LANES);
                let bias = bias.map_or(&[][..], |bias| &bias[channels.clone()]);
                let at = (image * outputs + channels.start) * to;
                // SAFETY: these channels of this image are this tile's alone.
                let y = unsafe { y.part(at..at + channels.len() * to) };
                sixteen::run(TurnBack { sums, bias, y });
            }
        }
        Ok(())
    })
}

/// Lays the weight out as panels of output channels: panel, input, tap, channel.
fn pack(geometry: &Geometry, weight: Weight<'_>, packed: &mut [f32], run: &Run<'_>) -> Result<()> {
    let (depth, taps) = (geometry.depth(), geometry.taps());
    // A panel has at most DEEP * LANES floats.
    let together = (1 << 15) / (DEEP * LANES);
    run.chunks(packed, together * depth * LANES, |tile, packed| {
        for (panel, packed) in packed.chunks_exact_mut(depth * LANES).enumerate() {
            let first = (tile * together + panel) * LANES;
            for (index, into) in packed.iter_mut().enumerate() {
                let (step, output) = (index / LANES, first + index % LANES);
                *into = match output < geometry.outputs {
                    true => weight.at(geometry, 0, output, step / taps, step % taps),
                    false => 0.0,
                };
            }
        }
    })
}

/// One panel of output channels of an image: sixteen sums for each pixel.
fn multiply(geometry: &Geometry, x: &[f32], weights: &[f32], offsets: Offsets<'_>, sums: &mut [Floats]) {
    let [height, width] = geometry.to;
    let runs_per_row = width.div_ceil(RUN);
    let runs = height * runs_per_row;
    for first in (0..runs).step_by(RUNS) {
        // The last run of a row overlaps the one before; those past the last are the last once more.
        let places: [(usize, usize); RUNS] = std::array::from_fn(|offset| {
            let run = (first + offset).min(runs - 1);
            (run / runs_per_row, (run % runs_per_row * RUN).min(width - RUN))
        });
        let sources = places.map(|(row, column)| &x[row * geometry.from[1] + column..]);
        let blocks = multiply_runs(weights, sources, offsets);
        for ((row, column), block) in places.into_iter().zip(&blocks) {
            sums[row * width + column..][..RUN].copy_from_slice(block);
        }
    }
}

/// Sums of sixteen channels, pixel after pixel, become planes.
struct TurnBack<'a> {
    sums: &'a [Floats],
    /// None, or one for each channel.
    bias: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for TurnBack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Sixteen>(self) {
        let bias = V::load_some(self.bias);
        for (some, sums) in self.sums.chunks(SIXTEEN).enumerate() {
            let mut pixels = [bias; SIXTEEN];
            for (pixel, sums) in pixels.iter_mut().zip(sums) {
                *pixel = bias.add(V::load(sums));
            }
            for (values, plane) in V::transpose(pixels).iter().zip(self.y.chunks_exact_mut(self.sums.len())) {
                values.store_some(&mut plane[some * SIXTEEN..][..sums.len()]);
            }
        }
    }
}
