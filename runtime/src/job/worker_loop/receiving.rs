//! What a round starts from is loaded onto the device, unless it is there already.

use weft_core::sync::{Exchange, Slot, merge};

use super::super::channel::Content;
use super::super::exchange::Taken;
use super::super::model::GlobalModel;
use super::super::work_order::{Assignment, TakeOrder, Task};
use super::super::worker::WorkerError;
use super::{Holds, WorkerLoop};
use crate::train::declared::Part;

impl WorkerLoop {
    /// Loads what the assignment starts from, unless the device already has it. Returns how many bytes were loaded.
    pub(super) async fn receive(&mut self, assignment: &Assignment) -> Result<u64, WorkerError> {
        let (who, model) = (self.who, assignment.model.clone());
        let is_settled = std::mem::replace(&mut self.is_settled, true) && !assignment.is_new_state;
        let trains = matches!(assignment.task, Task::Train { .. } | Task::ShowWeights);
        let own = assignment.worker_state.clone().filter(|state| trains && !state.weights.is_empty());
        let mut bytes = 0;
        if own.is_none() && self.holds == Holds::Model(model.version.wrapping_sub(1)) {
            bytes += self.take(assignment).await?;
        }
        let holds = self.holds;
        if let Some(own) = &own {
            let declared = self.declared()?;
            // Buffers are of all workers, also where weights are not.
            declared.write(Part::Buffers, &model.buffers)?;
            if holds != Holds::Own {
                declared.write(Part::Weights, &own.weights)?;
                bytes += size_of_val(&own.weights[..]) as u64;
            }
        } else if !(holds == Holds::Model(model.version) || model.of == Some(who) && holds == Holds::Own) {
            bytes += match &assignment.take {
                Some(TakeOrder::Model(slot)) => self.load_from_channel(*slot, &model).await?,
                _ => {
                    model.write(self.declared()?)?;
                    model.bytes()
                }
            };
        }
        if !is_settled {
            let declared = self.declared()?;
            for state in assignment.optimizer.iter().chain(&assignment.worker_state) {
                state.write(declared)?;
            }
        }
        self.holds = if own.is_some() { Holds::Own } else { Holds::Model(model.version) };
        if let Some(gradients) = &assignment.average {
            let declared = self.declared()?;
            declared.write(Part::Gradients, gradients)?;
            declared.descend(assignment.at.rate)?;
            self.holds = Holds::Own;
        }
        self.base = Some(model);
        Ok(bytes)
    }

    /// Makes the model of the one before with what workers have merged, if that is to be had. Returns how many bytes were
    /// taken.
    async fn take(&mut self, assignment: &Assignment) -> Result<u64, WorkerError> {
        let (Some(TakeOrder::Results { round, results, rate }), Some(base)) = (&assignment.take, self.base.clone())
        else {
            return Ok(0);
        };
        let exchanged = self.exchanged();
        let exchange = self.exchange()?;
        if exchange.round() != *round {
            return Ok(0);
        }
        let Taken::Done(taken) = exchange.take(results).await? else { return Ok(0) };
        let bytes = taken.pieces.iter().map(|(_, numbers)| numbers.byte_count()).sum();
        if taken.samples > 0 {
            let is_plain = self.encoder.is_plain();
            let mut numbers = taken.into_numbers().into_vec();
            let declared = self.declared()?;
            let buffers = numbers.split_off(declared.length(Part::Weights).min(numbers.len()));
            match exchanged {
                Exchange::Gradients => {
                    declared.write(Part::Gradients, &numbers)?;
                    declared.descend(*rate)?;
                }
                Exchange::Weights => {
                    if !is_plain {
                        merge::add(&mut numbers, &base.weights);
                    }
                    declared.write(Part::Weights, &numbers)?;
                }
                // The model of these is made by the coordinator.
                Exchange::Statistics | Exchange::Duals => return Ok(0),
            }
            declared.write(Part::Buffers, &buffers)?;
        }
        self.holds = Holds::Model(assignment.model.version);
        Ok(bytes)
    }

    /// The model that the coordinator has put into the channel; as it came with the assignment if it is not there.
    async fn load_from_channel(&mut self, slot: Slot, model: &GlobalModel) -> Result<u64, WorkerError> {
        let found = match self.channel.get(slot).await {
            Err(error) if error.is_damage() => None,
            found => found?,
        };
        let declared = self.declared()?;
        let lengths = (declared.length(Part::Weights), declared.length(Part::Buffers));
        match found.map(|message| (message.payload, message.buffers)) {
            Some((Content::Plain(weights), buffers)) if (weights.len(), buffers.len()) == lengths => {
                declared.write(Part::Weights, &weights)?;
                declared.write(Part::Buffers, &buffers)?;
            }
            _ => model.write(declared)?,
        }
        Ok(model.bytes())
    }
}
