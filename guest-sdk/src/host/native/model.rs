//! `wit/model.wit`, and what a host does with what was declared.

use weft_gpu::op::{self, Optimize, Reducer};
use weft_gpu::schedule;

use super::tensor::Tensor;
use super::{HOST, context, made, refused, sizes, stream};
use crate::bindings::weft::train::model::{self as contract, Decay, Initial, Optimizer, Role};
use crate::{Error, Result};

/// What a trainer has declared on this thread.
#[derive(Default)]
pub struct Model {
    declared: Vec<Declared>,
    optimizer: Option<op::Optimizer>,
    clip: Option<f32>,
    schedule: schedule::Schedule,
    steps: u64,
}

struct Declared {
    name: String,
    role: Role,
    tensor: weft_gpu::Tensor,
    /// What the optimizer remembers of it.
    states: Vec<weft_gpu::Tensor>,
}

pub fn declare(name: &str, role: Role, dimensions: &[u32], initial: Initial) -> Result<Tensor> {
    if with(|model| model.declared.iter().any(|declared| declared.name == name)) {
        return Err(Error::conflict("there is one of this name already"));
    }
    let (context, sizes) = (context(), sizes(dimensions));
    let tensor = match initial {
        Initial::Constant(value) => context.full(&sizes, weft_gpu::DType::F32, f64::from(value)),
        Initial::Uniform((low, high)) => context.uniform(&sizes, low, high, stream()),
        Initial::Normal((mean, deviation)) => context.normal(&sizes, mean, deviation, stream()),
    };
    let tensor = if role == Role::Weight { tensor.and_then(|tensor| tensor.parameter(None)) } else { tensor };
    let tensor = tensor.map_err(refused)?;
    let declared = Declared { name: name.to_owned(), role, tensor: tensor.clone(), states: Vec::new() };
    with(|model| model.declared.push(declared));
    made(Ok(tensor))
}

#[expect(clippy::unnecessary_wraps, reason = "the host can refuse")]
pub fn optimize(optimizer: Optimizer) -> Result<()> {
    with(|model| model.optimizer = Some(translate(optimizer)));
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "the host can refuse")]
pub fn clip_gradients(norm: f32) -> Result<()> {
    with(|model| model.clip = Some(norm));
    Ok(())
}

pub fn follow(schedule: contract::Schedule) -> Result<()> {
    let decay = match schedule.decay {
        Decay::None => schedule::Decay::None,
        Decay::Stepwise(contract::Stepwise { every, factor }) => schedule::Decay::Stepwise { every, factor },
        Decay::Cosine(contract::Decline { steps, floor }) => schedule::Decay::Cosine { steps, floor },
        Decay::Linear(contract::Decline { steps, floor }) => schedule::Decay::Linear { steps, floor },
    };
    let schedule = schedule::Schedule { warm_up: schedule.warm_up, decay };
    schedule.check().map_err(refused)?;
    with(|model| model.schedule = schedule);
    Ok(())
}

fn with<T>(act: impl FnOnce(&mut Model) -> T) -> T {
    HOST.with(|host| act(&mut host.model.borrow_mut()))
}

fn translate(optimizer: Optimizer) -> op::Optimizer {
    let adam = |adam: contract::Adam| {
        let contract::Adam { beta1, beta2, epsilon, weight_decay } = adam;
        op::Adam { beta1, beta2, epsilon, weight_decay }
    };
    match optimizer {
        Optimizer::Sgd(contract::Sgd { momentum, dampening, nesterov, weight_decay }) => {
            op::Optimizer::Sgd(op::Sgd { momentum, dampening, nesterov, weight_decay })
        }
        Optimizer::Adam(record) => op::Optimizer::Adam(adam(record)),
        Optimizer::Adamw(record) => op::Optimizer::AdamW(adam(record)),
        Optimizer::Rmsprop(contract::Rmsprop { decay, epsilon, momentum, weight_decay }) => {
            op::Optimizer::RmsProp(op::RmsProp { decay, epsilon, momentum, weight_decay })
        }
        Optimizer::Adagrad(contract::Adagrad { epsilon, rate_decay, weight_decay }) => {
            op::Optimizer::Adagrad(op::Adagrad { epsilon, rate_decay, weight_decay })
        }
    }
}

/// Forgets all that was declared.
pub fn reset() {
    with(|model| *model = Model::default());
}

/// Names and shapes of what was declared, in order.
pub fn declared() -> Vec<(String, Role, Vec<u32>)> {
    let shape = |tensor: &weft_gpu::Tensor| tensor.shape().iter().map(|&size| size as u32).collect();
    with(|model| model.declared.iter().map(|d| (d.name.clone(), d.role, shape(&d.tensor))).collect())
}

/// What was declared under a name.
pub fn find(name: &str) -> Result<Tensor> {
    with(|model| model.declared.iter().find(|declared| declared.name == name).map(|found| found.tensor.clone()))
        .map(Tensor)
        .ok_or_else(|| Error::not_found(format!("no `{name}` was declared")))
}

/// Gradients start anew.
pub fn clear_gradients() {
    with(|model| model.declared.iter().for_each(|declared| declared.tensor.clear_gradient()));
}

/// Statistics are zero again.
pub fn clear_statistics() -> Result<()> {
    with(|model| {
        let zero = context().zeros(&[])?;
        let mut statistics = model.declared.iter().filter(|declared| declared.role == Role::Statistic);
        statistics.try_for_each(|declared| declared.tensor.assign(&zero))
    })
    .map_err(refused)
}

/// One step of the optimizer, if there is one.
pub fn descend(rate: f32) -> Result<()> {
    let _paused = super::no_gradients();
    with(|model| model.descend(rate)).map_err(refused)
}

impl Model {
    fn descend(&mut self, rate: f32) -> weft_gpu::Result<()> {
        let Some(optimizer) = self.optimizer else { return Ok(()) };
        if let Some(limit) = self.clip {
            self.clip(limit)?;
        }
        let rate = rate * self.schedule.factor(self.steps);
        self.steps += 1;
        let step = Optimize { optimizer, rate, step: self.steps };
        for declared in self.declared.iter_mut().filter(|declared| declared.role == Role::Weight) {
            let Some(gradient) = declared.tensor.gradient() else { continue };
            let weight = declared.tensor.detach();
            while declared.states.len() < optimizer.states() {
                declared.states.push(context().zeros(&weight.shape())?);
            }
            weight.optimize(step, &declared.states.iter().collect::<Vec<_>>(), &gradient)?;
        }
        Ok(())
    }

    /// Scales all gradients together to a norm of at most `limit`.
    fn clip(&self, limit: f32) -> weft_gpu::Result<()> {
        let gradients: Vec<_> = self.declared.iter().filter_map(|declared| declared.tensor.gradient()).collect();
        let mut squares = context().zeros(&[])?;
        for gradient in &gradients {
            squares = squares.add(&gradient.reduce_all(Reducer::SumSquares)?)?;
        }
        gradients.iter().try_for_each(|gradient| gradient.clip_norm(&squares, limit))
    }
}
