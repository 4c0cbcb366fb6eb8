//! The paces without a barrier: workers go through their rounds at their own speed.
//!
//! They do so for a stretch, which all begin and end together: validation, checkpoints and changes of the number of
//! workers come in between. In a stretch every worker has a clock, the number of rounds that it has done. What happens
//! when a contribution arrives depends on the pace:
//! - staleness and on-arrival: it is applied to the model at once ([`Action::Apply`]), and its worker goes on with the
//!   model as it is then. With bounded staleness `s` (Ho et al. 2013), whoever is more than `s` rounds ahead of the
//!   slowest waits: round `c` may begin if all others that have not finished have done `c - s`.
//! - overwrite: it is the model from then on, whatever others have made of it meanwhile. The machine is the same.
//! - quorum (peers, each with a model of its own): it replaces what the worker published before. As soon as a worker
//!   that has published sees enough fresh messages, its own included, it averages them ([`Action::Average`]) and goes
//!   on. If so many can no longer come, because others have finished or are left out, it goes on with those that are
//!   there.
//!
//! A lost worker is started again under the next claim. With [`OnLoss::Wait`] it holds the others back, as its clock
//! stands, and goes on with the round that it was in; with [`OnLoss::Drop`] it is back in the next stretch. What has
//! arrived of it stays. A stretch without anybody waits for whoever comes back.

use std::collections::BTreeMap;

use super::OnLoss;
use super::barrier::Who;

/// When a worker may go on, and what becomes of what it hands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoosePace {
    /// At most so many rounds ahead of the slowest.
    Staleness(u64),
    OnArrival,
    Overwrite,
    /// With so many messages, each published at most `max_age` of one's own rounds ago.
    Quorum {
        quorum: u32,
        max_age: Option<u64>,
    },
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The worker waits for work.
    Ready(Who),
    /// The worker has handed in, or published, what it has made of its round.
    Done { who: Who, stretch: u64, clock: u64 },
    /// The worker has ended.
    Lost(Who),
    /// The worker has taken longer over this round than a round may take.
    Overdue { who: Who, stretch: u64, clock: u64 },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Start a worker in this place.
    Start(Who),
    /// Give the worker its round, with the model as it is now, or as the peer has it.
    Assign { who: Who, stretch: u64, clock: u64 },
    /// Take the worker's contribution into the model. `staleness`: how often the model was changed since the worker got
    /// it.
    Apply { worker: u32, clock: u64, staleness: u64 },
    /// Let the peer average these messages, in the order of the workers, and take a step of its own with the result.
    Average { who: Who, clock: u64, of: Vec<Message> },
    /// Stop the worker: nothing that it sends counts any more.
    Abandon(Who),
    /// Everybody has done its rounds, or is left out. `rounds`: how many each has done; `finished`: who has done all of
    /// them and is still there, so that peers' models can be had from them. There is at least one, unless there was
    /// nothing to do.
    Complete { stretch: u64, rounds: Vec<(u32, u64)>, finished: Vec<Who> },
    /// The worker has failed too often in one round.
    GiveUp { worker: u32, stretch: u64 },
}

/// What a peer published last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    pub who: Who,
    /// The round of its own that it was made in.
    pub clock: u64,
    /// How many rounds whoever reads it has done since it was published.
    pub age: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    /// On its way, for the first time or again.
    Starting,
    Idle,
    Computing {
        stretch: u64,
        clock: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Published {
    by: Who,
    clock: u64,
    /// All workers' clocks at that time.
    seen_at: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seat {
    claim: u64,
    /// The one with which the place was filled.
    first_claim: u64,
    doing: Doing,
    /// Rounds done, of so many.
    clock: u64,
    rounds: u64,
    /// Left out of this stretch, because it was lost.
    is_removed: bool,
    /// It has published, and waits for a quorum.
    waits: bool,
    published: Option<Published>,
    /// The claim that has done the latest round.
    done_by: u64,
    /// In this round.
    failures: u32,
}

impl Seat {
    fn new(claim: u64) -> Self {
        Self {
            claim,
            first_claim: claim,
            doing: Doing::Starting,
            clock: 0,
            rounds: 0,
            is_removed: false,
            waits: false,
            published: None,
            done_by: 0,
            failures: 0,
        }
    }

    /// Whether it has rounds to do in this stretch.
    fn is_active(&self) -> bool {
        !self.is_removed && self.clock < self.rounds
    }

    /// What it published last, unless that is too old for this worker, whose clock is at `clock`.
    fn message_to(&self, reader: usize, clock: u64, max_age: Option<u64>) -> Option<Message> {
        let published = self.published.as_ref()?;
        let age = clock.saturating_sub(published.seen_at.get(reader).copied().unwrap_or_default());
        let is_fresh = max_age.is_none_or(|most| age <= most);
        is_fresh.then_some(Message { who: published.by, clock: published.clock, age })
    }

    /// Whether it has done all its rounds, and is still there.
    fn has_finished(&self) -> bool {
        self.rounds > 0 && self.clock >= self.rounds && self.done_by == self.claim
    }
}

/// The machine. It is silent between stretches: [`Self::begin`] opens one, [`Action::Complete`] closes it.
#[derive(Clone, Debug)]
pub struct Arrivals {
    places: Vec<Seat>,
    /// The last claims to places that are no more.
    retired: BTreeMap<u32, u64>,
    pace: LoosePace,
    on_loss: OnLoss,
    /// How often a worker may fail in one round.
    attempts: u32,
    stretch: u64,
    open: bool,
    /// How often the model was changed.
    version: u64,
    /// By worker: the version that it got with its latest round.
    versions: BTreeMap<u32, u64>,
}

impl Arrivals {
    /// So many workers, none of which is there yet, and what starts them.
    pub fn new(workers: u32, pace: LoosePace, on_loss: OnLoss, attempts: u32) -> (Self, Vec<Action>) {
        let mut arrivals = Self {
            places: Vec::new(),
            retired: BTreeMap::new(),
            pace,
            on_loss,
            attempts,
            stretch: 0,
            open: false,
            version: 0,
            versions: BTreeMap::new(),
        };
        let starts = arrivals.resize(workers);
        (arrivals, starts)
    }

    /// From now on there are so many workers. New ones are started, those whose places are gone are abandoned. Must not
    /// be called in the middle of a stretch.
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
        actions
    }

    /// The latest stretch.
    pub fn stretch(&self) -> u64 {
        self.stretch
    }

    /// Who fills a place.
    pub fn claim(&self, worker: u32) -> Option<Who> {
        self.places.get(worker as usize).map(|place| Who { worker, claim: place.claim })
    }

    /// Workers that are waited for: whether each is still being started.
    pub fn awaited(&self) -> Vec<(u32, bool)> {
        let is_starting = |place: &Seat| place.doing == Doing::Starting;
        let is_awaited = |place: &Seat| match self.open {
            true => place.is_active() && place.doing != Doing::Idle,
            false => is_starting(place),
        };
        let awaited = (0..).zip(&self.places).filter(|(_, place)| is_awaited(place));
        awaited.map(|(worker, place)| (worker, is_starting(place))).collect()
    }

    /// The pace of the stretches from now on. Must not be called in the middle of one.
    pub fn set_pace(&mut self, pace: LoosePace) {
        self.pace = pace;
    }

    /// Opens the next stretch: so many rounds for each worker, none for those that are not named. Must not be called in
    /// the middle of one.
    pub fn begin(&mut self, rounds: &[u64]) -> Vec<Action> {
        self.stretch += 1;
        self.open = true;
        let drops = self.on_loss == OnLoss::Drop;
        for (worker, place) in self.places.iter_mut().enumerate() {
            (place.clock, place.rounds) = (0, rounds.get(worker).copied().unwrap_or_default());
            (place.published, place.waits, place.failures) = (None, false, 0);
            let is_back = place.doing != Doing::Starting || place.claim == place.first_claim;
            place.is_removed = drops && !is_back;
        }
        let mut actions = Vec::new();
        self.go_on(&mut actions);
        actions
    }

    pub fn handle(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Ready(who) => {
                if let Some(place) = self.current(who).filter(|place| place.doing == Doing::Starting) {
                    place.doing = Doing::Idle;
                }
            }
            Event::Done { who, stretch, clock } => self.done(who, stretch, clock, &mut actions),
            Event::Lost(who) => self.lost(who, false, &mut actions),
            Event::Overdue { who, stretch, clock } => {
                let is_now = self.open && stretch == self.stretch;
                let is_late = |place: &&mut Seat| {
                    place.is_active() && place.clock == clock && place.doing != Doing::Idle && is_now
                };
                if self.current(who).filter(is_late).is_some() {
                    self.lost(who, true, &mut actions);
                }
            }
        }
        if self.open && !actions.iter().any(|action| matches!(action, Action::GiveUp { .. })) {
            self.go_on(&mut actions);
        }
        actions
    }

    /// The place, if this is still who fills it.
    fn current(&mut self, who: Who) -> Option<&mut Seat> {
        self.places.get_mut(who.worker as usize).filter(|place| place.claim == who.claim)
    }

    fn done(&mut self, who: Who, stretch: u64, clock: u64, actions: &mut Vec<Action>) {
        let seen_at: Vec<u64> = match self.pace {
            LoosePace::Quorum { .. } => self.places.iter().map(|place| place.clock).collect(),
            _ => Vec::new(),
        };
        let is_quorum = matches!(self.pace, LoosePace::Quorum { .. });
        let Some(place) = self.current(who) else { return };
        if place.doing != (Doing::Computing { stretch, clock }) {
            return;
        }
        (place.doing, place.failures) = (Doing::Idle, 0);
        if is_quorum {
            place.published = Some(Published { by: who, clock, seen_at });
            place.waits = true;
            return;
        }
        (place.clock, place.done_by) = (clock + 1, who.claim);
        let computed_from = self.versions.get(&who.worker).copied().unwrap_or(self.version);
        actions.push(Action::Apply { worker: who.worker, clock, staleness: self.version - computed_from });
        self.version += 1;
    }

    fn lost(&mut self, who: Who, is_there: bool, actions: &mut Vec<Action>) {
        let (stretch, attempts) = (self.stretch, self.attempts);
        let drops = self.open && self.on_loss == OnLoss::Drop;
        let Some(place) = self.current(who) else { return };
        if is_there {
            actions.push(Action::Abandon(who));
        }
        (place.claim, place.doing) = (place.claim + 1, Doing::Starting);
        place.failures += 1;
        if place.failures >= attempts {
            actions.push(Action::GiveUp { worker: who.worker, stretch });
            return;
        }
        actions.push(Action::Start(Who { worker: who.worker, claim: place.claim }));
        place.is_removed |= drops && place.is_active();
    }

    /// Whoever can go on does, until nobody can; then the stretch may be over.
    fn go_on(&mut self, actions: &mut Vec<Action>) {
        if !self.places.iter().any(|place| place.is_active() || place.has_finished()) {
            // Nobody is left: the stretch waits for whoever comes back, or is back already.
            self.places.iter_mut().for_each(|place| place.is_removed = false);
        }
        while self.average(actions) || self.assign(actions) {}
        if !self.places.iter().any(Seat::is_active) {
            self.open = false;
            let places = || (0..).zip(&self.places).filter(|(_, place)| place.rounds > 0);
            let rounds = places().map(|(worker, place)| (worker, place.clock)).collect();
            let finished = places().filter(|(_, place)| place.has_finished());
            let finished = finished.map(|(worker, place)| Who { worker, claim: place.claim }).collect();
            actions.push(Action::Complete { stretch: self.stretch, rounds, finished });
        }
    }

    /// Gives a round to everybody who is idle and may begin one. Returns whether there was anybody.
    fn assign(&mut self, actions: &mut Vec<Action>) -> bool {
        let stretch = self.stretch;
        // The two slowest, as nobody waits for itself.
        let mut slowest = (u64::MAX, u64::MAX);
        for place in self.places.iter().filter(|place| place.is_active()) {
            if place.clock < slowest.0 {
                slowest = (place.clock, slowest.0);
            } else {
                slowest.1 = slowest.1.min(place.clock);
            }
        }
        let mut has_assigned = false;
        for (worker, place) in (0..).zip(&mut self.places) {
            let others = if place.clock == slowest.0 { slowest.1 } else { slowest.0 };
            let may_begin = match self.pace {
                LoosePace::Staleness(most) => others >= place.clock.saturating_sub(most),
                _ => true,
            };
            if place.is_active() && place.doing == Doing::Idle && !place.waits && may_begin {
                place.doing = Doing::Computing { stretch, clock: place.clock };
                self.versions.insert(worker, self.version);
                let who = Who { worker, claim: place.claim };
                actions.push(Action::Assign { who, stretch, clock: place.clock });
                has_assigned = true;
            }
        }
        has_assigned
    }

    /// Lets peers average that wait and have a quorum, or can have none any more. Returns whether there was anybody.
    fn average(&mut self, actions: &mut Vec<Action>) -> bool {
        let LoosePace::Quorum { quorum, max_age } = self.pace else { return false };
        let members = self.places.iter().filter(|place| place.rounds > 0).count();
        let quorum = members.min(quorum as usize);
        let mut averaging = Vec::new();
        for (worker, place) in self.places.iter().enumerate() {
            if !place.waits || !place.is_active() || place.doing != Doing::Idle {
                continue;
            }
            let fresh = |other: &Seat| other.message_to(worker, place.clock, max_age);
            // Not everybody waits for others that wait: whoever has waited longest sees what all those have published.
            let can_come = |other: &&Seat| other.is_active() && fresh(other).is_none();
            let messages: Vec<Message> = self.places.iter().filter_map(fresh).collect();
            let missing = quorum.saturating_sub(messages.len());
            if missing == 0 || self.places.iter().filter(can_come).count() < missing {
                averaging.push((worker, messages));
            }
        }
        let is_anybody = !averaging.is_empty();
        for (worker, of) in averaging {
            let place = &mut self.places[worker];
            let who = Who { worker: worker as u32, claim: place.claim };
            actions.push(Action::Average { who, clock: place.clock, of });
            (place.waits, place.clock, place.done_by) = (false, place.clock + 1, place.claim);
        }
        is_anybody
    }

    /// All that decides what happens next.
    #[cfg(test)]
    fn essence(&self) -> (Vec<Seat>, u64, bool) {
        (self.places.clone(), self.stretch, self.open)
    }
}

#[cfg(test)]
mod tests;
