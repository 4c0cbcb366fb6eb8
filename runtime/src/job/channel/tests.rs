//! Whoever puts while a round is forgotten, in all orders in which they can meet.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::locks::Lock;

#[test]
fn rounds_are_forgotten_up_to_the_last_one_named() {
    let forgotten = Forgotten::default();
    assert!(!forgotten.has(0) && !forgotten.has(u64::MAX));
    forgotten.add(3);
    forgotten.add(1);
    assert!(forgotten.has(3) && !forgotten.has(4));
    forgotten.add(EVERY_ROUND);
    assert!(forgotten.has(4) && forgotten.has(u64::MAX));
}

/// A backend that lets others go first before and after every step.
#[derive(Default)]
struct Steps(Mutex<BTreeSet<Slot>>);

async fn step() {
    let mut is_first = true;
    std::future::poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

#[async_trait]
impl Backend for Steps {
    async fn put(&self, slot: Slot, _: Message) -> Result<(), ChannelError> {
        step().await;
        self.0.locked().insert(slot);
        step().await;
        Ok(())
    }

    async fn get(&self, _: Slot) -> Result<Option<Message>, ChannelError> {
        Ok(None)
    }

    async fn delete(&self, slot: Slot) -> Result<(), ChannelError> {
        step().await;
        self.0.locked().remove(&slot);
        Ok(())
    }

    async fn delete_up_to(&self, round: u64) -> Result<(), ChannelError> {
        step().await;
        let listed: Vec<Slot> = self.0.locked().iter().filter(|slot| slot.round <= round).copied().collect();
        for slot in listed {
            step().await;
            self.0.locked().remove(&slot);
        }
        Ok(())
    }

    async fn clear(&self) -> Result<(), ChannelError> {
        Ok(())
    }
}

type Work<'a> = Pin<Box<dyn Future<Output = Result<(), ChannelError>> + 'a>>;

/// Lets the works go on, one step of one of them at a time, by the digits of `order`. Then each to its end.
fn meet(mut works: Vec<Work<'_>>, mut order: usize, steps: usize) {
    let mut context = Context::from_waker(Waker::noop());
    let mut done = vec![false; works.len()];
    let mut go_on = |who: usize, works: &mut Vec<Work<'_>>| {
        if !done[who]
            && let Poll::Ready(ended) = works[who].as_mut().poll(&mut context)
        {
            assert!(ended.is_ok());
            done[who] = true;
        }
        done[who]
    };
    for _ in 0..steps {
        go_on(order % works.len(), &mut works);
        order /= works.len();
    }
    for who in 0..works.len() {
        while !go_on(who, &mut works) {}
    }
}

#[test]
fn in_whatever_order_they_meet_nothing_of_a_forgotten_round_stays() {
    const STEPS: usize = 9;
    let slot = |round, claim| Slot { round, layer: 0, shard: 0, worker: 0, claim };
    let message = || Message::plain(1, Vec::new());
    for order in 0..3_usize.pow(STEPS as u32) {
        let kept = Kept::new(Steps::default());
        meet(
            vec![
                Box::pin(kept.put(slot(1, 1), message())),
                Box::pin(kept.put(slot(2, 1), message())),
                Box::pin(kept.forget(1)),
            ],
            order,
            STEPS,
        );
        let left: Vec<Slot> = kept.backend.0.locked().iter().copied().collect();
        assert_eq!(left, [slot(2, 1)], "order {order}");
    }
}
