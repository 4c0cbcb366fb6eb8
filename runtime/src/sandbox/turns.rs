//! Who computes now: as many guests at once as there are cores, chosen by their shares.
//!
//! A guest holds a turn only while it is being polled, and gives it up whenever it yields (at each epoch) or waits. The
//! next turn goes to whose [`Share`] is owed most CPU time: between tenants first, so that a tenant with a hundred
//! endless loops gets as much of the node as a tenant with one; then between the shares of a tenant, of which its
//! invocations have one together and each worker of a job has its own, of the weight that its memory gives it.
//!
//! A worker calls its trainer again and again, for less than a millisecond each time. Were the turn handed over after
//! every call, its thread would sleep and its tensors would leave the caches as often; so the share of a worker keeps its
//! turn from call to call, until it has had it for a while or the worker has to wait for others.
//!
//! A kernel can take seconds, or wait for its device, and no epoch reaches into it. The turn of a guest that is inside
//! one goes to the next who waits ([`Seat::aside`]); the guest asks for a new one when the kernel is over. So guests that
//! compute on devices have threads of their own.
//!
//! Some instructions cannot be interrupted: a `memory.fill` over everything a guest has is one. A turn that is overdue is
//! relieved: one more guest may compute beside it, and the operating system shares the cores between their threads.
//!
//! A new guest must get here to be considered: whoever runs guests needs a thread more than there are turns, or the new
//! one would wait in the executor's own queue, first come first served.

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use weft_gpu::Cancel;
use weft_gpu::line::Ticket;
use weft_gpu::share::Owner;

use crate::locks::Lock;
use crate::tenant::Tenant;

mod seat;
mod state;
#[cfg(test)]
mod tests;

use seat::Flags;
pub use seat::{Aside, Seat};
use state::{ASIDE, IDLE, OVERDUE, Standing, State, TurnId};

/// Somebody's part of the node's CPU time.
#[derive(Debug)]
pub struct Share {
    id: ShareId,
    owner: Owner,
    weight: NonZeroU32,
    keeps: Keeps,
    /// The turns that it takes part in.
    joined: Mutex<Vec<Weak<Turns>>>,
}

/// Names a share. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ShareId(u64);

/// Whether a share keeps a turn from call to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    Never,
    /// It makes one call at a time. Those of the same team are its peers.
    InTeam(TeamId),
}

/// The workers of one job. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamId(u64);

impl TeamId {
    pub fn next() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self(COUNT.fetch_add(1, Relaxed))
    }
}

impl Share {
    /// The weight of a tenant's invocations; a worker of 256 MiB has the same.
    const ORDINARY: NonZeroU32 = NonZeroU32::new(32).unwrap();

    /// Of all invocations of a tenant.
    pub fn of_tenant(tenant: &str) -> Arc<Self> {
        Self::new(tenant, Self::ORDINARY, Keeps::Never)
    }

    /// Of one worker of a tenant's, which makes one call at a time.
    pub fn of_worker(tenant: &str, weight: NonZeroU32, team: TeamId) -> Arc<Self> {
        Self::new(tenant, weight, Keeps::InTeam(team))
    }

    fn new(tenant: &str, weight: NonZeroU32, keeps: Keeps) -> Arc<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let id = ShareId(COUNT.fetch_add(1, Relaxed));
        Arc::new(Self { id, owner: Owner::from(tenant), weight, keeps, joined: Mutex::default() })
    }

    fn joined(&self, turns: &Arc<Turns>) {
        self.joined.locked().push(Arc::downgrade(turns));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for turns in self.joined.locked().drain(..).filter_map(|turns| turns.upgrade()) {
            turns.change(|inner| inner.state.leave(self.id));
        }
    }
}

pub struct Turns {
    inner: Mutex<Inner>,
}

/// The rules' state, and how those whom it names are reached.
struct Inner {
    state: State,
    wakers: BTreeMap<Ticket, Waker>,
    /// Of the turns that there are, which are few.
    flags: Vec<(TurnId, Arc<Flags>)>,
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Turns {
    pub fn new(cores: usize) -> Arc<Self> {
        let inner = Inner { state: State::new(cores), wakers: BTreeMap::new(), flags: Vec::new() };
        Arc::new(Self { inner: Mutex::new(inner) })
    }

    /// How many guests can be computing at once, those in overdue turns counted, those inside kernels not.
    pub const fn most_at_once(cores: usize) -> usize {
        2 * cores
    }

    /// Passes on what is kept and not used, or held by a guest that is inside a kernel, and lets another guest in beside
    /// each one whose turn is overdue. Called at every epoch.
    pub fn relieve(&self) {
        self.relieve_at(Instant::now());
    }

    fn relieve_at(&self, now: Instant) {
        self.change(|inner| {
            let turns: Vec<_> = inner.state.turns().map(|(id, turn)| (id, turn.standing, turn.call)).collect();
            for (turn, standing, call) in turns {
                let flags = inner.flags.iter().find(|(of, _)| *of == turn).map(|(_, flags)| flags);
                let age = now.saturating_duration_since(call);
                match standing {
                    Standing::Kept(since) if now.saturating_duration_since(since) >= IDLE => inner.state.expires(turn),
                    Standing::Held | Standing::Relieved
                        if age >= ASIDE && flags.is_some_and(|flags| flags.aside.load(Relaxed)) =>
                    {
                        if inner.state.goes_aside(turn)
                            && let Some(flags) = flags
                        {
                            flags.left.store(true, Relaxed);
                        }
                    }
                    Standing::Held if age >= OVERDUE => _ = inner.state.is_relieved(turn),
                    _ => {}
                }
            }
        });
    }

    /// Whether the share has kept its turn for long enough.
    pub fn is_due(&self, share: &Share) -> bool {
        self.inner.locked().state.is_due(share.id, Instant::now())
    }

    /// The share's next call is not to come at once: a turn that it keeps may go to the next.
    pub fn give_up(&self, share: &Share) {
        self.change(|inner| inner.state.gives_up(share.id));
    }

    /// A guest that is to compute in turns of this share; its CPU time is charged to `tenant` at the end. `cancel` stops
    /// its kernels.
    pub fn seat(self: &Arc<Self>, tenant: Arc<Tenant>, share: Arc<Share>, cancel: Option<Cancel>) -> Arc<Seat> {
        Arc::new(Seat::new(self.clone(), tenant, share, cancel))
    }

    /// Runs a guest in its turns.
    pub fn run<F>(seat: Arc<Seat>, future: F) -> InTurn<F> {
        InTurn { place: Place { seat, ticket: None }, has_begun: false, future }
    }

    /// How many wait for a turn.
    pub fn waiting(&self) -> usize {
        self.inner.locked().state.waiting()
    }

    /// Changes something, and wakes those who have a turn because of it.
    fn change<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.inner.locked();
        let result = change(&mut inner);
        let granted = inner.state.take_granted();
        // Most changes grant nothing, and then nothing is allocated.
        let wakers: Vec<Waker> = granted.iter().filter_map(|ticket| inner.wakers.remove(ticket)).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

/// A future that is polled only when it is its share's turn.
pub struct InTurn<F> {
    place: Place,
    has_begun: bool,
    future: F,
}

impl<F> InTurn<F> {
    /// Whether it has had a turn.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }
}

/// Where a future stands: in line, or not.
struct Place {
    seat: Arc<Seat>,
    ticket: Option<Ticket>,
}

impl Place {
    /// Ready when a turn begins.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.ticket {
            Some(ticket) if self.seat.claim(ticket, context.waker()) => self.ticket = None,
            Some(_) => return Poll::Pending,
            None => {
                if let Err(ticket) = self.seat.ask(context.waker()) {
                    self.ticket = Some(ticket);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.seat.withdraw(ticket);
        }
        self.seat.pay();
    }
}

/// Ends the turn also when the polled future panics.
struct Computing<'a> {
    place: &'a mut Place,
    waker: &'a Waker,
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.place.ticket = self.place.seat.stop(self.waker);
    }
}

impl<F: Future + Unpin> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        std::task::ready!(self.place.poll_turn(context));
        let Self { place, has_begun, future } = &mut *self;
        *has_begun = true;
        let _computing = Computing { place, waker: context.waker() };
        Pin::new(future).poll(context)
    }
}
