//! The barrier: a round ends when all workers that take part have handed in their contribution, and it is merged.
//!
//! There is a fixed number of places for workers; whoever fills one holds a claim, numbered from 1. A worker that is
//! lost is started again under the next claim, and what an older claim still sends is refused: a contribution counts
//! once, however often it is sent, and from the latest claim only.
//!
//! With [`OnLoss::Wait`] a round waits for whoever was lost, with [`OnLoss::Drop`] it is merged without them, as long
//! as there is anybody. A worker that fails again and again in one round ends the job.
//!
//! Without a plan of merges the round is complete with the last contribution: the coordinator merges. With one, workers
//! merge: [`merging`] says how. A worker does one thing at a time, and is told to do nothing before all that it needs
//! is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::merging::Merges;
use super::OnLoss;
use super::topology::{MergePlan, Source};

mod merging;

/// A worker: its place, and its claim to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Who {
    pub worker: u32,
    pub claim: u64,
}

/// What has happened.
///
/// What a worker was told comes back with the generation that it was told under: within a round, whatever has to be
/// made again is ordered under a higher one, so that an answer to the older order counts nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The worker waits for work.
    Ready(Who),
    /// The worker has handed in its contribution to a round, over so many samples: all its parts are where they are
    /// needed.
    Trained { who: Who, round: u64, generation: u32, samples: u64 },
    /// The worker has merged what it was told to.
    Merged { who: Who, round: u64, merge: usize, generation: u32 },
    /// The worker could not merge, because these parts were not to be had, or were damaged.
    Missing { who: Who, round: u64, merge: usize, generation: u32, sources: Vec<Source> },
    /// The coordinator has not found the result of a round that was complete. It is merged again.
    ResultMissing { round: u64, merge: usize },
    /// The worker has ended.
    Lost(Who),
    /// The round has taken longer than a round may.
    Overdue { round: u64 },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Start a worker in this place.
    Start(Who),
    /// Give the worker its assignment of the round. With a claim that has had it before: what it handed in was lost on
    /// the way, and it is to hand in the same once more.
    Assign { who: Who, round: u64, generation: u32 },
    /// Let the worker merge these parts, in this order, all of which are there. `total` is the number of their samples.
    Merge { who: Who, round: u64, merge: usize, generation: u32, parts: Vec<MergePart>, total: u64 },
    /// Stop the worker: nothing that it sends counts any more.
    Abandon(Who),
    /// The round has all contributions, in the order of the workers, each with its samples; and if there is a plan of
    /// merges, the results of all shards.
    Complete { round: u64, contributions: Vec<(u32, u64)>, results: Vec<MergeResult> },
    /// The worker has failed too often in this round, or what it has made was lost too often.
    GiveUp { worker: u32, round: u64 },
}

/// One part of what is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MergePart {
    pub source: Source,
    /// Who has made it, and has put it into the channel or keeps it.
    pub who: Who,
    /// 0 for a worker's own part, and else the layer of the merge that made it.
    pub layer: u32,
    /// A part without samples weighs nothing and need not be there.
    pub samples: u64,
}

/// Where the result of a shard is. Peers have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MergeResult {
    pub shard: u32,
    pub merge: usize,
    /// Who has merged it.
    pub who: Who,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    /// On its way, for the first time or again.
    Starting,
    Idle,
    Training {
        round: u64,
        generation: u32,
    },
    Merging {
        round: u64,
        merge: usize,
        generation: u32,
    },
}

/// What a worker has handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Delivery {
    claim: u64,
    /// The one that it was assigned under.
    generation: u32,
    samples: u64,
    /// Whether it was lost afterwards, and has to be made again.
    is_missing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seat {
    claim: u64,
    /// The one with which the place was filled.
    first_claim: u64,
    doing: Doing,
    /// For this round.
    contribution: Option<Delivery>,
    takes_part: bool,
    /// Whether the round waits for its contribution.
    expected: bool,
    /// Whether this claim has been assigned its share of this round, so that it knows the model which the round began
    /// with.
    is_assigned: bool,
    /// In this round.
    failures: u32,
    /// How often its contribution was lost in this round.
    misses: u32,
}

impl Seat {
    fn new(claim: u64) -> Self {
        Self {
            claim,
            first_claim: claim,
            doing: Doing::Starting,
            contribution: None,
            takes_part: false,
            expected: false,
            is_assigned: false,
            failures: 0,
            misses: 0,
        }
    }

    /// Its contribution, if nothing of it is missing.
    fn handed_in(&self) -> Option<Delivery> {
        self.contribution.filter(|contribution| !contribution.is_missing)
    }

    /// Whether the round waits for its contribution.
    fn owes(&self) -> bool {
        self.expected && self.handed_in().is_none()
    }
}

/// The machine. It is silent between rounds: [`Self::begin`] opens one, [`Action::Complete`] closes it.
#[derive(Clone, Debug)]
pub struct Barrier {
    places: Vec<Seat>,
    /// The last claims to places that are no more.
    retired: BTreeMap<u32, u64>,
    on_loss: OnLoss,
    /// How often a worker may fail in one round.
    attempts: u32,
    round: u64,
    open: bool,
    /// How often something of this round had to be made again.
    generation: u32,
    /// Of this round, if workers merge.
    merges: Option<Merges>,
}

impl Barrier {
    /// So many workers, none of which is there yet, and what starts them.
    pub fn new(workers: u32, on_loss: OnLoss, attempts: u32) -> (Self, Vec<Action>) {
        let (places, retired) = (Vec::new(), BTreeMap::new());
        let mut barrier =
            Self { places, retired, on_loss, attempts, round: 0, open: false, generation: 0, merges: None };
        let starts = barrier.resize(workers);
        (barrier, starts)
    }

    /// From now on there are so many workers. New ones are started, those whose places are gone are abandoned. Must not
    /// be called while a round is open.
    pub fn resize(&mut self, workers: u32) -> Vec<Action> {
        let mut actions = Vec::new();
        for (worker, place) in (0..).zip(&self.places).skip(workers as usize) {
            self.retired.insert(worker, place.claim);
            actions.push(Action::Abandon(Who { worker, claim: place.claim }));
        }
        self.places.truncate(workers as usize);
        for worker in self.places.len() as u32..workers {
            let claim = self.retired.get(&worker).map_or(1, |last| last + 1);
            self.places.push(Seat::new(claim));
            actions.push(Action::Start(Who { worker, claim }));
        }
        // The plan was made for another number.
        self.merges = None;
        actions
    }

    /// The latest round.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Who fills a place.
    pub fn claim(&self, worker: u32) -> Option<Who> {
        self.places.get(worker as usize).map(|place| Who { worker, claim: place.claim })
    }

    /// Workers that are waited for: whether each is still being started.
    pub fn awaited(&self) -> Vec<(u32, bool)> {
        let awaited = if self.open { self.late() } else { self.starting() };
        let is_starting = |worker: u32| self.places[worker as usize].doing == Doing::Starting;
        awaited.into_iter().map(|worker| (worker, is_starting(worker))).collect()
    }

    /// Opens the next round for these workers, with the merges that make one result of their contributions, if workers
    /// merge. Must not be called while one is open, and the plan must be made for as many workers as there are: whoever
    /// is not in it takes no part.
    pub fn begin(&mut self, takes_part: impl Fn(u32) -> bool, merges: Option<Arc<MergePlan>>) -> Vec<Action> {
        self.round += 1;
        self.open = true;
        self.generation = 0;
        self.merges = merges.filter(|plan| !plan.merges.is_empty()).map(Merges::new);
        let planned = self.merges.as_ref().map_or(u32::MAX, |merges| merges.plan.workers);
        for (worker, place) in (0..).zip(&mut self.places) {
            (place.failures, place.misses, place.contribution, place.is_assigned) = (0, 0, None, false);
            place.takes_part = worker < planned && takes_part(worker);
            // Whoever is being started again is not waited for where losses are dropped.
            let is_back = place.doing != Doing::Starting || place.claim == place.first_claim;
            place.expected = place.takes_part && (is_back || self.on_loss == OnLoss::Wait);
        }
        self.recall_if_nobody_is_left();
        let mut actions = Vec::new();
        self.give_work(&mut actions);
        actions
    }

    pub fn handle(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        let may_lose = !matches!(event, Event::Ready(_) | Event::Trained { .. } | Event::Merged { .. });
        match event {
            Event::Ready(who) => {
                if let Some(place) = self.current(who).filter(|place| place.doing == Doing::Starting) {
                    place.doing = Doing::Idle;
                }
            }
            Event::Trained { who, round, generation, samples } => self.trained(who, round, generation, samples),
            Event::Merged { who, round, merge, generation } => self.merged(who, round, merge, generation),
            Event::Missing { who, round, merge, generation, sources } => {
                self.missing(who, round, merge, generation, &sources, &mut actions);
            }
            Event::ResultMissing { round, merge } => self.result_missing(round, merge, &mut actions),
            Event::Lost(who) => self.lost(who, false, &mut actions),
            Event::Overdue { round } => {
                if self.open && round == self.round {
                    let late: Vec<Who> = self.late().into_iter().filter_map(|worker| self.claim(worker)).collect();
                    late.into_iter().for_each(|who| self.lost(who, true, &mut actions));
                }
            }
        }
        if self.open && !actions.iter().any(|action| matches!(action, Action::GiveUp { .. })) {
            if may_lose {
                self.forget_what_only_the_lost_had();
            }
            self.recall_if_nobody_is_left();
            self.give_work(&mut actions);
            self.close_if_complete(&mut actions);
        }
        actions
    }

    /// The place, if this is still who fills it.
    fn current(&mut self, who: Who) -> Option<&mut Seat> {
        self.places.get_mut(who.worker as usize).filter(|place| place.claim == who.claim)
    }

    fn trained(&mut self, who: Who, round: u64, generation: u32, samples: u64) {
        let is_now = round == self.round;
        let Some(place) = self.current(who) else { return };
        if place.doing == (Doing::Training { round, generation }) {
            place.doing = Doing::Idle;
            if is_now {
                place.contribution = Some(Delivery { claim: who.claim, generation, samples, is_missing: false });
            }
        }
    }

    fn lost(&mut self, who: Who, is_there: bool, actions: &mut Vec<Action>) {
        let (round, attempts) = (self.round, self.attempts);
        let drops = self.open && self.on_loss == OnLoss::Drop;
        let Some(place) = self.current(who) else { return };
        if is_there {
            actions.push(Action::Abandon(who));
        }
        (place.claim, place.doing, place.is_assigned) = (place.claim + 1, Doing::Starting, false);
        place.failures += 1;
        if place.failures >= attempts {
            actions.push(Action::GiveUp { worker: who.worker, round });
            return;
        }
        actions.push(Action::Start(Who { worker: who.worker, claim: place.claim }));
        // A contribution that was handed in stays, whatever became of the worker, unless it was in its memory.
        if drops && place.handed_in().is_none() {
            place.expected = false;
        }
        self.forget_orders_to(who);
    }

    /// Whom the round waits for.
    fn late(&self) -> Vec<u32> {
        let merges = self.late_mergers();
        let late = |(worker, place): (u32, &Seat)| (place.owes() || merges.contains(&worker)).then_some(worker);
        let late: Vec<u32> = (0..).zip(&self.places).filter_map(late).collect();
        // If nobody owes anything, the round waits for anybody who could go on.
        if late.is_empty() { self.starting() } else { late }
    }

    fn starting(&self) -> Vec<u32> {
        let starting = (0..).zip(&self.places).filter(|(_, place)| place.doing == Doing::Starting);
        starting.map(|(worker, _)| worker).collect()
    }

    /// A round without anybody waits for whoever comes back, or is back already.
    fn recall_if_nobody_is_left(&mut self) {
        if !self.places.iter().any(|place| place.expected) {
            self.places.iter_mut().for_each(|place| place.expected = place.takes_part);
        }
    }

    /// Whoever is idle and can do something for the round is told to.
    fn give_work(&mut self, actions: &mut Vec<Action>) {
        let (round, generation) = (self.round, self.generation);
        for (worker, place) in (0..).zip(&mut self.places).filter(|(_, place)| place.owes()) {
            if place.doing == Doing::Idle {
                (place.doing, place.is_assigned) = (Doing::Training { round, generation }, true);
                actions.push(Action::Assign { who: Who { worker, claim: place.claim }, round, generation });
            }
        }
        self.order_merges(actions);
    }

    /// All that decides what happens next.
    #[cfg(test)]
    fn essence(&self) -> impl std::hash::Hash + PartialEq + std::fmt::Debug + use<> {
        let merges = self.merges.as_ref().map(Merges::essence);
        (self.places.clone(), self.round, self.open, self.generation, merges)
    }

    fn close_if_complete(&mut self, actions: &mut Vec<Action>) {
        let Some(results) = self.results() else { return };
        let contribution = |(worker, place): (u32, &Seat)| {
            let contribution = place.contribution.filter(|_| place.expected)?;
            Some((worker, contribution.samples))
        };
        let contributions = (0..).zip(&self.places).filter_map(contribution).collect();
        self.open = false;
        actions.push(Action::Complete { round: self.round, contributions, results });
    }
}

#[cfg(test)]
mod tests;
