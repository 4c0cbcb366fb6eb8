//! Who may compute: cores, those that have some, and those that wait.
//!
//! One short lock, never held while anything is computed. An owner that has finished a call keeps its cores for a
//! moment ([`GRACE`]); if it does not come back, whoever waits takes them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::{GRACE, QUANTUM};
use crate::device::Wait;
use crate::error::{Error, Result};
use crate::run::{Cancel, Listener};
use crate::share::{Member, Shares};

/// How often one that waits looks whether some cores were abandoned meanwhile. Who gives up a turn wakes it at once.
const LOOK: Duration = Duration::from_millis(1);

/// The cores of a machine and their turns.
#[derive(Debug)]
pub(super) struct Turns {
    cores: usize,
    /// How many wait: what running calls look at between tiles.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub shares: Shares,
    free: usize,
    /// In order of arrival.
    queue: Vec<Arc<Ticket>>,
    /// The cores of owners that are between two calls, at most once each.
    kept: Vec<Kept>,
    engaged: BTreeMap<Member, Engaged>,
    /// Processor time of all cores that was charged, and turns that were granted: the device's own clock.
    clock: Wait,
    /// The most of it that an owner waited for a turn.
    waits: BTreeMap<Member, Wait>,
}

/// An owner that competes.
#[derive(Debug, Default)]
struct Engaged {
    /// Its calls, running or waiting, and what is kept for it.
    places: usize,
    /// What it used and was not yet charged: nobody looks at it while nobody waits.
    used: Duration,
}

#[derive(Debug)]
struct Kept {
    member: Member,
    cores: usize,
    since: Instant,
    until: Instant,
}

/// A place in the queue.
#[derive(Debug)]
pub(super) struct Ticket {
    pub member: Member,
    pub cores: usize,
    /// The clock when it was put into the queue.
    asked: Mutex<Wait>,
    /// Written under the lock.
    pub granted: AtomicBool,
    /// Rings when it is granted, or when something was cancelled.
    pub bell: Condvar,
}

impl Ticket {
    pub fn new(member: Member, cores: usize) -> Arc<Self> {
        let (granted, bell) = (AtomicBool::new(false), Condvar::new());
        Arc::new(Self { member, cores, asked: Mutex::default(), granted, bell })
    }

    fn asked(&self) -> MutexGuard<'_, Wait> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Relaxed)
    }
}

impl Turns {
    pub fn new(cores: usize) -> Self {
        let state = State {
            shares: Shares::default(),
            free: cores,
            queue: Vec::new(),
            kept: Vec::new(),
            engaged: BTreeMap::new(),
            clock: Wait::default(),
            waits: BTreeMap::new(),
        };
        Self { cores, waiting: AtomicUsize::new(0), state: Mutex::new(state) }
    }

    pub fn join(&self, weight: NonZeroU32) -> Member {
        self.lock().shares.join(weight)
    }

    /// The member has no call any more.
    pub fn leave(&self, member: Member) {
        let mut state = self.lock();
        if let Some(kept) = state.take_kept(member) {
            state.free += kept.cores;
        }
        state.engaged.remove(&member);
        state.waits.remove(&member);
        state.shares.leave(member);
        self.dispatch(&mut state);
        debug_assert!(!state.shares.is_empty() || state.free == self.cores, "all cores are back");
    }

    /// The most that the member waited for a turn.
    pub fn longest_wait(&self, member: Member) -> Wait {
        let wait = self.lock().waits.get(&member).copied().unwrap_or_default();
        Wait { time: wait.time / u32::try_from(self.cores).unwrap_or(u32::MAX), ..wait }
    }

    pub fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this many cores. Says when they were granted, and until when the turn lasts.
    pub fn begin(self: &Arc<Self>, member: Member, cores: usize, cancel: &Cancel) -> Result<(Instant, Instant)> {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some(kept) = state.take_kept(member) {
            if kept.cores == cores && now < kept.since + GRACE {
                return Ok((now, kept.until));
            }
            state.release(member, kept.cores);
        }
        self.expire(&mut state, now);
        state.engage(member);
        if state.queue.is_empty() && state.free >= cores {
            state.free -= cores;
            state.clock.turns += 1;
            return Ok((now, now + QUANTUM));
        }
        let ticket = Ticket::new(member, cores);
        self.enqueue(&mut state, Arc::clone(&ticket));
        drop(state);
        let _listening = cancel.listen(self.listener());
        let mut state = self.lock();
        loop {
            if ticket.is_granted() {
                let now = Instant::now();
                return Ok((now, now + QUANTUM));
            }
            if cancel.is_cancelled() {
                self.withdraw(&mut state, &ticket);
                return Err(Error::Cancelled);
            }
            state = self.wait(state, &ticket);
        }
    }

    /// A call is over. Its cores are kept for the next one, unless another is owed more.
    pub fn end(&self, member: Member, cores: usize, used: Duration, now: Instant, mut until: Instant) {
        let mut state = self.lock();
        state.charge(member, used);
        if self.is_contended() && now >= until {
            if state.gives_way(member) {
                state.release(member, cores);
                return self.dispatch(&mut state);
            }
            until = now + QUANTUM;
        }
        if state.kept.iter().any(|kept| kept.member == member) {
            state.release(member, cores);
            return self.dispatch(&mut state);
        }
        state.kept.push(Kept { member, cores, since: now, until });
    }

    /// The member's next call is not to come soon: what is kept for it is free.
    pub fn rest(&self, member: Member) {
        let mut state = self.lock();
        if let Some(kept) = state.take_kept(member) {
            state.release(member, kept.cores);
            self.dispatch(&mut state);
        }
    }

    /// A call that gives way: its cores are free, and it waits for others.
    pub fn give_up(&self, state: &mut State, ticket: &Arc<Ticket>) {
        state.free += ticket.cores;
        ticket.granted.store(false, Ordering::Relaxed);
        self.enqueue(state, Arc::clone(ticket));
    }

    /// The call does not want its turn any more. It has no cores.
    pub fn withdraw(&self, state: &mut State, ticket: &Arc<Ticket>) {
        if let Some(index) = state.queue.iter().position(|other| Arc::ptr_eq(other, ticket)) {
            state.queue.remove(index);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        state.release(ticket.member, 0);
        self.dispatch(state);
    }

    /// Sleeps until something may have changed for the ticket.
    pub fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>, ticket: &Ticket) -> MutexGuard<'a, State> {
        let now = Instant::now();
        if self.expire(&mut state, now) {
            self.dispatch(&mut state);
            if ticket.is_granted() {
                return state;
            }
        }
        let kept = state.kept.iter().map(|kept| (kept.since + GRACE).saturating_duration_since(now)).min();
        let most = kept.map_or(LOOK, |kept| kept.min(LOOK));
        ticket.bell.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    pub fn listener(self: &Arc<Self>) -> Weak<dyn Listener> {
        Arc::downgrade(&(Arc::clone(self) as Arc<dyn Listener>))
    }

    fn enqueue(&self, state: &mut State, ticket: Arc<Ticket>) {
        state.charge_all();
        *ticket.asked() = state.clock;
        state.queue.push(ticket);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.dispatch(state);
    }

    /// Frees cores whose owners did not come back.
    fn expire(&self, state: &mut State, now: Instant) -> bool {
        let mut any = false;
        while let Some(index) = state.kept.iter().position(|kept| now >= kept.since + GRACE) {
            let kept = state.kept.swap_remove(index);
            state.release(kept.member, kept.cores);
            any = true;
        }
        any
    }

    /// Gives free cores to those that wait, in the order of what they are owed. Nobody goes past one that needs more
    /// cores than are free: it would never get them.
    fn dispatch(&self, state: &mut State) {
        while let Some(member) = state.shares.next_of(|member| state.is_waiting(member)) {
            let Some(index) = state.queue.iter().position(|ticket| ticket.member == member) else { return };
            if state.queue[index].cores > state.free {
                return;
            }
            let ticket = state.queue.remove(index);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            state.free -= ticket.cores;
            state.note_wait(&ticket);
            ticket.granted.store(true, Ordering::Relaxed);
            ticket.bell.notify_all();
        }
    }
}

impl Listener for Turns {
    fn cancelled(&self) {
        let state = self.lock();
        state.queue.iter().for_each(|ticket| ticket.bell.notify_all());
    }
}

impl State {
    /// Charges a call that goes on, and says whether another is to go first.
    pub fn must_give_way(&mut self, member: Member, used: Duration) -> bool {
        self.charge(member, used);
        self.gives_way(member)
    }

    pub fn charge(&mut self, member: Member, used: Duration) {
        self.clock.time += used;
        self.engaged.entry(member).or_default().used += used;
    }

    /// What a call used that has no cores any more.
    pub fn charge_abandoned(&mut self, member: Member, used: Duration) {
        self.clock.time += used;
        self.shares.charge(member, used);
    }

    /// A ticket is granted.
    fn note_wait(&mut self, ticket: &Ticket) {
        let asked = *ticket.asked();
        let longest = self.waits.entry(ticket.member).or_default();
        longest.time = longest.time.max(self.clock.time.saturating_sub(asked.time));
        longest.turns = longest.turns.max(self.clock.turns - asked.turns);
        self.clock.turns += 1;
    }

    fn gives_way(&mut self, member: Member) -> bool {
        self.charge_all();
        let next = self.shares.next_of(|other| other == member || self.is_waiting(other));
        // Calls of one owner take turns as well.
        next != Some(member) || self.is_waiting(member)
    }

    fn is_waiting(&self, member: Member) -> bool {
        self.queue.iter().any(|ticket| ticket.member == member)
    }

    fn take_kept(&mut self, member: Member) -> Option<Kept> {
        let index = self.kept.iter().position(|kept| kept.member == member)?;
        Some(self.kept.swap_remove(index))
    }

    fn charge_all(&mut self) {
        for (&member, engaged) in &mut self.engaged {
            if !engaged.used.is_zero() {
                self.shares.charge(member, std::mem::take(&mut engaged.used));
            }
        }
    }

    fn engage(&mut self, member: Member) {
        self.engaged.entry(member).or_default().places += 1;
        self.shares.ready(member);
    }

    fn release(&mut self, member: Member, cores: usize) {
        self.free += cores;
        let Some(engaged) = self.engaged.get_mut(&member) else { return };
        engaged.places -= 1;
        let last = engaged.places == 0;
        if !engaged.used.is_zero() {
            self.shares.charge(member, std::mem::take(&mut engaged.used));
        }
        if last {
            self.engaged.remove(&member);
            self.shares.idle(member);
        }
    }
}
