//! One step of an optimizer over a whole arena, with the formulas of `torch.optim`.
//!
//! In them `g` is the gradient, `w` the weight, `t` the step; states start as zeros.

use smallvec::smallvec;

use super::elements;
use crate::error::{Error, Result};
use crate::op::{Inputs, Meta, Outputs, Spec};

/// `weights, states..., gradients`: one step. The weights and the states ([`Optimizer::states`] of them) are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimize {
    pub optimizer: Optimizer,
    /// The learning rate of this step.
    pub rate: f32,
    /// Which step this is, the first is 1.
    pub step: u64,
}

/// How weights follow their gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    Sgd(Sgd),
    /// Weight decay is added to the gradient.
    Adam(Adam),
    /// Weight decay shrinks the weights by `rate * weight_decay` first and does not touch the gradient.
    AdamW(Adam),
    RmsProp(RmsProp),
    Adagrad(Adagrad),
}

/// `g += weight_decay w`; with momentum `m = momentum m + (1 - dampening) g` (the first step: `m = g`) and `g = m`, or
/// `g += momentum m` if Nesterov's; `w -= rate g`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd {
    pub momentum: f32,
    pub dampening: f32,
    pub nesterov: bool,
    pub weight_decay: f32,
}

/// `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g²`;
/// `w -= rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)`.
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

impl Optimizer {
    /// How many states it keeps, each as large as the weights.
    pub fn states(&self) -> usize {
        match self {
            Self::Sgd(sgd) => usize::from(sgd.momentum != 0.0),
            Self::Adam(_) | Self::AdamW(_) => 2,
            Self::RmsProp(rms_prop) => 1 + usize::from(rms_prop.momentum != 0.0),
            Self::Adagrad(_) => 1,
        }
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let check = Check { op };
        match self {
            Self::Sgd(Sgd { momentum, dampening, nesterov, weight_decay }) => {
                check.not_negative("momentum", *momentum)?;
                check.finite("dampening", *dampening)?;
                check.not_negative("weight decay", *weight_decay)?;
                if *nesterov && (*momentum == 0.0 || *dampening != 0.0) {
                    return Err(Error::argument(op, "Nesterov's momentum needs a momentum and no dampening"));
                }
                Ok(())
            }
            Self::Adam(Adam { beta1, beta2, epsilon, weight_decay })
            | Self::AdamW(Adam { beta1, beta2, epsilon, weight_decay }) => {
                check.fraction("beta1", *beta1)?;
                check.fraction("beta2", *beta2)?;
                check.positive("epsilon", *epsilon)?;
                check.not_negative("weight decay", *weight_decay)
            }
            Self::RmsProp(RmsProp { decay, epsilon, momentum, weight_decay }) => {
                check.fraction("decay", *decay)?;
                check.positive("epsilon", *epsilon)?;
                check.not_negative("momentum", *momentum)?;
                check.not_negative("weight decay", *weight_decay)
            }
            Self::Adagrad(Adagrad { epsilon, rate_decay, weight_decay }) => {
                check.positive("epsilon", *epsilon)?;
                check.not_negative("rate decay", *rate_decay)?;
                check.not_negative("weight decay", *weight_decay)
            }
        }
    }
}

impl Spec for Optimize {
    fn name(&self) -> &'static str {
        match self.optimizer {
            Optimizer::Sgd(_) => "sgd",
            Optimizer::Adam(_) => "adam",
            Optimizer::AdamW(_) => "adam-w",
            Optimizer::RmsProp(_) => "rms-prop",
            Optimizer::Adagrad(_) => "adagrad",
        }
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        self.optimizer.check(inputs.op)?;
        Check { op: inputs.op }.not_negative("rate", self.rate)?;
        if self.step == 0 {
            return Err(Error::argument(inputs.op, "step 0: the first is 1"));
        }
        let states = self.optimizer.states();
        if inputs.metas.len() != states + 2 {
            return Err(inputs.wrong_count(&format!("{} (weights, {states} states, gradients)", states + 2)));
        }
        inputs.all_f32()?;
        (1..inputs.metas.len()).try_for_each(|index| inputs.same_shape(0, index))?;
        Ok(smallvec![])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        let each = match self.optimizer {
            Optimizer::Sgd(_) => 6,
            Optimizer::Adam(_) | Optimizer::AdamW(_) => 20,
            Optimizer::RmsProp(_) | Optimizer::Adagrad(_) => 16,
        };
        each * elements(inputs)
    }

    fn writes(&self) -> usize {
        1 + self.optimizer.states()
    }
}

/// The attributes of an optimizer, which NaN never passes.
struct Check {
    op: &'static str,
}

impl Check {
    fn finite(&self, what: &str, value: f32) -> Result<()> {
        self.that(value.is_finite(), what, value, "be finite")
    }

    fn not_negative(&self, what: &str, value: f32) -> Result<()> {
        self.that(value >= 0.0 && value.is_finite(), what, value, "be finite and not negative")
    }

    /// With an epsilon of 0 a weight that never had a gradient would become 0 / 0.
    fn positive(&self, what: &str, value: f32) -> Result<()> {
        self.that(value > 0.0 && value.is_finite(), what, value, "be finite and positive")
    }

    fn fraction(&self, what: &str, value: f32) -> Result<()> {
        self.that((0.0..1.0).contains(&value), what, value, "be at least 0 and below 1")
    }

    fn that(&self, holds: bool, what: &str, value: f32, must: &str) -> Result<()> {
        if holds { Ok(()) } else { Err(Error::argument(self.op, format!("{what} {value} must {must}"))) }
    }
}
