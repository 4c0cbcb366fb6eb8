//! The model between rounds, in the host's memory: the global model that workers start from, and each worker's own state.

use std::collections::BTreeSet;
use std::io;

use weft_gpu::Codec;

use super::spec::JobSpec;
use crate::model::{self, Dtype, Meta, TensorInfo, WriteError};
use crate::sync::Who;
use crate::train::declared::{Declared, Part, Plan, Role};

/// The weights and buffers that all workers start a round from.
#[derive(Debug, Default, PartialEq)]
pub struct GlobalModel {
    pub weights: Vec<f32>,
    pub buffers: Vec<f32>,
    /// The worker whose local weights already equal this. It skips the reload.
    pub of: Option<Who>,
}

impl GlobalModel {
    pub fn read(declared: &Declared) -> Result<Self, weft_gpu::Error> {
        let mut shared = Self::default();
        declared.read(Part::Weights, &mut shared.weights)?;
        declared.read(Part::Buffers, &mut shared.buffers)?;
        Ok(shared)
    }

    pub fn write(&self, declared: &Declared) -> Result<(), weft_gpu::Error> {
        declared.write(Part::Weights, &self.weights)?;
        declared.write(Part::Buffers, &self.buffers)
    }

    pub fn bytes(&self) -> u64 {
        size_of_val(&self.weights[..]) as u64 + size_of_val(&self.buffers[..]) as u64
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
            Ok(numbers.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
        });
        let mut file = Vec::new();
        model::write(&infos, numbers, meta, &mut file)?;
        Ok(file)
    }

    /// Takes the tensors of a file, which must be those that are declared.
    pub fn take<R: io::Read + io::Seek>(
        &mut self,
        plan: &Plan,
        file: &mut model::Model<R>,
    ) -> Result<(), crate::train::save::LoadError> {
        use crate::train::save::{LoadError, check_declared};
        let declared: BTreeSet<&str> = [Role::Weight, Role::Buffer]
            .into_iter()
            .flat_map(|role| plan.places(role))
            .map(|(declaration, _)| declaration.name.as_str())
            .collect();
        for (role, row) in [(Role::Weight, &mut self.weights), (Role::Buffer, &mut self.buffers)] {
            for (declaration, range) in plan.places(role) {
                let info = file.info(&declaration.name).ok_or_else(|| LoadError::Missing(declaration.name.clone()))?;
                if info.dtype != Dtype::F32 || info.shape != *declaration.shape {
                    return Err(LoadError::Shape {
                        name: declaration.name.clone(),
                        found: info.shape.clone(),
                        dtype: info.dtype,
                        expected: declaration.shape.to_vec(),
                    });
                }
                let bytes = file.tensor(&declaration.name)?;
                for (into, from) in row[range].iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *into = f32::from_le_bytes(*from);
                }
            }
        }
        check_declared(file, |name| declared.contains(name))
    }
}

/// The host's memory that each worker of a job takes beside its functions' own, for copies of what is trained.
pub fn host_bytes(declared: &Declared, spec: &JobSpec) -> u64 {
    let bytes = |part: Part| declared.length(part) as u64 * size_of::<f32>() as u64;
    let model = bytes(Part::Weights) + bytes(Part::Buffers) + bytes(Part::Statistics);
    let takes_residual = spec.codec.parse::<Codec>().is_ok_and(|codec| codec.takes_residual());
    let residual = if takes_residual { bytes(Part::Weights) } else { 0 };
    let worker_state = bytes(Part::Moments) + bytes(Part::Locals) + residual;
    // What a worker hands over; what is its own as the round began, as it ends, and in a checkpoint; and its part of what
    // the job has once: the model before and after the round, the best so far, and the file that is written.
    let shared = (4 * model).div_ceil(u64::from(spec.workers.max(1)));
    model + 3 * worker_state + shared
}

/// What a worker keeps from round to round. When it is lost, its replacement gets it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerState {
    /// The moments of its optimizer.
    pub moments: Vec<f32>,
    /// How many steps its optimizer has done.
    pub steps: u64,
    pub locals: Vec<f32>,
    /// The part of its gradients that its codec has not sent yet; empty for a codec that sends all of them.
    pub residual: Vec<f32>,
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
}
