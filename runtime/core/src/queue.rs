//! Which job may run next. Pure.
//!
//! A tenant's jobs wait in the order they came; tenants take turns. A job that would exceed its tenant's quota waits, and
//! so do those of its tenant behind it; other tenants pass. A job that finds no room on the node lets everybody pass who
//! finds some: a job that trains for days must not keep a small one waiting behind a large one. But not for ever: once
//! `patience` jobs have started past it, it bars the queue: nothing else starts until it has.
//!
//! A tenant must not be able to stop everybody by this. A job that its own tenant keeps from fitting bars nobody, and a
//! job that bars the queue does so for a bounded time; then `patience` others may start past its tenant's jobs again.
//!
//! After a node has died, the jobs that ran then are suspects: see [`suspects`](crate::suspects). They start one at a
//! time: while one is on trial, the other suspects are passed over.
//!
//! A running job that grows takes room as one that starts does, so it grows past nobody who bars the queue. While the workers
//! of a job are replaced, nothing starts and no other job grows: what the old ones had is free for a moment, and is the new
//! ones'.
//!
//! Whether there is room is not known here. The caller looks through the queue in one [`Pass`]: [`Queue::next`] names a
//! job to try, and the caller answers with [`Queue::started`] or [`Queue::no_room`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::tenant::TenantId;

#[cfg(test)]
mod tests;

/// How many of a tenant's jobs are looked at in one pass: those at the front.
const LOOK_AHEAD: usize = 16;

/// What a job needs while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub tenant: TenantId,
    pub name: String,
    /// Functions that compute at once.
    pub lanes: u32,
    /// Memory of all of them, in bytes.
    pub bytes: u64,
    /// Whether a node has died while it ran, and it has made no progress since.
    pub suspect: bool,
}

/// Why a job that was tried has found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTheWay {
    /// It would fit if only its own tenant had something on the devices.
    Others,
    /// It would not fit even then.
    OwnTenant,
}

/// What a tenant may have running.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    pub jobs: u32,
    pub lanes: u32,
    pub bytes: u64,
}

impl Allowed {
    fn admits(&self, used: InUse, ask: &Ask) -> bool {
        used.jobs < self.jobs
            && used.lanes.saturating_add(ask.lanes) <= self.lanes
            && used.bytes.saturating_add(ask.bytes) <= self.bytes
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct InUse {
    jobs: u32,
    lanes: u32,
    bytes: u64,
}

/// A job that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    ask: Ask,
    /// In the order of arrival.
    number: u64,
    /// How many have started past it while it found no room.
    passed: u32,
    /// Whether it is being tried: it counts as running.
    tried: bool,
    /// Whether it waits for something else than room, until [`Queue::due`].
    aside: bool,
    /// Whether its own tenant was in its way when it was last tried.
    own_way: bool,
    /// Since when nothing else starts because of it.
    bars_since: Option<Instant>,
}

/// One look through the queue: which jobs have found no room in it.
#[derive(Debug, Default)]
pub struct Pass(HashSet<u64>);

#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Of the node.
    limit: u32,
    patience: u32,
    /// How long one job may keep all others from starting.
    bars_for: Duration,
    lanes: u32,
    arrivals: u64,
    running: HashMap<TenantId, InUse>,
    waiting: HashMap<TenantId, VecDeque<Waiting>>,
    /// Tenants that have something waiting, in the order of their next turn.
    turns: VecDeque<TenantId>,
    /// The suspect that is watched now.
    on_trial: Option<(TenantId, String)>,
    /// Jobs whose workers are being replaced.
    changing: Vec<(TenantId, String)>,
}

impl Queue {
    /// So many functions of all jobs at once, so many jobs that may start past one that finds no room, and so long that
    /// such a one may keep others from starting after that.
    pub fn new(limit: u32, patience: u32, bars_for: Duration) -> Self {
        Self { limit, patience, bars_for, ..Self::default() }
    }

    /// Whether any job waits for room.
    pub fn is_waiting(&self) -> bool {
        self.waiting.values().flatten().any(|waiting| !waiting.aside)
    }

    pub fn push(&mut self, ask: Ask) {
        let waiting = self.arrive(ask, false);
        self.line(waiting.ask.tenant).push_back(waiting);
    }

    /// A job that has begun and must wait for something to pass: it is the first of its tenant's, but is not tried before
    /// [`Self::due`] is told. A suspect is the last: two that never find what they need would take turns for ever, and the
    /// others wait while one of them is on trial.
    pub fn set_aside(&mut self, ask: Ask) {
        let waiting = self.arrive(ask, true);
        let line = self.line(waiting.ask.tenant);
        match waiting.ask.suspect {
            true => line.push_back(waiting),
            false => line.push_front(waiting),
        }
    }

    /// What a job was set aside for may be over.
    pub fn due(&mut self, tenant: TenantId, name: &str) {
        if let Some(waiting) = self.find(tenant, name) {
            waiting.aside = false;
        }
    }

    fn arrive(&mut self, ask: Ask, aside: bool) -> Waiting {
        self.arrivals += 1;
        let (number, passed) = (self.arrivals, 0);
        Waiting { ask, number, passed, tried: false, aside, own_way: false, bars_since: None }
    }

    fn line(&mut self, tenant: TenantId) -> &mut VecDeque<Waiting> {
        if !self.turns.contains(&tenant) {
            self.turns.push_back(tenant);
        }
        self.waiting.entry(tenant).or_default()
    }

    fn find(&mut self, tenant: TenantId, name: &str) -> Option<&mut Waiting> {
        self.waiting.get_mut(&tenant)?.iter_mut().find(|waiting| waiting.ask.name == name)
    }

    /// The next job to try; it counts as running from now on, until [`Self::no_room`] or [`Self::end`].
    pub fn next(
        &mut self,
        pass: &mut Pass,
        now: Instant,
        allowed: impl Fn(TenantId) -> Option<Allowed>,
    ) -> Option<Ask> {
        self.lift_bars(now);
        if !self.changing.is_empty() {
            return None;
        }
        loop {
            let patient = self.most_patient(&allowed);
            if let Some(barring) = patient.and_then(|number| self.numbered(number)) {
                barring.bars_since.get_or_insert(now);
            }
            let number = match patient {
                // It has let enough of them pass: it, or nobody.
                Some(number) => Some(number).filter(|number| !pass.0.contains(number)),
                None => self.in_turn(pass, &allowed),
            }?;
            let (limit, lanes) = (self.limit, self.lanes);
            let waiting = self.numbered(number)?;
            let ask = waiting.ask.clone();
            if lanes.saturating_add(ask.lanes) > limit {
                pass.0.insert(number);
                let own_way = self.used(ask.tenant).lanes.saturating_add(ask.lanes) > limit;
                self.numbered(number)?.own_way = own_way;
                continue;
            }
            waiting.tried = true;
            let used = self.running.entry(ask.tenant).or_default();
            used.jobs += 1;
            used.lanes += ask.lanes;
            used.bytes += ask.bytes;
            self.lanes += ask.lanes;
            if ask.suspect {
                self.on_trial = Some((ask.tenant, ask.name.clone()));
            }
            return Some(ask);
        }
    }

    fn numbered(&mut self, number: u64) -> Option<&mut Waiting> {
        self.waiting.values_mut().flatten().find(|waiting| waiting.number == number)
    }

    /// Lets others pass again where a job has barred the queue for long enough. That goes for all jobs of its tenant, or
    /// the next of them would take its place.
    fn lift_bars(&mut self, now: Instant) {
        let bars_for = self.bars_for;
        let is_over = |waiting: &Waiting| waiting.bars_since.is_some_and(|since| now >= since + bars_for);
        for line in self.waiting.values_mut().filter(|line| line.iter().any(is_over)) {
            for waiting in line {
                (waiting.passed, waiting.bars_since) = (0, None);
            }
        }
    }

    /// When a job that bars the queue now ceases to, at the latest.
    pub fn bar_ends(&self) -> Option<Instant> {
        self.waiting
            .values()
            .flatten()
            .filter_map(|waiting| waiting.bars_since)
            .min()
            .map(|since| since + self.bars_for)
    }

    /// Whether it may be tried at all.
    fn is_eligible(&self, waiting: &Waiting) -> bool {
        let must_wait = waiting.ask.suspect && self.on_trial.is_some();
        !(waiting.aside || waiting.tried || must_wait)
    }

    /// Whether this suspect is watched now.
    pub fn is_on_trial(&self, tenant: TenantId, name: &str) -> bool {
        self.on_trial.as_ref().is_some_and(|(of, on_trial)| *of == tenant && on_trial == name)
    }

    /// A suspect has shown that it does no harm, or at least does not do it at once: the next may start. Whether it was on
    /// trial.
    pub fn end_trial(&mut self, tenant: TenantId, name: &str) -> bool {
        self.on_trial.take_if(|(of, on_trial)| *of == tenant && on_trial == name).is_some()
    }

    /// Of those that have let as many pass as they have to, the one that came first.
    fn most_patient(&self, allowed: &impl Fn(TenantId) -> Option<Allowed>) -> Option<u64> {
        let may_run = |waiting: &&Waiting| {
            let used = self.used(waiting.ask.tenant);
            // What only its own tenant can make room for is no reason to keep others from starting.
            let allowed = allowed(waiting.ask.tenant);
            !waiting.own_way
                && self.is_eligible(waiting)
                && allowed.is_some_and(|allowed| allowed.admits(used, &waiting.ask))
        };
        let patient = self.waiting.values().flatten().filter(|waiting| waiting.passed >= self.patience);
        patient.filter(may_run).map(|waiting| waiting.number).min()
    }

    fn in_turn(&self, pass: &Pass, allowed: &impl Fn(TenantId) -> Option<Allowed>) -> Option<u64> {
        for tenant in &self.turns {
            let (Some(line), Some(allowed)) = (self.waiting.get(tenant), allowed(*tenant)) else { continue };
            let used = self.used(*tenant);
            for waiting in line.iter().filter(|waiting| self.is_eligible(waiting)).take(LOOK_AHEAD) {
                if pass.0.contains(&waiting.number) {
                    continue;
                }
                if !allowed.admits(used, &waiting.ask) {
                    break;
                }
                return Some(waiting.number);
            }
        }
        None
    }

    fn used(&self, tenant: TenantId) -> InUse {
        self.running.get(&tenant).copied().unwrap_or_default()
    }

    /// A job that was tried has found room. False if it has left the queue meanwhile: then it must not run.
    pub fn started(&mut self, ask: &Ask, pass: &Pass) -> bool {
        let line = self.waiting.get_mut(&ask.tenant);
        let place = line.and_then(|line| line.iter().position(|waiting| waiting.tried && waiting.ask == *ask));
        let Some(place) = place else {
            self.end(ask);
            return false;
        };
        self.turns.retain(|tenant| *tenant != ask.tenant);
        if let Some(line) = self.waiting.get_mut(&ask.tenant) {
            line.remove(place);
            match line.is_empty() {
                true => drop(self.waiting.remove(&ask.tenant)),
                false => self.turns.push_back(ask.tenant),
            }
        }
        for waiting in self.waiting.values_mut().flatten().filter(|waiting| pass.0.contains(&waiting.number)) {
            // While its tenant may not run more, others start past it whatever it has let pass: they do not count.
            waiting.passed = (waiting.passed + 1).min(self.patience);
            // Its own tenant has just taken room: it bars nobody until it was tried again.
            waiting.own_way |= waiting.ask.tenant == ask.tenant;
        }
        true
    }

    /// A job that was tried has found no room: it stays where it is.
    pub fn no_room(&mut self, ask: &Ask, pass: &mut Pass, in_the_way: InTheWay) {
        self.end(ask);
        if let Some(waiting) = self.find(ask.tenant, &ask.name) {
            waiting.tried = false;
            waiting.own_way = in_the_way == InTheWay::OwnTenant;
            pass.0.insert(waiting.number);
        }
    }

    /// A job that waits needs something else than before. Whether it waits.
    pub fn ask_for(&mut self, ask: Ask) -> bool {
        match self.find(ask.tenant, &ask.name).filter(|waiting| !waiting.tried) {
            Some(waiting) => {
                (waiting.ask, waiting.own_way) = (ask, false);
                true
            }
            None => false,
        }
    }

    /// The workers of a running job are about to be replaced: nothing else takes room until [`Self::changed`] is told.
    pub fn changes(&mut self, tenant: TenantId, name: &str) {
        self.changing.push((tenant, name.to_owned()));
    }

    /// The workers of a job have been replaced, or are not.
    pub fn changed(&mut self, tenant: TenantId, name: &str) {
        self.changing.retain(|(of, changing)| *of != tenant || changing != name);
    }

    /// Whether room is kept for a job that waits.
    fn is_barred(&self) -> bool {
        let bars = |waiting: &Waiting| waiting.bars_since.is_some() && !waiting.own_way && self.is_eligible(waiting);
        self.waiting.values().flatten().any(bars)
    }

    /// Functions that a running job may have, with those that it has: as its tenant may, and as the node may.
    pub fn may_have(&self, ask: &Ask, allowed: Allowed) -> (u32, u32) {
        let used = self.used(ask.tenant);
        let others = used.lanes.saturating_sub(ask.lanes);
        let all = self.lanes.saturating_sub(ask.lanes);
        (allowed.lanes.saturating_sub(others), self.limit.saturating_sub(all))
    }

    /// A running job needs something else than before, if its tenant and the node allow that, and nobody has waited for so
    /// long that room is kept for it.
    pub fn rebook(&mut self, before: &Ask, next: &Ask, allowed: Allowed) -> Result<(), String> {
        let used = self.used(before.tenant);
        let lanes = (used.lanes - before.lanes.min(used.lanes)).saturating_add(next.lanes);
        let bytes = (used.bytes - before.bytes.min(used.bytes)).saturating_add(next.bytes);
        let all = (self.lanes - before.lanes.min(self.lanes)).saturating_add(next.lanes);
        // Whoever needs less than before is let, whatever the limits are by now.
        if next.lanes > before.lanes && lanes > allowed.lanes {
            return Err(format!("{lanes} functions would exceed the tenant's `workers` of {}", allowed.lanes));
        }
        if next.bytes > before.bytes && bytes > allowed.bytes {
            return Err(format!("{bytes} bytes would exceed the tenant's `worker_memory` of {}", allowed.bytes));
        }
        if next.lanes > before.lanes && all > self.limit {
            return Err(format!("{all} functions of all jobs would exceed the node's `max_workers` of {}", self.limit));
        }
        if next.lanes > before.lanes || next.bytes > before.bytes {
            if self.is_barred() {
                return Err("room is kept for a job that has waited for long".to_owned());
            }
            if self.changing.iter().any(|(tenant, name)| *tenant != before.tenant || *name != before.name) {
                return Err("the workers of another job are being replaced".to_owned());
            }
        }
        self.lanes = all;
        let used = self.running.entry(before.tenant).or_default();
        (used.lanes, used.bytes) = (lanes, bytes);
        Ok(())
    }

    /// A running job is over.
    pub fn end(&mut self, ask: &Ask) {
        self.end_trial(ask.tenant, &ask.name);
        self.lanes = self.lanes.saturating_sub(ask.lanes);
        if let Some(used) = self.running.get_mut(&ask.tenant) {
            used.jobs = used.jobs.saturating_sub(1);
            used.lanes = used.lanes.saturating_sub(ask.lanes);
            used.bytes = used.bytes.saturating_sub(ask.bytes);
            if *used == InUse::default() {
                self.running.remove(&ask.tenant);
            }
        }
    }

    /// Takes a waiting job away; whether it was there.
    pub fn remove(&mut self, tenant: TenantId, name: &str) -> bool {
        let Some(waiting) = self.waiting.get_mut(&tenant) else { return false };
        let before = waiting.len();
        waiting.retain(|waiting| waiting.ask.name != name);
        let found = waiting.len() < before;
        if waiting.is_empty() {
            self.waiting.remove(&tenant);
            self.turns.retain(|other| *other != tenant);
        }
        found
    }

    /// How many of the tenant's jobs come before it.
    pub fn position(&self, tenant: TenantId, name: &str) -> Option<usize> {
        self.waiting.get(&tenant)?.iter().position(|waiting| waiting.ask.name == name)
    }

    /// The tenant's jobs that wait, in their order.
    pub fn names(&self, tenant: TenantId) -> impl Iterator<Item = &str> {
        self.waiting.get(&tenant).into_iter().flatten().map(|waiting| waiting.ask.name.as_str())
    }

    /// How many of a tenant's wait.
    pub fn waiting(&self, tenant: TenantId) -> usize {
        self.waiting.get(&tenant).map_or(0, VecDeque::len)
    }
}
