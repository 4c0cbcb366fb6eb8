//! Who computes now: as many guests at once as there are cores, chosen by their shares.
//!
//! A guest holds a turn only while it is being polled, and gives it up whenever it yields (at each epoch) or waits. The
//! next turn goes to whose [`Share`] has run least far (start-time fair queueing over CPU time). A tenant has one share
//! for all its invocations, so a tenant with a hundred endless loops gets as much of the node as a tenant with one; a
//! worker of a job has its own, of the weight that its memory gives it.
//!
//! A worker calls its trainer again and again, for less than a millisecond each time. Were the turn handed over after
//! every call, its thread would sleep and its tensors would leave the caches as often; so the share of a worker keeps its
//! turn from call to call, until it has had it for a while or the worker has to wait for others.
//!
//! Some instructions cannot be interrupted: a `memory.fill` over everything a guest has is one. A turn that is overdue is
//! relieved: one more guest may compute beside it, and the operating system shares the cores between their threads.
//!
//! A new guest must get here to be considered: whoever runs guests needs a thread more than there are turns, or the new
//! one would wait in the executor's own queue, first come first served.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::clock::thread_cpu;
use crate::locks::Lock;
use crate::tenant::Tenant;

#[cfg(test)]
mod tests;

/// What a turn is assumed to cost until it has been measured: about one epoch.
const EXPECTED_NS: u64 = 1_000_000;

/// What a share that was idle for a moment, between two calls of a worker's say, may still be owed: what others had
/// meanwhile, up to this. A worker that waits for others after every step needs so much to get what it weighs.
const CREDIT_NS: u64 = 50_000_000;

/// How long a turn may take before another guest is let in beside it.
const OVERDUE: Duration = Duration::from_millis(10);

/// How long a share keeps its turn while others wait.
const KEPT: Duration = Duration::from_millis(2);

/// How long it does while only workers of the same job wait: they wait for each other in any case.
const KEPT_FROM_PEERS: Duration = Duration::from_millis(16);

/// By how much a share must have run less far than the next in line to have its turn kept while it waits for others.
/// Less would leave cores idle between shares of the same weight.
const OWED_NS: u64 = 1_000_000;

/// How long a kept turn may be idle before it goes to the next.
const IDLE: Duration = Duration::from_millis(1);

/// Somebody's part of the node's CPU time.
#[derive(Debug)]
pub struct Share {
    /// How far it has run: CPU time, the faster the less it weighs.
    virtual_time: AtomicU64,
    weight: NonZeroU32,
    keeps: Keeps,
}

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
    pub fn of_tenant() -> Arc<Self> {
        Self::new(Self::ORDINARY, Keeps::Never)
    }

    /// Of one worker, which makes one call at a time.
    pub fn of_worker(weight: NonZeroU32, team: TeamId) -> Arc<Self> {
        Self::new(weight, Keeps::InTeam(team))
    }

    fn new(weight: NonZeroU32, keeps: Keeps) -> Arc<Self> {
        Arc::new(Self { virtual_time: AtomicU64::new(0), weight, keeps })
    }

    fn scaled(&self, nanoseconds: u64) -> u64 {
        nanoseconds.saturating_mul(Self::ORDINARY.get().into()) / u64::from(self.weight.get())
    }
}

/// Places in line, ordered by how far their share had run, then by arrival.
type Place = (u64, u64);

struct State {
    free: usize,
    /// The turns that are being taken.
    taken: Vec<Option<Taken>>,
    /// How many more overdue turns may be relieved.
    reserves: usize,
    arrivals: u64,
    /// The start of the latest turn, in virtual time. A share that was idle starts from a little before it, not from
    /// its past, and a new one from here: nothing is owed to it yet.
    now: u64,
    waiting: BTreeMap<Place, Waiting>,
    granted: HashSet<Place>,
}

struct Waiting {
    waker: Waker,
    /// Of its share.
    keeps: Keeps,
}

/// A turn that is being taken.
#[derive(Clone)]
struct Taken {
    since: Instant,
    /// Of the call that it is used for.
    call: Instant,
    relieved: bool,
    kept: Option<Kept>,
}

/// Who has a turn between two calls, and since when.
#[derive(Clone)]
struct Kept {
    by: Arc<Share>,
    since: Instant,
}

pub struct Turns {
    state: Mutex<State>,
}

impl Turns {
    pub fn new(cores: usize) -> Arc<Self> {
        let state = State {
            free: cores,
            taken: vec![None; Self::most_at_once(cores)],
            reserves: cores,
            arrivals: 0,
            now: 0,
            waiting: BTreeMap::default(),
            granted: HashSet::default(),
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// How many guests can be computing at once, those in overdue turns counted.
    pub const fn most_at_once(cores: usize) -> usize {
        2 * cores
    }

    /// Passes on what is kept and not used, and lets another guest in beside each one whose turn is overdue. Called at
    /// every epoch.
    pub fn relieve(&self) {
        let mut wakers = Vec::new();
        {
            let mut state = self.state();
            let now = Instant::now();
            for index in 0..state.taken.len() {
                let Some(turn) = &mut state.taken[index] else { continue };
                if let Some(kept) = &turn.kept {
                    if now.duration_since(kept.since) >= IDLE {
                        wakers.extend(state.end(index));
                    }
                } else if !turn.relieved && now.duration_since(turn.call) >= OVERDUE {
                    wakers.extend(state.relieve(index));
                }
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether the share has kept its turn for long enough.
    pub fn is_due(&self, share: &Arc<Share>) -> bool {
        let state = self.state();
        let turn = state.kept_by(share).and_then(|index| state.taken[index].as_ref());
        let age = turn.map_or(Duration::ZERO, |turn| turn.since.elapsed());
        let kept_from_others = || state.waiting.values().any(|waiting| waiting.keeps != share.keeps);
        age >= KEPT_FROM_PEERS || age >= KEPT && kept_from_others()
    }

    /// The share's next call is not to come at once: a turn that it keeps goes to the next, unless the share is owed much
    /// more. Whoever waits for others after every step would else lose its turn each time, whatever it weighs.
    pub fn give_up(&self, share: &Arc<Share>) {
        let next = {
            let mut state = self.state();
            match state.kept_by(share) {
                Some(_) if state.is_owed_more(share) => None,
                Some(index) => state.end(index),
                None => None,
            }
        };
        if let Some(waker) = next {
            waker.wake();
        }
    }

    /// Runs `future` in turns of this share. `clock` counts its CPU time, which is charged to `tenant` at the end.
    pub fn run<F>(
        self: &Arc<Self>,
        tenant: Arc<Tenant>,
        share: Arc<Share>,
        clock: Arc<TurnClock>,
        future: F,
    ) -> InTurn<F> {
        InTurn { line: Line { turns: self.clone(), tenant, share, clock, place: None }, future }
    }

    /// How many wait for a turn.
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

impl State {
    /// The share's next start, and the provisional charge for it. Only called with the state locked, which is what
    /// orders the share's virtual time.
    fn book(&mut self, share: &Share) -> Place {
        let had = share.virtual_time.load(Relaxed);
        let is_new = had == 0;
        let start = if is_new { self.now } else { had.max(self.now.saturating_sub(CREDIT_NS)) };
        share.virtual_time.store(start.saturating_add(share.scaled(EXPECTED_NS)), Relaxed);
        self.arrivals += 1;
        (start, self.arrivals)
    }

    fn settle(&mut self, share: &Share, used: Duration) {
        let used = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
        let booked = share.virtual_time.load(Relaxed).saturating_sub(share.scaled(EXPECTED_NS));
        share.virtual_time.store(booked.saturating_add(share.scaled(used)), Relaxed);
    }

    /// Notes that a turn begins; the result names it. There is always room: `taken` has a place for every turn there is.
    fn begin(&mut self) -> usize {
        let now = Instant::now();
        let turn = Taken { since: now, call: now, relieved: false, kept: None };
        let index = self.taken.iter().position(Option::is_none).unwrap_or(0);
        self.taken[index] = Some(turn);
        index
    }

    /// Ends a turn, and says who is next: nobody, if the turn had been relieved already.
    fn end(&mut self, index: usize) -> Option<Waker> {
        if self.taken[index].take().is_some_and(|turn| turn.relieved) {
            self.reserves += 1;
            return None;
        }
        self.pass_on()
    }

    /// Lets somebody in beside an overdue turn, if somebody waits.
    fn relieve(&mut self, index: usize) -> Option<Waker> {
        if self.waiting.is_empty() || self.reserves == 0 {
            return None;
        }
        self.taken[index].as_mut()?.relieved = true;
        self.reserves -= 1;
        self.pass_on()
    }

    /// The turn that a share keeps.
    fn kept_by(&self, share: &Arc<Share>) -> Option<usize> {
        if share.keeps == Keeps::Never {
            return None;
        }
        let is_kept = |turn: &Option<Taken>| {
            turn.as_ref().and_then(|turn| turn.kept.as_ref()).is_some_and(|kept| Arc::ptr_eq(&kept.by, share))
        };
        self.taken.iter().position(is_kept)
    }

    /// Leaves a turn with its share, if it keeps turns and others would have it.
    fn keep(&mut self, index: usize, share: &Arc<Share>) -> bool {
        let Some(turn) = self.taken[index].as_mut() else { return false };
        let keeps = share.keeps != Keeps::Never && !self.waiting.is_empty() && !turn.relieved;
        if keeps {
            turn.kept = Some(Kept { by: share.clone(), since: Instant::now() });
        }
        keeps
    }

    /// Whether the share has run so much less far than the next in line, of another team, that it is worth waiting for.
    fn is_owed_more(&self, share: &Share) -> bool {
        let Some((&(start, _), next)) = self.waiting.first_key_value() else { return false };
        next.keeps != share.keeps && share.virtual_time.load(Relaxed).saturating_add(OWED_NS) < start
    }

    /// The share that keeps a turn uses it again.
    fn resume(&mut self, index: usize) {
        if let Some(turn) = &mut self.taken[index] {
            (turn.kept, turn.call) = (None, Instant::now());
        }
    }

    fn pass_on(&mut self) -> Option<Waker> {
        let Some((place, Waiting { waker, .. })) = self.waiting.pop_first() else {
            self.free += 1;
            return None;
        };
        self.now = self.now.max(place.0);
        self.granted.insert(place);
        Some(waker)
    }
}

/// A future that is polled only when it is its share's turn.
pub struct InTurn<F> {
    line: Line,
    future: F,
}

/// Where a future stands: computing, in line, or neither.
struct Line {
    turns: Arc<Turns>,
    /// Who pays.
    tenant: Arc<Tenant>,
    share: Arc<Share>,
    clock: Arc<TurnClock>,
    place: Option<Place>,
}

impl Line {
    /// Ready with the turn's index when it begins.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let mut state = self.turns.state();
        let place = match self.place {
            Some(place) if state.granted.remove(&place) => {
                self.place = None;
                return Poll::Ready(state.begin());
            }
            Some(place) => place,
            None => {
                let place = state.book(&self.share);
                if let Some(index) = state.kept_by(&self.share) {
                    state.resume(index);
                    return Poll::Ready(index);
                }
                if state.free > 0 {
                    state.free -= 1;
                    state.now = state.now.max(place.0);
                    return Poll::Ready(state.begin());
                }
                place
            }
        };
        state.waiting.insert(place, self.waiting(context.waker()));
        self.place = Some(place);
        Poll::Pending
    }

    fn waiting(&self, waker: &Waker) -> Waiting {
        Waiting { waker: waker.clone(), keeps: self.share.keeps }
    }

    /// Gives the turn on. A guest that only yielded goes back in line first, so that it is chosen again if it is due.
    fn end_turn(&mut self, index: usize, waker: &Waker) {
        let used = self.clock.end();
        let next = {
            let mut state = self.turns.state();
            state.settle(&self.share, used);
            if self.clock.yielding.swap(false, Relaxed) {
                let place = state.book(&self.share);
                state.waiting.insert(place, self.waiting(waker));
                self.place = Some(place);
            } else if state.keep(index, &self.share) {
                return;
            }
            state.end(index)
        };
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.tenant.ledger.charge_cpu(self.clock.spent());
        let Some(place) = self.place else { return };
        let next = {
            let mut state = self.turns.state();
            state.settle(&self.share, Duration::ZERO);
            match state.granted.remove(&place) {
                true => state.pass_on(),
                false => {
                    state.waiting.remove(&place);
                    None
                }
            }
        };
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// Ends the turn also when the polled future panics.
struct Turn<'a> {
    line: &'a mut Line,
    index: usize,
    waker: &'a Waker,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line.end_turn(self.index, self.waker);
    }
}

impl<F: Future + Unpin> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let index = std::task::ready!(self.line.poll_turn(context));
        let Self { line, future } = &mut *self;
        line.clock.begin();
        let _turn = Turn { line, index, waker: context.waker() };
        Pin::new(future).poll(context)
    }
}

/// CPU time of one guest over all its turns, on whatever threads they were.
#[derive(Debug, Default)]
pub struct TurnClock {
    spent_ns: AtomicU64,
    turn_began_ns: AtomicU64,
    yielding: AtomicBool,
}

impl TurnClock {
    fn begin(&self) {
        self.turn_began_ns.store(thread_cpu().as_nanos() as u64, Relaxed);
    }

    fn end(&self) -> Duration {
        let used = self.this_turn();
        self.spent_ns.fetch_add(used, Relaxed);
        Duration::from_nanos(used)
    }

    fn this_turn(&self) -> u64 {
        (thread_cpu().as_nanos() as u64).saturating_sub(self.turn_began_ns.load(Relaxed))
    }

    /// A future that ends the turn and is ready in the next one. Only of use within [`Turns::run`], which wakes it.
    pub fn end_turn(&self) -> impl Future<Output = ()> + Send + 'static {
        self.yielding.store(true, Relaxed);
        let mut ended = false;
        std::future::poll_fn(move |_| if std::mem::replace(&mut ended, true) { Poll::Ready(()) } else { Poll::Pending })
    }

    /// Everything up to the latest turn's end.
    fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_ns.load(Relaxed))
    }

    /// This turn's time and all of it up to now; only meaningful on the thread, and within the turn, that is computing.
    pub fn so_far(&self) -> (Duration, Duration) {
        let this_turn = self.this_turn();
        (Duration::from_nanos(this_turn), Duration::from_nanos(self.spent_ns.load(Relaxed) + this_turn))
    }
}
