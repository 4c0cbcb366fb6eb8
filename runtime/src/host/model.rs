//! `weft:train/model`: what a trainer declares in `init`.

use wasmtime::Result;
use wasmtime::component::Resource;
use weft_gpu::schedule::{self, Schedule};
use weft_gpu::{Shape, op};

use super::HostState;
use super::bindings::weft::train::model::{self as contract, Decay, Error, Host, Initial, Optimizer, Role};
use super::tensor::{Handle, sizes};
use crate::train::declared::{self, DeclareError, Plan, TensorDeclaration};

impl From<Role> for declared::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Weight => Self::Weight,
            Role::Buffer => Self::Buffer,
            Role::Statistic => Self::Statistic,
            Role::Local => Self::Local,
        }
    }
}

impl From<Initial> for declared::Initial {
    fn from(initial: Initial) -> Self {
        match initial {
            Initial::Constant(value) => Self::Constant(value),
            Initial::Uniform((low, high)) => Self::Uniform { low, high },
            Initial::Normal((mean, deviation)) => Self::Normal { mean, deviation },
        }
    }
}

impl From<Optimizer> for op::Optimizer {
    fn from(optimizer: Optimizer) -> Self {
        let adam = |adam: contract::Adam| op::Adam {
            beta1: adam.beta1,
            beta2: adam.beta2,
            epsilon: adam.epsilon,
            weight_decay: adam.weight_decay,
        };
        match optimizer {
            Optimizer::Sgd(sgd) => Self::Sgd(op::Sgd {
                momentum: sgd.momentum,
                dampening: sgd.dampening,
                nesterov: sgd.nesterov,
                weight_decay: sgd.weight_decay,
            }),
            Optimizer::Adam(plain) => Self::Adam(adam(plain)),
            Optimizer::Adamw(apart) => Self::AdamW(adam(apart)),
            Optimizer::Rmsprop(rmsprop) => Self::RmsProp(op::RmsProp {
                decay: rmsprop.decay,
                epsilon: rmsprop.epsilon,
                momentum: rmsprop.momentum,
                weight_decay: rmsprop.weight_decay,
            }),
            Optimizer::Adagrad(adagrad) => Self::Adagrad(op::Adagrad {
                epsilon: adagrad.epsilon,
                rate_decay: adagrad.rate_decay,
                weight_decay: adagrad.weight_decay,
            }),
        }
    }
}

impl From<contract::Schedule> for Schedule {
    fn from(schedule: contract::Schedule) -> Self {
        let decay = match schedule.decay {
            Decay::None => schedule::Decay::None,
            Decay::Stepwise(contract::Stepwise { every, factor }) => schedule::Decay::Stepwise { every, factor },
            Decay::Cosine(contract::Decline { steps, floor }) => schedule::Decay::Cosine { steps, floor },
            Decay::Linear(contract::Decline { steps, floor }) => schedule::Decay::Linear { steps, floor },
        };
        Self { warm_up: schedule.warm_up, decay }
    }
}

impl From<DeclareError> for Error {
    fn from(error: DeclareError) -> Self {
        match error {
            DeclareError::Device(error) => error.into(),
            DeclareError::TooMany => Self::Quota(error.to_string()),
            DeclareError::Twice(_) | DeclareError::Changed { .. } => Self::Conflict(error.to_string()),
            DeclareError::Name(_) | DeclareError::NotFinite(_) | DeclareError::Clip(_) => {
                Self::BadInput(error.to_string())
            }
        }
    }
}

impl HostState {
    fn plan(&mut self) -> Result<&mut Plan, Error> {
        self.training.plan.as_mut().ok_or_else(|| Error::Conflict("only `init` declares".to_owned()))
    }
}

impl Host for HostState {
    fn declare(
        &mut self,
        name: String,
        role: Role,
        dimensions: Vec<u32>,
        initial: Initial,
    ) -> Result<Result<Resource<Handle>, Error>> {
        let declare = || -> Result<_, Error> {
            let shape = Shape::new(&sizes(&dimensions))?;
            let declaration = TensorDeclaration { name, role: role.into(), shape, initial: initial.into() };
            let number = self.plan()?.declare(declaration)?;
            self.compute.tensors.declare(number)
        };
        Ok(declare())
    }

    fn optimize(&mut self, optimizer: Optimizer) -> Result<Result<(), Error>> {
        Ok(self.plan().map(|plan| plan.optimizer = Some(optimizer.into())))
    }

    fn clip_gradients(&mut self, norm: f32) -> Result<Result<(), Error>> {
        Ok(self.plan().and_then(|plan| {
            if !(norm > 0.0 && norm.is_finite()) {
                return Err(DeclareError::Clip(norm).into());
            }
            plan.clip = Some(norm);
            Ok(())
        }))
    }

    fn follow(&mut self, schedule: contract::Schedule) -> Result<Result<(), Error>> {
        Ok(self.plan().and_then(|plan| {
            let schedule = Schedule::from(schedule);
            schedule.check()?;
            plan.schedule = schedule;
            Ok(())
        }))
    }
}
