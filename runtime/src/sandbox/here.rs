//! Places to run on the thread that asked: one fewer than there are such threads, so that one always serves.
//!
//! A place is only held while a guest is polled, not while it waits for its turn. A guest that finds none goes to the
//! guests' own threads. It does not wait: that made no difference to the rate, and whoever does not wait need not be woken.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use super::turns::InTurn;

/// How many places are free.
pub struct Places(AtomicUsize);

/// A place, until it is dropped.
pub struct Place<'a>(&'a Places);

/// What came of an attempt to run a guest on the thread that asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Here<T> {
    Done(T),
    /// It waits for its first turn, and is woken for that.
    Waits,
    /// It has begun and is not done, or there is no place here.
    Elsewhere,
}

impl Places {
    pub fn new(places: usize) -> Self {
        Self(AtomicUsize::new(places))
    }

    pub fn take(&self) -> Option<Place<'_>> {
        self.0.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(1)).ok()?;
        Some(Place(self))
    }

    /// Lets a guest have its first turn on the thread that asked. To wait for it is no reason to go elsewhere: others are
    /// served here meanwhile, and a guest that has changed threads has paid for it. One that was given its turn and finds
    /// no place has the turn where it is polled next.
    pub fn poll<F: Future + Unpin>(&self, guest: &mut InTurn<F>, context: &mut Context<'_>) -> Here<F::Output> {
        let Some(_here) = self.take() else { return Here::Elsewhere };
        match Pin::new(&mut *guest).poll(context) {
            Poll::Ready(finished) => Here::Done(finished),
            Poll::Pending if guest.has_begun() => Here::Elsewhere,
            Poll::Pending => Here::Waits,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, poll_fn, ready};
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use super::super::turns::Turns;
    use super::*;
    use crate::tenant::{Account, Quota, Tenant};

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

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn guest<F>(turns: &Arc<Turns>, tenant: &Arc<Tenant>, future: F) -> InTurn<F> {
        Turns::run(turns.seat(tenant.clone(), tenant.share.clone(), None), future)
    }

    fn polled<F: Future + Unpin>(guest: &mut InTurn<F>) -> Poll<F::Output> {
        Pin::new(guest).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A guest that was given the only turn while it waited here, where the only place is another's by then.
    fn given_a_turn_without_a_place(turns: &Arc<Turns>, tenant: &Arc<Tenant>) -> InTurn<Ready<()>> {
        let (places, woken) = (Places::new(1), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let mut waits = guest(turns, tenant, ready(()));
        let mut holder = guest(
            turns,
            tenant,
            poll_fn(|_| {
                assert_eq!(places.poll(&mut waits, &mut Context::from_waker(&waker)), Here::Waits);
                Poll::Ready(())
            }),
        );
        assert!(polled(&mut holder).is_ready());
        drop(holder);
        assert_eq!(woken.0.load(Relaxed), 1, "the turn was given to it, and it was not woken");
        let _taken = places.take().expect("nobody is here");
        assert_eq!(places.poll(&mut waits, &mut Context::from_waker(&waker)), Here::Elsewhere);
        waits
    }

    fn tenant() -> Arc<Tenant> {
        Tenant::unregistered("a".parse().unwrap(), Quota::default(), Account::new("max_memory", 0, None))
    }

    #[test]
    fn a_guest_that_finds_no_place_for_the_turn_it_was_given_has_it_elsewhere() {
        let (turns, tenant) = (Turns::new(1), tenant());
        let mut moved = given_a_turn_without_a_place(&turns, &tenant);
        let mut next = guest(&turns, &tenant, ready(()));
        assert!(polled(&mut next).is_pending(), "the turn is the other's");
        assert!(polled(&mut moved).is_ready(), "it had no turn elsewhere");
        assert!(polled(&mut next).is_ready(), "the turn was not handed on");
    }

    #[test]
    fn a_guest_that_goes_away_before_the_turn_it_was_given_hands_it_on() {
        let (turns, tenant) = (Turns::new(1), tenant());
        let moved = given_a_turn_without_a_place(&turns, &tenant);
        let mut next = guest(&turns, &tenant, ready(()));
        assert!(polled(&mut next).is_pending(), "the turn is the other's");
        drop(moved);
        assert!(polled(&mut next).is_ready(), "the turn is lost");
        assert_eq!(turns.waiting(), 0);
    }
}
