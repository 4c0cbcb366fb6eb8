//! Places to run on the thread that asked: one fewer than there are such threads, so that one always serves.
//!
//! A place is only held while a guest is polled, not while it waits for its turn. A guest that finds none goes to the
//! guests' own threads. It does not wait: that made no difference to the rate, and whoever does not wait need not be woken.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many places are free.
pub struct Places(AtomicUsize);

/// A place, until it is dropped.
pub struct Place<'a>(&'a Places);

impl Places {
    pub fn new(places: usize) -> Self {
        Self(AtomicUsize::new(places))
    }

    pub fn take(&self) -> Option<Place<'_>> {
        self.0.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(1)).ok()?;
        Some(Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every order of so many events: somebody asks for a place, or the one who has had one for longest leaves.
    const EVENTS: u32 = 12;

    #[test]
    fn whoever_asks_has_a_place_if_and_only_if_one_is_free() {
        for order in 0..1_u32 << EVENTS {
            let places = Places::new(2);
            let mut taken = Vec::new();
            for event in 0..EVENTS {
                if order >> event & 1 == 0 {
                    let place = places.take();
                    assert_eq!(place.is_some(), taken.len() < 2, "{order:b}");
                    taken.extend(place);
                } else if !taken.is_empty() {
                    taken.remove(0);
                }
            }
        }
    }
}
