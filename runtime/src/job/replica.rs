//! The coordinator's own copy of a model whose optimizer is shared by all workers.
//!
//! What workers computed becomes one step here. It is what checkpoints are made of, and what workers that are started
//! again begin with.

use std::sync::Arc;

use weft_core::spec::Shape;
use weft_gpu::pool::{DeviceId, PoolError, Wish};
use weft_gpu::{Cancel, Codec, Context, Crew, Encoded, Lease, Request};

use super::checkpoint::Training;
use super::is_busy;
use super::model::WorkerState;
use super::team::Halt;
use super::workshop::Workshop;
use crate::devices::TAPE_NODES;
use crate::train::declared::{Declared, Plan, TensorRow};

/// Memory beside the tensors.
const SLACK: usize = 1 << 20;

pub struct Replica {
    declared: Declared,
    _lease: Lease,
}

fn failed(error: &dyn std::fmt::Display) -> Halt {
    Halt::Failed(format!("the optimizer failed: {error}"))
}

impl Replica {
    pub fn open(workshop: &Workshop, shape: &Shape, plan: &Plan, training: &Training) -> Result<Self, Halt> {
        let weights = training.model.weights.len();
        // What is decoded is there twice for a moment: as it came, and as it was.
        let decoded = if workshop.codec == Codec::Plain { 0 } else { weights * 4 * 3 };
        let bytes = weights * 4 * 8 + decoded + training.model.buffers.len() * 8 + SLACK;
        let request = Request::new(workshop.tenant.owner.clone(), bytes);
        let lease = |device: Wish| {
            let weight = shape.weight().get();
            workshop.pool.lease(Request { device, weight, cancel: Cancel::default(), ..request.clone() })
        };
        // It is one pass over memory, and the gradients are there.
        let lease = match lease(Wish::Exactly(DeviceId::Cpu(0))) {
            Err(PoolError::NoSuchDevice { .. }) => lease(workshop.device),
            leased => leased,
        };
        let lease = lease.map_err(|error| {
            let text = format!("no device for the optimizer: {error}");
            if is_busy(&error) { Halt::Waits(text) } else { Halt::Failed(text) }
        })?;
        let context = Context::leased(&lease, Arc::new(Crew::new(workshop.core_count())), TAPE_NODES);
        let mut declared =
            Declared::new(plan.clone(), &context, workshop.brief.seed).map_err(|error| failed(&error))?;
        let restore = |declared: &mut Declared| {
            training.model.write(declared)?;
            training.optimizer.write(declared)
        };
        restore(&mut declared).map_err(|error| failed(&error))?;
        Ok(Self { declared, _lease: lease })
    }

    /// Where it computes.
    pub fn context(&self) -> &Context {
        self.declared.arena().values().context()
    }

    /// Numbers as they were before a worker encoded them, as far as the codec keeps them.
    pub fn decode(&self, encoded: &[u8]) -> Result<Vec<f32>, Halt> {
        let values = self.declared.arena().values();
        let decode = || Encoded::from_wire(values.context(), encoded, values.shape().elements())?.decode()?.to_vec();
        decode().map_err(|error: weft_gpu::Error| Halt::Failed(format!("a contribution could not be decoded: {error}")))
    }

    /// One step against these gradients. Gives the weights.
    pub fn descend(&mut self, gradients: &[f32], rate: f32) -> Result<Vec<f32>, Halt> {
        let mut weights = Vec::new();
        let mut descend = || {
            self.declared.write(TensorRow::Gradients, gradients)?;
            self.declared.descend(rate)?;
            self.declared.read(TensorRow::Weights, &mut weights)
        };
        descend().map_err(|error: weft_gpu::Error| failed(&error))?;
        Ok(weights)
    }

    /// The weights are these from now on.
    pub fn set_weights(&mut self, weights: &[f32]) -> Result<(), Halt> {
        self.declared.write(TensorRow::Weights, weights).map_err(|error| failed(&error))
    }

    /// What the optimizer remembers.
    pub fn optimizer(&self) -> Result<WorkerState, Halt> {
        WorkerState::read(&self.declared).map_err(|error| failed(&error))
    }
}
