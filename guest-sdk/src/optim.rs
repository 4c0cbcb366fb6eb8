//! Optimizers: declared in `init`, applied by the host after each step, so that it can average, schedule and resume.
//!
//! The learning rate is no part of them: it is the run's, and a [`Schedule`] that is declared changes it. Formulas and defaults are PyTorch's; `g` is a gradient, `w` its
//! weight.
//!
//! ```
//! use weft_sdk::optim::{self, Schedule, Sgd};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! Sgd { momentum: 0.9, weight_decay: 1e-4, ..Sgd::default() }.declare()?;
//! optim::clip_gradients(1.0)?;
//! Schedule::cosine(1_000, 0.01).warm_up(100).declare()?;
//! # Ok(())
//! # }
//! ```

use crate::Result;
use crate::bindings::weft::train::model as contract;
use crate::host::model as host;

/// `g += weight_decay w`; `v = momentum v + (1 - dampening) g`; `w -= rate v`, or with Nesterov's look ahead
/// `w -= rate (g + momentum v)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd {
    pub momentum: f32,
    pub dampening: f32,
    pub nesterov: bool,
    pub weight_decay: f32,
}

impl Sgd {
    pub fn declare(self) -> Result<()> {
        let Self { momentum, dampening, nesterov, weight_decay } = self;
        host::optimize(contract::Optimizer::Sgd(contract::Sgd { momentum, dampening, nesterov, weight_decay }))
    }
}

/// `g += weight_decay w`; `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g²`;
/// `w -= rate m' / (sqrt(v') + epsilon)`, both corrected for having begun at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    pub beta1: f32,
    pub beta2: f32,
    pub epsilon: f32,
    pub weight_decay: f32,
}

impl Default for Adam {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }
}

impl Adam {
    pub fn declare(self) -> Result<()> {
        host::optimize(contract::Optimizer::Adam(self.record()))
    }

    fn record(self) -> contract::Adam {
        let Self { beta1, beta2, epsilon, weight_decay } = self;
        contract::Adam { beta1, beta2, epsilon, weight_decay }
    }
}

/// [`Adam`] whose decay is apart from the gradient: `w -= rate weight_decay w`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    pub beta1: f32,
    pub beta2: f32,
    pub epsilon: f32,
    pub weight_decay: f32,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }
    }
}

impl AdamW {
    pub fn declare(self) -> Result<()> {
        let Self { beta1, beta2, epsilon, weight_decay } = self;
        host::optimize(contract::Optimizer::Adamw(contract::Adam { beta1, beta2, epsilon, weight_decay }))
    }
}

/// `g += weight_decay w`; `v = decay v + (1 - decay) g²`; `d = g / (sqrt(v) + epsilon)`; with momentum
/// `m = momentum m + d` and `d = m`; `w -= rate d`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    pub decay: f32,
    pub epsilon: f32,
    pub momentum: f32,
    pub weight_decay: f32,
}

impl Default for RmsProp {
    fn default() -> Self {
        Self { decay: 0.99, epsilon: 1e-8, momentum: 0.0, weight_decay: 0.0 }
    }
}

impl RmsProp {
    pub fn declare(self) -> Result<()> {
        let Self { decay, epsilon, momentum, weight_decay } = self;
        host::optimize(contract::Optimizer::Rmsprop(contract::Rmsprop { decay, epsilon, momentum, weight_decay }))
    }
}

/// `g += weight_decay w`; `v += g²`; `w -= rate / (1 + (t - 1) rate_decay) * g / (sqrt(v) + epsilon)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    pub epsilon: f32,
    pub rate_decay: f32,
    pub weight_decay: f32,
}

impl Default for Adagrad {
    fn default() -> Self {
        Self { epsilon: 1e-10, rate_decay: 0.0, weight_decay: 0.0 }
    }
}

impl Adagrad {
    pub fn declare(self) -> Result<()> {
        let Self { epsilon, rate_decay, weight_decay } = self;
        host::optimize(contract::Optimizer::Adagrad(contract::Adagrad { epsilon, rate_decay, weight_decay }))
    }
}

/// Before the optimizer, all gradients together are scaled down to this norm if theirs is larger.
pub fn clip_gradients(norm: f32) -> Result<()> {
    host::clip_gradients(norm)
}

/// What the run's learning rate is multiplied with, step by step: a rise, and then a decay. Steps are the optimizer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule(contract::Schedule);

impl Schedule {
    fn new(decay: contract::Decay) -> Self {
        Self(contract::Schedule { warm_up: 0, decay })
    }

    /// The rate as it is, for a rise and nothing after it.
    pub fn constant() -> Self {
        Self::new(contract::Decay::None)
    }

    /// Times `factor` whenever `every` steps are done: `factor^floor(t / every)`.
    pub fn stepwise(every: u32, factor: f32) -> Self {
        Self::new(contract::Decay::Stepwise(contract::Stepwise { every, factor }))
    }

    /// In half a wave over `steps` steps: `floor + (1 - floor) (1 + cos(pi t / steps)) / 2`, and then `floor`.
    pub fn cosine(steps: u32, floor: f32) -> Self {
        Self::new(contract::Decay::Cosine(contract::Decline { steps, floor }))
    }

    /// In a line over `steps` steps: `1 - (1 - floor) t / steps`, and then `floor`.
    pub fn linear(steps: u32, floor: f32) -> Self {
        Self::new(contract::Decay::Linear(contract::Decline { steps, floor }))
    }

    /// Before it, the rate rises in equal parts over `steps` steps.
    pub fn warm_up(mut self, steps: u32) -> Self {
        self.0.warm_up = steps;
        self
    }

    pub fn declare(self) -> Result<()> {
        host::follow(self.0)
    }
}
