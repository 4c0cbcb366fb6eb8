//! Element by element.

use super::memory::{Input, Output};
use super::simd::vectorized;
use crate::error::{Error, Result};
use crate::op::{Binary, Spec, Unary};
use crate::run::Run;

/// Elements per tile: the operands of one stay in the second-level cache.
const TILE: usize = 1 << 15;

pub(super) fn unary(unary: Unary, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let x = inputs[0].floats()?;
    match unary {
        Unary::Neg => map(x, outputs[0].floats()?, run, |x| -x),
        Unary::Relu => map(x, outputs[0].floats()?, run, |x| if x > 0.0 { x } else { 0.0 }),
        _ => Err(Error::Internal { op: unary.name(), reason: "to come".into() }),
    }
}

pub(super) fn unary_gradient(
    unary: Unary,
    _inputs: &[Input<'_>],
    _outputs: &mut [Output<'_>],
    _run: &Run<'_>,
) -> Result<()> {
    Err(Error::Internal { op: unary.name(), reason: "to come".into() })
}

pub(super) fn unary_gradient_from_output(
    unary: Unary,
    _inputs: &[Input<'_>],
    _outputs: &mut [Output<'_>],
    _run: &Run<'_>,
) -> Result<()> {
    Err(Error::Internal { op: unary.name(), reason: "to come".into() })
}

fn map(x: &[f32], y: &mut [f32], run: &Run<'_>, f: impl Fn(f32) -> f32 + Sync) -> Result<()> {
    run.chunks(y, TILE, |index, y| {
        let x = &x[index * TILE..][..y.len()];
        vectorized(|| y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x)));
    })
}

pub(super) fn binary(binary: Binary, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (a, b) = (inputs[0].floats()?, inputs[1].floats()?);
    let y = outputs[0].floats()?;
    match binary {
        Binary::Add => run.chunks(y, TILE, |index, y| {
            let (a, b) = (&a[index * TILE..][..y.len()], &b[index * TILE..][..y.len()]);
            vectorized(|| y.iter_mut().zip(a).zip(b).for_each(|((y, &a), &b)| *y = a + b));
        }),
        _ => Err(Error::Internal { op: binary.name(), reason: "to come".into() }),
    }
}

/// Applies an activation where the values lie.
pub(super) fn activate(unary: Unary, values: &mut [f32]) {
    match unary {
        Unary::Relu => vectorized(|| values.iter_mut().for_each(|x| *x = if *x > 0.0 { *x } else { 0.0 })),
        _ => {}
    }
}
