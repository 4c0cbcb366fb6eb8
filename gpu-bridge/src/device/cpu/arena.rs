//! Whole arenas at once. All of it is bound by memory: each operand is read and written once, in one pass.

use super::memory::{Input, Output};
use super::simd::vectorized;
use crate::error::Result;
use crate::op::{Accumulate, AdmmGradient, Blend, ClipNorm};
use crate::run::Run;

mod optimizer;

pub(super) use optimizer::optimize;

/// Elements per tile.
const TILE: usize = 1 << 15;

pub(super) fn accumulate(
    op: &Accumulate,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let from = inputs[0].floats()?;
    run.chunks(outputs[0].floats()?, TILE, |tile, into| {
        let from = &from[tile * TILE..][..into.len()];
        vectorized(
            #[inline(always)]
            || into.iter_mut().zip(from).for_each(|(into, &from)| *into += op.scale * from),
        );
    })
}

pub(super) fn blend(op: &Blend, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let from = inputs[0].floats()?;
    run.chunks(outputs[0].floats()?, TILE, |tile, into| {
        let from = &from[tile * TILE..][..into.len()];
        vectorized(
            #[inline(always)]
            || into.iter_mut().zip(from).for_each(|(into, &from)| *into += op.amount * (from - *into)),
        );
    })
}

pub(super) fn clip_norm(op: &ClipNorm, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let scale = op.scale(inputs[0].floats()?[0]);
    if scale == 1.0 {
        return Ok(());
    }
    run.chunks(outputs[0].floats()?, TILE, |_, gradients| {
        vectorized(
            #[inline(always)]
            || gradients.iter_mut().for_each(|gradient| *gradient *= scale),
        );
    })
}

pub(super) fn admm_gradient(
    op: &AdmmGradient,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (x, z, u) = (inputs[0].floats()?, inputs[1].floats()?, inputs[2].floats()?);
    run.chunks(outputs[0].floats()?, TILE, |tile, gradients| {
        let start = tile * TILE;
        let count = gradients.len();
        let (x, z, u) = (&x[start..][..count], &z[start..][..count], &u[start..][..count]);
        vectorized(
            #[inline(always)]
            || {
                for (((gradient, &x), &z), &u) in gradients.iter_mut().zip(x).zip(z).zip(u) {
                    *gradient += op.rho * (x - z + u);
                }
            },
        );
    })
}

pub(super) fn admm_dual(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (x, z) = (inputs[0].floats()?, inputs[1].floats()?);
    run.chunks(outputs[0].floats()?, TILE, |tile, u| {
        let (x, z) = (&x[tile * TILE..][..u.len()], &z[tile * TILE..][..u.len()]);
        vectorized(
            #[inline(always)]
            || u.iter_mut().zip(x).zip(z).for_each(|((u, &x), &z)| *u += x - z),
        );
    })
}
