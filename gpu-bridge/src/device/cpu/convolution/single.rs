//! Images of one pixel: what is left of a convolution is a product of two matrices.

use super::Geometry;
use crate::device::cpu::gemm::{Matrix, Sizes, multiply};
use crate::error::Result;
use crate::run::Run;

pub(super) fn suits(geometry: &Geometry) -> bool {
    geometry.is_pointwise() && geometry.input_plane() == 1 && geometry.groups == 1
}

pub(super) fn forward(
    geometry: &Geometry,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let Geometry { images, inputs, outputs, .. } = *geometry;
    let sizes = Sizes { m: images, n: outputs, k: inputs };
    multiply(sizes, Matrix::new(x, inputs, 1), Matrix::new(weight, 1, inputs), y, 1.0, run, |_, columns, row| {
        if let Some(bias) = bias {
            row.iter_mut().zip(&bias[columns]).for_each(|(y, bias)| *y += bias);
        }
    })
}

pub(super) fn gradient_input(
    geometry: &Geometry,
    dy: &[f32],
    weight: &[f32],
    dx: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let Geometry { images, inputs, outputs, .. } = *geometry;
    let sizes = Sizes { m: images, n: inputs, k: outputs };
    multiply(sizes, Matrix::new(dy, outputs, 1), Matrix::new(weight, inputs, 1), dx, 1.0, run, |_, _, _| {})
}

pub(super) fn gradient_weight(geometry: &Geometry, x: &[f32], dy: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
    let Geometry { images, inputs, outputs, .. } = *geometry;
    let sizes = Sizes { m: outputs, n: inputs, k: images };
    multiply(sizes, Matrix::new(dy, 1, outputs), Matrix::new(x, inputs, 1), dw, 1.0, run, |_, _, _| {})
}
