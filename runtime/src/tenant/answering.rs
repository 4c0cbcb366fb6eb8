//! How many requests of a tenant are being answered: each holds a connection of the node's until it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Counts a tenant's requests that are being answered.
#[derive(Debug, Default)]
pub struct Requests(Arc<AtomicU32>);

impl Requests {
    /// Counts one more, unless there are `most` already.
    pub fn begin(&self, most: u32) -> Option<Answering> {
        let one_more = |now: u32| (now < most).then_some(now + 1);
        self.0.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        Some(Answering(self.0.clone()))
    }
}

/// A request that is being answered, counted until this is dropped.
#[derive(Debug)]
pub struct Answering(Arc<AtomicU32>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_allowed() {
        let requests = Requests::default();
        let first = requests.begin(2).unwrap();
        let _second = requests.begin(2).unwrap();
        assert!(requests.begin(2).is_none());
        drop(first);
        assert!(requests.begin(2).is_some());
    }
}
