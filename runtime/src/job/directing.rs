//! What each worker is told at the start of its part of a round.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_core::sync::{Slot, Who};

use super::checkpoint::Training;
use super::model::WorkerState;
use super::numbers::Numbers;
use super::replica::Replica;
use super::team::{Director, Halt};
use super::work_order::{Assignment, ModelRef, TakeOrder, Task};
use super::workshop::Cursor;

/// Which claim of each worker has been told everything once, so that it has its own state and the optimizer's.
#[derive(Debug, Default)]
pub struct Settled(BTreeMap<u32, u64>);

impl Settled {
    /// Notes that a worker is told everything, and whether it was before.
    fn settle(&mut self, who: Who) -> bool {
        self.0.insert(who.worker, who.claim) == Some(who.claim)
    }
}

/// One round's assignments.
pub struct Directing<'a> {
    pub task: Task,
    pub at: Cursor,
    pub training: &'a Training,
    pub take: Option<TakeOrder>,
    /// Where the model's numbers are, if workers do not have them in this node's memory.
    pub place: Place,
    /// Whose optimizer every worker has a copy of, where they have.
    pub replica: Option<&'a Replica>,
    /// Its state, once somebody needed it.
    pub optimizer: Option<Arc<WorkerState>>,
    pub settled: &'a mut Settled,
    pub is_new_state: bool,
    pub statistics: Numbers,
}

/// Where workers that have been told everything once find the numbers of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// They share this node's memory.
    Here,
    /// In a slot of the channel.
    Stored(Slot),
    /// In what they have merged.
    Merged,
}

impl Directing<'_> {
    /// Of a worker who knows the model before or finds this one, and of any other.
    fn tell(&mut self, who: Who, round: u64, in_full: bool) -> Result<Assignment, Halt> {
        let is_settled = self.settled.settle(who);
        if !is_settled
            && self.optimizer.is_none()
            && let Some(replica) = self.replica
        {
            self.optimizer = Some(Arc::new(replica.optimizer()?));
        }
        Ok(Assignment {
            round,
            task: self.task,
            at: self.at.clone(),
            model: match self.place {
                Place::Stored(slot) if is_settled && !in_full => ModelRef::elsewhere(&self.training.model, Some(slot)),
                Place::Merged if is_settled && !in_full => ModelRef::elsewhere(&self.training.model, None),
                _ => ModelRef::whole(&self.training.model),
            },
            take: self.take.clone(),
            optimizer: self.optimizer.clone(),
            worker_state: self.training.worker_states.get(who.worker as usize).cloned(),
            is_new_state: self.is_new_state,
            average: None,
            statistics: self.statistics.clone(),
        })
    }
}

impl Director for Directing<'_> {
    fn assignment(&mut self, who: Who, round: u64) -> Result<Assignment, Halt> {
        self.tell(who, round, false)
    }

    fn in_full(&mut self, who: Who, round: u64) -> Result<Assignment, Halt> {
        self.tell(who, round, true)
    }
}
