//! What a trainer declared: a [`Plan`], and then tensors in memory.
//!
//! Weights lie in one arena, so that the optimizer, an average or a copy of all of them is one operation. The others lie
//! by themselves. First values depend on the seed and the tensor's name alone, not on the order of declarations.

use std::collections::HashSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use weft_core::spec::{OptimizerKind, OptimizerSpec};
use weft_gpu::arena::ALIGNMENT;
use weft_gpu::op::{Adagrad, Adam, Fill, Normal, Op, Optimizer, Reducer, RmsProp, Sgd, Stream, Uniform};
use weft_gpu::schedule::Schedule;
use weft_gpu::{Arena, ArenaBuilder, Context, DType, OptimizerState, Shape, Tensor};

use crate::digest::Digest;

mod written;

/// Tensors that one trainer may declare.
pub const MAX_DECLARED: usize = 8_192;
/// Bytes of a tensor's name.
pub const MAX_NAME: usize = 200;

/// What the host does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    Weight,
    Buffer,
    Statistic,
    Local,
}

/// The first value of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Initial {
    Constant(f32),
    Uniform { low: f32, high: f32 },
    Normal { mean: f32, deviation: f32 },
}

/// One tensor of a trainer's.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorDeclaration {
    pub name: String,
    pub role: Role,
    pub shape: Shape,
    pub initial: Initial,
}

/// What one `init` declares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    tensors: Vec<TensorDeclaration>,
    names: HashSet<String>,
    pub optimizer: Option<Optimizer>,
    pub clip: Option<f32>,
    pub schedule: Schedule,
}

/// A declaration that cannot be.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum DeclareError {
    #[error("tensor `{0}` is declared twice")]
    Twice(String),
    #[error("`{0}` is no name for a tensor: use 1 to {MAX_NAME} letters, digits and `._-`")]
    Name(String),
    #[error("more than {MAX_DECLARED} tensors are declared (`max_declared`)")]
    TooMany,
    #[error("the first value of `{0}` is not finite")]
    NotFinite(String),
    #[error("`init` now declares {now}, and declared {before} before: a trainer must declare the same every time")]
    Changed { now: String, before: String },
    #[error("the norm `{0}` to clip gradients to must be above 0")]
    Clip(f32),
    #[error(transparent)]
    Device(#[from] weft_gpu::Error),
}

impl Plan {
    /// Adds a tensor and says its number.
    pub fn declare(&mut self, declaration: TensorDeclaration) -> Result<usize, DeclareError> {
        let name = &declaration.name;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(plain) {
            return Err(DeclareError::Name(name.escape_debug().take(MAX_NAME).collect()));
        }
        let numbers = match declaration.initial {
            Initial::Constant(value) => [value, 0.0],
            Initial::Uniform { low, high } => [low, high],
            Initial::Normal { mean, deviation } => [mean, deviation],
        };
        if !numbers.into_iter().all(f32::is_finite) {
            return Err(DeclareError::NotFinite(name.clone()));
        }
        if self.tensors.len() == MAX_DECLARED {
            return Err(DeclareError::TooMany);
        }
        if !self.names.insert(name.clone()) {
            return Err(DeclareError::Twice(name.clone()));
        }
        self.tensors.push(declaration);
        Ok(self.tensors.len() - 1)
    }

    pub fn tensors(&self) -> &[TensorDeclaration] {
        &self.tensors
    }

    /// Where each tensor of a role lies in the row of all of them: weights as in the arena, others one after the other.
    pub fn places(&self, role: Role) -> Vec<(&TensorDeclaration, Range<usize>)> {
        let mut start = 0;
        let mut places = Vec::new();
        for tensor in self.tensors.iter().filter(|tensor| tensor.role == role) {
            let end = start + tensor.shape.elements();
            places.push((tensor, start..end));
            start = if role == Role::Weight { end.next_multiple_of(ALIGNMENT) } else { end };
        }
        places
    }

    /// Whether something is counted up to be summed over all workers.
    pub fn has_statistics(&self) -> bool {
        self.tensors.iter().any(|tensor| tensor.role == Role::Statistic)
    }

    /// Refuses another plan than the one before.
    pub fn check_same(&self, before: &Self) -> Result<(), DeclareError> {
        if self == before {
            return Ok(());
        }
        let differs = self.tensors.iter().zip(&before.tensors).find(|(now, before)| now != before);
        let describe =
            |tensor: &TensorDeclaration| format!("`{}` as {:?} of {:?}", tensor.name, tensor.role, tensor.shape);
        let (now, before) = match differs {
            Some((now, before)) => (describe(now), describe(before)),
            None if self.tensors.len() != before.tensors.len() => {
                (format!("{} tensors", self.tensors.len()), before.tensors.len().to_string())
            }
            None => ("another optimizer or schedule".to_owned(), "one".to_owned()),
        };
        Err(DeclareError::Changed { now, before })
    }
}

/// What a job makes of the optimizer that its trainer declares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OptimizerChanges {
    /// Another one instead.
    pub replaced: Option<OptimizerSpec>,
    /// Weights do not decay, because the job penalises them itself.
    pub without_decay: bool,
}

impl OptimizerChanges {
    /// A trainer that declares no optimizer keeps none: it makes its weights in another way.
    pub fn apply(&self, plan: &mut Plan) {
        let Some(declared) = &mut plan.optimizer else { return };
        if let Some(spec) = &self.replaced {
            *declared = optimizer(spec);
            plan.clip = spec.clip.or(plan.clip);
        }
        if self.without_decay {
            match declared {
                Optimizer::Sgd(Sgd { weight_decay, .. })
                | Optimizer::Adam(Adam { weight_decay, .. })
                | Optimizer::AdamW(Adam { weight_decay, .. })
                | Optimizer::RmsProp(RmsProp { weight_decay, .. })
                | Optimizer::Adagrad(Adagrad { weight_decay, .. }) => *weight_decay = 0.0,
            }
        }
    }
}

fn optimizer(spec: &OptimizerSpec) -> Optimizer {
    let decay = spec.weight_decay.unwrap_or(0.0);
    let adam = || {
        let usual = Adam::default();
        Adam {
            beta1: spec.beta1.unwrap_or(usual.beta1),
            beta2: spec.beta2.unwrap_or(usual.beta2),
            epsilon: spec.epsilon.unwrap_or(usual.epsilon),
            weight_decay: decay,
        }
    };
    match spec.kind {
        OptimizerKind::Sgd => Optimizer::Sgd(Sgd {
            momentum: spec.momentum.unwrap_or(0.0),
            dampening: 0.0,
            nesterov: spec.nesterov.unwrap_or(false),
            weight_decay: decay,
        }),
        OptimizerKind::Adam => Optimizer::Adam(adam()),
        OptimizerKind::AdamW => Optimizer::AdamW(adam()),
        OptimizerKind::RmsProp => {
            let usual = RmsProp::default();
            Optimizer::RmsProp(RmsProp {
                decay: spec.beta2.unwrap_or(usual.decay),
                epsilon: spec.epsilon.unwrap_or(usual.epsilon),
                momentum: spec.momentum.unwrap_or(0.0),
                weight_decay: decay,
            })
        }
        OptimizerKind::Adagrad => {
            let usual = Adagrad::default();
            let epsilon = spec.epsilon.unwrap_or(usual.epsilon);
            Optimizer::Adagrad(Adagrad { epsilon, weight_decay: decay, ..usual })
        }
    }
}

/// Some of what was declared, as one row of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorRow {
    /// As they lie in the arena, with the zeros between them.
    Weights,
    Gradients,
    Buffers,
    Statistics,
    Locals,
    /// What the optimizer remembers.
    Moments,
}

/// What pulls one worker's weights to those of all, in ADMM: tensors that lie as the arena does.
pub struct Pull {
    pub rho: f32,
    pub model: Tensor,
    /// The worker's scaled duals.
    pub duals: Tensor,
}

/// What was declared, in the memory of a device.
pub struct Declared {
    plan: Plan,
    /// In the order of their declarations.
    tensors: Vec<Tensor>,
    arena: Arena,
    optimizer: Option<OptimizerState>,
}

impl Declared {
    /// Takes the memory and fills it.
    pub fn new(plan: Plan, context: &Context, seed: u64) -> Result<Self, DeclareError> {
        let mut builder = ArenaBuilder::new();
        for weight in plan.tensors.iter().filter(|tensor| tensor.role == Role::Weight) {
            builder.add(&weight.name, &weight.shape)?;
        }
        let arena = builder.build(context)?;
        let mut weights = 0..;
        let mut tensors = Vec::with_capacity(plan.tensors.len());
        for declaration in &plan.tensors {
            let first = first_value(declaration, seed);
            tensors.push(match (declaration.role, weights.by_ref()) {
                (Role::Weight, weights) => {
                    let weight = arena.parameter(weights.next().unwrap_or_default())?;
                    context.fill(&weight.detach(), first)?;
                    weight
                }
                _ => context.run_one(first, &[])?,
            });
        }
        let optimizer = plan.optimizer.map(|optimizer| arena.optimizer(optimizer)).transpose()?;
        Ok(Self { plan, tensors, arena, optimizer })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// In the order of their declarations.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    pub fn named(&self) -> impl Iterator<Item = (&TensorDeclaration, &Tensor)> {
        self.plan.tensors.iter().zip(&self.tensors)
    }

    /// All weights.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// How many numbers are trained.
    pub fn parameters(&self) -> usize {
        self.arena.elements()
    }

    /// What becomes of the run's learning rate in the next step, by the schedule that was declared.
    pub fn scheduled(&self, rate: f32) -> f32 {
        let steps = self.optimizer.as_ref().map_or(0, OptimizerState::steps);
        rate * self.plan.schedule.factor(steps)
    }

    /// Whether there is an optimizer, and no weight has a gradient for it.
    pub fn was_not_reached(&self) -> bool {
        self.optimizer.is_some()
            && !self.arena.is_empty()
            && self.tensors.iter().all(|tensor| tensor.gradient().is_none())
    }

    /// One step of the optimizer, if there is one, against the gradients. The rate is the run's.
    pub fn descend(&mut self, rate: f32) -> Result<(), weft_gpu::Error> {
        self.descend_towards(rate, None)
    }

    /// The same, and the weights are also pulled towards others. That pull is not clipped.
    pub fn descend_towards(&mut self, rate: f32, pull: Option<&Pull>) -> Result<(), weft_gpu::Error> {
        let rate = self.scheduled(rate);
        let Some(optimizer) = &mut self.optimizer else { return Ok(()) };
        if let Some(norm) = self.plan.clip {
            let gradients = self.arena.gradients()?;
            gradients.clip_norm(&gradients.reduce_all(Reducer::SumSquares)?, norm)?;
        }
        if let Some(Pull { rho, model, duals }) = pull {
            self.arena.gradients()?.admm_gradient(*rho, self.arena.values(), model, duals)?;
        }
        optimizer.step(&self.arena, rate)
    }

    /// Numbers of a part, in all.
    pub fn length(&self, part: TensorRow) -> usize {
        self.rows(part).map(|tensor| tensor.shape().elements()).sum()
    }

    /// Copies a part out, one tensor after the other.
    pub fn read(&self, part: TensorRow, into: &mut Vec<f32>) -> Result<(), weft_gpu::Error> {
        if part == TensorRow::Gradients {
            // Those that no backward has reached are zero.
            self.arena.gradients()?;
        }
        into.resize(self.length(part), 0.0);
        let mut rest = &mut into[..];
        for tensor in self.rows(part) {
            let (here, after) = rest.split_at_mut(tensor.shape().elements());
            tensor.detach().read(0, bytemuck::cast_slice_mut(here))?;
            rest = after;
        }
        Ok(())
    }

    /// Overwrites a part with what was read from one of the same plan.
    pub fn write(&self, part: TensorRow, from: &[f32]) -> Result<(), weft_gpu::Error> {
        let length = self.length(part);
        if from.len() != length {
            let reason = format!("{} numbers for {length} of {part:?}", from.len());
            return Err(weft_gpu::Error::BadArgument { op: "model", reason });
        }
        if part == TensorRow::Gradients {
            // What is written counts as reached.
            self.arena.gradients()?;
        }
        let mut rest = from;
        for tensor in self.rows(part) {
            let (here, after) = rest.split_at(tensor.shape().elements());
            tensor.detach().write(0, bytemuck::cast_slice(here))?;
            rest = after;
        }
        Ok(())
    }

    fn rows(&self, part: TensorRow) -> Box<dyn Iterator<Item = &Tensor> + '_> {
        let of = |role: Role| {
            let named = self.named().filter(move |(declaration, _)| declaration.role == role);
            Box::new(named.map(|(_, tensor)| tensor))
        };
        match part {
            TensorRow::Weights => Box::new(std::iter::once(self.arena.values())),
            TensorRow::Gradients => Box::new(std::iter::once(self.arena.raw_gradients())),
            TensorRow::Buffers => of(Role::Buffer),
            TensorRow::Statistics => of(Role::Statistic),
            TensorRow::Locals => of(Role::Local),
            TensorRow::Moments => Box::new(self.optimizer.iter().flat_map(OptimizerState::states)),
        }
    }

    /// Steps that the optimizer has done.
    pub fn optimizer_steps(&self) -> u64 {
        self.optimizer.as_ref().map_or(0, OptimizerState::steps)
    }

    /// Goes on as if the optimizer had done so many.
    pub fn resume_optimizer(&mut self, steps: u64) {
        if let Some(optimizer) = &mut self.optimizer {
            optimizer.resume(steps);
        }
    }

    /// Statistics start again at zero.
    pub fn clear_statistics(&self) -> Result<(), weft_gpu::Error> {
        for (declaration, tensor) in self.named().filter(|(declaration, _)| declaration.role == Role::Statistic) {
            tensor.assign(&tensor.context().zeros(&declaration.shape)?)?;
        }
        Ok(())
    }
}

/// What makes it.
fn first_value(declaration: &TensorDeclaration, seed: u64) -> Op {
    let shape = declaration.shape;
    // The name decides which of the seed's sequences it is.
    let stream = || {
        let digest = Digest::of(declaration.name.as_bytes());
        let bytes = digest.as_bytes();
        Stream { seed, offset: u64::from_le_bytes(std::array::from_fn(|index| bytes[index])) }
    };
    match declaration.initial {
        Initial::Constant(value) => Fill { shape, dtype: DType::F32, value: f64::from(value) }.into(),
        Initial::Uniform { low, high } => Uniform { shape, low, high, stream: stream() }.into(),
        Initial::Normal { mean, deviation } => Normal { shape, mean, deviation, stream: stream() }.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_gpu::device::cpu::Cpu;
    use weft_gpu::schedule::Decay;
    use weft_gpu::{Crew, Limits};

    use super::*;

    fn context() -> Context {
        Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default())
    }

    fn declaration(name: &str, role: Role, shape: &[usize], initial: Initial) -> TensorDeclaration {
        TensorDeclaration { name: name.to_owned(), role, shape: Shape::new(shape).unwrap(), initial }
    }

    const RANDOM: Initial = Initial::Uniform { low: -1.0, high: 1.0 };

    fn plan(names: &[&str]) -> Plan {
        let mut plan = Plan { optimizer: Some(Optimizer::Sgd(Sgd::default())), ..Plan::default() };
        for name in names {
            plan.declare(declaration(name, Role::Weight, &[3], RANDOM)).unwrap();
        }
        plan
    }

    #[test]
    fn a_first_value_depends_on_seed_and_name_alone() {
        let context = context();
        let value = |names: &[&str], seed: u64, name: &str| {
            let declared = Declared::new(plan(names), &context, seed).unwrap();
            let (_, tensor) = declared.named().find(|(declaration, _)| declaration.name == name).unwrap();
            tensor.to_vec::<f32>().unwrap()
        };
        assert_eq!(value(&["a", "b"], 1, "a"), value(&["b", "a"], 1, "a"));
        assert_ne!(value(&["a", "b"], 1, "a"), value(&["a", "b"], 1, "b"));
        assert_ne!(value(&["a"], 1, "a"), value(&["a"], 2, "a"));
    }

    #[test]
    fn what_cannot_be_declared_is_refused() {
        let mut plan = plan(&["a"]);
        let mut refused =
            |name: &str, initial| plan.declare(declaration(name, Role::Local, &[1], initial)).unwrap_err();
        assert_eq!(refused("a", RANDOM), DeclareError::Twice("a".to_owned()));
        assert!(matches!(refused("", RANDOM), DeclareError::Name(_)));
        assert!(matches!(refused("a b", RANDOM), DeclareError::Name(_)));
        assert!(matches!(refused("b", Initial::Constant(f32::NAN)), DeclareError::NotFinite(_)));
    }

    #[test]
    fn another_plan_is_told_from_the_one_before() {
        assert_eq!(plan(&["a", "b"]).check_same(&plan(&["a", "b"])), Ok(()));
        let error = plan(&["a", "c"]).check_same(&plan(&["a", "b"])).unwrap_err().to_string();
        assert!(error.contains("`c`") && error.contains("`b`"), "{error}");
        assert!(plan(&["a"]).check_same(&plan(&["a", "b"])).is_err());
    }

    #[test]
    fn gradients_are_clipped_before_the_step() {
        let context = context();
        let mut plan = Plan { optimizer: Some(Optimizer::Sgd(Sgd::default())), clip: Some(1.0), ..Plan::default() };
        plan.declare(declaration("w", Role::Weight, &[2], Initial::Constant(0.0))).unwrap();
        let mut declared = Declared::new(plan, &context, 0).unwrap();
        let x = context.tensor(&[2], &[30.0_f32, 40.0]).unwrap();
        declared.tensors()[0].mul(&x).unwrap().sum().unwrap().backward().unwrap();
        declared.descend(1.0).unwrap();
        let moved = declared.tensors()[0].to_vec::<f32>().unwrap();
        assert!((moved[0] + 0.6).abs() < 1e-5 && (moved[1] + 0.8).abs() < 1e-5, "{moved:?}");
    }

    #[test]
    fn the_rate_follows_the_schedule_step_by_step() {
        let context = context();
        let schedule = Schedule { warm_up: 2, decay: Decay::Stepwise { every: 1, factor: 0.5 } };
        let mut plan = Plan { optimizer: Some(Optimizer::Sgd(Sgd::default())), schedule, ..Plan::default() };
        plan.declare(declaration("w", Role::Weight, &[], Initial::Constant(0.0))).unwrap();
        let mut declared = Declared::new(plan, &context, 0).unwrap();
        let mut moved = Vec::new();
        for _ in 0..4 {
            declared.arena().clear_gradients();
            let weight = &declared.tensors()[0];
            let before = weight.item().unwrap();
            weight.affine(1.0, 0.0).unwrap().backward().unwrap();
            declared.descend(1.0).unwrap();
            moved.push(before - declared.tensors()[0].item().unwrap());
        }
        assert_eq!(moved, [0.5, 1.0, 1.0, 0.5]);
    }
}
