//! Which job may run next. Pure.
//!
//! A tenant's jobs wait in the order they came; tenants take turns. A job that would exceed its tenant's quota waits, and
//! so do those of its tenant behind it; other tenants pass. A job that finds no room on the node lets everybody pass who
//! finds some: a job that trains for days must not keep a small one waiting behind a large one. But not for ever: once
//! `patience` jobs have started past it, nothing starts any more until it has.
//!
//! Whether there is room is not known here. The caller looks through the queue in one [`Pass`]: [`Queue::next`] names a
//! job to try, and the caller answers with [`Queue::started`] or [`Queue::no_room`].

use std::collections::{HashMap, HashSet, VecDeque};

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
}

/// One look through the queue: which jobs have found no room in it.
#[derive(Debug, Default)]
pub struct Pass(HashSet<u64>);

#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Of the node.
    limit: u32,
    patience: u32,
    lanes: u32,
    arrivals: u64,
    running: HashMap<TenantId, InUse>,
    waiting: HashMap<TenantId, VecDeque<Waiting>>,
    /// Tenants that have something waiting, in the order of their next turn.
    turns: VecDeque<TenantId>,
}

impl Queue {
    /// So many functions of all jobs at once, and so many jobs that may start past one that finds no room.
    pub fn new(limit: u32, patience: u32) -> Self {
        Self { limit, patience, ..Self::default() }
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
        Waiting { ask, number: self.arrivals, passed: 0, tried: false, aside }
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
    pub fn next(&mut self, pass: &mut Pass, allowed: impl Fn(TenantId) -> Option<Allowed>) -> Option<Ask> {
        let number = match self.most_patient(&allowed) {
            // It has let enough of them pass: it, or nobody.
            Some(number) => Some(number).filter(|number| !pass.0.contains(number)),
            None => self.in_turn(pass, &allowed),
        }?;
        let waiting = self.waiting.values_mut().flatten().find(|waiting| waiting.number == number)?;
        if self.lanes.saturating_add(waiting.ask.lanes) > self.limit {
            pass.0.insert(number);
            return None;
        }
        waiting.tried = true;
        let ask = waiting.ask.clone();
        let used = self.running.entry(ask.tenant).or_default();
        used.jobs += 1;
        used.lanes += ask.lanes;
        used.bytes += ask.bytes;
        self.lanes += ask.lanes;
        Some(ask)
    }

    /// Of those that have let as many pass as they have to, the one that came first.
    fn most_patient(&self, allowed: &impl Fn(TenantId) -> Option<Allowed>) -> Option<u64> {
        let may_run = |waiting: &&Waiting| {
            let used = self.used(waiting.ask.tenant);
            !waiting.aside && allowed(waiting.ask.tenant).is_some_and(|allowed| allowed.admits(used, &waiting.ask))
        };
        let patient = self.waiting.values().flatten().filter(|waiting| waiting.passed >= self.patience);
        patient.filter(may_run).map(|waiting| waiting.number).min()
    }

    fn in_turn(&self, pass: &mut Pass, allowed: &impl Fn(TenantId) -> Option<Allowed>) -> Option<u64> {
        for tenant in &self.turns {
            let (Some(line), Some(allowed)) = (self.waiting.get(tenant), allowed(*tenant)) else { continue };
            let used = self.used(*tenant);
            for waiting in line.iter().filter(|waiting| !waiting.aside && !waiting.tried).take(LOOK_AHEAD) {
                if pass.0.contains(&waiting.number) {
                    continue;
                }
                if !allowed.admits(used, &waiting.ask) {
                    break;
                }
                if self.lanes.saturating_add(waiting.ask.lanes) <= self.limit {
                    return Some(waiting.number);
                }
                pass.0.insert(waiting.number);
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
        }
        true
    }

    /// A job that was tried has found no room: it stays where it is.
    pub fn no_room(&mut self, ask: &Ask, pass: &mut Pass) {
        self.end(ask);
        if let Some(waiting) = self.find(ask.tenant, &ask.name) {
            waiting.tried = false;
            pass.0.insert(waiting.number);
        }
    }

    /// A running job is over.
    pub fn end(&mut self, ask: &Ask) {
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
        Ask { tenant: TenantId(tenant), name: name.to_owned(), lanes, bytes: 1 }
    }

    /// One pass over a queue: starts whatever may run and finds room, and gives the names.
    fn pass(queue: &mut Queue, jobs: u32, lanes: u32, mut room: impl FnMut(&Ask) -> bool) -> Vec<String> {
        let (mut pass, mut started) = (Pass::default(), Vec::new());
        let allowed = |_| Some(Allowed { jobs, lanes, bytes: 99 });
        while let Some(ask) = queue.next(&mut pass, allowed) {
            match room(&ask) {
                true => {
                    assert!(queue.started(&ask, &pass));
                    started.push(ask.name);
                }
                false => queue.no_room(&ask, &mut pass),
            }
        }
        started
    }

    #[test]
    fn tenants_take_turns() {
        let mut queue = Queue::new(100, 9);
        for (tenant, name) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1")] {
            queue.push(ask(tenant, name, 1));
        }
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1", "b1", "c1", "a2", "a3"]);
    }

    #[test]
    fn a_full_quota_lets_others_pass() {
        let mut queue = Queue::new(100, 9);
        queue.push(ask(1, "a1", 1));
        queue.push(ask(1, "a2", 1));
        queue.push(ask(2, "b1", 1));
        assert_eq!(pass(&mut queue, 1, 9, |_| true), ["a1", "b1"]);
        queue.end(&ask(1, "a1", 1));
        assert_eq!(pass(&mut queue, 1, 9, |_| true), ["a2"]);
    }

    #[test]
    fn a_job_that_finds_no_room_lets_as_many_pass_as_patience_says_and_no_more() {
        let mut queue = Queue::new(4, 2);
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
        let mut queue = Queue::new(100, 9);
        queue.push(ask(1, "a1", 1));
        queue.push(ask(2, "b1", 1));
        assert_eq!(pass(&mut queue, 1, 9, |ask| ask.name == "b1"), ["b1"]);
        assert_eq!(queue.position(TenantId(1), "a1"), Some(0));
        assert_eq!(pass(&mut queue, 1, 9, |_| true), ["a1"]);
    }

    #[test]
    fn what_is_set_aside_is_not_tried_before_it_is_due_and_holds_nobody_up() {
        let mut queue = Queue::new(100, 1);
        queue.set_aside(ask(1, "a1", 1));
        queue.push(ask(1, "a2", 1));
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a2"]);
        assert_eq!(queue.waiting(TenantId(1)), 1);
        queue.due(TenantId(1), "a1");
        assert_eq!(pass(&mut queue, 9, 9, |_| true), ["a1"]);
    }

    #[test]
    fn a_waiting_job_can_leave_also_while_it_is_tried() {
        let mut queue = Queue::new(100, 9);
        queue.push(ask(1, "a1", 1));
        assert!(queue.remove(TenantId(1), "a1") && !queue.remove(TenantId(1), "a1"));
        queue.push(ask(1, "a2", 1));
        let mut looking = Pass::default();
        let tried = queue.next(&mut looking, |_| Some(Allowed { jobs: 9, lanes: 9, bytes: 9 })).unwrap();
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
    }

    impl World {
        fn free(&self) -> u32 {
            DEVICE - self.running.iter().map(|ask| ask.lanes).sum::<u32>()
        }

        fn allowed(_: TenantId) -> Option<Allowed> {
            Some(Allowed { jobs: JOBS, lanes: 9, bytes: 99 })
        }

        /// One pass, and what must hold after it.
        fn schedule(&mut self) {
            let mut looking = Pass::default();
            while let Some(ask) = self.queue.next(&mut looking, Self::allowed) {
                match ask.lanes <= self.free() {
                    true => {
                        assert!(self.queue.started(&ask, &looking));
                        self.running.push(ask);
                    }
                    false => self.queue.no_room(&ask, &mut looking),
                }
            }
            let may_run = |waiting: &&Waiting| {
                let used = self.queue.used(waiting.ask.tenant);
                let of_tenant = self.running.iter().filter(|ask| ask.tenant == waiting.ask.tenant).count();
                assert!(used.jobs as usize == of_tenant && used.jobs <= JOBS, "jobs are counted wrong");
                used.jobs < JOBS
            };
            let waiting = || self.queue.waiting.values().flatten();
            let is_patient = waiting().filter(may_run).any(|waiting| waiting.passed >= PATIENCE);
            for waiting in waiting() {
                assert!(waiting.passed <= PATIENCE, "{waiting:?} was passed too often");
                assert!(!waiting.tried);
            }
            let fits = waiting().filter(may_run).any(|waiting| waiting.ask.lanes <= self.free());
            assert!(!fits || is_patient, "there is room, and nobody for whom it is kept: {:?}", self.queue);
        }

        /// Everything that can happen next.
        fn explore(&self, depth: u32) {
            let mut drained = self.clone();
            for _ in 0..2 * self.pushed {
                if drained.running.is_empty() {
                    break;
                }
                let over = drained.running.remove(0);
                drained.queue.end(&over);
                drained.schedule();
            }
            assert!(drained.queue.waiting.is_empty(), "a job is never started: {:?}", drained.queue);
            if depth == 0 {
                return;
            }
            for tenant in 1..=2 {
                for lanes in 1..=DEVICE {
                    let mut next = self.clone();
                    next.pushed += 1;
                    next.queue.push(ask(tenant, &format!("{}", next.pushed), lanes));
                    next.schedule();
                    next.explore(depth - 1);
                }
            }
            for index in 0..self.running.len() {
                let mut next = self.clone();
                let over = next.running.remove(index);
                next.queue.end(&over);
                next.schedule();
                next.explore(depth - 1);
            }
        }
    }

    #[test]
    fn in_every_order_of_arrivals_and_ends_room_is_used_and_nobody_starves() {
        World { queue: Queue::new(100, PATIENCE), running: Vec::new(), pushed: 0 }.explore(6);
    }
}
