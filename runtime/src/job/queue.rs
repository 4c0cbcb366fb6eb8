//! Which job may run next. Pure.
//!
//! A tenant's jobs wait in the order they came; tenants take turns. A job that would exceed its tenant's quota waits and
//! lets other tenants pass; one that finds no room on the node waits at the front, and nobody passes it, so that large
//! jobs have their turn too.

use std::collections::{HashMap, VecDeque};

use crate::tenant::TenantId;

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct InUse {
    jobs: u32,
    lanes: u32,
    bytes: u64,
}

#[derive(Debug, Default)]
pub struct Queue {
    /// Of the node.
    limit: u32,
    lanes: u32,
    running: HashMap<TenantId, InUse>,
    waiting: HashMap<TenantId, VecDeque<Ask>>,
    /// Tenants that have something waiting, in the order of their next turn.
    turns: VecDeque<TenantId>,
}

impl Queue {
    /// So many functions of all jobs at once.
    pub fn new(limit: u32) -> Self {
        Self { limit, ..Self::default() }
    }

    pub fn push(&mut self, ask: Ask) {
        let tenant = ask.tenant;
        self.waiting.entry(tenant).or_default().push_back(ask);
        if !self.turns.contains(&tenant) {
            self.turns.push_back(tenant);
        }
    }

    /// A job that found no room after all: it is the first to try again.
    pub fn put_back(&mut self, ask: Ask) {
        self.end(&ask);
        let tenant = ask.tenant;
        self.waiting.entry(tenant).or_default().push_front(ask);
        self.turns.retain(|other| *other != tenant);
        self.turns.push_front(tenant);
    }

    /// The next job that may run; it counts as running from now on, until [`Self::end`].
    pub fn next(&mut self, allowed: impl Fn(TenantId) -> Option<Allowed>) -> Option<Ask> {
        for turn in 0..self.turns.len() {
            let tenant = self.turns[turn];
            let Some(ask) = self.waiting.get(&tenant).and_then(VecDeque::front) else { continue };
            let used = self.running.get(&tenant).copied().unwrap_or_default();
            let fits = allowed(tenant).is_some_and(|allowed| {
                used.jobs < allowed.jobs
                    && used.lanes.saturating_add(ask.lanes) <= allowed.lanes
                    && used.bytes.saturating_add(ask.bytes) <= allowed.bytes
            });
            if !fits {
                continue;
            }
            if self.lanes.saturating_add(ask.lanes) > self.limit {
                return None;
            }
            let ask = self.waiting.get_mut(&tenant)?.pop_front()?;
            self.turns.remove(turn);
            if self.waiting.get(&tenant).is_some_and(|waiting| !waiting.is_empty()) {
                self.turns.push_back(tenant);
            }
            let used = self.running.entry(tenant).or_default();
            used.jobs += 1;
            used.lanes += ask.lanes;
            used.bytes += ask.bytes;
            self.lanes += ask.lanes;
            return Some(ask);
        }
        None
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
        waiting.retain(|ask| ask.name != name);
        let found = waiting.len() < before;
        if waiting.is_empty() {
            self.waiting.remove(&tenant);
            self.turns.retain(|other| *other != tenant);
        }
        found
    }

    /// How many of the tenant's jobs come before it.
    pub fn position(&self, tenant: TenantId, name: &str) -> Option<usize> {
        self.waiting.get(&tenant)?.iter().position(|ask| ask.name == name)
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
        Ask { tenant: TenantId(tenant), name: name.to_owned(), lanes, bytes: u64::from(lanes) }
    }

    fn next(queue: &mut Queue, jobs: u32, lanes: u32) -> Option<String> {
        queue.next(|_| Some(Allowed { jobs, lanes, bytes: u64::MAX })).map(|ask| ask.name)
    }

    #[test]
    fn tenants_take_turns() {
        let mut queue = Queue::new(100);
        for name in ["a1", "a2", "a3"] {
            queue.push(ask(1, name, 1));
        }
        queue.push(ask(2, "b1", 1));
        let order: Vec<_> = std::iter::from_fn(|| next(&mut queue, 9, 9)).collect();
        assert_eq!(order, ["a1", "b1", "a2", "a3"]);
    }

    #[test]
    fn a_full_quota_lets_others_pass() {
        let mut queue = Queue::new(100);
        queue.push(ask(1, "a1", 1));
        queue.push(ask(1, "a2", 1));
        queue.push(ask(2, "b1", 1));
        assert_eq!(next(&mut queue, 1, 9).as_deref(), Some("a1"));
        assert_eq!(next(&mut queue, 1, 9).as_deref(), Some("b1"));
        assert_eq!(next(&mut queue, 1, 9), None);
        queue.end(&ask(1, "a1", 1));
        assert_eq!(next(&mut queue, 1, 9).as_deref(), Some("a2"));
    }

    #[test]
    fn nobody_passes_a_job_that_waits_for_room_on_the_node() {
        let mut queue = Queue::new(4);
        queue.push(ask(1, "a1", 3));
        queue.push(ask(2, "large", 4));
        queue.push(ask(1, "a2", 1));
        assert_eq!(next(&mut queue, 9, 9).as_deref(), Some("a1"));
        assert_eq!(next(&mut queue, 9, 9), None);
        queue.end(&ask(1, "a1", 3));
        assert_eq!(next(&mut queue, 9, 9).as_deref(), Some("large"));
    }

    #[test]
    fn what_is_put_back_is_the_first_again() {
        let mut queue = Queue::new(100);
        queue.push(ask(1, "a1", 1));
        queue.push(ask(2, "b1", 1));
        let first = queue.next(|_| Some(Allowed { jobs: 1, lanes: 9, bytes: 9 })).unwrap();
        queue.put_back(first);
        assert_eq!(queue.position(TenantId(1), "a1"), Some(0));
        assert_eq!(next(&mut queue, 1, 9).as_deref(), Some("a1"));
    }

    #[test]
    fn a_waiting_job_can_leave() {
        let mut queue = Queue::new(100);
        queue.push(ask(1, "a1", 1));
        assert!(queue.remove(TenantId(1), "a1") && !queue.remove(TenantId(1), "a1"));
        assert_eq!((next(&mut queue, 9, 9), queue.waiting(TenantId(1))), (None, 0));
    }
}
