//! What threads of `gpu-bridge` do together, its real source, with loom's threads, locks and atomics in place of the standard
//! library's: the crew, the tiles of a call, calls on shared cores, and what stops them.
//!
//! Loom runs a test again and again, once for every order in which the threads' steps can come, as far as a bound of
//! preemptions lets it, and with every value that the memory model lets an atomic have. It finds data races, uses of what
//! somebody else may still write, and threads that wait for ever: its condition variables wait without a timeout, so it is
//! an error if nobody wakes one that waits.

#[path = "../../src/crew.rs"]
pub mod crew;
#[path = "../../src/line.rs"]
#[expect(dead_code, reason = "not all of it is explored")]
mod line;
pub mod run;
#[path = "../../src/share.rs"]
pub mod share;
pub mod shared;
mod threads;

pub mod error {
    pub type Result<T> = std::result::Result<T, Error>;

    #[derive(Debug, thiserror::Error)]
    pub enum Error {
        #[error("`{op}`: {reason}")]
        Internal { op: &'static str, reason: String },
        #[error("cancelled")]
        Cancelled,
    }
}

mod device {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Wait {
        pub time: std::time::Duration,
        pub turns: u64,
    }
}

use loom::cell::UnsafeCell;

/// What each thread writes in its own place, without any lock: loom finds it when two threads have the same place at a
/// time, or when one goes on before another is done.
pub struct Places(Vec<UnsafeCell<u32>>);

// SAFETY: loom checks every access, and a race ends the test.
unsafe impl Sync for Places {}
// SAFETY: as above.
unsafe impl Send for Places {}

impl Places {
    pub fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| UnsafeCell::new(0)).collect())
    }

    pub fn write(&self, worker: usize) {
        // SAFETY: as above.
        self.0[worker].with_mut(|place| unsafe { *place += 1 });
    }

    pub fn read(&self) -> Vec<u32> {
        // SAFETY: as above.
        self.0.iter().map(|place| place.with(|place| unsafe { *place })).collect()
    }
}

/// What a tile fails with.
pub fn failure(tile: usize) -> error::Error {
    error::Error::Internal { op: "tile", reason: format!("tile {tile} fails") }
}

/// Explores all orders with at most so many preemptions.
pub fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(test);
}
