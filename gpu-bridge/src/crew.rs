//! A few threads that work together on one call.
//!
//! A crew belongs to whoever made it; there is no global pool, so nobody's work is stolen or charged to another. Between
//! calls that follow closely its threads spin, then they sleep: handing work over costs well under a microsecond in the
//! middle of a training step and nothing while idle. A helper that wakes up late finds the work closed and does not
//! delay the caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::TryLockError;

use crate::error::{Error, Result};
use crate::threads::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Builder, JoinHandle, Mutex, Ordering, SPINS, UnsafeCell, park, spin_loop,
    yield_now,
};

/// The most threads of one crew.
pub const MAX_THREADS: usize = 128;

type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// Threads that help with calls, one call at a time.
pub struct Crew {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Held while a call is worked on.
    turn: Mutex<()>,
}

struct Shared {
    /// Call number, whether it is closed, how many helpers may enter, and how many have: see [`State`].
    state: AtomicU64,
    /// What to do in this call. Only read by a helper that has entered it.
    work: UnsafeCell<Option<*const Work<'static>>>,
    /// How many helpers have entered this call and left it again.
    left: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    asleep: Vec<AtomicBool>,
}

// SAFETY: `work` is written only while no call is open and all helpers have left, and read only after entering one.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is to a `Sync` closure.
unsafe impl Send for Shared {}

/// The packed state of the current call.
#[derive(Clone, Copy)]
struct State(u64);

impl State {
    const CLOSED: u64 = 1 << 16;

    fn open(call: u64, helpers: usize) -> Self {
        Self(call << 17 | (helpers as u64) << 8)
    }

    fn call(self) -> u64 {
        self.0 >> 17
    }

    fn entered(self) -> usize {
        (self.0 & 0xff) as usize
    }

    fn may_enter(self) -> bool {
        self.0 & Self::CLOSED == 0 && self.entered() < (self.0 >> 8 & 0xff) as usize
    }
}

impl Crew {
    /// A crew of this many threads, the caller's own among them. Fewer if the system gives no more.
    pub fn new(threads: usize) -> Self {
        let wanted = threads.clamp(1, MAX_THREADS) - 1;
        let shared = Arc::new(Shared {
            state: AtomicU64::new(State::CLOSED),
            work: UnsafeCell::new(None),
            left: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            asleep: (0..wanted).map(|_| AtomicBool::new(false)).collect(),
        });
        let helpers = (0..wanted)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                Builder::new().name(format!("crew-{index}")).spawn(move || shared.help(index)).ok()
            })
            .collect();
        Self { shared, helpers, turn: Mutex::new(()) }
    }

    /// How many threads it has, the caller's own among them.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `work` on up to `threads` threads at once, each with an index of its own below `threads`; returns when all
    /// have returned. If another call is being worked on, the caller works alone.
    pub fn run(&self, threads: usize, work: &Work<'_>) -> Result<()> {
        let helpers = threads.saturating_sub(1).min(self.helpers.len());
        let turn = match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let Some(_turn) = turn.filter(|_| helpers > 0) else {
            return finish(catch_unwind(AssertUnwindSafe(|| work(0))).is_err());
        };
        let shared = &*self.shared;
        // SAFETY: the last call is closed and all helpers have left it, so nobody reads this. The lifetime is erased, but
        // this function does not return before every helper that has entered has left.
        shared.work.with_mut(|place| unsafe {
            *place = Some(std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work));
        });
        shared.left.store(0, Ordering::Relaxed);
        shared.panicked.store(false, Ordering::Relaxed);
        let call = State(shared.state.load(Ordering::Relaxed)).call().wrapping_add(1) & (u64::MAX >> 17);
        // Sequentially consistent with the flags in `asleep`: either the helper sees the call, or this sees it asleep.
        shared.state.store(State::open(call, helpers).0, Ordering::SeqCst);
        for (helper, asleep) in self.helpers.iter().zip(&shared.asleep).take(helpers) {
            if asleep.load(Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
        let mut panicked = catch_unwind(AssertUnwindSafe(|| work(0))).is_err();
        let entered = State(shared.state.fetch_or(State::CLOSED, Ordering::AcqRel)).entered();
        let mut spins = 0_u32;
        while shared.left.load(Ordering::Acquire) < entered {
            spins += 1;
            if spins < SPINS { spin_loop() } else { yield_now() }
        }
        panicked |= shared.panicked.load(Ordering::Relaxed);
        finish(panicked)
    }
}

fn finish(panicked: bool) -> Result<()> {
    if panicked {
        return Err(Error::Internal { op: "kernel", reason: "it panicked; the results are not to be used".into() });
    }
    Ok(())
}

impl Shared {
    fn help(&self, index: usize) {
        let mut last = 0;
        let mut spins = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let state = State(self.state.load(Ordering::Acquire));
            if state.call() == last || !state.may_enter() {
                spins += 1;
                if spins < SPINS {
                    spin_loop();
                } else {
                    self.sleep(index, last);
                    spins = 0;
                }
                continue;
            }
            let entered = state.0 + 1;
            if self.state.compare_exchange(state.0, entered, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            last = state.call();
            spins = 0;
            // SAFETY: this helper has entered the call, so the caller waits for it and the work is alive.
            let work = self.work.with(|work| unsafe { (*work).map(|work| &*work) });
            if let Some(work) = work
                && catch_unwind(AssertUnwindSafe(|| work(State(entered).entered()))).is_err()
            {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.left.fetch_add(1, Ordering::Release);
        }
    }

    fn sleep(&self, index: usize, last: u64) {
        self.asleep[index].store(true, Ordering::SeqCst);
        let state = State(self.state.load(Ordering::SeqCst));
        if (state.call() == last || !state.may_enter()) && !self.stop.load(Ordering::SeqCst) {
            park();
        }
        self.asleep[index].store(false, Ordering::SeqCst);
    }
}

impl Drop for Crew {
    /// Tells the helpers to end, and does not wait for them: they share nothing with the crew that goes with it, and no
    /// stop of the process is to depend on when the system runs them next.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.helpers.drain(..).for_each(|helper| helper.thread().unpark());
    }
}
