//! How a running job gets other workers, in number or in size, between two rounds.
//!
//! Nothing is given up before there is room for what is needed more: that is leased first, and where there is none the job
//! goes on as it is and the change is tried again. Then the state is checkpointed, the workers are dismissed, and the new
//! ones begin from what they left. They all start anew, which takes less than a millisecond each, so there is one way for
//! everything that can change. What the old ones had is free for a moment, in which no other job starts. If a call takes it
//! all the same, the job waits in the queue and goes on from the checkpoint.

use std::time::Instant;

use weft_core::spec::Shape;
use weft_gpu::pool::PoolError;
use weft_gpu::{Cancel, Lease};

use super::super::directing::ModelPlace;
use super::super::team::Halt;
use super::super::worker::Declaration;
use super::super::{check_shards, is_busy, reshape};
use super::{ByHand, Engine, Keeper, Machinery, Settled, TRY_AGAIN};

/// How often the shape may change in one epoch after its first round. Later changes are made when the next one begins.
const MAX_CUTS: usize = 16;

/// What was leased before workers are dismissed.
struct Room {
    /// Of workers that there are to be more.
    leases: Vec<Vec<Lease>>,
    /// As much as the others are to have more than before: given back when they have given back what they had.
    beside: Vec<Vec<Lease>>,
}

/// Why workers were not replaced. The job goes on with those that it has.
pub(super) struct NotReplaced {
    pub reason: String,
    /// Whether there is no point in trying again.
    for_good: bool,
}

impl<K: Keeper> Engine<K> {
    /// Makes the change of shape that is due, if there is one and it can be made now. Whether it was.
    pub(super) async fn change_shape(&mut self) -> Result<bool, Halt> {
        let progress = &self.training.progress;
        let is_begun = progress.earlier + progress.done > 0;
        let by_hand = self.keeper.wanted_shape(progress.epoch + 1, is_begun, &self.shape);
        let Some(shape) = by_hand.map(|wanted| wanted.shape).or_else(|| self.planned_shape()) else { return Ok(false) };
        let is_too_soon = self.try_again.is_some_and(|again| Instant::now() < again);
        let rule = self.workshop.rule();
        // Workers of ADMM that have weights of their own are in the middle of something.
        let have_met = rule.has_met(progress.epoch) && !(is_begun && rule.keeps_weights());
        if is_too_soon || !have_met || progress.cuts.len() >= MAX_CUTS {
            return Ok(false);
        }
        if let Some(ByHand { workers, memory, .. }) = by_hand {
            self.plan_by_hand(workers, memory);
        } else if !self.may_employ(&shape) {
            self.planned_shape_is_refused(&shape, false);
            return Ok(false);
        }
        let is_other = shape != self.shape;
        if is_other && let Err(NotReplaced { reason, for_good }) = self.replace_workers(shape).await? {
            if by_hand.is_none() {
                self.planned_shape_is_refused(&shape, for_good);
                return Ok(false);
            }
            self.try_again = Some(Instant::now() + TRY_AGAIN);
            self.keeper.put_off_change(&reason, for_good).await;
            return Ok(false);
        }
        self.try_again = None;
        let change = reshape::reshaped(&self.workshop, &self.training.progress, &self.shape);
        self.keeper.made_change(is_other.then_some(change));
        self.account();
        self.checkpoint(None).await?;
        Ok(true)
    }

    /// Has the job go on with workers of another shape, if it can.
    pub(super) async fn replace_workers(&mut self, shape: Shape) -> Result<Result<(), NotReplaced>, Halt> {
        let before = self.shape;
        let not_now = |reason: String| Ok(Err(NotReplaced { reason, for_good: false }));
        if let Err(reason) = self.makes_sense(&shape) {
            return Ok(Err(NotReplaced { reason, for_good: true }));
        }
        if let Err(reason) = self.keeper.book(&shape) {
            return not_now(reason);
        }
        let room = match self.room_beside(&before, &shape) {
            Ok(room) => room,
            Err(error) => {
                self.book_again(&before)?;
                return not_now(format!("there is no room for {}: {error}", told(&shape)));
            }
        };
        self.account();
        self.checkpoint(None).await?;
        let _held = self.keeper.hold_room();
        self.team.dismiss().await;
        (self.replica, self.scheme, self.take, self.place) = (None, None, None, ModelPlace::Here);
        self.settled = Settled::default();
        drop(room.beside);
        let failed = match self.employ(shape, room.leases).await {
            Ok(_) => None,
            Err(Halt::Waits(reason)) => Some(NotReplaced { reason, for_good: false }),
            Err(Halt::Failed(reason) | Halt::OutOfMemory(reason)) => {
                let reason = format!("{} cannot train it: {reason}", told(&shape));
                // Before anything else can go wrong: it would be tried again and again.
                self.keeper.put_off_change(&reason, true).await;
                Some(NotReplaced { reason, for_good: true })
            }
            Err(halt) => return Err(halt),
        };
        if failed.is_some() {
            // Those that there were could do it. If others have taken their room meanwhile, it waits in the queue.
            self.team.dismiss().await;
            self.book_again(&before)?;
            self.employ(before, Vec::new()).await?;
        }
        self.shape = self.team.shape();
        self.has_new_states = false;
        reshape::go_on(&self.workshop, &mut self.training, &self.shape, &self.first_state);
        let machinery = Machinery::open(&self.workshop, &self.shape, self.lengths, &self.plan, &self.training)?;
        (self.merger, self.replica, self.scheme) = (machinery.merger, machinery.replica, machinery.scheme);
        Ok(failed.map_or(Ok(()), Err))
    }

    /// Why workers of a shape could not do it, whatever room there is.
    fn makes_sense(&self, shape: &Shape) -> Result<(), String> {
        let (spec, workshop) = (self.workshop.spec(), &self.workshop);
        spec.check_workers(&workshop.brief.sync, shape.workers).map_err(|error| error.to_string())?;
        match &workshop.data {
            Some(data) => check_shards(spec, shape, data).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Takes what is needed more than the workers have, while they have that.
    fn room_beside(&self, before: &Shape, shape: &Shape) -> Result<Room, PoolError> {
        let mut room = Room { leases: Vec::new(), beside: Vec::new() };
        if shape.all_memory(0) <= before.all_memory(0) {
            return Ok(room);
        }
        if shape.memory > before.memory {
            let more = Shape { memory: shape.memory - before.memory, ..*shape };
            room.beside = self.leases(&more, shape.workers.min(before.workers))?;
        }
        room.leases = self.leases(shape, shape.workers.saturating_sub(before.workers))?;
        Ok(room)
    }

    /// Leases for so many workers of a shape: all of them, or none.
    fn leases(&self, shape: &Shape, workers: u32) -> Result<Vec<Vec<Lease>>, PoolError> {
        (0..workers).map(|_| self.workshop.leases(shape, &Cancel::default())).collect()
    }

    /// Starts the workers of a shape, who have these leases and take what they need more.
    async fn employ(&mut self, shape: Shape, mut leases: Vec<Vec<Lease>>) -> Result<Box<Declaration>, Halt> {
        let more = shape.workers.saturating_sub(leases.len() as u32);
        let rest = self.leases(&shape, more).map_err(|error| {
            let text = format!("no device for {}: {error}", told(&shape));
            if is_busy(&error) { Halt::Waits(text) } else { Halt::Failed(text) }
        })?;
        leases.extend(rest);
        let declaration = self.team.employ(shape, leases).await?;
        let sizes = (declaration.model.weights.len(), declaration.model.buffers.len());
        if sizes != (self.training.model.weights.len(), self.training.model.buffers.len()) {
            return Err(Halt::Failed("the trainer declares another model than before".to_owned()));
        }
        Ok(declaration)
    }

    /// What it had before was allowed; if it is not any more, it waits in the queue for its turn.
    fn book_again(&self, before: &Shape) -> Result<(), Halt> {
        self.keeper.book(before).map_err(Halt::Waits)
    }
}

fn told(shape: &Shape) -> String {
    let plural = if shape.workers == 1 { "" } else { "s" };
    format!("{} worker{plural} of {} MiB", shape.workers, shape.memory >> 20)
}
