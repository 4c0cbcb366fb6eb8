//! Who may start: a fixed number of places, shared fairly between tenants.
//!
//! A tenant holds at most as many places as its quota allows. Whoever finds no place waits in its tenant's own queue, and
//! a place that becomes free goes to the tenants in turn, so that a tenant with a thousand waiters delays another's only
//! one by one turn. A tenant that holds half of all places leaves some to the others, whatever its quota. Queues are
//! bounded: past the bound the caller is told to come back later.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::locks::Lock;
use crate::tenant::TenantId;

/// A tenant that holds half of the places leaves one in so many of them free.
const LEFT_TO_OTHERS: u32 = 8;

/// How many may be inside, and how many may wait.
#[derive(Clone, Copy, Debug)]
pub struct GateLimits {
    pub places: u32,
    pub waiting: u32,
    pub waiting_per_tenant: u32,
}

impl GateLimits {
    /// Whether a tenant that has so many of the places inside may have one more.
    fn admit(&self, inside: u32, of_tenant: u32) -> bool {
        let left = if of_tenant >= self.places / 2 { self.places / LEFT_TO_OTHERS } else { 0 };
        inside.saturating_add(left) < self.places
    }
}

/// There is no place, and no room to wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateFull {
    #[error("{0} invocations of this tenant are waiting already")]
    Tenant(u32),
    #[error("{0} invocations are waiting on this node already")]
    Node(u32),
}

#[derive(Default)]
struct Line {
    inside: u32,
    /// The tenant's quota as of its latest request.
    allowed: u32,
    waiting: VecDeque<oneshot::Sender<Permit>>,
}

#[derive(Default)]
struct State {
    inside: u32,
    waiting: u32,
    lines: HashMap<TenantId, Line>,
    /// Tenants that have waiters, in the order of their next turn.
    turns: VecDeque<TenantId>,
}

pub struct Gate {
    limits: GateLimits,
    state: Mutex<State>,
}

/// A place inside; dropping it lets the next one in.
pub struct Permit {
    gate: Arc<Gate>,
    tenant: TenantId,
}

/// What comes of asking for a place.
enum Entered {
    Inside(Permit),
    Waits(oneshot::Receiver<Permit>),
}

impl Gate {
    pub fn new(limits: GateLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// Waits for a place. Dropping the future leaves the queue.
    pub async fn enter(self: &Arc<Self>, tenant: TenantId, allowed: u32) -> Result<Permit, GateFull> {
        match self.begin(tenant, allowed)? {
            Entered::Inside(permit) => Ok(permit),
            Entered::Waits(turn) => self.wait(turn).await,
        }
    }

    /// Waits for a place, but no longer than this: then there is nothing.
    pub async fn enter_within(
        self: &Arc<Self>,
        limit: Duration,
        tenant: TenantId,
        allowed: u32,
    ) -> Option<Result<Permit, GateFull>> {
        match self.begin(tenant, allowed) {
            Ok(Entered::Inside(permit)) => Some(Ok(permit)),
            // Only whoever waits needs a timer.
            Ok(Entered::Waits(turn)) => tokio::time::timeout(limit, self.wait(turn)).await.ok(),
            Err(full) => Some(Err(full)),
        }
    }

    fn begin(self: &Arc<Self>, tenant: TenantId, allowed: u32) -> Result<Entered, GateFull> {
        Ok(match self.state().enter(&self.limits, tenant, allowed)? {
            None => Entered::Inside(Permit { gate: self.clone(), tenant }),
            Some(turn) => Entered::Waits(turn),
        })
    }

    async fn wait(&self, turn: oneshot::Receiver<Permit>) -> Result<Permit, GateFull> {
        // The sender stays in the queue until it is used, and the queue in `self`.
        turn.await.map_err(|_| GateFull::Node(self.limits.waiting))
    }

    /// How many are inside.
    pub fn inside(&self) -> u32 {
        self.state().inside
    }

    /// How many wait.
    pub fn waiting(&self) -> u32 {
        self.state().waiting
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    fn leave(self: &Arc<Self>, tenant: TenantId) {
        // Permits whose waiters went away in this moment: dropped after the lock, they leave in their turn.
        let mut unwanted = Vec::new();
        let mut state = self.state();
        state.leave(tenant);
        while state.inside < self.limits.places {
            let Some((next, sender)) = state.next_waiter(&self.limits) else { break };
            unwanted.extend(sender.send(Permit { gate: self.clone(), tenant: next }).err());
        }
        drop(state);
        drop(unwanted);
    }
}

impl State {
    /// Goes in (`None`) or joins the queue.
    fn enter(
        &mut self,
        limits: &GateLimits,
        tenant: TenantId,
        allowed: u32,
    ) -> Result<Option<oneshot::Receiver<Permit>>, GateFull> {
        let line = self.lines.entry(tenant).or_default();
        line.allowed = allowed;
        if line.waiting.is_empty() && line.inside < allowed && limits.admit(self.inside, line.inside) {
            line.inside += 1;
            self.inside += 1;
            return Ok(None);
        }
        // Waiters that have gone away still stand in line; they are swept out before somebody is turned away.
        if line.waiting.len() as u32 >= limits.waiting_per_tenant || self.waiting >= limits.waiting {
            self.sweep();
        }
        let line = self.lines.entry(tenant).or_default();
        line.allowed = allowed;
        if line.waiting.len() as u32 >= limits.waiting_per_tenant {
            return Err(GateFull::Tenant(limits.waiting_per_tenant));
        }
        if self.waiting >= limits.waiting {
            return Err(GateFull::Node(limits.waiting));
        }
        let (sender, turn) = oneshot::channel();
        if line.waiting.is_empty() {
            self.turns.push_back(tenant);
        }
        line.waiting.push_back(sender);
        self.waiting += 1;
        Ok(Some(turn))
    }

    fn leave(&mut self, tenant: TenantId) {
        self.inside -= 1;
        if let Some(line) = self.lines.get_mut(&tenant) {
            line.inside -= 1;
            if line.inside == 0 && line.waiting.is_empty() {
                self.lines.remove(&tenant);
            }
        }
    }

    /// The next tenant's turn: its first waiter that is still there, counted in, if its quota allows.
    fn next_waiter(&mut self, limits: &GateLimits) -> Option<(TenantId, oneshot::Sender<Permit>)> {
        for _ in 0..self.turns.len() {
            let tenant = self.turns.pop_front()?;
            let Some(line) = self.lines.get_mut(&tenant) else { continue };
            if line.inside >= line.allowed || !limits.admit(self.inside, line.inside) {
                self.turns.push_back(tenant);
                continue;
            }
            let queued = line.waiting.len();
            let sender = std::iter::from_fn(|| line.waiting.pop_front()).find(|sender| !sender.is_closed());
            self.waiting -= (queued - line.waiting.len()) as u32;
            if !line.waiting.is_empty() {
                self.turns.push_back(tenant);
            }
            let Some(sender) = sender else { continue };
            line.inside += 1;
            self.inside += 1;
            return Some((tenant, sender));
        }
        None
    }

    fn sweep(&mut self) {
        for line in self.lines.values_mut() {
            line.waiting.retain(|sender| !sender.is_closed());
        }
        self.waiting = self.lines.values().map(|line| line.waiting.len() as u32).sum();
        self.turns.retain(|tenant| self.lines.get(tenant).is_some_and(|line| !line.waiting.is_empty()));
        self.lines.retain(|_, line| line.inside > 0 || !line.waiting.is_empty());
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.clone().leave(self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::timeout;

    use super::*;

    const A: TenantId = TenantId(1);
    const B: TenantId = TenantId(2);

    fn gate(places: u32, waiting: u32, waiting_per_tenant: u32) -> Arc<Gate> {
        Gate::new(GateLimits { places, waiting, waiting_per_tenant })
    }

    #[tokio::test]
    async fn a_free_place_goes_to_the_tenants_in_turn() {
        let gate = gate(1, 10, 10);
        let held = gate.enter(A, 9).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = Vec::new();
        for tenant in [A, A, A, B] {
            let (gate, order) = (gate.clone(), order.clone());
            let mut waiter = Box::pin(async move {
                let permit = gate.enter(tenant, 9).await.unwrap();
                order.lock().unwrap().push(tenant);
                drop(permit);
            });
            assert!(waiter.as_mut().now_or_never().is_none());
            waiters.push(waiter);
        }
        drop(held);
        futures_util::future::join_all(waiters).await;
        assert_eq!(*order.lock().unwrap(), [A, B, A, A]);
        assert_eq!((gate.inside(), gate.waiting()), (0, 0));
        let state = gate.state();
        assert!(state.lines.is_empty() && state.turns.is_empty());
    }

    #[tokio::test]
    async fn a_tenant_at_its_quota_does_not_hold_up_another() {
        let gate = gate(2, 10, 10);
        let _held = gate.enter(A, 1).await.unwrap();
        let mut second = Box::pin(gate.enter(A, 1));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(gate.enter(B, 1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn no_tenant_has_all_places_whatever_its_quota() {
        let gate = gate(8, 10, 10);
        let mut held = Vec::new();
        for _ in 0..7 {
            held.push(gate.enter(A, 99).await.unwrap());
        }
        let mut waiting = Box::pin(gate.enter(A, 99));
        assert!(waiting.as_mut().now_or_never().is_none(), "the last place is not for whoever has all the others");
        let other = gate.enter(B, 99).now_or_never().unwrap().unwrap();
        drop(other);
        assert!(waiting.as_mut().now_or_never().is_none());
        held.pop();
        assert!(timeout(Duration::from_secs(5), waiting).await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn full_queues_turn_callers_away() {
        let gate = gate(1, 2, 1);
        let _held = gate.enter(A, 9).await.unwrap();
        let mut first = Box::pin(gate.enter(A, 9));
        assert!(first.as_mut().now_or_never().is_none());
        assert_eq!(gate.enter(A, 9).await.err(), Some(GateFull::Tenant(1)));
        let mut other = Box::pin(gate.enter(B, 9));
        assert!(other.as_mut().now_or_never().is_none());
        assert_eq!(gate.enter(TenantId(3), 9).await.err(), Some(GateFull::Node(2)));
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_makes_room() {
        let gate = gate(1, 1, 1);
        let held = gate.enter(A, 9).await.unwrap();
        drop(Box::pin(gate.enter(A, 9)));
        let mut gone = Box::pin(gate.enter(A, 9));
        assert!(gone.as_mut().now_or_never().is_none());
        drop(gone);
        let mut next = Box::pin(gate.enter(A, 9));
        assert!(next.as_mut().now_or_never().is_none());
        drop(held);
        assert!(timeout(Duration::from_secs(5), next).await.unwrap().is_ok());
    }
}
