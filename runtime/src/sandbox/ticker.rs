//! The epoch: a thread that makes running guests look up once a millisecond, and relieves those that cannot.
//!
//! It sleeps while nothing runs, so that an idle node uses no CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::Engine;

use super::turns::Turns;

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
}

/// Ticks an engine's epoch while guests run.
pub struct Ticker {
    state: Arc<State>,
    thread: Thread,
}

/// A guest that needs the epoch.
pub struct Ticking(Arc<State>);

impl Ticker {
    pub fn start(engine: Engine, turns: Arc<Turns>) -> std::io::Result<Self> {
        let state = Arc::new(State::default());
        let shared = state.clone();
        let handle =
            thread::Builder::new().name("weft-epoch".to_owned()).spawn(move || tick(&engine, &turns, &shared))?;
        Ok(Self { state, thread: handle.thread().clone() })
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
