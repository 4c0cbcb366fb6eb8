//! The barrier: a round ends when all workers that take part have handed in their contribution.
//!
//! There is a fixed number of places for workers; whoever fills one holds a claim, numbered from 1. A worker that is lost
//! is started again under the next claim, and what an older claim still sends is refused: a contribution counts once,
//! however often it is sent, and from the latest claim only.
//!
//! With [`OnLoss::Wait`] a round waits for whoever was lost, with [`OnLoss::Drop`] it is merged without them, as long as
//! there is anybody. A worker that fails again and again in one round ends the job.

use super::OnLoss;

/// A worker: its place, and its claim to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Who {
    pub worker: u32,
    pub claim: u64,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The worker waits for work.
    Ready(Who),
    /// The worker has handed in its contribution to a round, over so many samples.
    Done { who: Who, round: u64, samples: u64 },
    /// The worker has ended.
    Lost(Who),
    /// The round has taken longer than a round may.
    Overdue { round: u64 },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a worker in this place.
    Start(Who),
    /// Give the worker its assignment of the round.
    Assign { who: Who, round: u64 },
    /// Stop the worker: nothing that it sends counts any more.
    Abandon(Who),
    /// All contributions are there, in the order of the workers, each with its samples.
    Merge { round: u64, contributions: Vec<(u32, u64)> },
    /// The worker has failed too often in this round.
    GiveUp { worker: u32, round: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// On its way, for the first time or again.
    Starting,
    Idle,
    Working,
}

#[derive(Clone, Debug)]
struct Place {
    claim: u64,
    doing: Doing,
    /// What it has handed in for this round: so many samples.
    contribution: Option<u64>,
    takes_part: bool,
    /// Whether the round waits for its contribution.
    expected: bool,
    /// In this round.
    failures: u32,
}

/// The machine. It is silent between rounds: [`Self::begin`] opens one, [`Action::Merge`] closes it.
#[derive(Clone, Debug)]
pub struct Barrier {
    places: Vec<Place>,
    on_loss: OnLoss,
    /// How often a worker may fail in one round.
    attempts: u32,
    round: u64,
    open: bool,
}

impl Barrier {
    /// So many workers, none of which is there yet, and what starts them.
    pub fn new(workers: u32, on_loss: OnLoss, attempts: u32) -> (Self, Vec<Action>) {
        let (contribution, takes_part, expected) = (None, false, false);
        let place = Place { claim: 1, doing: Doing::Starting, contribution, takes_part, expected, failures: 0 };
        let barrier = Self { places: vec![place; workers as usize], on_loss, attempts, round: 0, open: false };
        let starts = (0..workers).map(|worker| Action::Start(Who { worker, claim: 1 })).collect();
        (barrier, starts)
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
        let is_awaited = |place: &Place| match self.open {
            true => place.expected && place.contribution.is_none(),
            false => place.doing == Doing::Starting,
        };
        let awaited = (0..).zip(&self.places).filter(|(_, place)| is_awaited(place));
        awaited.map(|(worker, place)| (worker, place.doing == Doing::Starting)).collect()
    }

    /// Opens the next round for these workers. Must not be called while one is open.
    pub fn begin(&mut self, takes_part: impl Fn(u32) -> bool) -> Vec<Action> {
        self.round += 1;
        self.open = true;
        let mut actions = Vec::new();
        for (worker, place) in (0..).zip(&mut self.places) {
            (place.failures, place.contribution, place.takes_part) = (0, None, takes_part(worker));
            // Whoever is being started again is not waited for where losses are dropped.
            let is_back = place.doing != Doing::Starting || place.claim == 1;
            place.expected = place.takes_part && (is_back || self.on_loss == OnLoss::Wait);
            if place.expected && place.doing == Doing::Idle {
                place.doing = Doing::Working;
                actions.push(Action::Assign { who: Who { worker, claim: place.claim }, round: self.round });
            }
        }
        self.recall_if_nobody_is_left(&mut actions);
        actions
    }

    pub fn handle(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Ready(who) => self.ready(who, &mut actions),
            Event::Done { who, round, samples } => {
                if self.open
                    && round == self.round
                    && let Some(place) = self.current(who)
                    && place.doing == Doing::Working
                {
                    (place.doing, place.contribution) = (Doing::Idle, Some(samples));
                }
            }
            Event::Lost(who) => self.lost(who, false, &mut actions),
            Event::Overdue { round } => {
                if self.open && round == self.round {
                    let late: Vec<Who> = (0..)
                        .zip(&self.places)
                        .filter(|(_, place)| place.expected && place.contribution.is_none())
                        .map(|(worker, place)| Who { worker, claim: place.claim })
                        .collect();
                    late.into_iter().for_each(|who| self.lost(who, true, &mut actions));
                }
            }
        }
        self.close_if_complete(&mut actions);
        actions
    }

    /// The place, if this is still who fills it.
    fn current(&mut self, who: Who) -> Option<&mut Place> {
        self.places.get_mut(who.worker as usize).filter(|place| place.claim == who.claim)
    }

    fn ready(&mut self, who: Who, actions: &mut Vec<Action>) {
        let (open, round) = (self.open, self.round);
        let Some(place) = self.current(who).filter(|place| place.doing == Doing::Starting) else { return };
        if open && place.expected && place.contribution.is_none() {
            place.doing = Doing::Working;
            actions.push(Action::Assign { who, round });
        } else {
            place.doing = Doing::Idle;
        }
    }

    fn lost(&mut self, who: Who, is_there: bool, actions: &mut Vec<Action>) {
        let (open, round, attempts, drops) = (self.open, self.round, self.attempts, self.on_loss == OnLoss::Drop);
        let Some(place) = self.current(who) else { return };
        if is_there {
            actions.push(Action::Abandon(who));
        }
        (place.claim, place.doing) = (place.claim + 1, Doing::Starting);
        place.failures += 1;
        if place.failures >= attempts {
            actions.push(Action::GiveUp { worker: who.worker, round });
            return;
        }
        // A contribution that was handed in stays, whatever became of the worker.
        if drops && open && place.contribution.is_none() {
            place.expected = false;
        }
        actions.push(Action::Start(Who { worker: who.worker, claim: place.claim }));
        self.recall_if_nobody_is_left(actions);
    }

    /// A round without anybody waits for whoever comes back, or is back already.
    fn recall_if_nobody_is_left(&mut self, actions: &mut Vec<Action>) {
        if !self.open || self.places.iter().any(|place| place.expected) {
            return;
        }
        for (worker, place) in (0..).zip(&mut self.places).filter(|(_, place)| place.takes_part) {
            place.expected = true;
            if place.doing == Doing::Idle && place.contribution.is_none() {
                place.doing = Doing::Working;
                actions.push(Action::Assign { who: Who { worker, claim: place.claim }, round: self.round });
            }
        }
    }

    fn close_if_complete(&mut self, actions: &mut Vec<Action>) {
        if !self.open || actions.iter().any(|action| matches!(action, Action::GiveUp { .. })) {
            return;
        }
        let mut contributions = Vec::new();
        for (worker, place) in (0..).zip(&self.places).filter(|(_, place)| place.expected) {
            let Some(samples) = place.contribution else { return };
            contributions.push((worker, samples));
        }
        self.open = false;
        actions.push(Action::Merge { round: self.round, contributions });
    }
}

#[cfg(test)]
mod tests;
