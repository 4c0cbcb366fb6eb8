//! Winograd's minimal filtering for 3 x 3 kernels at stride 1: 36 multiplications for what takes 144.
//!
//! The output is cut into squares of 4 x 4; the 6 x 6 pixels that a square sees, and the weight, are transformed so that
//! convolution becomes 36 independent products over the channels. The gradient of the weight is the same filtering with
//! the roles changed: the gradient's 4 x 4 square is the kernel and 3 x 3 taps come out. Sums are of larger numbers than
//! the direct way's, which costs about two digits of the seven that f32 has.
//!
//! A tile of work takes some strips of squares through all of it, so that what is transformed stays in its core's cache.
//! Where there are few squares and many channels, tiles share strips and transform them once each: that is an eighth of
//! what multiplying takes.

use std::ops::Range;

use super::{Geometry, Weight, add_parts};
use crate::device::cpu::gemm::{Matrix, Panels, Sizes, multiply_panels};
use crate::device::cpu::sixteen::{self, Floats, Kernel, SIXTEEN, Sixteen};
use crate::error::Result;
use crate::run::{Pace, Parts, Run};

mod strip;
mod transform;

use strip::{Channels, Place, Strips};
use transform::{LINE, POINTS, Taps, both_ways};

/// The side of a square of outputs.
const SIDE: usize = 4;

/// Taps of a kernel.
const TAPS: usize = 9;

/// Channels that are multiplied at a time, in panels of sixteen.
const PANELS: usize = 4;

/// Vectors of transformed pixels of a tile: about half of a core's second cache.
const PIXELS: usize = 16 * 1024;

/// The fewest and the most squares of a tile: weights are read once for each tile.
const SQUARES: Range<usize> = 32..64;

/// The tiles that a call is cut into where there is enough to do.
const TILES: usize = 8;

/// The most multiplications of a tile, so that a cancelled call ends within a few milliseconds.
const LARGE_TILE: usize = 1 << 27;

/// Input channels whose weights a tile transforms.
const WEIGHT_CHANNELS: usize = 64;

/// Channels below which transforming costs more than it saves.
const FEW_CHANNELS: usize = 16;

/// What transforming a square of one channel costs, in multiplications.
const TRANSFORM: usize = 600;

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

/// Vectors from one point's operands to the next: one more than they are, because points that lie a power of two apart
/// would fight for the same lines of a cache.
fn spaced(vectors: usize) -> usize {
    vectors + 1
}

/// Strips that a tile takes, where a square takes so many vectors.
fn strips_together(strips: &Strips<'_>, per_square: usize) -> usize {
    let squares = (PIXELS / per_square).clamp(SQUARES.start, SQUARES.end);
    (squares / strips.length).max(1)
}

pub(super) fn forward(
    geometry: &Geometry,
    x: &[f32],
    weight: Weight<'_>,
    bias: Option<&[f32]>,
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let panels = geometry.outputs.div_ceil(SIXTEEN);
    let mut weights = run.scratch(POINTS * spaced(panels * geometry.inputs) * SIXTEEN)?;
    transform_weight(geometry, weight, weights.floats(), run)?;
    let weights = weights.floats().as_chunks().0;

    let strips = Strips::new(geometry);
    let depth_panels = geometry.inputs.div_ceil(SIXTEEN);
    let together = strips_together(&strips, POINTS * depth_panels);
    let squares = together * strips.length;
    let blocks = strips.count.div_ceil(together);
    // Where there are few blocks, or many channels, tiles are of some output channels only.
    let most = (LARGE_TILE / (POINTS * squares * geometry.inputs * SIXTEEN)).max(1);
    let panels_per_piece = panels.div_ceil(TILES.div_ceil(blocks)).min(most).next_multiple_of(PANELS);
    let pieces = panels.div_ceil(panels_per_piece);
    let pixel_room = POINTS * spaced(squares * depth_panels);
    let product_room = POINTS * spaced(squares * PANELS);
    let y = Parts::new(y);
    run.paced_with(blocks * pieces, (pixel_room + product_room + strips.room()) * SIXTEEN, |pace, tile, scratch| {
        let (block, piece) = (tile / pieces, tile % pieces);
        let (pixels, rest) = scratch.as_chunks_mut().0.split_at_mut(pixel_room);
        let (products, lines) = rest.split_at_mut(product_room);
        sixteen::run(Forward {
            strips,
            x,
            weights,
            bias,
            y: &y,
            block: block * together..strips.count.min((block + 1) * together),
            squares,
            panels: piece * panels_per_piece..panels.min((piece + 1) * panels_per_piece),
            pixels,
            products,
            lines,
            pace,
        })
    })
}

/// Some strips and some panels of output channels, which are this tile's alone.
struct Forward<'a, 'p> {
    strips: Strips<'a>,
    x: &'a [f32],
    /// `[point][panel][input]`, vectors of output channels.
    weights: &'a [Floats],
    bias: Option<&'a [f32]>,
    y: &'a Parts<'a, f32>,
    block: Range<usize>,
    /// The most squares that a block has.
    squares: usize,
    panels: Range<usize>,
    /// `[point][square][panel]`, vectors of input channels.
    pixels: &'a mut [Floats],
    /// The same, vectors of output channels.
    products: &'a mut [Floats],
    lines: &'a mut [Floats],
    pace: &'a mut Pace<'p>,
}

impl Kernel for Forward<'_, '_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<V: Sixteen>(self) -> Result<()> {
        let Self { strips, x, weights, bias, y, block, squares, panels, pixels, products, lines, pace } = self;
        let Geometry { inputs, outputs, .. } = *strips.geometry;
        let depth_panels = inputs.div_ceil(SIXTEEN);
        let pixel_stride = spaced(squares * depth_panels);
        let mut count = 0;
        for strip in block.clone().map(|index| strips.get(index)) {
            for panel in 0..depth_panels {
                pace.step(strip.squares * TRANSFORM)?;
                let channels = Channels::panel(inputs, panel);
                let start = count * depth_panels + panel;
                let place = Place { start, square_stride: depth_panels, point_stride: pixel_stride };
                strips.transform_pixels::<V>(strip, x, &channels, lines, pixels, place);
            }
            count += strip.squares;
        }
        let weight_stride = spaced(outputs.div_ceil(SIXTEEN) * inputs);
        let product_stride = spaced(squares * PANELS);
        for first in panels.clone().step_by(PANELS) {
            let wide = PANELS.min(panels.end - first);
            for point in 0..POINTS {
                let sizes = Sizes { m: count, n: wide * SIXTEEN, k: inputs };
                pace.step(sizes.work())?;
                let pixels = pixels[point * pixel_stride..].as_flattened();
                let weights = weights[point * weight_stride + first * inputs..].as_flattened();
                multiply_panels(
                    sizes,
                    Matrix::new(pixels, depth_panels * SIXTEEN, 1),
                    Panels { data: weights, panel: inputs * SIXTEEN, step: SIXTEEN },
                    products[point * product_stride..].as_flattened_mut(),
                    PANELS * SIXTEEN,
                    false,
                );
            }
            let mut before = 0;
            for strip in block.clone().map(|index| strips.get(index)) {
                for panel in 0..wide {
                    let channels = Channels::panel(outputs, first + panel);
                    let bias = bias.map_or(V::splat(0.0), |bias| V::load_some(&bias[channels.range.clone()]));
                    let start = before * PANELS + panel;
                    let place = Place { start, square_stride: PANELS, point_stride: product_stride };
                    // SAFETY: these channels of these strips are this tile's alone.
                    unsafe { strips.write_outputs(strip, &channels, bias, lines, (products, place), y) };
                }
                before += strip.squares;
            }
        }
        Ok(())
    }
}

/// The weight as `[point][panel][input]`, vectors of output channels.
fn transform_weight(geometry: &Geometry, weight: Weight<'_>, into: &mut [f32], run: &Run<'_>) -> Result<()> {
    let Geometry { inputs, outputs, .. } = *geometry;
    let panels = outputs.div_ceil(SIXTEEN);
    let into = Parts::new(into.as_chunks_mut().0);
    let chunks = inputs.div_ceil(WEIGHT_CHANNELS);
    run.each(panels * chunks, |tile| {
        let (panel, first) = (tile / chunks, tile % chunks * WEIGHT_CHANNELS);
        let channels = first..inputs.min(first + WEIGHT_CHANNELS);
        sixteen::run(TransformWeight { geometry, weight, panel, channels, into: &into });
    })
}

/// A panel of output channels and some input channels, which are this tile's alone.
struct TransformWeight<'a> {
    geometry: &'a Geometry,
    weight: Weight<'a>,
    panel: usize,
    channels: Range<usize>,
    into: &'a Parts<'a, Floats>,
}

impl Kernel for TransformWeight<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Sixteen>(self) {
        let Self { geometry, weight, panel, channels, into } = self;
        let Geometry { inputs, outputs, .. } = *geometry;
        let stride = spaced(outputs.div_ceil(SIXTEEN) * inputs);
        for input in channels {
            let mut kernels = [V::splat(0.0); SIXTEEN];
            let first = panel * SIXTEEN;
            for (output, kernel) in (first..outputs).zip(&mut kernels) {
                let index = if weight.reversed { input * outputs + output } else { output * inputs + input };
                *kernel = V::load_some(&weight.data[index * TAPS..][..TAPS]);
            }
            let mut taps = V::transpose(kernels);
            if weight.reversed {
                taps[..TAPS].reverse();
            }
            let kernel = [[taps[0], taps[1], taps[2]], [taps[3], taps[4], taps[5]], [taps[6], taps[7], taps[8]]];
            let points = both_ways::<transform::Kernel, V, 3, LINE>(kernel);
            for (row, points) in points.iter().enumerate() {
                for (column, value) in points.iter().enumerate() {
                    let at = (row * LINE + column) * stride + panel * inputs + input;
                    // SAFETY: these channels are this tile's alone.
                    let into = unsafe { into.part(at..at + 1) };
                    value.store(&mut into[0]);
                }
            }
        }
    }
}

pub(super) fn gradient_weight(geometry: &Geometry, x: &[f32], dy: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
    let strips = Strips::new(geometry);
    let together = (SQUARES.start / strips.length).max(1);
    let squares = together * strips.length;
    let [across, down] = [geometry.inputs, geometry.outputs].map(|channels| channels.div_ceil(PANELS * SIXTEEN));
    let blocks = strips.count.div_ceil(together);
    // Where there are few channels, tiles are of some strips only, and their sums are added at the end.
    let work = squares * POINTS * (PANELS * SIXTEEN).pow(2);
    let blocks_per_part = blocks.div_ceil(TILES.div_ceil(across * down)).min((LARGE_TILE / work).max(1));
    let parts = blocks.div_ceil(blocks_per_part);
    let size = dw.len();
    let mut partial = run.scratch(if parts > 1 { parts * size } else { 0 })?;
    {
        let into = if parts > 1 { Parts::new(partial.floats()) } else { Parts::new(dw) };
        let operand_room = POINTS * spaced(squares * PANELS);
        let sum_room = POINTS * spaced(PANELS * SIXTEEN * PANELS);
        run.each_with(
            parts * across * down,
            (2 * operand_room + sum_room + strips.room()) * SIXTEEN,
            |tile, scratch| {
                let (part, row, column) = (tile / across / down, tile / across % down, tile % across);
                let (pixels, rest) = scratch.as_chunks_mut().0.split_at_mut(operand_room);
                let (gradients, rest) = rest.split_at_mut(operand_room);
                let (sums, lines) = rest.split_at_mut(sum_room);
                let channels =
                    |index: usize, all: usize| index * PANELS..all.div_ceil(SIXTEEN).min((index + 1) * PANELS);
                let first = part * blocks_per_part * together;
                sixteen::run(GradientWeight {
                    strips,
                    x,
                    dy,
                    into: &into,
                    base: part * size,
                    range: first..strips.count.min(first + blocks_per_part * together),
                    together,
                    inputs: channels(column, geometry.inputs),
                    outputs: channels(row, geometry.outputs),
                    pixels,
                    gradients,
                    sums,
                    lines,
                });
            },
        )?;
    }
    if parts > 1 {
        add_parts(partial.floats(), dw, run)?;
    }
    Ok(())
}

/// Some strips, and some panels of input and of output channels, whose sums are this tile's alone.
struct GradientWeight<'a> {
    strips: Strips<'a>,
    x: &'a [f32],
    dy: &'a [f32],
    into: &'a Parts<'a, f32>,
    /// Where the weight starts that the sums go to.
    base: usize,
    range: Range<usize>,
    /// Strips that are multiplied at a time.
    together: usize,
    inputs: Range<usize>,
    outputs: Range<usize>,
    /// `[point][square][panel]`, vectors of input channels.
    pixels: &'a mut [Floats],
    /// The same, vectors of output channels.
    gradients: &'a mut [Floats],
    /// `[point][output][panel]`, vectors of input channels.
    sums: &'a mut [Floats],
    lines: &'a mut [Floats],
}

impl Kernel for GradientWeight<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Sixteen>(mut self) {
        let stride = spaced(self.together * self.strips.length * PANELS);
        let sum_stride = spaced(PANELS * SIXTEEN * PANELS);
        let (m, n) = (self.outputs.len() * SIXTEEN, self.inputs.len() * SIXTEEN);
        for first in self.range.clone().step_by(self.together) {
            let count = self.transform::<V>(first..self.range.end.min(first + self.together), stride);
            for point in 0..POINTS {
                multiply_panels(
                    Sizes { m, n, k: count },
                    Matrix::new(self.gradients[point * stride..].as_flattened(), 1, PANELS * SIXTEEN),
                    Panels {
                        data: self.pixels[point * stride..].as_flattened(),
                        panel: SIXTEEN,
                        step: PANELS * SIXTEEN,
                    },
                    self.sums[point * sum_stride..].as_flattened_mut(),
                    PANELS * SIXTEEN,
                    first > self.range.start,
                );
            }
        }
        self.finish::<V>(sum_stride);
    }
}

impl GradientWeight<'_> {
    /// Transforms some strips, and tells how many squares they have.
    #[inline(always)]
    fn transform<V: Sixteen>(&mut self, block: Range<usize>, stride: usize) -> usize {
        let Geometry { inputs, outputs, .. } = *self.strips.geometry;
        let mut count = 0;
        for strip in block.map(|index| self.strips.get(index)) {
            let place = |panel: usize| {
                let start = count * PANELS + panel;
                Place { start, square_stride: PANELS, point_stride: stride }
            };
            for (index, panel) in self.inputs.clone().enumerate() {
                let channels = Channels::panel(inputs, panel);
                self.strips.transform_pixels::<V>(strip, self.x, &channels, self.lines, self.pixels, place(index));
            }
            for (index, panel) in self.outputs.clone().enumerate() {
                let channels = Channels::panel(outputs, panel);
                let into = &mut *self.gradients;
                self.strips.transform_gradients::<V>(strip, self.dy, &channels, self.lines, into, place(index));
            }
            count += strip.squares;
        }
        count
    }

    /// Turns sums into taps.
    #[inline(always)]
    fn finish<V: Sixteen>(self, sum_stride: usize) {
        let Geometry { inputs, outputs, .. } = *self.strips.geometry;
        let first_output = self.outputs.start * SIXTEEN;
        for output in first_output..outputs.min(self.outputs.end * SIXTEEN) {
            for (place, panel) in self.inputs.clone().enumerate() {
                let mut points = [[V::splat(0.0); LINE]; LINE];
                for (row, points) in points.iter_mut().enumerate() {
                    for (column, value) in points.iter_mut().enumerate() {
                        let at = (row * LINE + column) * sum_stride + (output - first_output) * PANELS + place;
                        *value = V::load(&self.sums[at]);
                    }
                }
                let mut taps = [V::splat(0.0); SIXTEEN];
                for (row, line) in both_ways::<Taps, V, LINE, 3>(points).iter().enumerate() {
                    taps[row * 3..row * 3 + 3].copy_from_slice(line);
                }
                let channels = Channels::panel(inputs, panel).range;
                for (input, kernel) in channels.zip(&V::transpose(taps)) {
                    let at = self.base + (output * inputs + input) * TAPS;
                    // SAFETY: these channels are this tile's alone.
                    kernel.store_some(unsafe { self.into.part(at..at + TAPS) });
                }
            }
        }
    }
}
