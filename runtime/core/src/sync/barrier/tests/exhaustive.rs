//! All orders of events of one round, for few workers and few losses; and of two, with other workers in the second.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::super::*;
use super::field::{Field, Job, Slot};
use crate::sync::topology::{Topology, plan};

/// What may go wrong.
#[derive(Clone, Copy, Hash)]
struct Luck {
    losses: u32,
    /// Of something in the channel.
    parts: u32,
    overdue: u32,
}

#[derive(Clone)]
struct State {
    barrier: Barrier,
    field: Field,
    jobs: BTreeSet<JobKey>,
    mail: Vec<Event>,
    luck: Luck,
    plan: Arc<MergePlan>,
    /// How many workers later rounds have, the last one first.
    sizes: Vec<u32>,
    /// Of the round, once it is there.
    is_complete: bool,
    has_lost_parts: bool,
}

/// Jobs in an order, so that the same jobs are the same state.
#[derive(Clone, Hash, PartialEq, Eq)]
struct JobKey(Job);

impl PartialOrd for JobKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for JobKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.who().cmp(&other.0.who())
    }
}

impl State {
    /// Two hashes: a collision of both is not to be expected.
    fn key(&self) -> (u64, u64) {
        let hash = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            let mut mail: Vec<u64> = self.mail.iter().map(hash_of).collect();
            mail.sort_unstable();
            let whole = (&self.field, &self.jobs, mail, self.luck, self.is_complete, self.has_lost_parts);
            (salt, self.barrier.essence(), whole, &self.plan, &self.sizes).hash(&mut hasher);
            hasher.finish()
        };
        (hash(1), hash(2))
    }

    fn obey(&mut self, actions: Vec<Action>) {
        let plan = self.plan.clone();
        for action in actions {
            if let Some(job) = Job::of(&action, Some(&plan)) {
                assert!(self.jobs.insert(JobKey(job)), "a worker does one thing at a time");
            }
            match action {
                Action::Abandon(who) => self.die(who),
                Action::Complete { round, contributions, results } => {
                    match self.field.check(&plan, round, &contributions, &results) {
                        Some(merge) => {
                            assert!(self.has_lost_parts, "a result was not put");
                            let actions = self.barrier.handle(Event::ResultMissing { round, merge });
                            self.obey(actions);
                        }
                        None => self.is_complete = true,
                    }
                    if self.barrier.on_loss == OnLoss::Wait {
                        assert_eq!(contributions.len(), plan.workers as usize, "nobody is left out");
                    }
                }
                Action::GiveUp { .. } => panic!("there are more attempts than losses"),
                _ => {}
            }
        }
    }

    fn die(&mut self, who: Who) {
        self.field.forget(who);
        self.jobs.retain(|job| job.0.who() != who);
    }

    /// What claims that are over have said or put, and nothing counts, would only make the same states many.
    fn forget_the_past(&mut self) {
        let barrier = &self.barrier;
        let is_over = |who: Who| barrier.claim(who.worker) != Some(who);
        let is_wanted = |slot: &Slot| {
            let mut parts = self.jobs.iter().flat_map(|job| job.0.parts());
            parts.any(|part| (part.who, part.layer) == (slot.who, slot.layer))
        };
        let counts = |slot: &Slot| match slot.layer {
            0 => {
                let place = barrier.places.get(slot.who.worker as usize);
                place.and_then(|place| place.contribution).map(|made| made.claim) == Some(slot.who.claim)
            }
            _ => barrier.has_merged(slot.who),
        };
        self.field.channel.retain(|slot, _| !is_over(slot.who) || counts(slot) || is_wanted(slot));
        let (past, mail): (Vec<Event>, Vec<Event>) =
            std::mem::take(&mut self.mail).into_iter().partition(|event| match event {
                Event::Ready(who) | Event::Trained { who, .. } => is_over(*who),
                Event::Merged { who, .. } | Event::Missing { who, .. } => is_over(*who),
                _ => false,
            });
        self.mail = mail;
        let before = self.barrier.essence();
        for event in past {
            assert_eq!(self.barrier.handle(event), [], "an old claim counts nothing");
        }
        assert_eq!(self.barrier.essence(), before);
    }

    fn tell(&mut self, event: Event) {
        let actions = self.barrier.handle(event.clone());
        self.obey(actions);
        // Whatever comes twice changes nothing.
        let before = self.barrier.essence();
        if !matches!(event, Event::Overdue { .. }) {
            assert_eq!(self.barrier.handle(event), []);
            assert_eq!(self.barrier.essence(), before);
        }
    }

    /// What happens if nothing goes wrong.
    fn goes_on(&self) -> Vec<Self> {
        let mut next = Vec::new();
        for job in &self.jobs {
            let mut state = self.clone();
            state.jobs.remove(job);
            let event = state.field.execute(&job.0, true);
            // A merge of a round that is over finds nothing any more, and nobody needs it.
            let is_missing = matches!(event, Event::Missing { round, .. } if round == state.barrier.round());
            assert!(!is_missing || state.has_lost_parts, "not all was there: {event:?}");
            state.mail.push(event);
            next.push(state);
        }
        for index in 0..self.mail.len() {
            let mut state = self.clone();
            let event = state.mail.swap_remove(index);
            state.tell(event);
            next.push(state);
        }
        next
    }

    /// The next round, with other workers. Nothing if this was the last one.
    fn resized(&self, plan_of: &dyn Fn(u32) -> Arc<MergePlan>) -> Option<Self> {
        let mut state = self.clone();
        let workers = state.sizes.pop()?;
        // Of the round that is over nothing is needed.
        state.field = Field::default();
        (state.is_complete, state.has_lost_parts) = (false, false);
        let actions = state.barrier.resize(workers);
        state.obey(actions);
        state.forget_the_past();
        state.plan = plan_of(workers);
        let actions = state.barrier.begin(|_| true, Some(state.plan.clone()));
        state.obey(actions);
        Some(state)
    }

    fn goes_wrong(&self) -> Vec<Self> {
        let mut next = Vec::new();
        if self.luck.losses > 0 {
            for who in (0..self.plan.workers).filter_map(|worker| self.barrier.claim(worker)) {
                let mut state = self.clone();
                state.luck.losses -= 1;
                state.die(who);
                state.tell(Event::Lost(who));
                state.forget_the_past();
                next.push(state);
            }
        }
        if self.luck.parts > 0 {
            for slot in self.field.channel.keys() {
                let mut state = self.clone();
                state.luck.parts -= 1;
                state.has_lost_parts = true;
                state.field.channel.remove(slot);
                next.push(state);
            }
        }
        if self.luck.overdue > 0 {
            let mut state = self.clone();
            state.luck.overdue -= 1;
            state.tell(Event::Overdue { round: state.barrier.round() });
            state.forget_the_past();
            next.push(state);
        }
        next
    }
}

fn hash_of(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    event.hash(&mut hasher);
    hasher.finish()
}

/// Looks at every state that rounds of so many workers can be in, one after the other. Returns how many there are.
fn explore(topology: &str, rounds: &[u32], on_loss: OnLoss, luck: Luck) -> usize {
    let plan_of = |workers: u32| {
        let layers = if workers == 2 { "tree:1,2" } else { "tree:1,2,3" };
        let topology = if topology == "tree" { layers } else { topology };
        Arc::new(plan(&topology.parse::<Topology>().unwrap(), workers).unwrap())
    };
    let mut sizes: Vec<u32> = rounds.iter().rev().copied().collect();
    let workers = sizes.pop().unwrap();
    let (barrier, starts) = Barrier::new(workers, on_loss, 100);
    let (field, jobs, mail) = Default::default();
    let (plan, is_complete, has_lost_parts) = (plan_of(workers), false, false);
    let mut first = State { barrier, field, jobs, mail, luck, plan, sizes, is_complete, has_lost_parts };
    first.obey(starts);
    // All are there when the round begins.
    for job in std::mem::take(&mut first.jobs) {
        first.tell(Event::Ready(job.0.who()));
    }
    let actions = first.barrier.begin(|_| true, Some(first.plan.clone()));
    first.obey(actions);

    let mut numbers = HashMap::from([(first.key(), 0_usize)]);
    let mut queue = VecDeque::from([first]);
    // By state, in the order in which they are looked at: from which others it goes on to this one; and whether it is
    // the end.
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut ends = Vec::new();
    let mut looked_at = 0;
    while let Some(state) = queue.pop_front() {
        let number = looked_at;
        looked_at += 1;
        let (goes_on, goes_wrong) = match state.is_complete.then(|| state.resized(&plan_of)) {
            Some(None) => {
                ends.push(number);
                continue;
            }
            Some(Some(next)) => (vec![next], Vec::new()),
            None => (state.goes_on(), state.goes_wrong()),
        };
        assert!(!goes_on.is_empty(), "nothing will ever happen again: {:?}", state.barrier);
        let next = goes_on.into_iter().map(|next| (next, true));
        for (next, is_good) in next.chain(goes_wrong.into_iter().map(|next| (next, false))) {
            let fresh = numbers.len();
            let to = *numbers.entry(next.key()).or_insert(fresh);
            if to == fresh {
                before.push(Vec::new());
                queue.push_back(next);
            }
            if is_good {
                before[to].push(number);
            }
        }
    }
    // From everywhere it comes to an end if nothing more goes wrong.
    let mut ends_well = vec![false; before.len()];
    while let Some(number) = ends.pop() {
        if !std::mem::replace(&mut ends_well[number], true) {
            ends.extend(&before[number]);
        }
    }
    assert!(ends_well.iter().all(|ends| *ends), "{topology}, {rounds:?} workers, {on_loss:?}: a dead end");
    looked_at
}

fn explore_all(rounds: &[u32], luck: Luck) {
    for topology in ["leader", "scatter", "tree", "peers"] {
        for on_loss in [OnLoss::Wait, OnLoss::Drop] {
            let states = explore(topology, rounds, on_loss, luck);
            println!("{topology}, {rounds:?} workers, {on_loss:?}: {states} states");
            assert!(states > 100);
        }
    }
}

#[test]
fn no_order_of_events_with_two_workers_is_a_dead_end() {
    explore_all(&[2], Luck { losses: 2, parts: 1, overdue: 1 });
}

#[test]
fn no_order_of_events_with_three_workers_is_a_dead_end() {
    explore_all(&[3], Luck { losses: 2, parts: 0, overdue: 0 });
}

#[test]
fn no_order_of_events_with_three_workers_and_lost_parts_is_a_dead_end() {
    explore_all(&[3], Luck { losses: 1, parts: 1, overdue: 0 });
}

#[test]
fn no_order_of_events_with_workers_that_come_or_go_between_rounds_is_a_dead_end() {
    for rounds in [[2, 3], [3, 2]] {
        explore_all(&rounds, Luck { losses: 1, parts: 0, overdue: 0 });
    }
    explore_all(&[2, 3, 2], Luck { losses: 0, parts: 1, overdue: 1 });
}
