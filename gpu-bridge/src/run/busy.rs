//! Which threads of a call are in a long tile, and a caller that waits for them.

use std::time::Duration;

use crate::error::Result;
use crate::threads::{AtomicUsize, Instant, Ordering, sleep, yield_now};

/// A number on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Count(pub(super) AtomicUsize);

/// Counts a thread that works on a tile, until dropped.
pub(super) struct Busy<'a>(&'a AtomicUsize);

impl<'a> Busy<'a> {
    pub(super) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A caller that has run out of tiles stays in its turn while others are in long ones: a call gives way as a whole, and
/// no longer once its caller has left. Most often they are over in a moment, for which it waits without that.
pub(super) fn wait_for_others(busy: &[Count], mut pass: impl FnMut() -> Result<()>) {
    const MOMENT: Duration = Duration::from_millis(1);
    let are_busy = || busy.iter().any(|count| count.0.load(Ordering::SeqCst) > 0);
    if !are_busy() {
        return;
    }
    let since = Instant::now();
    while are_busy() {
        if since.elapsed() < MOMENT {
            yield_now();
        } else if pass().is_ok() {
            sleep(MOMENT / 10);
        } else {
            return;
        }
    }
}
