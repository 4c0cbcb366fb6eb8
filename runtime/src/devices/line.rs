//! Calls that wait for room on a device. Pure.
//!
//! A tenant's calls wait in the order they came; room that becomes free goes to the tenants in turn, so that a tenant with a
//! thousand calls delays another's only one by one turn. What a tenant's calls hold at once is limited, however much there
//! is; one call is always allowed. A call that finds no room lets smaller ones of others pass: how long it waits is limited.
//!
//! Whether there is room is not known here: the caller tries each call that [`Line::next`] names, and puts it back if there
//! was none.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::sandbox::GateFull;
use crate::tenant::TenantId;

/// A call that waits, and how it is told.
#[derive(Clone, Debug)]
pub struct Waiting<W> {
    pub bytes: u64,
    /// What its tenant's calls may hold together.
    pub allowed: u64,
    pub waiter: W,
}

#[derive(Clone, Debug)]
pub struct Line<W> {
    limit: usize,
    limit_per_tenant: usize,
    held: HashMap<TenantId, u64>,
    waiting: HashMap<TenantId, VecDeque<Waiting<W>>>,
    /// Tenants that have a call waiting, in the order of their next turn.
    turns: VecDeque<TenantId>,
}

impl<W> Line<W> {
    /// So many may wait, of all tenants and of one.
    pub fn new(limit: u32, limit_per_tenant: u32) -> Self {
        let (held, waiting, turns) = Default::default();
        Self { limit: limit as usize, limit_per_tenant: limit_per_tenant as usize, held, waiting, turns }
    }

    /// Whether a call may be tried at once: nobody waits, and its tenant may hold that much more. It counts as held from
    /// then on.
    pub fn passes(&mut self, tenant: TenantId, bytes: u64, allowed: u64) -> bool {
        let passes = self.turns.is_empty() && self.may_hold(tenant, bytes, allowed);
        if passes {
            *self.held.entry(tenant).or_default() += bytes;
        }
        passes
    }

    /// Stands in line. `has_gone` tells of those that have given up waiting.
    pub fn join(&mut self, tenant: TenantId, call: Waiting<W>, has_gone: impl Fn(&W) -> bool) -> Result<(), GateFull> {
        if self.waiting.values().map(VecDeque::len).sum::<usize>() >= self.limit || self.is_full(tenant) {
            self.sweep(has_gone);
        }
        if self.is_full(tenant) {
            return Err(GateFull::Tenant(self.limit_per_tenant as u32));
        }
        if self.waiting.values().map(VecDeque::len).sum::<usize>() >= self.limit {
            return Err(GateFull::Node(self.limit as u32));
        }
        if !self.turns.contains(&tenant) {
            self.turns.push_back(tenant);
        }
        self.waiting.entry(tenant).or_default().push_back(call);
        Ok(())
    }

    fn is_full(&self, tenant: TenantId) -> bool {
        self.waiting.get(&tenant).is_some_and(|line| line.len() >= self.limit_per_tenant)
    }

    fn sweep(&mut self, has_gone: impl Fn(&W) -> bool) {
        for line in self.waiting.values_mut() {
            line.retain(|call| !has_gone(&call.waiter));
        }
        self.waiting.retain(|_, line| !line.is_empty());
        self.turns.retain(|tenant| self.waiting.contains_key(tenant));
    }

    /// The first call of the next tenant that may hold more, and whether its tenant holds something already. It counts as
    /// held until [`Self::put_back`] or [`Self::end`]. Tenants in `tried` have found no room in this look.
    pub fn next(&mut self, tried: &HashSet<TenantId>) -> Option<(TenantId, Waiting<W>, bool)> {
        let may = |tenant: &TenantId| {
            let first = self.waiting.get(tenant).and_then(VecDeque::front);
            !tried.contains(tenant) && first.is_some_and(|call| self.may_hold(*tenant, call.bytes, call.allowed))
        };
        let place = self.turns.iter().position(may)?;
        let tenant = self.turns.remove(place)?;
        let line = self.waiting.get_mut(&tenant)?;
        let call = line.pop_front()?;
        match line.is_empty() {
            true => drop(self.waiting.remove(&tenant)),
            false => self.turns.push_back(tenant),
        }
        let held = self.held.entry(tenant).or_default();
        let has_more = *held > 0;
        *held += call.bytes;
        Some((tenant, call, has_more))
    }

    /// A call that found no room is the first of the first tenant again.
    pub fn put_back(&mut self, tenant: TenantId, call: Waiting<W>) {
        self.end(tenant, call.bytes);
        self.turns.retain(|other| *other != tenant);
        self.turns.push_front(tenant);
        self.waiting.entry(tenant).or_default().push_front(call);
    }

    /// What a call held is free.
    pub fn end(&mut self, tenant: TenantId, bytes: u64) {
        if let Some(held) = self.held.get_mut(&tenant) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                self.held.remove(&tenant);
            }
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a tenant's calls hold something.
    pub fn holds(&self, tenant: TenantId) -> bool {
        self.held.contains_key(&tenant)
    }

    fn may_hold(&self, tenant: TenantId, bytes: u64, allowed: u64) -> bool {
        self.held.get(&tenant).is_none_or(|held| held.saturating_add(bytes) <= allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: u64 = 4;
    const ALLOWED: u64 = 3;

    fn call(bytes: u64, waiter: u32) -> Waiting<u32> {
        Waiting { bytes, allowed: ALLOWED, waiter }
    }

    /// A device, calls on it, and those that wait.
    #[derive(Clone)]
    struct World {
        line: Line<u32>,
        inside: Vec<(TenantId, u64)>,
        arrived: u32,
    }

    impl World {
        fn new() -> Self {
            Self { line: Line::new(9, 9), inside: Vec::new(), arrived: 0 }
        }

        fn free(&self) -> u64 {
            DEVICE - self.inside.iter().map(|(_, bytes)| bytes).sum::<u64>()
        }

        fn arrive(&mut self, tenant: u64, bytes: u64) {
            let tenant = TenantId(tenant);
            self.arrived += 1;
            if self.line.passes(tenant, bytes, ALLOWED) {
                if bytes <= self.free() {
                    return self.inside.push((tenant, bytes));
                }
                self.line.end(tenant, bytes);
            }
            self.line.join(tenant, call(bytes, self.arrived), |_| false).unwrap();
            self.look();
        }

        fn leave(&mut self, index: usize) {
            let (tenant, bytes) = self.inside.remove(index);
            self.line.end(tenant, bytes);
            self.look();
        }

        /// Lets in whom there is room for, and looks at what must hold then.
        fn look(&mut self) {
            let mut tried = HashSet::new();
            while let Some((tenant, call, has_more)) = self.line.next(&tried) {
                assert_eq!(has_more, self.inside.iter().any(|(holder, _)| *holder == tenant));
                match call.bytes <= self.free() {
                    true => self.inside.push((tenant, call.bytes)),
                    false => {
                        self.line.put_back(tenant, call);
                        tried.insert(tenant);
                    }
                }
            }
            for (tenant, line) in &self.line.waiting {
                let held: u64 = self.inside.iter().filter(|(holder, _)| holder == tenant).map(|(_, bytes)| bytes).sum();
                assert_eq!(self.line.held.get(tenant).copied().unwrap_or(0), held);
                let first = line.front().unwrap();
                let may = held == 0 || held + first.bytes <= ALLOWED;
                assert!(!may || first.bytes > self.free(), "{tenant:?} waits beside free room: {:?}", self.line);
                assert_eq!(self.line.turns.iter().filter(|turn| *turn == tenant).count(), 1);
            }
        }

        fn explore(&self, depth: u32) {
            let mut drained = self.clone();
            while !drained.inside.is_empty() {
                drained.leave(0);
            }
            assert!(drained.line.waiting.is_empty() && drained.line.turns.is_empty(), "{:?}", drained.line);
            if depth == 0 {
                return;
            }
            for tenant in 1..=3 {
                for bytes in 1..=3 {
                    let mut next = self.clone();
                    next.arrive(tenant, bytes);
                    next.explore(depth - 1);
                }
            }
            for index in 0..self.inside.len() {
                let mut next = self.clone();
                next.leave(index);
                next.explore(depth - 1);
            }
        }
    }

    #[test]
    fn in_every_order_of_calls_nobody_waits_beside_room_that_he_may_have() {
        World::new().explore(5);
    }

    #[test]
    fn room_goes_to_tenants_in_turn() {
        let mut world = World::new();
        world.arrive(1, 3);
        world.arrive(2, 1);
        for _ in 0..3 {
            world.arrive(1, 1);
        }
        world.arrive(3, 1);
        world.leave(0);
        let holders: Vec<u64> = world.inside.iter().map(|(tenant, _)| tenant.0).collect();
        // The first tenant held all that it may until now, so the third was before it.
        assert_eq!(holders, [2, 3, 1, 1]);
    }

    #[test]
    fn a_full_line_turns_callers_away_and_those_that_have_gone_make_room() {
        let mut line = Line::new(2, 1);
        let (one, two, three) = (TenantId(1), TenantId(2), TenantId(3));
        line.join(one, call(1, 1), |_| false).unwrap();
        assert_eq!(line.join(one, call(1, 2), |_| false), Err(GateFull::Tenant(1)));
        line.join(two, call(1, 3), |_| false).unwrap();
        assert_eq!(line.join(three, call(1, 4), |_| false), Err(GateFull::Node(2)));
        line.join(three, call(1, 4), |waiter| *waiter == 1).unwrap();
        assert!(!line.waiting.contains_key(&one) && line.turns == [two, three]);
    }
}
