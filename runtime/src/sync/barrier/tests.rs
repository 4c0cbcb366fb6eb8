use std::collections::BTreeMap;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;

fn who(worker: u32, claim: u64) -> Who {
    Who { worker, claim }
}

fn done(worker: u32, claim: u64, round: u64) -> Event {
    Event::Done { who: who(worker, claim), round, samples: 10 }
}

/// A barrier whose workers are all there.
fn ready(workers: u32, on_loss: OnLoss) -> Barrier {
    let (mut barrier, _) = Barrier::new(workers, on_loss, 3);
    for worker in 0..workers {
        assert_eq!(barrier.handle(Event::Ready(who(worker, 1))), []);
    }
    barrier
}

fn merge(round: u64, workers: &[u32]) -> Action {
    Action::Merge { round, contributions: workers.iter().map(|&worker| (worker, 10)).collect() }
}

#[test]
fn a_round_ends_with_the_last_share_and_merges_in_worker_order() {
    let mut barrier = ready(3, OnLoss::Wait);
    assert_eq!(barrier.begin(|_| true).len(), 3);
    assert_eq!(barrier.handle(done(2, 1, 1)), []);
    assert_eq!(barrier.handle(done(0, 1, 1)), []);
    assert_eq!(barrier.handle(done(1, 1, 1)), [merge(1, &[0, 1, 2])]);
}

#[test]
fn whoever_has_not_handed_in_a_share_is_awaited_and_so_is_whoever_is_being_started() {
    let (mut barrier, _) = Barrier::new(2, OnLoss::Wait, 3);
    assert_eq!(barrier.awaited(), [(0, true), (1, true)]);
    for worker in 0..2 {
        barrier.handle(Event::Ready(who(worker, 1)));
    }
    assert_eq!(barrier.awaited(), []);
    barrier.begin(|_| true);
    barrier.handle(done(0, 1, 1));
    assert_eq!(barrier.awaited(), [(1, false)]);
    barrier.handle(Event::Lost(who(1, 1)));
    assert_eq!(barrier.awaited(), [(1, true)]);
}

#[test]
fn a_share_counts_once_and_only_in_its_round() {
    let mut barrier = ready(2, OnLoss::Wait);
    barrier.begin(|_| true);
    assert_eq!(barrier.handle(done(0, 1, 1)), []);
    assert_eq!(barrier.handle(done(0, 1, 1)), []);
    assert_eq!(barrier.handle(done(1, 1, 7)), []);
    assert_eq!(barrier.handle(done(1, 1, 1)), [merge(1, &[0, 1])]);
    assert_eq!(barrier.handle(done(1, 1, 1)), []);
}

#[test]
fn a_lost_worker_is_started_again_and_does_its_share() {
    let mut barrier = ready(2, OnLoss::Wait);
    barrier.begin(|_| true);
    barrier.handle(done(0, 1, 1));
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(1, 2))), [Action::Assign { who: who(1, 2), round: 1 }]);
    assert_eq!(barrier.handle(done(1, 1, 1)), [], "an old claim counts nothing");
    assert_eq!(barrier.handle(done(1, 2, 1)), [merge(1, &[0, 1])]);
}

#[test]
fn a_round_goes_on_without_the_lost_where_they_are_dropped() {
    let mut barrier = ready(2, OnLoss::Drop);
    barrier.begin(|_| true);
    barrier.handle(done(0, 1, 1));
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2)), merge(1, &[0])]);
    assert_eq!(barrier.begin(|_| true), [Action::Assign { who: who(0, 1), round: 2 }]);
    assert_eq!(barrier.handle(Event::Ready(who(1, 2))), [], "it is back in the next round");
    assert_eq!(barrier.handle(done(0, 1, 2)), [merge(2, &[0])]);
    assert_eq!(barrier.begin(|_| true).len(), 2);
}

#[test]
fn a_round_without_anybody_waits_even_where_losses_are_dropped() {
    let mut barrier = ready(1, OnLoss::Drop);
    barrier.begin(|_| true);
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(0, 2))), [Action::Assign { who: who(0, 2), round: 1 }]);
    assert_eq!(barrier.handle(done(0, 2, 1)), [merge(1, &[0])]);
}

#[test]
fn whoever_is_back_already_is_called_when_nobody_is_left() {
    let mut barrier = ready(2, OnLoss::Drop);
    barrier.begin(|_| true);
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(0, 2))), [], "the round goes on without it");
    let called = [Action::Start(who(1, 2)), Action::Assign { who: who(0, 2), round: 1 }];
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), called);
}

#[test]
fn a_share_stays_when_its_worker_is_lost_afterwards() {
    let mut barrier = ready(2, OnLoss::Wait);
    barrier.begin(|_| true);
    barrier.handle(done(0, 1, 1));
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))]);
    assert_eq!(barrier.handle(done(1, 1, 1)), [merge(1, &[0, 1])]);
    assert_eq!(barrier.begin(|_| true), [Action::Assign { who: who(1, 1), round: 2 }], "the other is not back yet");
}

#[test]
fn whoever_is_overdue_is_abandoned_and_started_again() {
    let mut barrier = ready(2, OnLoss::Wait);
    barrier.begin(|_| true);
    barrier.handle(done(0, 1, 1));
    assert_eq!(barrier.handle(Event::Overdue { round: 0 }), [], "an old alarm");
    let late = [Action::Abandon(who(1, 1)), Action::Start(who(1, 2))];
    assert_eq!(barrier.handle(Event::Overdue { round: 1 }), late);
}

#[test]
fn failing_again_and_again_ends_it() {
    let mut barrier = ready(1, OnLoss::Wait);
    barrier.begin(|_| true);
    for claim in 1..3 {
        assert_eq!(barrier.handle(Event::Lost(who(0, claim))), [Action::Start(who(0, claim + 1))]);
        barrier.handle(Event::Ready(who(0, claim + 1)));
    }
    assert_eq!(barrier.handle(Event::Lost(who(0, 3))), [Action::GiveUp { worker: 0, round: 1 }]);
}

#[test]
fn a_round_of_one_leaves_the_others_alone() {
    let mut barrier = ready(3, OnLoss::Drop);
    assert_eq!(barrier.begin(|worker| worker == 0).len(), 1);
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(0, 2))), [Action::Assign { who: who(0, 2), round: 1 }]);
    assert_eq!(barrier.handle(done(0, 2, 1)), [merge(1, &[0])]);
}

/// A world in which messages are late, twice or out of order, and workers die at any time.
struct World {
    random: ChaCha12Rng,
    barrier: Barrier,
    on_loss: OnLoss,
    workers: u32,
    /// What is on its way.
    mail: Vec<Event>,
    /// The claim that has been started last, by worker, and whether it lives.
    alive: BTreeMap<u32, (u64, bool)>,
    /// What the newest claims have been told to do.
    assigned: BTreeMap<u32, Who>,
    merged: u64,
    losses: u32,
}

impl World {
    fn chance(&mut self, of: u64) -> bool {
        self.random.next_u64().is_multiple_of(of)
    }

    fn obey(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start(who) => {
                    let before = self.alive.insert(who.worker, (who.claim, true));
                    assert!(before.is_none_or(|(claim, _)| claim + 1 == who.claim), "claims follow each other");
                    self.mail.push(Event::Ready(who));
                }
                Action::Assign { who, round } => {
                    assert_eq!(self.alive.get(&who.worker).map(|(claim, _)| *claim), Some(who.claim));
                    self.assigned.insert(who.worker, who);
                    let event = Event::Done { who, round, samples: u64::from(who.worker) + 1 };
                    self.mail.push(event);
                    if self.chance(5) {
                        self.mail.push(event);
                    }
                }
                Action::Abandon(who) => {
                    self.alive.insert(who.worker, (who.claim, false));
                }
                Action::Merge { round, contributions } => {
                    assert_eq!(round, self.merged + 1, "every round is merged, once, in order");
                    assert!(!contributions.is_empty() && contributions.is_sorted());
                    assert!(contributions.iter().all(|(worker, samples)| *samples == u64::from(*worker) + 1));
                    if self.on_loss == OnLoss::Wait {
                        assert_eq!(contributions.len(), self.workers as usize, "nobody is left out");
                    }
                    self.merged = round;
                    let next = self.barrier.begin(|_| true);
                    self.obey(next);
                }
                Action::GiveUp { .. } => panic!("there are more attempts than losses"),
            }
        }
    }

    fn deliver(&mut self) {
        let index = (self.random.next_u64() % self.mail.len() as u64) as usize;
        let mut event = self.mail.swap_remove(index);
        // A contribution or a sign of life of somebody who dies on the way: sometimes both arrive.
        if let Event::Ready(who) | Event::Done { who, .. } = event
            && self.losses < 40
            && self.chance(6)
        {
            self.losses += 1;
            if self.chance(2) {
                self.mail.push(event);
            }
            event = Event::Lost(who);
        }
        if self.losses < 40 && self.chance(15) {
            self.losses += 1;
            let round = self.barrier.round();
            let actions = self.barrier.handle(Event::Overdue { round });
            self.obey(actions);
        }
        let actions = self.barrier.handle(event);
        self.obey(actions);
    }
}

#[test]
fn thousands_of_bad_days_end_well() {
    for seed in 0..4_000 {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let workers = 1 + (random.next_u64() % 6) as u32;
        let on_loss = if random.next_u64().is_multiple_of(2) { OnLoss::Wait } else { OnLoss::Drop };
        let (barrier, starts) = Barrier::new(workers, on_loss, 1_000);
        let (mail, alive, assigned) = Default::default();
        let mut world = World { random, barrier, on_loss, workers, mail, alive, assigned, merged: 0, losses: 0 };
        println!("seed {seed}: {workers} workers, {on_loss:?}");
        world.obey(starts);
        let first = world.barrier.begin(|_| true);
        world.obey(first);
        let mut delivered = 0;
        while world.merged < 20 {
            assert!(!world.mail.is_empty(), "nothing will ever happen again");
            world.deliver();
            delivered += 1;
            assert!(delivered < 100_000, "it does not get on");
        }
    }
}
