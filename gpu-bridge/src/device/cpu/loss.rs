//! Losses, each computed together with its gradient.

use super::fold::{paced_largest, paced_sum, sum};
use super::math::{exp, log};
use super::memory::{Indices, Input, Output};
use super::simd::vectorized;
use crate::error::{Error, Result};
use crate::op::{Loss, LossKind, Spec};
use crate::run::{Pace, Parts, Run};

/// Elements per tile, or more where that would make too many tiles.
const TILE: usize = 1 << 14;

/// Elements whose losses are kept until they are summed.
const BLOCK: usize = 256;

/// The most tiles: each has a place on the stack for its loss.
const MOST_TILES: usize = 256;

pub(super) fn loss(op: &Loss, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let [loss, gradient] = outputs else {
        return Err(Error::Internal { op: op.name(), reason: "it gives two results".into() });
    };
    let (prediction, gradient) = (inputs[0].floats()?, gradient.floats()?);
    let total = if op.kind.takes_labels() {
        let rows = inputs[0].layout.shape[0];
        labelled(op, prediction, inputs[1].indices()?, rows, gradient, run)?
    } else {
        elementwise(op, prediction, inputs[1].floats()?, gradient, run)?
    };
    loss.floats()?.fill(total as f32);
    Ok(())
}

/// Adds up what `body` gives for ranges of `0..count`, in their order.
fn total(
    count: usize,
    grain: usize,
    run: &Run<'_>,
    body: impl Fn(std::ops::Range<usize>, &mut Pace<'_>) -> Result<f64> + Sync,
) -> Result<f64> {
    let grain = grain.max(count.div_ceil(MOST_TILES)).max(1);
    let mut losses = [0.0_f64; MOST_TILES];
    let tiles = count.div_ceil(grain);
    let parts = Parts::new(&mut losses);
    run.paced(tiles, |pace, tile| {
        let loss = body(tile * grain..count.min((tile + 1) * grain), pace)?;
        // SAFETY: each tile has a place of its own.
        unsafe { parts.part(tile..tile + 1) }.fill(loss);
        Ok(())
    })?;
    Ok(losses[..tiles].iter().sum())
}

/// Losses of rows `[rows, classes]` that have a label each.
fn labelled(
    op: &Loss,
    prediction: &[f32],
    labels: Indices<'_>,
    rows: usize,
    gradient: &mut [f32],
    run: &Run<'_>,
) -> Result<f64> {
    let classes = prediction.len() / rows.max(1);
    let factor = op.reduction.factor(rows);
    let gradient = Parts::new(gradient);
    let total = total(rows, TILE / classes.max(1), run, |rows, pace| {
        // SAFETY: each row belongs to one tile.
        let gradient = unsafe { gradient.part(rows.start * classes..rows.end * classes) };
        rows.clone().try_for_each(|row| {
            pace.step(1)?;
            labels.checked(row, classes, op.name(), "label").map(drop)
        })?;
        let prediction = &prediction[rows.start * classes..rows.end * classes];
        let rows = rows.zip(prediction.chunks_exact(classes)).zip(gradient.chunks_exact_mut(classes));
        let rows = rows.map(|((row, prediction), gradient)| (labels.get(row) as usize, prediction, gradient));
        let mut total = 0.0;
        match op.kind {
            LossKind::SoftmaxCrossEntropy { smoothing } => vectorized(
                #[inline(always)]
                || {
                    for (label, logits, gradient) in rows {
                        pace.step(classes.min(TILE))?;
                        total += cross_entropy(logits, label, smoothing, factor, gradient, pace)?;
                    }
                    Ok(total)
                },
            ),
            _ => {
                for (label, prediction, gradient) in rows {
                    pace.step(classes.min(TILE))?;
                    pace.fill(gradient, 0.0)?;
                    gradient[label] = -factor as f32;
                    total -= f64::from(prediction[label]);
                }
                Ok(total)
            }
        }
    })?;
    Ok(total * factor)
}

#[inline(always)]
fn cross_entropy(
    logits: &[f32],
    label: usize,
    smoothing: f32,
    factor: f64,
    gradient: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<f64> {
    let most = paced_largest(logits, pace)?;
    pace.pieces(logits.len(), |range| {
        for (gradient, &logit) in gradient[range.clone()].iter_mut().zip(&logits[range]) {
            *gradient = exp(logit - most);
        }
    })?;
    let powers = paced_sum(gradient, pace, |power| power)?;
    let normalizer = f64::from(log(powers as f32));
    let scale = (factor / powers) as f32;
    let even = (f64::from(smoothing) / logits.len() as f64 * factor) as f32;
    pace.pieces(logits.len(), |range| {
        gradient[range].iter_mut().for_each(|gradient| *gradient = *gradient * scale - even);
    })?;
    let rest = 1.0 - f64::from(smoothing);
    gradient[label] -= (rest * factor) as f32;
    // The difference from the largest comes first: that is exact.
    let of_label = normalizer + (f64::from(most) - f64::from(logits[label]));
    if smoothing == 0.0 {
        return Ok(of_label);
    }
    let of_all = normalizer + paced_sum(logits, pace, |logit| most - logit)? / logits.len() as f64;
    Ok(rest * of_label + f64::from(smoothing) * of_all)
}

/// Losses of elements that have a target each.
fn elementwise(op: &Loss, prediction: &[f32], target: &[f32], gradient: &mut [f32], run: &Run<'_>) -> Result<f64> {
    match op.kind {
        LossKind::Hinge => map(op, prediction, target, gradient, run, hinge),
        LossKind::Mse => map(op, prediction, target, gradient, run, squared),
        _ => map(op, prediction, target, gradient, run, binary_cross_entropy),
    }
}

/// Loss and gradient of each element by `f`.
fn map(
    op: &Loss,
    prediction: &[f32],
    target: &[f32],
    gradient: &mut [f32],
    run: &Run<'_>,
    f: impl Fn(f32, f32) -> (f32, f32) + Copy + Sync,
) -> Result<f64> {
    let factor = op.reduction.factor(prediction.len());
    let gradient = Parts::new(gradient);
    let total = total(prediction.len(), TILE, run, |range, pace| {
        // SAFETY: each element belongs to one tile.
        let gradient = unsafe { gradient.part(range.clone()) };
        let (prediction, target) = (&prediction[range.clone()], &target[range]);
        vectorized(
            #[inline(always)]
            || {
                let mut total = 0.0;
                let blocks = gradient.chunks_mut(BLOCK).zip(prediction.chunks(BLOCK)).zip(target.chunks(BLOCK));
                for ((gradient, prediction), target) in blocks {
                    pace.step(BLOCK)?;
                    let mut losses = [0.0; BLOCK];
                    let losses = &mut losses[..gradient.len()];
                    for (((loss, gradient), &p), &t) in losses.iter_mut().zip(gradient).zip(prediction).zip(target) {
                        let (one, slope) = f(p, t);
                        *loss = one;
                        *gradient = slope * factor as f32;
                    }
                    total += sum(losses, |loss| loss);
                }
                Ok(total)
            },
        )
    })?;
    Ok(total * factor)
}

#[inline(always)]
fn hinge(p: f32, t: f32) -> (f32, f32) {
    let margin = 1.0 - t * p;
    if margin <= 0.0 { (0.0, 0.0) } else { (margin, -t) }
}

#[inline(always)]
fn squared(p: f32, t: f32) -> (f32, f32) {
    let difference = p - t;
    (difference * difference, 2.0 * difference)
}

#[inline(always)]
fn binary_cross_entropy(x: f32, t: f32) -> (f32, f32) {
    let power = exp(-x.abs());
    // log(1 + power), accurate where power is small: what rounding 1 + power has lost is added again.
    let sum = 1.0 + power;
    let tail = log(sum) + (power - (sum - 1.0)) / sum;
    let positive = if x <= 0.0 { 0.0 } else { x };
    let sigmoid = if x < 0.0 { power } else { 1.0 } / sum;
    (positive - x * t + tail, sigmoid - t)
}
