//! One guest's part in taking turns: its CPU time, whether it is inside a kernel, and the turn that it has.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use weft_gpu::Cancel;
use weft_gpu::line::Ticket;

use super::state::{Asked, TurnId};
use super::{Share, Turns};
use crate::clock::{monotonic, thread_cpu};
use crate::locks::Lock;
use crate::tenant::Tenant;

/// How often a guest that comes back from a kernel looks whether it was cancelled while it waits for a turn.
const LOOK: Duration = Duration::from_millis(5);

/// The system takes no thread off its core for less. Of a turn that is younger, the time on the wall is the thread's own,
/// and to read that takes a tenth as long.
const UNINTERRUPTED: Duration = Duration::from_micros(50);

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A guest that computes in turns, on whatever threads.
pub struct Seat {
    turns: Arc<Turns>,
    /// Who pays.
    tenant: Arc<Tenant>,
    share: Arc<Share>,
    /// Stops its kernels.
    cancel: Option<Cancel>,
    spent_ns: AtomicU64,
    /// By the clock on the wall, and of the thread's own time.
    turn_began_ns: AtomicU64,
    thread_began_ns: AtomicU64,
    yielding: AtomicBool,
    flags: Arc<Flags>,
    turn: Mutex<Option<TurnId>>,
}

/// What the thread that ticks sees of a guest, and tells it.
#[derive(Debug, Default)]
pub(super) struct Flags {
    /// The guest is inside a kernel.
    pub aside: AtomicBool,
    /// Its turn was given to another meanwhile.
    pub left: AtomicBool,
}

impl Seat {
    pub(super) fn new(turns: Arc<Turns>, tenant: Arc<Tenant>, share: Arc<Share>, cancel: Option<Cancel>) -> Self {
        Self {
            turns,
            tenant,
            share,
            cancel,
            spent_ns: AtomicU64::new(0),
            turn_began_ns: AtomicU64::new(0),
            thread_began_ns: AtomicU64::new(0),
            yielding: AtomicBool::new(false),
            flags: Arc::default(),
            turn: Mutex::new(None),
        }
    }

    /// The guest is inside the host, where no epoch reaches it, until the result is dropped: while it is, its turn may go
    /// to another. The calling thread must be the guest's own: it waits for a new turn at the end.
    pub fn aside(&self) -> Aside<'_> {
        self.flags.aside.store(true, Relaxed);
        Aside(self)
    }

    /// A future that ends the turn and is ready in the next one. Only of use within [`Turns::run`], which wakes it.
    pub fn end_turn(&self) -> impl Future<Output = ()> + Send + 'static {
        self.yielding.store(true, Relaxed);
        let mut ended = false;
        std::future::poll_fn(move |_| if std::mem::replace(&mut ended, true) { Poll::Ready(()) } else { Poll::Pending })
    }

    /// Whether its turn has gone to another, so that it should not go on for long.
    pub fn has_left(&self) -> bool {
        self.flags.left.load(Relaxed)
    }

    /// This turn's time and all of it up to now; only meaningful on the thread, and within the turn, that is computing.
    pub fn so_far(&self) -> (Duration, Duration) {
        let this_turn = self.this_turn();
        (Duration::from_nanos(this_turn), Duration::from_nanos(self.spent_ns.load(Relaxed) + this_turn))
    }

    /// A turn, or a place in line where `waker` is woken.
    pub(super) fn ask(&self, waker: &Waker) -> Result<(), Ticket> {
        let asked = self.turns.change(|inner| {
            if inner.state.join(&self.share) {
                self.share.joined(&self.turns);
            }
            let asked = inner.state.ask(self.share.id, Instant::now());
            match asked {
                Some(Asked::Turn(turn)) => self.begin(inner, turn),
                Some(Asked::Waits(ticket)) => _ = inner.wakers.insert(ticket, waker.clone()),
                None => {}
            }
            asked
        });
        match asked {
            Some(Asked::Waits(ticket)) => Err(ticket),
            _ => {
                self.begin_to_count();
                Ok(())
            }
        }
    }

    /// Whether the ticket was given its turn, which then begins; else `waker` is woken when it is.
    pub(super) fn claim(&self, ticket: Ticket, waker: &Waker) -> bool {
        let has_begun = self.turns.change(|inner| match inner.state.claim(ticket, Instant::now()) {
            Some(turn) => {
                self.begin(inner, turn);
                true
            }
            None => {
                inner.wakers.insert(ticket, waker.clone());
                false
            }
        });
        if has_begun {
            self.begin_to_count();
        }
        has_begun
    }

    pub(super) fn withdraw(&self, ticket: Ticket) {
        self.turns.change(|inner| {
            inner.wakers.remove(&ticket);
            inner.state.withdraw(ticket);
        });
    }

    /// The guest stops computing for now. One that only yields goes back in line at once, and gets a ticket.
    pub(super) fn stop(&self, waker: &Waker) -> Option<Ticket> {
        let used = self.count();
        let yields = self.yielding.swap(false, Relaxed);
        let turn = self.turn.locked().take();
        if turn.is_none() && yields {
            // It was cancelled before it had a turn again, and asks for one when it is polled next.
            waker.wake_by_ref();
        }
        self.turns.change(|inner| {
            if let Some(turn) = turn {
                inner.flags.retain(|(of, _)| *of != turn);
            }
            let ticket = match turn {
                Some(turn) if yields => inner.state.yields(turn, used),
                Some(turn) => {
                    inner.state.ends(turn, used, Instant::now());
                    None
                }
                None => None,
            };
            if let Some(ticket) = ticket {
                inner.wakers.insert(ticket, waker.clone());
            }
            ticket
        })
    }

    /// The guest is done: what it used is its tenant's.
    pub(super) fn pay(&self) {
        self.tenant.ledger.charge_cpu(Duration::from_nanos(self.spent_ns.swap(0, Relaxed)));
    }

    /// With the turns locked.
    fn begin(&self, inner: &mut super::Inner, turn: TurnId) {
        self.flags.left.store(false, Relaxed);
        inner.flags.push((turn, self.flags.clone()));
        *self.turn.locked() = Some(turn);
    }

    /// Asks the system for this thread's time: not with the turns locked, for that takes as long as all they do there.
    fn begin_to_count(&self) {
        self.turn_began_ns.store(nanoseconds(monotonic()), Relaxed);
        self.thread_began_ns.store(nanoseconds(thread_cpu()), Relaxed);
    }

    /// Waits for a turn after a kernel during which the last one went to another. Kernels that were cancelled are over
    /// soon, and so is their guest: it need not wait.
    #[cold]
    fn come_back(&self) {
        self.yielding.store(true, Relaxed);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let Some(ticket) = self.stop(&waker) else { return };
        while !self.claim(ticket, &waker) {
            if self.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                self.withdraw(ticket);
                self.flags.left.store(false, Relaxed);
                self.begin_to_count();
                return;
            }
            std::thread::park_timeout(LOOK);
        }
    }

    /// Counts what this turn used up to now.
    fn count(&self) -> Duration {
        let used = self.this_turn();
        self.spent_ns.fetch_add(used, Relaxed);
        Duration::from_nanos(used)
    }

    fn this_turn(&self) -> u64 {
        let age = nanoseconds(monotonic()).saturating_sub(self.turn_began_ns.load(Relaxed));
        match age < UNINTERRUPTED.as_nanos() as u64 {
            true => age,
            false => nanoseconds(thread_cpu()).saturating_sub(self.thread_began_ns.load(Relaxed)),
        }
    }
}

/// While it lives, its guest is inside the host.
#[must_use]
pub struct Aside<'a>(&'a Seat);

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        self.0.flags.aside.store(false, Relaxed);
        if self.0.has_left() {
            self.0.come_back();
        }
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
