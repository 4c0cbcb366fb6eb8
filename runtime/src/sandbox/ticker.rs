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
    alarm: Mutex<Alarm>,
    cancel: Cancel,
}

#[derive(Default)]
struct Alarm {
    at: Option<Instant>,
    rang: bool,
}

impl Watched {
    /// From now on, until the result is dropped, kernels are stopped at this moment. Those of the next call are not.
    pub fn until(&self, moment: Instant) -> Watching<'_> {
        *self.alarm.locked() = Alarm { at: Some(moment), rang: false };
        Watching(self)
    }

    fn look(&self, now: Instant) {
        // Held until kernels are stopped: the call may end meanwhile, and it is its kernels that are meant.
        let mut alarm = self.alarm.locked();
        if alarm.at.take_if(|moment| *moment <= now).is_some() {
            alarm.rang = true;
            self.cancel.cancel();
        }
    }
}

pub struct Watching<'a>(&'a Watched);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let mut alarm = self.0.alarm.locked();
        if std::mem::take(&mut *alarm).rang {
            self.0.cancel.clear();
        }
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
        let watched = Arc::new(Watched { alarm: Mutex::default(), cancel });
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn watched() -> (Watched, Cancel) {
        let cancel = Cancel::default();
        (Watched { alarm: Mutex::default(), cancel: cancel.clone() }, cancel)
    }

    #[test]
    fn a_deadline_stops_the_kernels_of_its_own_call_only() {
        let (watched, cancel) = watched();
        let now = Instant::now();
        let watching = watched.until(now);
        watched.look(now);
        assert!(cancel.is_cancelled());
        drop(watching);
        assert!(!cancel.is_cancelled());
        watched.look(now + HOUR);
        assert!(!cancel.is_cancelled());
    }

    #[test]
    fn what_somebody_else_stopped_stays_so() {
        let (watched, cancel) = watched();
        let watching = watched.until(Instant::now() + HOUR);
        cancel.cancel();
        drop(watching);
        assert!(cancel.is_cancelled());
    }
}
