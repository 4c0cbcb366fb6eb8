//! The model between rounds, in the host's memory: the global model that workers start from, and each worker's own state.

use std::io;

use serde::{Deserialize, Serialize};
use weft_core::sync::{Rule, Who};
use weft_gpu::Codec;

use super::numbers::{Numbers, as_numbers};
use crate::model::{self, Dtype, Meta, TensorInfo, WriteError};
use crate::train::declared::{Declared, Part, Plan, Role};
use crate::train::load::{self, LoadError};

/// The weights and buffers that all workers start a round from.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GlobalModel {
    pub weights: Numbers,
    pub buffers: Numbers,
    /// The worker whose local weights already equal this. It skips the reload.
    pub of: Option<Who>,
    /// How often the model of this run has changed: a worker that holds a version need not load it again.
    pub version: u64,
}

impl GlobalModel {
    pub fn read(declared: &Declared) -> Result<Self, weft_gpu::Error> {
        let (mut weights, mut buffers) = (Vec::new(), Vec::new());
        declared.read(Part::Weights, &mut weights)?;
        declared.read(Part::Buffers, &mut buffers)?;
        Ok(Self { weights: weights.into(), buffers: buffers.into(), ..Self::default() })
    }

    pub fn write(&self, declared: &Declared) -> Result<(), weft_gpu::Error> {
        declared.write(Part::Weights, &self.weights)?;
        declared.write(Part::Buffers, &self.buffers)
    }

    pub fn bytes(&self) -> u64 {
        self.weights.byte_count() + self.buffers.byte_count()
    }

    /// As a safetensors file.
    pub fn to_file(&self, plan: &Plan, meta: &Meta) -> Result<Vec<u8>, WriteError> {
        let tensors = [(Role::Weight, &self.weights), (Role::Buffer, &self.buffers)];
        let placed = tensors.map(|(role, row)| plan.places(role).into_iter().map(move |place| (place, row)));
        let placed: Vec<_> = placed.into_iter().flatten().collect();
        let info = |declaration: &crate::train::declared::TensorDeclaration| TensorInfo {
            name: declaration.name.clone(),
            dtype: Dtype::F32,
            shape: declaration.shape.to_vec(),
        };
        let infos: Vec<TensorInfo> = placed.iter().map(|((declaration, _), _)| info(declaration)).collect();
        let numbers = placed.iter().map(|((declaration, range), row)| {
            let numbers = row
                .get(range.clone())
                .ok_or_else(|| io::Error::other(format!("the model has too few numbers for `{}`", declaration.name)))?;
            Ok(model::le_bytes(numbers))
        });
        let mut file = Vec::new();
        model::write(&infos, numbers, meta, &mut file)?;
        Ok(file)
    }

    /// Takes the tensors of a file, which must be those that are declared.
    pub fn take<R: io::Read + io::Seek>(&mut self, plan: &Plan, file: &mut model::Model<R>) -> Result<(), LoadError> {
        load::check(plan, file)?;
        for (role, row) in [(Role::Weight, &mut self.weights), (Role::Buffer, &mut self.buffers)] {
            let mut numbers = std::mem::take(row).into_vec();
            for (declaration, range) in plan.places(role) {
                let mut rest = numbers.get_mut(range).unwrap_or_default().iter_mut();
                file.pieces(&declaration.name, |piece| {
                    // The piece first: it ends before the row does, and what the row has given would be lost.
                    for (from, into) in piece.as_chunks::<4>().0.iter().zip(rest.by_ref()) {
                        *into = f32::from_le_bytes(*from);
                    }
                    Ok::<_, LoadError>(())
                })?;
            }
            *row = numbers.into();
        }
        Ok(())
    }
}

/// The host's memory that a job takes beside that of its functions, for copies of what is trained, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMemory {
    /// For each worker.
    pub each: u64,
    /// For all of them together.
    pub once: u64,
}

impl HostMemory {
    /// What each of so many workers pays for.
    pub fn per_worker(&self, workers: u32) -> u64 {
        self.each.saturating_add(self.once.div_ceil(u64::from(workers.max(1))))
    }

    /// Whether what has so much has enough for a model that takes `other`.
    pub fn covers(&self, other: &Self) -> bool {
        other.each <= self.each && other.once <= self.once
    }
}

/// The host's memory that a job takes whose workers' steps are fanned out to so many functions each.
pub fn host_memory(declared: &Declared, rule: Rule, codec: Codec, fan_out: u32) -> HostMemory {
    let bytes = |part: Part| declared.length(part) as u64 * size_of::<f32>() as u64;
    let weights = bytes(Part::Weights);
    let model = weights + bytes(Part::Buffers) + bytes(Part::Statistics);
    let residual = if codec.takes_residual() { weights } else { 0 };
    let duals = if matches!(rule, Rule::Admm(_)) { weights } else { 0 };
    let own_weights = if rule.keeps_weights() { weights } else { 0 };
    let worker_state = bytes(Part::Moments) + bytes(Part::Locals) + residual + duals + own_weights;
    // The model that the functions of a fanned-out step begin with, what each of them has computed, and the mean.
    let shared = weights + bytes(Part::Buffers);
    let lanes = if fan_out > 1 { shared.saturating_mul(u64::from(fan_out) + 2) } else { 0 };
    // What a worker hands over; what is its own as the round began, and as it ends; and what the job has once: the model
    // before and after the round, the best so far, and the file of a model that is written. Checkpoints are streamed.
    HostMemory { each: (model + 2 * worker_state).saturating_add(lanes), once: 4 * model }
}

/// What a worker keeps from round to round. When it is lost, its replacement gets it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerState {
    /// The moments of its optimizer.
    #[serde(with = "as_numbers")]
    pub moments: Vec<f32>,
    /// How many steps its optimizer has done.
    pub steps: u64,
    #[serde(with = "as_numbers")]
    pub locals: Vec<f32>,
    /// The part of its contributions that its codec has not sent yet; empty for a codec that sends all of them.
    #[serde(with = "as_numbers")]
    pub residual: Vec<f32>,
    /// Its own weights, where they differ from the model between two rounds; empty otherwise.
    #[serde(with = "as_numbers")]
    pub weights: Vec<f32>,
    /// The scaled duals of ADMM, as they were in the latest round; empty for other rules.
    #[serde(with = "as_numbers")]
    pub duals: Vec<f32>,
}

impl WorkerState {
    pub fn read(declared: &Declared) -> Result<Self, weft_gpu::Error> {
        let mut worker_state = Self { steps: declared.optimizer_steps(), ..Self::default() };
        declared.read(Part::Moments, &mut worker_state.moments)?;
        declared.read(Part::Locals, &mut worker_state.locals)?;
        Ok(worker_state)
    }

    pub fn write(&self, declared: &mut Declared) -> Result<(), weft_gpu::Error> {
        // Where the optimizer is the job's, a worker's has nothing to remember.
        if !self.moments.is_empty() {
            declared.write(Part::Moments, &self.moments)?;
        }
        declared.write(Part::Locals, &self.locals)?;
        declared.resume_optimizer(self.steps);
        Ok(())
    }

    /// Rows that are there for some rules only, by the names that they have in a checkpoint.
    pub fn optional(&self) -> [(&'static str, &Vec<f32>); 3] {
        [("residual", &self.residual), ("weights", &self.weights), ("duals", &self.duals)]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_gpu::device::cpu::Cpu;
    use weft_gpu::{Context, Crew, Limits, Shape};

    use super::*;
    use crate::train::declared::{Initial, TensorDeclaration};

    #[test]
    fn functions_that_a_step_is_fanned_out_to_have_their_copies_counted() {
        let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
        let mut plan = Plan::default();
        for (name, role) in [("weight", Role::Weight), ("buffer", Role::Buffer)] {
            let (name, shape) = (name.to_owned(), Shape::new(&[1 << 10]).unwrap());
            plan.declare(TensorDeclaration { name, role, shape, initial: Initial::Constant(0.0) }).unwrap();
        }
        let declared = Declared::new(plan, &context, 0).unwrap();
        let of = |fan_out| host_memory(&declared, Rule::GradientAverage, Codec::Plain, fan_out);
        let model = 2 * (4 << 10);
        // The model that they begin with, four rows of gradients and buffers, and the mean of these.
        assert_eq!(of(4), HostMemory { each: of(1).each + 6 * model, ..of(1) });
        assert!(of(4).covers(&of(1)) && !of(1).covers(&of(4)));
    }
}
