//! One channel per group: eight channels side by side, pixel after pixel.
//!
//! The maps of such networks are small, so vectors run over channels rather than pixels: eight planes are interleaved
//! into a padded block that the cache holds, and every tap is then one multiply-add of eight channels.

use super::Geometry;
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::run::{Pace, Parts, Run};

/// Channels side by side.
const LANES: usize = 8;

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 17;

/// The most multiply-adds between two looks up from the work.
const STRETCH: usize = 1 << 20;

type Lanes = [f32; LANES];

/// Whether there is one channel per group, and a padded plane is not mostly padding.
pub(super) fn suits(geometry: &Geometry) -> bool {
    if geometry.inputs != 1 || geometry.outputs != 1 || geometry.groups == 1 {
        return false;
    }
    let padded = Padded::new(geometry);
    padded.height.saturating_mul(padded.width) / 64 <= geometry.input_plane() + geometry.output_plane()
}

/// A padded plane of eight channels.
#[derive(Clone, Copy)]
struct Padded {
    height: usize,
    width: usize,
}

impl Padded {
    fn new(geometry: &Geometry) -> Self {
        // Large enough for every tap of every output, whatever the stride leaves over.
        let size = |axis: usize| {
            let reach = (geometry.to[axis] - 1) * geometry.stride[axis]
                + (geometry.kernel[axis] - 1) * geometry.dilation[axis]
                + 1;
            reach.max(geometry.padding[axis] + geometry.from[axis])
        };
        Self { height: size(0), width: size(1) }
    }

    fn floats(self) -> usize {
        self.height * self.width * LANES
    }
}

/// Images that one tile takes.
fn images_per_tile(geometry: &Geometry) -> usize {
    (SMALL_TILE / (geometry.output_plane() * geometry.taps() * LANES)).clamp(1, geometry.images)
}

pub(super) fn forward(
    geometry: &Geometry,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let padded = Padded::new(geometry);
    let (channels, taps) = (geometry.groups, geometry.taps());
    let (from, to) = (geometry.input_plane(), geometry.output_plane());
    let per_tile = images_per_tile(geometry);
    let blocks = channels.div_ceil(LANES);
    let y = Parts::new(y);
    run.paced_with(
        blocks * geometry.images.div_ceil(per_tile),
        padded.floats() + (taps + to) * LANES,
        |pace, tile, scratch| {
            let first = tile % blocks * LANES;
            let count = LANES.min(channels - first);
            let (source, rest) = scratch.split_at_mut(padded.floats());
            let (weights, results) = rest.split_at_mut(taps * LANES);
            interleave(&weight[first * taps..][..count * taps], taps, as_lanes(weights));
            let shift: Lanes = std::array::from_fn(|lane| match bias {
                Some(bias) if lane < count => bias[first + lane],
                _ => 0.0,
            });
            pace.fill(source, 0.0)?;
            let images = tile / blocks * per_tile..geometry.images.min((tile / blocks + 1) * per_tile);
            for image in images {
                let at = image * channels + first;
                pace.step(from * LANES)?;
                load(geometry, padded, &x[at * from..][..count * from], as_lanes(source));
                vectorized(
                    #[inline(always)]
                    || {
                        convolve(
                            geometry,
                            padded,
                            as_lanes_ref(source),
                            as_lanes_ref(weights),
                            &shift,
                            as_lanes(results),
                            pace,
                        )
                    },
                )?;
                // SAFETY: these channels of this image are this tile's alone.
                let y = unsafe { y.part(at * to..(at + count) * to) };
                pace.step(to * LANES)?;
                separate(as_lanes_ref(results), y, to);
            }
            Ok(())
        },
    )
}

pub(super) fn gradient_input(
    geometry: &Geometry,
    dy: &[f32],
    weight: &[f32],
    dx: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let padded = Padded::new(geometry);
    let (channels, taps) = (geometry.groups, geometry.taps());
    let (from, to) = (geometry.input_plane(), geometry.output_plane());
    let per_tile = images_per_tile(geometry);
    let blocks = channels.div_ceil(LANES);
    let dx = Parts::new(dx);
    run.paced_with(
        blocks * geometry.images.div_ceil(per_tile),
        padded.floats() + (taps + to) * LANES,
        |pace, tile, scratch| {
            let first = tile % blocks * LANES;
            let count = LANES.min(channels - first);
            let (target, rest) = scratch.split_at_mut(padded.floats());
            let (weights, gradients) = rest.split_at_mut(taps * LANES);
            interleave(&weight[first * taps..][..count * taps], taps, as_lanes(weights));
            let images = tile / blocks * per_tile..geometry.images.min((tile / blocks + 1) * per_tile);
            for image in images {
                let at = image * channels + first;
                pace.step(to * LANES)?;
                interleave(&dy[at * to..][..count * to], to, as_lanes(gradients));
                pace.fill(target, 0.0)?;
                let (gradients, weights) = (as_lanes_ref(gradients), as_lanes_ref(weights));
                vectorized(
                    #[inline(always)]
                    || spread(geometry, padded, gradients, weights, as_lanes(target), pace),
                )?;
                // SAFETY: these channels of this image are this tile's alone.
                let dx = unsafe { dx.part(at * from..(at + count) * from) };
                pace.step(from * LANES)?;
                store(geometry, padded, as_lanes_ref(target), dx);
            }
            Ok(())
        },
    )
}

pub(super) fn gradient_weight(geometry: &Geometry, x: &[f32], dy: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
    let padded = Padded::new(geometry);
    let (channels, taps) = (geometry.groups, geometry.taps());
    let (from, to) = (geometry.input_plane(), geometry.output_plane());
    let blocks = channels.div_ceil(LANES);
    let dw = Parts::new(dw);
    run.paced_with(blocks, padded.floats() + (taps + to) * LANES, |pace, block, scratch| {
        let first = block * LANES;
        let count = LANES.min(channels - first);
        let (source, rest) = scratch.split_at_mut(padded.floats());
        let (sums, gradients) = rest.split_at_mut(taps * LANES);
        pace.fill(source, 0.0)?;
        pace.fill(sums, 0.0)?;
        for image in 0..geometry.images {
            let at = image * channels + first;
            pace.step((from + to) * LANES)?;
            load(geometry, padded, &x[at * from..][..count * from], as_lanes(source));
            interleave(&dy[at * to..][..count * to], to, as_lanes(gradients));
            let (source, gradients) = (as_lanes_ref(source), as_lanes_ref(gradients));
            vectorized(
                #[inline(always)]
                || correlate(geometry, padded, source, gradients, as_lanes(sums), pace),
            )?;
        }
        // SAFETY: these channels are this tile's alone.
        let dw = unsafe { dw.part(first * taps..(first + count) * taps) };
        separate(as_lanes_ref(sums), dw, taps);
        Ok(())
    })
}

fn as_lanes(floats: &mut [f32]) -> &mut [Lanes] {
    bytemuck::cast_slice_mut(floats)
}

fn as_lanes_ref(floats: &[f32]) -> &[Lanes] {
    bytemuck::cast_slice(floats)
}

/// Up to eight planes of `size` elements, element by element side by side; lanes without a plane are zero.
fn interleave(planes: &[f32], size: usize, into: &mut [Lanes]) {
    let count = planes.len() / size;
    for (at, into) in into.iter_mut().enumerate().take(size) {
        *into = std::array::from_fn(|lane| if lane < count { planes[lane * size + at] } else { 0.0 });
    }
}

/// The reverse of [`interleave`].
fn separate(from: &[Lanes], planes: &mut [f32], size: usize) {
    for (lane, plane) in planes.chunks_exact_mut(size).enumerate() {
        for (element, lanes) in plane.iter_mut().zip(from) {
            *element = lanes[lane];
        }
    }
}

/// Planes of the input into the middle of a padded block, whose border is zero already.
fn load(geometry: &Geometry, padded: Padded, planes: &[f32], into: &mut [Lanes]) {
    let [height, width] = geometry.from;
    let plane = height * width;
    let count = planes.len() / plane;
    for row in 0..height {
        let at = (row + geometry.padding[0]) * padded.width + geometry.padding[1];
        for (across, into) in into[at..at + width].iter_mut().enumerate() {
            let element = row * width + across;
            *into = std::array::from_fn(|lane| if lane < count { planes[lane * plane + element] } else { 0.0 });
        }
    }
}

/// The reverse of [`load`].
fn store(geometry: &Geometry, padded: Padded, from: &[Lanes], planes: &mut [f32]) {
    let [height, width] = geometry.from;
    for (lane, plane) in planes.chunks_exact_mut(height * width).enumerate() {
        for (row, line) in plane.chunks_exact_mut(width).enumerate() {
            let at = (row + geometry.padding[0]) * padded.width + geometry.padding[1];
            line.iter_mut().zip(&from[at..at + width]).for_each(|(element, lanes)| *element = lanes[lane]);
        }
    }
}

/// Calls `each` with every output, tap by tap, and where it looks in the padded block.
#[inline(always)]
fn for_each_tap(
    geometry: &Geometry,
    padded: Padded,
    pace: &mut Pace<'_>,
    mut each: impl FnMut(usize, usize, usize),
) -> Result<()> {
    // It steps from row to row, and only where these are long, or the kernel is large, more often.
    let kernel_row = geometry.kernel[1] * LANES;
    let kernel = kernel_row.saturating_mul(geometry.kernel[0]);
    let row_work = kernel.saturating_mul(geometry.to[1]);
    for row in 0..geometry.to[0] {
        pace.step(row_work.min(STRETCH))?;
        for across in 0..geometry.to[1] {
            if row_work > STRETCH {
                pace.step(kernel.min(STRETCH))?;
            }
            let output = row * geometry.to[1] + across;
            let corner = row * geometry.stride[0] * padded.width + across * geometry.stride[1];
            for down in 0..geometry.kernel[0] {
                if kernel > STRETCH {
                    pace.step(kernel_row)?;
                }
                let line = corner + down * geometry.dilation[0] * padded.width;
                for over in 0..geometry.kernel[1] {
                    each(output, down * geometry.kernel[1] + over, line + over * geometry.dilation[1]);
                }
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn convolve(
    geometry: &Geometry,
    padded: Padded,
    source: &[Lanes],
    weights: &[Lanes],
    shift: &Lanes,
    results: &mut [Lanes],
    pace: &mut Pace<'_>,
) -> Result<()> {
    pace.fill(results, *shift)?;
    for_each_tap(geometry, padded, pace, |output, tap, at| {
        multiply_add(&mut results[output], &weights[tap], &source[at]);
    })
}

#[inline(always)]
fn spread(
    geometry: &Geometry,
    padded: Padded,
    gradients: &[Lanes],
    weights: &[Lanes],
    target: &mut [Lanes],
    pace: &mut Pace<'_>,
) -> Result<()> {
    for_each_tap(geometry, padded, pace, |output, tap, at| {
        multiply_add(&mut target[at], &weights[tap], &gradients[output]);
    })
}

#[inline(always)]
fn correlate(
    geometry: &Geometry,
    padded: Padded,
    source: &[Lanes],
    gradients: &[Lanes],
    sums: &mut [Lanes],
    pace: &mut Pace<'_>,
) -> Result<()> {
    for_each_tap(geometry, padded, pace, |output, tap, at| {
        multiply_add(&mut sums[tap], &gradients[output], &source[at]);
    })
}

#[inline(always)]
fn multiply_add(sum: &mut Lanes, a: &Lanes, b: &Lanes) {
    for lane in 0..LANES {
        sum[lane] += a[lane] * b[lane];
    }
}
