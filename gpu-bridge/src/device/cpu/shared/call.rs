//! One call on shared cores: its threads, their processor time, and how they pause.
//!
//! A call gives way as a whole: its threads stop one by one, each at the end of its tile, and the last one gives up the
//! cores. A caller that has run out of tiles waits for its crew without stopping; so from then on none of them stops
//! ([`Call::closing`]).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::turns::{State, Ticket};
use super::{Handle, QUANTUM};
use crate::error::{Error, Result};
use crate::run::{Cancel, Stint, Turn};
use crate::threads::{AtomicBool, AtomicU64, AtomicUsize, Instant, MutexGuard, Ordering, thread_time};

pub(super) struct Call<'a> {
    handle: &'a Handle,
    cancel: &'a Cancel,
    cores: usize,
    started: Instant,
    /// When others may want the cores, in nanoseconds from `started`.
    until: AtomicU64,
    /// Nanoseconds that were used and are not charged yet.
    used: AtomicU64,
    /// The caller's processor time up to which it was counted; zero while only the wall's is known. Short calls, and
    /// what a caller does between tiles, do not ask for more, which would take longer than they do, unless others wait:
    /// then who is taken off a core in the middle of a call must not be charged for it.
    caller: AtomicU64,
    /// The wall's time up to which the caller was counted, in nanoseconds from `started`.
    wall: AtomicU64,
    /// Threads that work on it and are not paused, the caller among them.
    active: AtomicUsize,
    /// Those below are written under the lock.
    paused: AtomicBool,
    closing: AtomicBool,
    /// It was cancelled while it had no cores.
    abandoned: AtomicBool,
    parked: AtomicUsize,
    /// How often it went on after a pause.
    resumed: AtomicUsize,
    ticket: OnceLock<Arc<Ticket>>,
    /// Whether the ticket is in the queue, or has been granted and nobody has woken up yet.
    queued: AtomicBool,
}

impl<'a> Call<'a> {
    /// Waits until it may begin.
    pub fn begin(handle: &'a Handle, cores: usize, cancel: &'a Cancel) -> Result<Self> {
        let (started, until) = handle.turns.begin(handle.member, cores, cancel)?;
        let caller = if handle.turns.is_contended() { nanoseconds(thread_time()).max(1) } else { 0 };
        Ok(Self {
            handle,
            cancel,
            cores,
            started,
            until: AtomicU64::new(nanoseconds(until.saturating_duration_since(started))),
            used: AtomicU64::new(0),
            caller: AtomicU64::new(caller),
            wall: AtomicU64::new(0),
            active: AtomicUsize::new(1),
            paused: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            parked: AtomicUsize::new(0),
            resumed: AtomicUsize::new(0),
            ticket: OnceLock::new(),
            queued: AtomicBool::new(false),
        })
    }

    fn count(&self, stint: &mut Stint) {
        let time = thread_time();
        self.used.fetch_add(nanoseconds(time.saturating_sub(stint.time)), Ordering::Relaxed);
        *stint = Stint { time, since: Instant::now() };
    }

    /// Counts the caller's time up to now by the wall.
    fn count_wall(&self, now: Instant) {
        let now = nanoseconds(now.saturating_duration_since(self.started));
        let before = self.wall.swap(now, Ordering::Relaxed);
        self.used.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
    }

    /// What was used since it was asked last.
    fn take_used(&self) -> Duration {
        let used = self.used.swap(0, Ordering::Relaxed);
        self.handle.time.fetch_add(used, Ordering::Relaxed);
        Duration::from_nanos(used)
    }

    fn is_over(&self, now: Instant) -> bool {
        nanoseconds(now.saturating_duration_since(self.started)) >= self.until.load(Ordering::Relaxed)
    }

    #[cold]
    fn consider(&self, stint: &mut Stint) -> Result<()> {
        self.count(stint);
        let mut state = self.handle.turns.lock();
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        if self.closing.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !self.paused.load(Ordering::Relaxed) {
            if !self.is_over(Instant::now()) {
                return Ok(());
            }
            let must_give_way = state.must_give_way(self.handle.member, self.take_used());
            self.handle.turns.tell(&mut state);
            if !must_give_way {
                self.renew();
                return Ok(());
            }
            self.paused.store(true, Ordering::SeqCst);
        }
        self.park(state);
        *stint = now();
        self.cancel.check()
    }

    /// Waits until the call goes on. The last thread to stop gives up the cores.
    fn park(&self, mut state: MutexGuard<'_, State>) {
        let turns = &self.handle.turns;
        let round = self.resumed.load(Ordering::Relaxed);
        self.parked.fetch_add(1, Ordering::Relaxed);
        if self.active.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.give_up(&mut state);
        }
        let ticket = Arc::clone(self.ticket());
        drop(state);
        let _listening = self.cancel.listen(turns.listener());
        let mut state = turns.lock();
        while self.resumed.load(Ordering::Relaxed) == round {
            if self.queued.load(Ordering::Relaxed) && ticket.take_grant() {
                self.queued.store(false, Ordering::Relaxed);
                self.renew();
                self.resume();
            } else if self.cancel.is_cancelled() {
                if self.queued.swap(false, Ordering::Relaxed) {
                    self.abandoned.store(true, Ordering::Relaxed);
                    turns.withdraw(&mut state, &ticket);
                }
                self.resume();
            } else {
                state = turns.wait(state, &ticket);
            }
        }
    }

    fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
        self.active.fetch_add(self.parked.swap(0, Ordering::Relaxed), Ordering::SeqCst);
        self.resumed.fetch_add(1, Ordering::Relaxed);
        self.ticket().bell.notify_all();
    }

    /// Once, when no thread works on the call any more.
    fn give_up(&self, state: &mut State) {
        if self.queued.swap(true, Ordering::Relaxed) {
            return;
        }
        state.charge(self.handle.member, self.take_used());
        self.handle.turns.give_up(state, self.ticket());
    }

    fn ticket(&self) -> &Arc<Ticket> {
        self.ticket.get_or_init(|| Ticket::new(self.handle.member, self.cores))
    }

    fn renew(&self) {
        self.until.store(nanoseconds(self.started.elapsed() + QUANTUM), Ordering::Relaxed);
    }
}

impl Turn for Call<'_> {
    fn enter(&self, worker: usize) -> Stint {
        if worker == 0 {
            self.closing.store(false, Ordering::Relaxed);
            let mut stint = now();
            match self.caller.load(Ordering::Relaxed) {
                0 => self.count_wall(stint.since),
                time => stint.time = Duration::from_nanos(time),
            }
            return stint;
        }
        self.active.fetch_add(1, Ordering::SeqCst);
        if self.paused.load(Ordering::SeqCst) {
            let state = self.handle.turns.lock();
            if self.paused.load(Ordering::Relaxed) {
                self.park(state);
            }
        }
        now()
    }

    fn pass(&self, stint: &mut Stint) -> Result<()> {
        if !self.paused.load(Ordering::SeqCst) {
            let now = Instant::now();
            if !self.handle.turns.is_contended() || !self.is_over(now) {
                // What is charged when it is over must not lie far back, on any of the threads.
                if now - stint.since >= QUANTUM / 2 {
                    self.count(stint);
                    self.handle.turns.lock().charge(self.handle.member, self.take_used());
                }
                return Ok(());
            }
        }
        self.consider(stint)
    }

    fn leave(&self, worker: usize, stint: &mut Stint) {
        self.count(stint);
        if worker > 0 {
            if self.active.fetch_sub(1, Ordering::SeqCst) == 1 && self.paused.load(Ordering::SeqCst) {
                let mut state = self.handle.turns.lock();
                if self.paused.load(Ordering::Relaxed) && self.active.load(Ordering::SeqCst) == 0 {
                    self.give_up(&mut state);
                }
            }
            return;
        }
        let _state = self.handle.turns.lock();
        self.closing.store(true, Ordering::Relaxed);
        if self.paused.load(Ordering::Relaxed) {
            // The caller still counts as active, so the cores were not given up; and there is nothing left to wait for.
            self.resume();
        }
        self.caller.store(nanoseconds(stint.time).max(1), Ordering::Relaxed);
    }

    fn gathered(&self) {
        let caller = if self.handle.turns.is_contended() { nanoseconds(thread_time()).max(1) } else { 0 };
        self.caller.store(caller, Ordering::Relaxed);
        self.wall.store(nanoseconds(self.started.elapsed()), Ordering::Relaxed);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        match self.caller.load(Ordering::Relaxed) {
            0 => self.count_wall(now),
            time => self.count(&mut Stint { time: Duration::from_nanos(time), since: now }),
        }
        let used = self.take_used();
        if self.abandoned.load(Ordering::Relaxed) {
            return self.handle.turns.lock().charge(self.handle.member, used);
        }
        let until = self.started + Duration::from_nanos(self.until.load(Ordering::Relaxed));
        self.handle.turns.end(self.handle.member, self.cores, used, now, until);
    }
}

fn now() -> Stint {
    Stint { time: thread_time(), since: Instant::now() }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
