//! The gradient of the input where strides skip pixels: products that are added where they came from.

use super::Geometry;
use crate::device::cpu::gemm::{Matrix, Sizes, multiply_alone};
use crate::error::Result;
use crate::run::{Parts, Run};

/// Floats of products that a tile works on at a time.
const PRODUCTS: usize = 64 * 1024;

pub(super) fn gradient_input(
    geometry: &Geometry,
    dy: &[f32],
    weight: &[f32],
    dx: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let Geometry { images, groups, inputs, outputs, .. } = *geometry;
    let (taps, pixels, plane) = (geometry.taps(), geometry.output_plane(), geometry.input_plane());
    let block = (PRODUCTS / (taps * pixels)).clamp(1, inputs.max(1));
    let blocks = inputs.div_ceil(block);
    let dx = Parts::new(dx);
    let floats = block * taps * pixels;
    let product = Sizes { m: block * taps, n: pixels, k: outputs };
    run.paced_with(
        images * groups * blocks,
        floats + product.scratch(Matrix::new(weight, 1, geometry.depth())),
        |pace, tile, scratch| {
            let (products, scratch) = scratch.split_at_mut(floats);
            let (image, group, first) = (tile / blocks / groups, tile / blocks % groups, tile % blocks * block);
            let count = block.min(inputs - first);
            let rows = count * taps;
            let depth = geometry.depth();
            let weight = &weight[group * outputs * depth + first * taps..];
            let dy = &dy[(image * groups + group) * outputs * pixels..][..outputs * pixels];
            let sizes = Sizes { m: rows, ..product };
            let (weight, dy) = (Matrix::new(weight, 1, depth), Matrix::new(dy, pixels, 1));
            multiply_alone(sizes, weight, dy, products, 1.0, scratch, pace)?;
            let start = ((image * groups + group) * inputs + first) * plane;
            // SAFETY: the channels of a tile are its alone.
            let dx = unsafe { dx.part(start..start + count * plane) };
            pace.fill(dx, 0.0)?;
            for (channel, products) in dx.chunks_exact_mut(plane).zip(products.chunks_exact(taps * pixels)) {
                for (tap, products) in products.chunks_exact(pixels).enumerate() {
                    pace.step(pixels)?;
                    add_tap(geometry, tap, products, channel);
                }
            }
            Ok(())
        },
    )
}

/// Adds what every output sends back through one tap.
fn add_tap(geometry: &Geometry, tap: usize, products: &[f32], channel: &mut [f32]) {
    let (down, over) = (tap / geometry.kernel[1], tap % geometry.kernel[1]);
    let (stride, width) = (geometry.stride[1], geometry.from[1]);
    // The outputs that look inside the input lie side by side.
    let shift = over * geometry.dilation[1];
    let first = geometry.padding[1].saturating_sub(shift).div_ceil(stride);
    let last = (width + geometry.padding[1]).saturating_sub(shift).div_ceil(stride).min(geometry.to[1]);
    if first >= last {
        return;
    }
    let start = first * stride + shift - geometry.padding[1];
    for (row, products) in products.chunks_exact(geometry.to[1]).enumerate() {
        let Some(source_row) = geometry.source(0, row, down) else { continue };
        let line = &mut channel[source_row * width + start..(source_row + 1) * width];
        let products = &products[first..last];
        if stride == 1 {
            line.iter_mut().zip(products).for_each(|(into, product)| *into += product);
        } else {
            line.iter_mut().step_by(stride).zip(products).for_each(|(into, product)| *into += product);
        }
    }
}
