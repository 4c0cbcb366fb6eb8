//! One step of an optimizer over a whole arena.

use super::TILE;
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::{Error, Result};
use crate::op::{Adagrad, Adam, Optimize, Optimizer, RmsProp, Sgd, Spec};
use crate::run::{Parts, Run};

pub(in crate::device::cpu) fn optimize(
    op: &Optimize,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let gradients = inputs[0].floats()?;
    match outputs {
        [weights] => no_state(op, weights.floats()?, gradients, run),
        [weights, state] => one_state(op, weights.floats()?, state.floats()?, gradients, run),
        [weights, first, second] => {
            two_states(op, weights.floats()?, first.floats()?, second.floats()?, gradients, run)
        }
        _ => Err(mismatch(op)),
    }
}

/// What its spec has excluded.
fn mismatch(op: &Optimize) -> Error {
    Error::Internal { op: op.name(), reason: "the number of states is wrong".into() }
}

fn no_state(op: &Optimize, weights: &mut [f32], gradients: &[f32], run: &Run<'_>) -> Result<()> {
    let Optimizer::Sgd(Sgd { weight_decay, .. }) = op.optimizer else { return Err(mismatch(op)) };
    let rate = op.rate;
    run.chunks(weights, TILE, |tile, weights| {
        let gradients = &gradients[tile * TILE..][..weights.len()];
        vectorized(
            #[inline(always)]
            || {
                for (weight, &gradient) in weights.iter_mut().zip(gradients) {
                    *weight -= rate * decayed(gradient, *weight, weight_decay);
                }
            },
        );
    })
}

fn one_state(op: &Optimize, weights: &mut [f32], state: &mut [f32], gradients: &[f32], run: &Run<'_>) -> Result<()> {
    let rate = op.rate;
    match op.optimizer {
        Optimizer::Sgd(Sgd { momentum, nesterov, weight_decay, .. }) if op.step == 1 => each_with_one(
            weights,
            state,
            gradients,
            run,
            #[inline(always)]
            move |weight, buffer, gradient| {
                let gradient = decayed(gradient, *weight, weight_decay);
                *buffer = gradient;
                *weight -= rate * if nesterov { gradient + momentum * gradient } else { gradient };
            },
        ),
        Optimizer::Sgd(Sgd { momentum, dampening, nesterov: false, weight_decay }) => {
            let fresh = 1.0 - dampening;
            each_with_one(
                weights,
                state,
                gradients,
                run,
                #[inline(always)]
                move |weight, buffer, gradient| {
                    *buffer = momentum * *buffer + fresh * decayed(gradient, *weight, weight_decay);
                    *weight -= rate * *buffer;
                },
            )
        }
        Optimizer::Sgd(Sgd { momentum, nesterov: true, weight_decay, .. }) => each_with_one(
            weights,
            state,
            gradients,
            run,
            #[inline(always)]
            move |weight, buffer, gradient| {
                let gradient = decayed(gradient, *weight, weight_decay);
                *buffer = momentum * *buffer + gradient;
                *weight -= rate * (gradient + momentum * *buffer);
            },
        ),
        Optimizer::RmsProp(RmsProp { decay, epsilon, weight_decay, .. }) => {
            let fresh = complement(decay);
            each_with_one(
                weights,
                state,
                gradients,
                run,
                #[inline(always)]
                move |weight, square, gradient| {
                    let gradient = decayed(gradient, *weight, weight_decay);
                    *square = decay * *square + fresh * gradient * gradient;
                    *weight -= rate * gradient / (square.sqrt() + epsilon);
                },
            )
        }
        Optimizer::Adagrad(Adagrad { epsilon, rate_decay, weight_decay }) => {
            let rate = f64::from(rate) / (1.0 + (op.step - 1) as f64 * f64::from(rate_decay));
            let rate = rate as f32;
            each_with_one(
                weights,
                state,
                gradients,
                run,
                #[inline(always)]
                move |weight, square, gradient| {
                    let gradient = decayed(gradient, *weight, weight_decay);
                    *square += gradient * gradient;
                    *weight -= rate * gradient / (square.sqrt() + epsilon);
                },
            )
        }
        Optimizer::Adam(_) | Optimizer::AdamW(_) => Err(mismatch(op)),
    }
}

fn two_states(
    op: &Optimize,
    weights: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    gradients: &[f32],
    run: &Run<'_>,
) -> Result<()> {
    let rate = op.rate;
    match op.optimizer {
        Optimizer::Adam(adam) => {
            let step = AdamStep::new(&adam, rate, op.step);
            each_with_two(
                weights,
                first,
                second,
                gradients,
                run,
                #[inline(always)]
                move |weight, mean, square, gradient| {
                    let gradient = decayed(gradient, *weight, adam.weight_decay);
                    step.apply(weight, mean, square, gradient);
                },
            )
        }
        Optimizer::AdamW(adam) => {
            let step = AdamStep::new(&adam, rate, op.step);
            let shrink = (1.0 - f64::from(rate) * f64::from(adam.weight_decay)) as f32;
            each_with_two(
                weights,
                first,
                second,
                gradients,
                run,
                #[inline(always)]
                move |weight, mean, square, gradient| {
                    *weight *= shrink;
                    step.apply(weight, mean, square, gradient);
                },
            )
        }
        Optimizer::RmsProp(RmsProp { decay, epsilon, momentum, weight_decay }) => {
            let fresh = complement(decay);
            each_with_two(
                weights,
                first,
                second,
                gradients,
                run,
                #[inline(always)]
                move |weight, square, buffer, gradient| {
                    let gradient = decayed(gradient, *weight, weight_decay);
                    *square = decay * *square + fresh * gradient * gradient;
                    *buffer = momentum * *buffer + gradient / (square.sqrt() + epsilon);
                    *weight -= rate * *buffer;
                },
            )
        }
        Optimizer::Sgd(_) | Optimizer::Adagrad(_) => Err(mismatch(op)),
    }
}

/// Adam's constants of one step.
#[derive(Clone, Copy)]
struct AdamStep {
    beta1: f32,
    beta2: f32,
    fresh1: f32,
    fresh2: f32,
    /// `rate / (1 - beta1^t)`
    size: f32,
    /// `1 / sqrt(1 - beta2^t)`
    correction: f32,
    epsilon: f32,
}

impl AdamStep {
    fn new(adam: &Adam, rate: f32, step: u64) -> Self {
        let bias = |beta: f32| 1.0 - f64::from(beta).powf(step as f64);
        Self {
            beta1: adam.beta1,
            beta2: adam.beta2,
            fresh1: complement(adam.beta1),
            fresh2: complement(adam.beta2),
            size: (f64::from(rate) / bias(adam.beta1)) as f32,
            correction: (1.0 / bias(adam.beta2).sqrt()) as f32,
            epsilon: adam.epsilon,
        }
    }

    #[inline(always)]
    fn apply(&self, weight: &mut f32, mean: &mut f32, square: &mut f32, gradient: f32) {
        *mean = self.beta1 * *mean + self.fresh1 * gradient;
        *square = self.beta2 * *square + self.fresh2 * gradient * gradient;
        *weight -= self.size * *mean / (square.sqrt() * self.correction + self.epsilon);
    }
}

/// `1 - fraction`, rounded once.
fn complement(fraction: f32) -> f32 {
    (1.0 - f64::from(fraction)) as f32
}

/// The gradient with weight decay. Without decay an infinite weight does not reach it.
#[inline(always)]
fn decayed(gradient: f32, weight: f32, weight_decay: f32) -> f32 {
    if weight_decay == 0.0 { gradient } else { gradient + weight_decay * weight }
}

/// Runs `update` for each weight, its state and its gradient.
#[inline(always)]
fn each_with_one(
    weights: &mut [f32],
    state: &mut [f32],
    gradients: &[f32],
    run: &Run<'_>,
    update: impl Fn(&mut f32, &mut f32, f32) + Sync,
) -> Result<()> {
    let (weights, state) = (Parts::new(weights), Parts::new(state));
    run.ranges(gradients.len(), TILE, |range| {
        // SAFETY: the ranges of different tiles do not overlap.
        let (weights, state) = unsafe { (weights.part(range.clone()), state.part(range.clone())) };
        let gradients = &gradients[range];
        vectorized(
            #[inline(always)]
            || {
                for ((weight, state), &gradient) in weights.iter_mut().zip(state).zip(gradients) {
                    update(weight, state, gradient);
                }
            },
        );
    })
}

/// Runs `update` for each weight, its two states and its gradient.
#[inline(always)]
fn each_with_two(
    weights: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    gradients: &[f32],
    run: &Run<'_>,
    update: impl Fn(&mut f32, &mut f32, &mut f32, f32) + Sync,
) -> Result<()> {
    let (weights, first, second) = (Parts::new(weights), Parts::new(first), Parts::new(second));
    run.ranges(gradients.len(), TILE, |range| {
        // SAFETY: the ranges of different tiles do not overlap.
        let (weights, first, second) =
            unsafe { (weights.part(range.clone()), first.part(range.clone()), second.part(range.clone())) };
        let gradients = &gradients[range];
        vectorized(
            #[inline(always)]
            || {
                for (((weight, first), second), &gradient) in weights.iter_mut().zip(first).zip(second).zip(gradients) {
                    update(weight, first, second, gradient);
                }
            },
        );
    })
}
