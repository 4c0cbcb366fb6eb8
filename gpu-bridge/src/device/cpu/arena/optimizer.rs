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
        [weights] => no_state(op, Arena { weights: weights.floats()?, states: [], gradients, run }),
        [weights, state] => {
            one_state(op, Arena { weights: weights.floats()?, states: [state.floats()?], gradients, run })
        }
        [weights, first, second] => {
            let states = [first.floats()?, second.floats()?];
            two_states(op, Arena { weights: weights.floats()?, states, gradients, run })
        }
        _ => Err(mismatch(op)),
    }
}

/// What its spec has excluded.
fn mismatch(op: &Optimize) -> Error {
    Error::Internal { op: op.name(), reason: "the number of states is wrong".into() }
}

fn no_state(op: &Optimize, arena: Arena<'_, 0>) -> Result<()> {
    let Optimizer::Sgd(Sgd { weight_decay, .. }) = op.optimizer else { return Err(mismatch(op)) };
    let rate = op.rate;
    arena.each(
        weight_decay,
        #[inline(always)]
        move |weight, _, gradient| *weight -= rate * gradient,
    )
}

fn one_state(op: &Optimize, arena: Arena<'_, 1>) -> Result<()> {
    let rate = op.rate;
    match op.optimizer {
        Optimizer::Sgd(Sgd { momentum, nesterov, weight_decay, .. }) if op.step == 1 => arena.each(
            weight_decay,
            #[inline(always)]
            move |weight, [buffer], gradient| {
                *buffer = gradient;
                *weight -= rate * if nesterov { gradient + momentum * gradient } else { gradient };
            },
        ),
        Optimizer::Sgd(Sgd { momentum, dampening, nesterov: false, weight_decay }) => {
            let fresh = 1.0 - dampening;
            arena.each(
                weight_decay,
                #[inline(always)]
                move |weight, [buffer], gradient| {
                    *buffer = momentum * *buffer + fresh * gradient;
                    *weight -= rate * *buffer;
                },
            )
        }
        Optimizer::Sgd(Sgd { momentum, nesterov: true, weight_decay, .. }) => arena.each(
            weight_decay,
            #[inline(always)]
            move |weight, [buffer], gradient| {
                *buffer = momentum * *buffer + gradient;
                *weight -= rate * (gradient + momentum * *buffer);
            },
        ),
        Optimizer::RmsProp(RmsProp { decay, epsilon, weight_decay, .. }) => {
            let fresh = complement(decay);
            arena.each(
                weight_decay,
                #[inline(always)]
                move |weight, [square], gradient| {
                    *square = decay * *square + fresh * gradient * gradient;
                    *weight -= rate * gradient / (square.sqrt() + epsilon);
                },
            )
        }
        Optimizer::Adagrad(Adagrad { epsilon, rate_decay, weight_decay }) => {
            let rate = f64::from(rate) / (1.0 + (op.step - 1) as f64 * f64::from(rate_decay));
            let rate = rate as f32;
            arena.each(
                weight_decay,
                #[inline(always)]
                move |weight, [square], gradient| {
                    *square += gradient * gradient;
                    *weight -= rate * gradient / (square.sqrt() + epsilon);
                },
            )
        }
        Optimizer::Adam(_) | Optimizer::AdamW(_) => Err(mismatch(op)),
    }
}

fn two_states(op: &Optimize, arena: Arena<'_, 2>) -> Result<()> {
    let rate = op.rate;
    match op.optimizer {
        Optimizer::Adam(adam) => {
            let step = AdamStep::new(&adam, rate, op.step);
            arena.each(
                adam.weight_decay,
                #[inline(always)]
                move |weight, [mean, square], gradient| step.apply(weight, mean, square, gradient),
            )
        }
        Optimizer::AdamW(adam) => {
            let step = AdamStep::new(&adam, rate, op.step);
            let shrink = (1.0 - f64::from(rate) * f64::from(adam.weight_decay)) as f32;
            arena.each(
                0.0,
                #[inline(always)]
                move |weight, [mean, square], gradient| {
                    *weight *= shrink;
                    step.apply(weight, mean, square, gradient);
                },
            )
        }
        Optimizer::RmsProp(RmsProp { decay, epsilon, momentum, weight_decay }) => {
            let fresh = complement(decay);
            arena.each(
                weight_decay,
                #[inline(always)]
                move |weight, [square, buffer], gradient| {
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

/// The weights, what the optimizer keeps for each of them, and their gradients.
struct Arena<'a, const STATES: usize> {
    weights: &'a mut [f32],
    states: [&'a mut [f32]; STATES],
    gradients: &'a [f32],
    run: &'a Run<'a>,
}

impl<const STATES: usize> Arena<'_, STATES> {
    /// Runs `update` for each weight, its states and its gradient, to which weight decay was added.
    #[inline(always)]
    fn each(self, decay: f32, update: impl Fn(&mut f32, [&mut f32; STATES], f32) + Copy + Sync) -> Result<()> {
        let (weights, states) = (Parts::new(self.weights), self.states.map(Parts::new));
        self.run.ranges(self.gradients.len(), TILE, |range| {
            let gradients = &self.gradients[range.clone()];
            // SAFETY: the ranges of different tiles do not overlap.
            let weights = unsafe { weights.part(range.clone()) };
            // SAFETY: as above.
            let states = states.each_ref().map(|state| unsafe { state.part(range.clone()) });
            vectorized(
                #[inline(always)]
                move || {
                    // All of one length, which the compiler sees.
                    let count = gradients.len();
                    let (weights, mut states) = (&mut weights[..count], states.map(|state| &mut state[..count]));
                    for index in 0..count {
                        let (weight, gradient) = (&mut weights[index], gradients[index]);
                        // Without decay an infinite weight does not reach its gradient.
                        let gradient = if decay == 0.0 { gradient } else { gradient + decay * *weight };
                        update(weight, states.each_mut().map(|state| &mut state[index]), gradient);
                    }
                },
            );
        })
    }
}
