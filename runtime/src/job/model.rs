//! The model between rounds, in the host's memory: the global model that workers start from, and each worker's own state.

use std::io;

use serde::{Deserialize, Serialize};
use weft_core::sync::Who;

use super::numbers::{Numbers, as_numbers};
use crate::model::{self, Dtype, Meta, TensorInfo, WriteError};
use crate::train::declared::{Declared, Plan, Role, TensorRow};
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
        declared.read(TensorRow::Weights, &mut weights)?;
        declared.read(TensorRow::Buffers, &mut buffers)?;
        Ok(Self { weights: weights.into(), buffers: buffers.into(), ..Self::default() })
    }

    pub fn write(&self, declared: &Declared) -> Result<(), weft_gpu::Error> {
        declared.write(TensorRow::Weights, &self.weights)?;
        declared.write(TensorRow::Buffers, &self.buffers)
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
        declared.read(TensorRow::Moments, &mut worker_state.moments)?;
        declared.read(TensorRow::Locals, &mut worker_state.locals)?;
        Ok(worker_state)
    }

    pub fn write(&self, declared: &mut Declared) -> Result<(), weft_gpu::Error> {
        // Where the optimizer is the job's, a worker's has nothing to remember.
        if !self.moments.is_empty() {
            declared.write(TensorRow::Moments, &self.moments)?;
        }
        declared.write(TensorRow::Locals, &self.locals)?;
        declared.resume_optimizer(self.steps);
        Ok(())
    }

    /// Rows that are there for some rules only, by the names that they have in a checkpoint.
    pub fn optional(&self) -> [(&'static str, &Vec<f32>); 3] {
        [("residual", &self.residual), ("weights", &self.weights), ("duals", &self.duals)]
    }
}
