//! What a round starts from is loaded onto the device, unless it is there already.

use weft_core::sync::merge;

use super::super::channel::Content;
use super::super::contribution::Payload;
use super::super::exchange::{self, Taken};
use super::super::numbers::{Numbers, checksum};
use super::super::work_order::{Assignment, ModelRef, TakeOrder, Task};
use super::super::worker::WorkerError;
use super::{Holds, WorkerLoop};
use crate::train::declared::TensorRow;

/// The numbers of a model.
struct Found {
    weights: Numbers,
    buffers: Numbers,
}

impl WorkerLoop {
    /// Loads what the assignment starts from, unless the device already has it. Returns how many bytes were loaded; nothing
    /// if numbers of the model are needed that are not where the assignment says.
    pub(super) async fn receive(&mut self, assignment: &Assignment) -> Result<Option<u64>, WorkerError> {
        let (who, model) = (self.who, &assignment.model);
        let trains = matches!(assignment.task, Task::Train { .. } | Task::ShowWeights);
        let own = assignment.worker_state.clone().filter(|state| trains && !state.weights.is_empty());
        if assignment.is_new_model {
            self.holds = Holds::Unknown;
        }
        let mut bytes = 0;
        if own.is_none() && self.holds == Holds::Model(model.version.wrapping_sub(1)) {
            bytes += self.take(assignment).await?;
        }
        let holds = self.holds;
        let lacks_base = self.needs_base() && self.base.as_ref().is_none_or(|(of, _)| *of != model.version);
        let has_weights =
            own.is_some() || holds == Holds::Model(model.version) || model.of == Some(who) && holds == Holds::Own;
        let declared = self.declared()?;
        // Buffers are of all workers, also where weights are not.
        let lacks_buffers = own.is_some() && declared.length(TensorRow::Buffers) > 0;
        let found = match lacks_base || lacks_buffers || !has_weights {
            true => match self.find(model).await? {
                Some(found) => Some(found),
                None => return Ok(None),
            },
            false => None,
        };
        let declared = self.declared()?;
        if let Some(Found { weights, buffers }) = &found {
            if own.is_some() || !has_weights {
                declared.write(TensorRow::Buffers, buffers)?;
            }
            if !has_weights {
                declared.write(TensorRow::Weights, weights)?;
                bytes += weights.byte_count() + buffers.byte_count();
            }
        }
        if let Some(own) = own.as_ref().filter(|_| holds != Holds::Own) {
            declared.write(TensorRow::Weights, &own.weights)?;
            bytes += size_of_val(&own.weights[..]) as u64;
        }
        if let Some(found) = found.filter(|_| self.needs_base()) {
            self.base = Some((model.version, found.weights));
        }
        let is_settled =
            std::mem::replace(&mut self.is_settled, true) && !assignment.is_new_state && !assignment.is_new_model;
        if !is_settled {
            let declared = self.declared()?;
            for state in assignment.optimizer.iter().chain(&assignment.worker_state) {
                state.write(declared)?;
            }
        }
        self.holds = if own.is_some() { Holds::Own } else { Holds::Model(model.version) };
        if let Some(gradients) = &assignment.average {
            let declared = self.declared()?;
            declared.write(TensorRow::Gradients, gradients)?;
            declared.descend(assignment.at.rate)?;
            self.holds = Holds::Own;
        }
        Ok(Some(bytes))
    }

    /// The checksum of the weights on the device, where they have the same bits as on the coordinator's: on GPUs the optimizer
    /// rounds in another way.
    pub(super) fn model_checksum(&mut self) -> Result<Option<u32>, WorkerError> {
        if self.worker.context().device().info().kind.is_gpu() {
            return Ok(None);
        }
        let mut weights = Vec::new();
        self.declared()?.read(TensorRow::Weights, &mut weights)?;
        Ok(Some(checksum(&weights)))
    }

    /// Whether the weights that a round begins with are needed beside those on the device.
    fn needs_base(&self) -> bool {
        self.sends_differences() || self.workshop.rule().pull().is_some()
    }

    /// Whether what it hands over is the difference of its weights to those that the round began with.
    pub(super) fn sends_differences(&self) -> bool {
        self.exchanged().is_model() && !self.encoder.is_plain()
    }

    /// The weights that the latest round began with.
    pub(super) fn base(&self) -> Result<&Numbers, WorkerError> {
        let base = self.base.as_ref().map(|(_, weights)| weights);
        base.ok_or_else(|| WorkerError::Train("the weights that the round began with are not here".to_owned()))
    }

    /// Makes the model of the one before with what workers have merged, if that is to be had. Returns how many bytes were
    /// taken.
    async fn take(&mut self, assignment: &Assignment) -> Result<u64, WorkerError> {
        let version = assignment.model.version;
        let Some(TakeOrder { round, results, rate }) = &assignment.take else { return Ok(0) };
        let (exchanged, sends_differences) = (self.exchanged(), self.sends_differences());
        if !exchanged.makes_model() {
            return Ok(0);
        }
        let base = self.base.clone().filter(|(of, _)| *of == version.wrapping_sub(1)).map(|(_, base)| base);
        if sends_differences && base.is_none() {
            return Ok(0);
        }
        let exchange = self.exchange()?;
        if exchange.round() != *round {
            return Ok(0);
        }
        let Taken::Done(taken) = exchange.take(results).await? else { return Ok(0) };
        let bytes = taken.pieces.iter().map(|(_, numbers)| numbers.byte_count()).sum();
        let mut next = base.clone();
        if taken.samples > 0 {
            let mut numbers = taken.into_numbers().into_vec();
            let declared = self.declared()?;
            let buffers = numbers.split_off(declared.length(TensorRow::Weights).min(numbers.len()));
            match exchanged.shares_optimizer() {
                true => {
                    declared.write(TensorRow::Gradients, &numbers)?;
                    declared.descend(*rate)?;
                }
                false => {
                    if let Some(base) = base.filter(|_| sends_differences) {
                        merge::add(&mut numbers, &base);
                    }
                    declared.write(TensorRow::Weights, &numbers)?;
                    next = Some(numbers.into());
                }
            }
            declared.write(TensorRow::Buffers, &buffers)?;
        }
        self.base = next.filter(|_| sends_differences).map(|base| (version, base));
        self.holds = Holds::Model(version);
        Ok(bytes)
    }

    /// The numbers of a model, if they are where the assignment says.
    async fn find(&mut self, model: &ModelRef) -> Result<Option<Found>, WorkerError> {
        let slot = match &model.weights {
            Some(Payload::Plain(weights)) => {
                return Ok(Some(Found { weights: weights.clone(), buffers: model.buffers.clone() }));
            }
            Some(Payload::Stored(slot)) => *slot,
            Some(Payload::Encoded(_)) | None => return Ok(None),
        };
        let Some(message) = exchange::found(self.channel.get(slot).await)? else { return Ok(None) };
        let Content::Plain(weights) = message.payload else { return Ok(None) };
        let declared = self.declared()?;
        let lengths = (declared.length(TensorRow::Weights), declared.length(TensorRow::Buffers));
        let found = Found { weights, buffers: message.buffers };
        Ok(Some(found).filter(|found| (found.weights.len(), found.buffers.len()) == lengths))
    }
}
