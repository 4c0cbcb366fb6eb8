//! The crew of `gpu-bridge`, its real source, with loom's threads and atomics in place of the standard library's.
//!
//! Loom runs a test again and again, once for every order in which the threads' steps can come, as far as a bound of
//! preemptions lets it, and with every value that the memory model lets an atomic have. It finds data races, uses of what
//! somebody else may still write, and threads that wait for ever.

#![cfg(test)]

#[path = "../../src/crew.rs"]
#[expect(dead_code, reason = "not all of it is explored")]
mod crew;

/// What `gpu-bridge/src/threads.rs` is there.
mod threads {
    pub use loom::cell::UnsafeCell;
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub use loom::sync::{Arc, Mutex};
    pub use loom::thread::{Builder, JoinHandle, park, yield_now};

    /// Loom tries every number of spins; to sleep at once is what leads to most orders.
    pub const SPINS: u32 = 1;
}

mod error {
    pub type Result<T> = std::result::Result<T, Error>;

    #[derive(Debug, thiserror::Error)]
    pub enum Error {
        #[error("`{op}`: {reason}")]
        Internal { op: &'static str, reason: String },
    }
}

use crew::Crew;
use loom::cell::UnsafeCell;
use loom::sync::Arc;

/// What each thread writes in its own place, without any lock: loom finds it when two threads have the same place, or when
/// the caller goes on before a helper is done.
struct Places(Vec<UnsafeCell<u32>>);

// SAFETY: loom checks every access, and a race ends the test.
unsafe impl Sync for Places {}

impl Places {
    fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| UnsafeCell::new(0)).collect())
    }

    fn write(&self, worker: usize) {
        // SAFETY: as above.
        self.0[worker].with_mut(|place| unsafe { *place += 1 });
    }

    fn read(&self) -> Vec<u32> {
        // SAFETY: as above.
        self.0.iter().map(|place| place.with(|place| unsafe { *place })).collect()
    }
}

/// Explores all orders with at most so many preemptions.
fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(test);
}

/// A call: everybody who comes does so once, the caller among them, and all are done when it is over.
fn call(crew: &Crew, threads: usize) {
    let places = Places::new(threads);
    crew.run(threads, &|worker| places.write(worker)).expect("nobody panics");
    let written = places.read();
    assert!(written[0] == 1 && written.iter().all(|times| *times <= 1), "{written:?}");
}

#[test]
fn a_call_is_over_when_all_who_came_are_done() {
    explore(4, || call(&Crew::new(2), 2));
}

#[test]
fn a_helper_that_comes_late_does_not_see_the_next_call_as_this_one() {
    explore(3, || {
        let crew = Crew::new(2);
        call(&crew, 2);
        call(&crew, 2);
    });
}

#[test]
fn two_helpers_have_places_of_their_own() {
    explore(2, || call(&Crew::new(3), 3));
}

#[test]
fn of_two_callers_one_works_alone() {
    explore(2, || {
        let crew = Arc::new(Crew::new(2));
        let other = {
            let crew = crew.clone();
            loom::thread::spawn(move || call(&crew, 2))
        };
        call(&crew, 2);
        other.join().expect("nobody panics");
    });
}

#[test]
fn a_crew_that_was_never_used_comes_to_an_end() {
    explore(4, || drop(Crew::new(3)));
}
