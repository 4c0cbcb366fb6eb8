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
//! After a node has died, the jobs that ran then are suspects: see [`suspects`](super::suspects). They start one at a
//! time: while one is on trial, the other suspects are passed over.
//!
//! Whether there is room is not known here. The caller looks through the queue in one [`Pass`]: [`Queue::next`] names a
//! job to try, and the caller answers with [`Queue::started`] or [`Queue::no_room`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::tenant::TenantId;

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
    /// [`Self::due`] is told.
    pub fn set_aside(&mut self, ask: Ask) {
        let waiting = self.arrive(ask, true);
        self.line(waiting.ask.tenant).push_front(waiting);
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

    /// How many of a tenant's wait.
    pub fn waiting(&self, tenant: TenantId) -> usize {
        self.waiting.get(&tenant).map_or(0, VecDeque::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(tenant: u64, name: &str, lanes: u32) -> Ask {
        Ask { tenant: TenantId(tenant), name: name.to_owned(), lanes, bytes: 1, suspect: false }
    }

    /// How long a job may bar the queue.
    const BARS_FOR: Duration = Duration::from_secs(60);

    fn queue(limit: u32, patience: u32) -> Queue {
        Queue::new(limit, patience, BARS_FOR)
    }

    /// One pass over a queue: starts whatever may run and finds room, and gives the names.
    fn pass(queue: &mut Queue, jobs: u32, lanes: u32, mut room: impl FnMut(&Ask) -> bool) -> Vec<String> {
        let in_the_way = |ask: &Ask| (!room(ask)).then_some(InTheWay::Others);
        pass_at(queue, Instant::now(), Allowed { jobs, lanes, bytes: 99 }, in_the_way)
    }

    /// The same at a time, where it is told what is in a job's way.
    fn pass_at(
        queue: &mut Queue,
        now: Instant,
        allowed: Allowed,
        mut in_the_way: impl FnMut(&Ask) -> Option<InTheWay>,
    ) -> Vec<String> {
        let (mut pass, mut started) = (Pass::default(), Vec::new());
        while let Some(ask) = queue.next(&mut pass, now, |_| Some(allowed)) {
            match in_the_way(&ask) {
                None => {
                    assert!(queue.started(&ask, &pass));
                    started.push(ask.name);
                }
                Some(in_the_way) => queue.no_room(&ask, &mut pass, in_the_way),
            }
        }
        started
    }

    const EVERYTHING: Allowed = Allowed { jobs: 9, lanes: 9, bytes: 99 };

    #[test]
    fn a_job_that_its_own_tenant_keeps_from_fitting_bars_nobody() {
        let mut queue = queue(100, 1);
        queue.push(ask(1, "parked", 1));
        for number in 0..5 {
            queue.push(ask(2, &format!("b{number}"), 1));
        }
        let parked = |ask: &Ask| (ask.name == "parked").then_some(InTheWay::OwnTenant);
        let started = pass_at(&mut queue, Instant::now(), EVERYTHING, parked);
        assert_eq!(started, ["b0", "b1", "b2", "b3", "b4"]);
        // Once only others are in its way, they have to wait for it.
        queue.push(ask(2, "b5", 1));
        assert!(pass(&mut queue, 9, 9, |ask| ask.name != "parked").is_empty());
    }

    #[test]
    fn a_job_bars_the_queue_for_a_bounded_time_and_so_do_all_of_its_tenants_together() {
        let (mut queue, start) = (queue(100, 1), Instant::now());
        for name in ["parked", "parked too"] {
            queue.push(ask(1, name, 1));
        }
        for number in 0..3 {
            queue.push(ask(2, &format!("b{number}"), 1));
        }
        let mut at = |now: Instant| {
            let parked = |ask: &Ask| ask.name.starts_with("parked").then_some(InTheWay::Others);
            (pass_at(&mut queue, now, EVERYTHING, parked), queue.bar_ends())
        };
        assert_eq!(at(start), (vec!["b0".to_owned()], Some(start + BARS_FOR)));
        assert_eq!(at(start + BARS_FOR / 2), (Vec::new(), Some(start + BARS_FOR)));
        let later = start + BARS_FOR;
        assert_eq!(at(later), (vec!["b1".to_owned()], Some(later + BARS_FOR)), "others have their turn again");
        assert_eq!(at(later + BARS_FOR).0, ["b2"]);
    }

    #[test]
    fn suspects_start_one_at_a_time_and_others_pass_them() {
        let mut queue = queue(100, 1);
        for name in ["a1", "a2"] {
            queue.push(Ask { suspect: true, ..ask(1, name, 1) });
        }
        queue.push(ask(1, "a3", 1));
        queue.push(Ask { suspect: true, ..ask(2, "b1", 1) });
        queue.push(ask(2, "b2", 1));
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1", "b2", "a3"]);
        assert!(!queue.end_trial(TenantId(1), "a3") && queue.end_trial(TenantId(1), "a1"));
        assert_eq!(pass(&mut queue, 9, 9, |ask| ask.name != "b1"), ["a2"], "one that finds no room lets others try");
        queue.end(&Ask { suspect: true, ..ask(1, "a2", 1) });
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["b1"], "one that is over is on trial no more");
    }

    #[test]
    fn tenants_take_turns() {
        let mut queue = queue(100, 9);
        for (tenant, name) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1")] {
            queue.push(ask(tenant, name, 1));
        }
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1", "b1", "c1", "a2", "a3"]);
    }

    #[test]
    fn a_full_quota_lets_others_pass() {
        let mut queue = queue(100, 9);
        queue.push(ask(1, "a1", 1));
        queue.push(ask(1, "a2", 1));
        queue.push(ask(2, "b1", 1));
        assert_eq!(pass(&mut queue, 1, 9, |_| true), ["a1", "b1"]);
        queue.end(&ask(1, "a1", 1));
        assert_eq!(pass(&mut queue, 1, 9, |_| true), ["a2"]);
    }

    #[test]
    fn a_job_that_finds_no_room_lets_as_many_pass_as_patience_says_and_no_more() {
        let mut queue = queue(4, 2);
        queue.push(ask(1, "a1", 3));
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1"]);
        queue.push(ask(2, "large", 4));
        queue.push(ask(1, "a2", 1));
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a2"], "a small one passes");
        queue.end(&ask(1, "a2", 1));
        queue.push(ask(2, "b1", 1));
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["b1"], "one of its own tenant's too");
        queue.end(&ask(2, "b1", 1));
        queue.push(ask(3, "c1", 1));
        assert!(pass(&mut queue, 9, 9, |_| true).is_empty(), "now it is the large one's turn");
        queue.end(&ask(1, "a1", 3));
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["large"]);
        queue.end(&ask(2, "large", 4));
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["c1"]);
    }

    #[test]
    fn a_job_that_found_no_device_keeps_its_place() {
        let mut queue = queue(100, 9);
        queue.push(ask(1, "a1", 1));
        queue.push(ask(2, "b1", 1));
        assert_eq!(pass(&mut queue, 1, 9, |ask| ask.name == "b1"), ["b1"]);
        assert_eq!(queue.position(TenantId(1), "a1"), Some(0));
        assert_eq!(pass(&mut queue, 1, 9, |_| true), ["a1"]);
    }

    #[test]
    fn what_is_set_aside_is_not_tried_before_it_is_due_and_holds_nobody_up() {
        let mut queue = queue(100, 1);
        queue.set_aside(ask(1, "a1", 1));
        queue.push(ask(1, "a2", 1));
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a2"]);
        assert_eq!(queue.waiting(TenantId(1)), 1);
        queue.due(TenantId(1), "a1");
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1"]);
    }

    #[test]
    fn a_waiting_job_can_leave_also_while_it_is_tried() {
        let mut queue = queue(100, 9);
        queue.push(ask(1, "a1", 1));
        assert!(queue.remove(TenantId(1), "a1") && !queue.remove(TenantId(1), "a1"));
        queue.push(ask(1, "a2", 1));
        let mut looking = Pass::default();
        let tried = queue.next(&mut looking, Instant::now(), |_| Some(EVERYTHING)).unwrap();
        assert!(queue.remove(TenantId(1), "a2"));
        assert!(!queue.started(&tried, &looking), "it was stopped before it had started");
        assert!(queue.running.is_empty() && queue.lanes == 0 && queue.turns.is_empty());
    }

    /// The node of the search below: a device of so many bytes, which only jobs of this name's size fit into.
    const DEVICE: u32 = 3;
    const PATIENCE: u32 = 2;
    const JOBS: u32 = 2;

    #[derive(Clone)]
    struct World {
        queue: Queue,
        running: Vec<Ask>,
        pushed: u32,
        /// What calls hold of the device.
        called: u32,
        now: Instant,
    }

    impl World {
        fn free(&self) -> u32 {
            DEVICE - self.called - self.running.iter().map(|ask| ask.lanes).sum::<u32>()
        }

        /// What is in a job's way.
        fn in_the_way(&self, ask: &Ask) -> Option<InTheWay> {
            let own: u32 = self.running.iter().filter(|other| other.tenant == ask.tenant).map(|own| own.lanes).sum();
            match own + ask.lanes <= DEVICE {
                _ if ask.lanes <= self.free() => None,
                true => Some(InTheWay::Others),
                false => Some(InTheWay::OwnTenant),
            }
        }

        fn may_run(&self, waiting: &Waiting) -> bool {
            self.queue.used(waiting.ask.tenant).jobs < JOBS
        }

        /// A job that may run and would fit now.
        fn overlooked(&self) -> Option<&Waiting> {
            let mut waiting = self.queue.waiting.values().flatten();
            waiting.find(|waiting| self.may_run(waiting) && waiting.ask.lanes <= self.free())
        }

        /// One pass, and what must hold after it.
        fn schedule(&mut self) {
            let mut looking = Pass::default();
            let allowed = |_| Some(Allowed { jobs: JOBS, lanes: 9, bytes: 99 });
            while let Some(ask) = self.queue.next(&mut looking, self.now, allowed) {
                match self.in_the_way(&ask) {
                    None => {
                        assert!(self.queue.started(&ask, &looking));
                        self.running.push(ask);
                    }
                    Some(in_the_way) => self.queue.no_room(&ask, &mut looking, in_the_way),
                }
            }
            for tenant in [TenantId(1), TenantId(2)] {
                let jobs = self.running.iter().filter(|ask| ask.tenant == tenant).count();
                assert!(self.queue.used(tenant).jobs as usize == jobs && jobs <= JOBS as usize, "counted wrong");
            }
            for waiting in self.queue.waiting.values().flatten() {
                assert!(waiting.passed <= PATIENCE, "{waiting:?} was passed too often");
                assert!(!waiting.tried);
            }
            if self.overlooked().is_some() {
                let is_barring = |waiting: &&Waiting| {
                    let is_patient = waiting.passed >= PATIENCE && self.may_run(waiting);
                    is_patient && self.in_the_way(&waiting.ask) == Some(InTheWay::Others)
                };
                let barring = self.queue.waiting.values().flatten().find(is_barring);
                assert!(barring.is_some(), "there is room, and nobody for whom it is kept: {:?}", self.queue);
                assert!(self.queue.bar_ends().is_some_and(|end| end > self.now), "nobody would look again");
            }
        }

        /// Nothing ends but the time: room is not kept for ever.
        fn wait(&self) {
            let mut later = self.clone();
            for _ in 0..=2 * later.pushed {
                if later.overlooked().is_none() {
                    return;
                }
                later.now += BARS_FOR;
                later.schedule();
            }
            assert!(later.overlooked().is_none(), "room is kept for ever: {:?}", later.queue);
        }

        /// Everything ends: everybody has had a turn.
        fn drain(&self) {
            let mut drained = self.clone();
            drained.called = 0;
            drained.schedule();
            for _ in 0..2 * self.pushed {
                if drained.running.is_empty() {
                    break;
                }
                let over = drained.running.remove(0);
                drained.queue.end(&over);
                drained.schedule();
            }
            assert!(drained.queue.waiting.is_empty(), "a job is never started: {:?}", drained.queue);
        }

        /// Everything that can happen next.
        fn explore(&self, depth: u32) {
            self.wait();
            self.drain();
            if depth == 0 {
                return;
            }
            let then = |change: &dyn Fn(&mut Self)| {
                let mut next = self.clone();
                change(&mut next);
                next.schedule();
                next.explore(depth - 1);
            };
            for tenant in 1..=2 {
                for lanes in 1..=DEVICE {
                    then(&|next| {
                        next.pushed += 1;
                        next.queue.push(ask(tenant, &format!("{}", next.pushed), lanes));
                    });
                }
            }
            for index in 0..self.running.len() {
                then(&|next| {
                    let over = next.running.remove(index);
                    next.queue.end(&over);
                });
            }
            if self.called > 0 {
                then(&|next| next.called = 0);
            } else if self.free() > 0 {
                then(&|next| next.called = 1);
            }
            if self.queue.bar_ends().is_some() {
                then(&|next| next.now += BARS_FOR);
            }
        }
    }

    #[test]
    fn in_every_order_of_arrivals_and_ends_room_is_used_and_nobody_starves() {
        let queue = queue(100, PATIENCE);
        World { queue, running: Vec::new(), pushed: 0, called: 0, now: Instant::now() }.explore(6);
    }
}
