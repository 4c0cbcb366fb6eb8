//! Counting bytes before they are stored.
//!
//! Everything that a tenant keeps is charged to one [`Storage`], by whoever keeps it: functions, and whatever else is
//! stored. Bytes are reserved before they are written, and given back when the [`Reservation`] is dropped, unless the
//! record that names them was written and they are kept. Each tenant pays for what its own records name, also where the
//! content is shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a tenant stores, against the quota `stored_bytes`.
#[derive(Debug)]
pub struct Storage {
    used: AtomicU64,
    limit: AtomicU64,
}

/// There is no room for so many more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{asked} more bytes would exceed the tenant's `stored_bytes` of {limit}, of which {used} are used")]
pub struct StorageFull {
    pub asked: u64,
    pub limit: u64,
    pub used: u64,
}

impl StorageFull {
    /// The quota that it is about.
    pub const NAME: &str = "stored_bytes";
}

impl Storage {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), limit: AtomicU64::new(limit) })
    }

    /// What is stored and what is reserved.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// A new limit; what is already stored stays.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    /// Counts what records found at start name, whatever the limit is by now.
    pub fn load(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    /// Gives back what a record named that is gone.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_update(Relaxed, Relaxed, |used| Some(used.saturating_sub(bytes))).ok();
    }

    /// Room for so many bytes that are about to be written.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation, StorageFull> {
        let mut reservation = Reservation { storage: self.clone(), bytes: 0 };
        reservation.grow(bytes)?;
        Ok(reservation)
    }
}

/// Bytes that may be written. Dropping it gives them back.
#[derive(Debug)]
#[must_use = "the bytes are given back when this is dropped"]
pub struct Reservation {
    storage: Arc<Storage>,
    bytes: u64,
}

impl Reservation {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Room for so many more.
    pub fn grow(&mut self, bytes: u64) -> Result<(), StorageFull> {
        let limit = self.storage.limit.load(Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|&total| total <= limit);
        let taken = self.storage.used.fetch_update(Relaxed, Relaxed, fits);
        taken.map_err(|used| StorageFull { asked: bytes, limit, used })?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back what turned out not to be needed.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(surplus) = self.bytes.checked_sub(bytes) {
            self.storage.release(surplus);
            self.bytes = bytes;
        }
    }

    /// The record that names them was written: they stay charged until [`Storage::release`].
    pub fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes != 0 {
            self.storage.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_given_back_unless_it_is_kept() {
        let storage = Storage::new(100);
        drop(storage.reserve(60).unwrap());
        assert_eq!(storage.used(), 0);
        storage.reserve(60).unwrap().keep();
        assert_eq!(storage.used(), 60);
        storage.release(60);
        assert_eq!(storage.used(), 0);
    }

    #[test]
    fn a_refusal_names_the_quota_the_limit_and_what_is_used() {
        let storage = Storage::new(100);
        storage.load(70);
        let error = storage.reserve(31).unwrap_err();
        assert_eq!(error, StorageFull { asked: 31, limit: 100, used: 70 });
        let text = error.to_string();
        assert!(["31", "`stored_bytes`", "100", "70"].iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn what_was_refused_while_growing_takes_nothing() {
        let storage = Storage::new(100);
        let mut reservation = storage.reserve(90).unwrap();
        assert!(reservation.grow(11).is_err() && reservation.grow(u64::MAX).is_err());
        assert_eq!((storage.used(), reservation.bytes()), (90, 90));
        drop(reservation);
        assert_eq!(storage.used(), 0);
    }

    #[test]
    fn shrinking_gives_back_the_rest() {
        let storage = Storage::new(100);
        let mut reservation = storage.reserve(90).unwrap();
        reservation.shrink_to(40);
        assert_eq!(storage.used(), 40);
        reservation.keep();
        assert_eq!(storage.used(), 40);
    }

    #[test]
    fn many_at_once_never_exceed_the_limit() {
        let storage = Storage::new(1_000);
        let taken: u64 = std::thread::scope(|scope| {
            let taking = || {
                let taken = (0..1_000).filter(|_| storage.reserve(1).map(Reservation::keep).is_ok());
                taken.count() as u64
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(taking)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((taken, storage.used()), (1_000, 1_000));
    }
}
