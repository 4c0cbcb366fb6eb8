//! What a worker has computed is copied from the device, and handed over: to the coordinator, or to workers that merge.

use std::sync::Arc;

use weft_core::sync::{ChannelKind, Row, Slot, Who};

use super::super::channel::{Content, Message};
use super::super::contribution::{Contribution, Payload};
use super::super::encoding::Frames;
use super::super::model::WorkerState;
use super::super::numbers::Numbers;
use super::super::work_order::{Assignment, Task};
use super::super::worker::WorkerError;
use super::super::{exchange, scheme};
use super::WorkerLoop;
use crate::train::declared::TensorRow;

impl WorkerLoop {
    /// Copies what is handed over from the device into the contribution, or puts it into the channel.
    pub(super) async fn send(
        &mut self,
        assignment: &Assignment,
        contribution: &mut Contribution,
    ) -> Result<(), WorkerError> {
        let joins = match assignment.task {
            Task::Evaluate | Task::EvaluateNew => return Ok(()),
            Task::Update | Task::ShowWeights => {
                let is_own = assignment.task == Task::ShowWeights;
                let mut weights = Vec::new();
                let declared = self.declared()?;
                declared.read(TensorRow::Weights, &mut weights)?;
                declared.read(TensorRow::Buffers, &mut contribution.buffers)?;
                if is_own {
                    // Peers go on from the mean of their weights: nobody has any of its own then.
                    contribution.worker_state = Some(Arc::new(WorkerState::read(declared)?));
                }
                contribution.payload = Some(weights.into());
                return Ok(());
            }
            Task::Train { joins, .. } => joins,
        };
        let (exchanged, rule) = (self.exchanged(), self.workshop.rule());
        let shards = match joins && scheme::workers_merge(&self.workshop, &self.shape) {
            true => Some(self.exchange()?.payload_shards()),
            false => None,
        };
        let base = if self.sends_differences() && joins { self.base()?.clone() } else { Numbers::default() };
        let mut weights = Vec::new();
        let (encoder, declared) = (&mut self.encoder, self.worker.declared());
        let declared = declared.ok_or_else(|| WorkerError::Train("the trainer has declared nothing".to_owned()))?;
        if exchanged.descends() {
            declared.read(TensorRow::Weights, &mut weights)?;
        }
        declared.read(TensorRow::Buffers, &mut contribution.buffers)?;
        let mut state = WorkerState::read(declared)?;
        let is_peer = self.workshop.has_own_weights();
        if (exchanged.shares_optimizer() && !is_peer) || exchanged.is_sum() {
            // The optimizer is not the worker's.
            (state.moments, state.steps) = (Vec::new(), 0);
        }
        if is_peer {
            declared.read(TensorRow::Weights, &mut state.weights)?;
        }
        let before = assignment.worker_state.as_deref();
        state.duals = before.map(|before| before.duals.clone()).unwrap_or_default();
        if rule.keeps_weights() && (!joins || rule.keeps_duals()) {
            state.weights = weights.clone();
        }
        let whole = 0..declared.length(TensorRow::Weights);
        let ranges = shards.clone().unwrap_or_else(|| vec![whole]);
        let mut frames = None;
        // Nothing was computed, so there is nothing to hand over, but weights, which all have.
        if contribution.samples > 0 || exchanged.descends() {
            contribution.payload = match exchanged.row() {
                // Between two rounds of workers that have duals nothing is merged.
                Row::Weights if rule.keeps_duals() && !joins => None,
                Row::Weights if rule.keeps_duals() => {
                    weights.iter_mut().zip(&state.duals).for_each(|(weight, dual)| *weight += dual);
                    Some(weights.into())
                }
                // What is kept apart from the model is shown to the coordinator as it is.
                Row::Weights if encoder.is_plain() || !joins => Some(weights.into()),
                Row::Weights => {
                    frames = Some(encoder.weights(declared, weights, &base, &ranges, assignment)?);
                    None
                }
                Row::Gradients if encoder.is_plain() => {
                    let mut gradients = Vec::new();
                    declared.read(TensorRow::Gradients, &mut gradients)?;
                    Some(gradients.into())
                }
                Row::Gradients => {
                    frames = Some(encoder.gradients(declared, &ranges, assignment)?);
                    None
                }
                Row::Statistics => {
                    let mut statistics = Vec::new();
                    declared.read(TensorRow::Statistics, &mut statistics)?;
                    Some(statistics.into())
                }
            };
        }
        // One that works alone for a while sends later what it has not sent yet.
        state.residual = match encoder.is_plain() || frames.is_none() {
            true => before.map(|before| before.residual.clone()).unwrap_or_default(),
            false => encoder.residual()?,
        };
        contribution.worker_state = Some(Arc::new(state));
        match shards {
            Some(_) => self.put_parts(assignment.round, contribution, frames).await,
            None => self.put_whole(assignment.round, contribution, frames).await,
        }
    }

    /// Puts the parts of the contribution that others merge into the channel, and keeps the others.
    async fn put_parts(
        &mut self,
        round: u64,
        contribution: &mut Contribution,
        frames: Option<Frames>,
    ) -> Result<(), WorkerError> {
        let (samples, is_sum) = (contribution.samples, self.exchanged().is_sum());
        let buffers = if is_sum { Vec::new() } else { std::mem::take(&mut contribution.buffers) };
        let mut numbers = match (&frames, contribution.payload.take()) {
            (None, Some(Payload::Plain(numbers))) => numbers.into_vec(),
            (Some(frames), _) => self.exchange()?.decode(frames).map_err(WorkerError::Train)?,
            _ => Vec::new(),
        };
        let exchange = self.exchange()?;
        if !numbers.is_empty() {
            numbers.extend(buffers);
        }
        // Without samples nobody asks for it, but the round has it.
        numbers.resize(exchange.elements(), 0.0);
        exchange.send(round, exchange::Offer { samples, numbers: numbers.into(), encoded: frames }).await?;
        Ok(())
    }

    /// Hands the whole contribution to the coordinator, through the channel if there is one.
    async fn put_whole(
        &mut self,
        round: u64,
        contribution: &mut Contribution,
        frames: Option<Frames>,
    ) -> Result<(), WorkerError> {
        if let Some(frame) = frames.and_then(|frames| frames.into_iter().next()) {
            contribution.payload = Some(Payload::Encoded(frame));
        }
        if self.workshop.brief.sync.channel == ChannelKind::Memory {
            return Ok(());
        }
        let payload = match contribution.payload.take() {
            Some(Payload::Plain(numbers)) => Content::Plain(numbers),
            Some(Payload::Encoded(bytes)) => Content::Encoded(bytes),
            stored => {
                contribution.payload = stored;
                return Ok(());
            }
        };
        let Who { worker, claim } = self.who;
        let slot = Slot { round, layer: 0, shard: 0, worker, claim };
        let buffers = std::mem::take(&mut contribution.buffers).into();
        self.channel.put(slot, Message { samples: contribution.samples, payload, buffers }).await?;
        contribution.payload = Some(Payload::Stored(slot));
        Ok(())
    }
}
