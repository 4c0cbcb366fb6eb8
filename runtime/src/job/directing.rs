//! What each worker is told at the start of its part of a round.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_core::sync::{Slot, Who};

use super::checkpoint::Training;
use super::model::{GlobalModel, WorkerState};
use super::numbers::{Numbers, checksum};
use super::replica::Replica;
use super::team::{Contributions, Director, Halt};
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

/// Whether a worker that makes the model itself has the one that the coordinator has: its replica in memory that it shares
/// with nobody may have gone astray. One worker speaks for all, who do the same steps with the same numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Comparison {
    /// It is asked in the next round of training.
    pub is_due: bool,
    /// It has another one, and is told the coordinator's in the next round.
    pub has_differed: bool,
}

impl Comparison {
    const WORKER: u32 = 0;

    /// Takes in what the worker has said of the model that a round began with. Nothing if it was not asked, or is on a device
    /// that does not promise the same bits; and otherwise whether it has another.
    pub fn hear(&mut self, contributions: &Contributions, model: &GlobalModel) -> Option<bool> {
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        let (_, contribution) = contributions.iter().find(|(worker, _)| *worker == Self::WORKER)?;
        self.has_differed = contribution.model_checksum? != checksum(&model.weights);
        Some(self.has_differed)
    }
}

/// One round's assignments.
pub struct Directing<'a> {
    pub task: Task,
    pub at: Cursor,
    pub training: &'a Training,
    pub take: Option<TakeOrder>,
    /// Where the model's numbers are, if workers do not have them in this node's memory.
    pub place: ModelPlace,
    /// Whose optimizer every worker has a copy of, where they have.
    pub replica: Option<&'a Replica>,
    /// Its state, once somebody needed it.
    pub optimizer: Option<Arc<WorkerState>>,
    pub settled: &'a mut Settled,
    pub is_new_state: bool,
    pub comparison: Comparison,
    pub statistics: Numbers,
}

/// Where workers that have been told everything once find the numbers of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPlace {
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
        let is_compared = who.worker == Comparison::WORKER;
        let is_new_model = is_compared && self.comparison.has_differed;
        let is_settled = self.settled.settle(who) && !is_new_model;
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
                ModelPlace::Stored(slot) if is_settled && !in_full => {
                    ModelRef::elsewhere(&self.training.model, Some(slot))
                }
                ModelPlace::Merged if is_settled && !in_full => ModelRef::elsewhere(&self.training.model, None),
                _ => ModelRef::whole(&self.training.model),
            },
            take: self.take.clone(),
            optimizer: self.optimizer.clone(),
            worker_state: self.training.worker_states.get(who.worker as usize).cloned(),
            is_new_state: self.is_new_state,
            is_new_model,
            tells_checksum: is_compared && self.comparison.is_due && matches!(self.task, Task::Train { .. }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::contribution::Contribution;

    #[test]
    fn a_worker_that_is_asked_has_the_coordinators_model_or_is_told_it() {
        let model = GlobalModel { weights: vec![1.0, 2.0].into(), ..GlobalModel::default() };
        let said = |worker: u32, model_checksum| {
            vec![(worker, Box::new(Contribution { model_checksum, ..Contribution::default() }))]
        };
        let hear = |is_due, contributions: &Contributions| {
            let mut comparison = Comparison { is_due, has_differed: false };
            (comparison.hear(contributions, &model), comparison.has_differed, comparison.is_due)
        };
        let (right, wrong) = (Some(checksum(&[1.0, 2.0])), Some(checksum(&[1.0, 2.5])));
        assert_eq!(hear(true, &said(0, right)), (Some(false), false, false));
        assert_eq!(hear(true, &said(0, wrong)), (Some(true), true, false));
        for contributions in [said(0, None), said(1, wrong), Vec::new()] {
            assert_eq!(hear(true, &contributions), (None, false, false));
        }
        assert_eq!(hear(false, &said(0, wrong)), (None, false, false));
    }
}
