//! Who may compute: cores, those that have some, and those that wait.
//!
//! One short lock, never held while anything is computed. An owner that has finished a call keeps its cores for a
//! moment ([`GRACE`]); if it does not come back, whoever waits takes them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::{GRACE, QUANTUM};
use crate::device::Wait;
use crate::error::{Error, Result};
use crate::line::{self, Line};
use crate::run::{Cancel, Listener};
use crate::share::{Member, Owner};
use crate::threads::{AtomicBool, AtomicUsize, Condvar, Instant, Mutex, MutexGuard, Ordering};

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
    line: Line,
    /// Those in line.
    queue: Vec<Arc<Ticket>>,
    /// The cores of owners that are between two calls, at most once each.
    kept: Vec<Kept>,
    /// What members used and were not yet charged: nobody looks at it while nobody waits.
    used: BTreeMap<Member, Duration>,
    /// Processor time of all cores that was charged, and turns that were granted: the device's own clock.
    clock: Wait,
    /// The most of it that an owner waited for a turn.
    waits: BTreeMap<Member, Wait>,
}

#[derive(Debug)]
struct Kept {
    member: Member,
    cores: usize,
    since: Instant,
    until: Instant,
}

/// A call that waits for cores, perhaps more than once.
#[derive(Debug)]
pub(super) struct Ticket {
    pub member: Member,
    pub cores: usize,
    /// Its place in line, and the clock when it got it.
    asked: Mutex<Option<(line::Ticket, Wait)>>,
    /// Written under the lock.
    granted: AtomicBool,
    /// Rings when it is granted, or when something was cancelled.
    pub bell: Condvar,
}

impl Ticket {
    pub fn new(member: Member, cores: usize) -> Arc<Self> {
        let (granted, bell) = (AtomicBool::new(false), Condvar::new());
        Arc::new(Self { member, cores, asked: Mutex::default(), granted, bell })
    }

    fn asked(&self) -> MutexGuard<'_, Option<(line::Ticket, Wait)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_at(&self, place: line::Ticket) -> bool {
        self.asked().is_some_and(|(asked, _)| asked == place)
    }

    pub fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Relaxed)
    }

    /// Whether it is granted; a grant is taken once, so that who waits with the ticket again does not find an old one.
    pub fn take_grant(&self) -> bool {
        self.granted.swap(false, Ordering::Relaxed)
    }
}

impl Turns {
    pub fn new(cores: usize) -> Self {
        let state = State {
            line: Line::new(cores),
            queue: Vec::new(),
            kept: Vec::new(),
            used: BTreeMap::new(),
            clock: Wait::default(),
            waits: BTreeMap::new(),
        };
        Self { cores, waiting: AtomicUsize::new(0), state: Mutex::new(state) }
    }

    pub fn join(&self, owner: &Owner, weight: NonZeroU32) -> Member {
        self.lock().line.join(owner, weight)
    }

    /// The member has no call any more.
    pub fn leave(&self, member: Member) {
        let mut state = self.lock();
        if let Some(kept) = state.take_kept(member) {
            self.release(&mut state, member, kept.cores);
        }
        state.charge_all();
        state.waits.remove(&member);
        state.line.leave(member);
        // What was charged may have put another first.
        self.tell(&mut state);
        debug_assert!(!state.line.is_empty() || state.line.free() == self.cores, "all cores are back");
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
            self.release(&mut state, member, kept.cores);
        }
        self.expire(&mut state, now);
        if state.line.take(member, cores) {
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
            let gives_way = state.gives_way(member);
            self.tell(&mut state);
            if gives_way {
                return self.release(&mut state, member, cores);
            }
            until = now + QUANTUM;
        }
        if state.kept.iter().any(|kept| kept.member == member) {
            return self.release(&mut state, member, cores);
        }
        state.kept.push(Kept { member, cores, since: now, until });
    }

    /// The member's next call is not to come soon: what is kept for it is free.
    pub fn rest(&self, member: Member) {
        let mut state = self.lock();
        if let Some(kept) = state.take_kept(member) {
            self.release(&mut state, member, kept.cores);
        }
    }

    /// A call that gives way: it waits for its next turn, and its cores are free.
    pub fn give_up(&self, state: &mut State, ticket: &Arc<Ticket>) {
        ticket.granted.store(false, Ordering::Relaxed);
        self.enqueue(state, Arc::clone(ticket));
        self.release(state, ticket.member, ticket.cores);
    }

    /// The call does not want its turn any more. It has no cores.
    pub fn withdraw(&self, state: &mut State, ticket: &Arc<Ticket>) {
        if let Some(index) = state.queue.iter().position(|other| Arc::ptr_eq(other, ticket)) {
            state.queue.remove(index);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        let asked = ticket.asked().take();
        if let Some((place, _)) = asked {
            state.line.withdraw(place);
        }
        self.tell(state);
    }

    /// Sleeps until something may have changed for the ticket.
    pub fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>, ticket: &Ticket) -> MutexGuard<'a, State> {
        let now = Instant::now();
        self.expire(&mut state, now);
        self.tell(&mut state);
        if ticket.is_granted() {
            return state;
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
        let clock = state.clock;
        let place = state.line.ask(ticket.member, ticket.cores);
        *ticket.asked() = Some((place, clock));
        state.queue.push(ticket);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.tell(state);
    }

    fn release(&self, state: &mut State, member: Member, cores: usize) {
        state.charge_all();
        state.line.release(member, cores);
        self.tell(state);
    }

    /// Frees cores whose owners did not come back.
    fn expire(&self, state: &mut State, now: Instant) {
        while let Some(index) = state.kept.iter().position(|kept| now >= kept.since + GRACE) {
            let kept = state.kept.swap_remove(index);
            self.release(state, kept.member, kept.cores);
        }
    }

    /// Wakes those who were given cores.
    pub fn tell(&self, state: &mut State) {
        for place in state.line.take_granted() {
            state.line.claim(place);
            let Some(index) = state.queue.iter().position(|ticket| ticket.is_at(place)) else { continue };
            let ticket = state.queue.remove(index);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
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
        *self.used.entry(member).or_default() += used;
    }

    /// A ticket is granted.
    fn note_wait(&mut self, ticket: &Ticket) {
        let Some((_, asked)) = ticket.asked().take() else { return };
        let longest = self.waits.entry(ticket.member).or_default();
        longest.time = longest.time.max(self.clock.time.saturating_sub(asked.time));
        longest.turns = longest.turns.max(self.clock.turns - asked.turns);
        self.clock.turns += 1;
    }

    /// Whether another waits who is owed more; calls of one member take turns as well.
    fn gives_way(&mut self, member: Member) -> bool {
        self.charge_all();
        self.line.is_due(member)
    }

    fn take_kept(&mut self, member: Member) -> Option<Kept> {
        let index = self.kept.iter().position(|kept| kept.member == member)?;
        Some(self.kept.swap_remove(index))
    }

    fn charge_all(&mut self) {
        while let Some((member, used)) = self.used.pop_first() {
            self.line.charge(member, used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_next_after_another_has_left_is_told() {
        let turns = Arc::new(Turns::new(2));
        let [busy, small, idle] = ["busy", "small", "idle"].map(|owner| turns.join(&owner.into(), NonZeroU32::MIN));
        turns.begin(busy, 1, &Cancel::default()).unwrap();
        // Nobody goes past one that waits for more cores than are free.
        let (both, one) = (Ticket::new(busy, 2), Ticket::new(small, 1));
        let mut state = turns.lock();
        turns.enqueue(&mut state, Arc::clone(&both));
        turns.enqueue(&mut state, Arc::clone(&one));
        assert!(!both.is_granted() && !one.is_granted());
        // What it has used meanwhile puts the other first, as soon as it is charged.
        state.charge(busy, Duration::from_secs(1));
        drop(state);
        turns.leave(idle);
        assert!(one.is_granted());
    }

    #[test]
    fn only_those_who_used_something_are_charged_again() {
        let turns = Turns::new(1);
        let member = turns.join(&"a".into(), NonZeroU32::MIN);
        let mut state = turns.lock();
        state.charge(member, Duration::from_millis(1));
        state.charge_all();
        assert!(state.used.is_empty());
    }
}
