//! Threads, locks, atomics and clocks for those who meet: the standard library's.
//!
//! The sources of the crew ([`crate::crew`]), of the tiles that its threads share out, of calls on shared cores and of what
//! stops them are also compiled with loom's, by `gpu-bridge/loom`, which explores all orders in which their threads can meet. What is here has the names and
//! signatures that are the same in both.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub use std::thread::{Builder, JoinHandle, park, sleep, yield_now};
pub use std::time::Instant;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How often a thread looks again before it sleeps: for about 30 microseconds.
pub const SPINS: u32 = 2_000;

/// The most shares that the tiles of a call are parted into. Where there are more threads, some start with the same one.
pub const SHARES: usize = 8;

/// Memory that its users keep apart by other means.
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// To read.
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// To write.
    #[inline]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Processor time of this thread.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
