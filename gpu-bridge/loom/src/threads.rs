//! What `gpu-bridge/src/threads.rs` is there.

pub use loom::cell::UnsafeCell;
pub use loom::hint::spin_loop;
pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
pub use loom::thread::{Builder, JoinHandle, park, yield_now};

use std::ops::{Add, Sub};
use std::time::Duration;

/// Loom tries every number of spins; to sleep at once is what leads to most orders.
pub const SPINS: u32 = 1;

/// No test has more threads in a call; each further one would be looked at in every order, and never be there.
pub const SHARES: usize = 2;

/// A clock by which everything is long over: who waits for a time to pass never has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant;

const LONG: Duration = Duration::from_secs(1);

impl Instant {
    pub fn now() -> Self {
        Self
    }

    pub fn elapsed(&self) -> Duration {
        LONG
    }

    pub fn saturating_duration_since(&self, _: Self) -> Duration {
        LONG
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, _: Duration) -> Self {
        self
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, _: Self) -> Duration {
        LONG
    }
}

pub fn sleep(_: Duration) {
    yield_now();
}

pub fn thread_time() -> Duration {
    LONG
}
