//! The epoch: a thread that makes running guests look up once a millisecond, and relieves those that cannot.
//!
//! It sleeps while nothing runs, so that an idle node uses no CPU.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use wasmtime::Engine;
use weft_gpu::Cancel;

use super::turns::Turns;
use crate::locks::Lock;

/// How long a guest computes before it is interrupted to see whether it should go on.
pub const EPOCH: Duration = Duration::from_millis(1);

/// How many epochs without a guest pass before the ticker goes to sleep; a guest that comes earlier need not wake it.
const IDLE_EPOCHS: u32 = 1_000;

#[derive(Default)]
struct State {
    /// Counts guests that came, so that the ticker sees activity without a guest having to say when it left.
    arrivals: AtomicU64,
    running: AtomicU64,
    asleep: AtomicBool,
    stop: AtomicBool,
    watched: Mutex<Vec<Weak<Watched>>>,
}

/// Ticks an engine's epoch while guests run.
pub struct Ticker {
    state: Arc<State>,
    thread: Thread,
}

/// A guest that needs the epoch.
pub struct Ticking(Arc<State>);

/// What stops kernels when a call's time is over: no epoch reaches into the host.
pub struct Watched {
    until: Mutex<Option<Instant>>,
    cancel: Cancel,
}

impl Watched {
    /// From now on, until the result is dropped, kernels are stopped at this moment.
    pub fn until(&self, moment: Instant) -> Watching<'_> {
        *self.until.locked() = Some(moment);
        Watching(self)
    }

    fn look(&self, now: Instant) {
        if self.until.locked().take_if(|moment| *moment <= now).is_some() {
            self.cancel.cancel();
        }
    }
}

pub struct Watching<'a>(&'a Watched);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        *self.0.until.locked() = None;
    }
}

impl Ticker {
    pub fn start(engine: Engine, turns: Arc<Turns>) -> std::io::Result<Self> {
        let state = Arc::new(State::default());
        let shared = state.clone();
        let handle =
            thread::Builder::new().name("weft-epoch".to_owned()).spawn(move || tick(&engine, &turns, &shared))?;
        Ok(Self { state, thread: handle.thread().clone() })
    }

    /// Looks after what `cancel` stops, for as long as the result is held. It only ticks while there are guests.
    pub fn watch(&self, cancel: Cancel) -> Arc<Watched> {
        let watched = Arc::new(Watched { until: Mutex::default(), cancel });
        self.state.watched.locked().push(Arc::downgrade(&watched));
        watched
    }

    /// Keeps the epoch going until the result is dropped.
    pub fn guest(&self) -> Ticking {
        self.state.arrivals.fetch_add(1, Ordering::Relaxed);
        self.state.running.fetch_add(1, Ordering::SeqCst);
        if self.state.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Ticking(self.state.clone())
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl State {
    fn look(&self) {
        let mut watched = self.watched.locked();
        if watched.is_empty() {
            return;
        }
        let now = Instant::now();
        watched.retain(|watched| {
            let watched = watched.upgrade();
            watched.inspect(|watched| watched.look(now)).is_some()
        });
    }
}

fn tick(engine: &Engine, turns: &Turns, state: &State) {
    let (mut idle, mut seen) = (0, 0);
    while !state.stop.load(Ordering::SeqCst) {
        let arrivals = state.arrivals.load(Ordering::Relaxed);
        idle = if state.running.load(Ordering::SeqCst) > 0 || arrivals != seen { 0 } else { idle + 1 };
        seen = arrivals;
        if idle < IDLE_EPOCHS {
            thread::sleep(EPOCH);
            engine.increment_epoch();
            turns.relieve();
            state.look();
            continue;
        }
        // Announce the sleep before looking once more: a guest that comes now either is seen or sees it.
        state.asleep.store(true, Ordering::SeqCst);
        if state.running.load(Ordering::SeqCst) == 0 && !state.stop.load(Ordering::SeqCst) {
            thread::park();
        }
        state.asleep.store(false, Ordering::SeqCst);
        idle = 0;
    }
}
