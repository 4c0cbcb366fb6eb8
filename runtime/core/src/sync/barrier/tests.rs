use super::*;

mod exhaustive;
mod field;
mod merging;
mod random;

fn who(worker: u32, claim: u64) -> Who {
    Who { worker, claim }
}

fn trained(worker: u32, claim: u64, round: u64) -> Event {
    Event::Trained { who: who(worker, claim), round, generation: 0, samples: 10 }
}

/// A barrier whose workers are all there.
fn ready(workers: u32, on_loss: OnLoss) -> Barrier {
    let (mut barrier, _) = Barrier::new(workers, on_loss, 3);
    for worker in 0..workers {
        assert_eq!(barrier.handle(Event::Ready(who(worker, 1))), []);
    }
    barrier
}

fn assign(worker: u32, claim: u64, round: u64) -> Action {
    Action::Assign { who: who(worker, claim), round, generation: 0 }
}

fn complete(round: u64, workers: &[u32]) -> Action {
    let contributions = workers.iter().map(|&worker| (worker, 10)).collect();
    Action::Complete { round, contributions, results: Vec::new() }
}

#[test]
fn a_round_ends_with_the_last_share_and_merges_in_worker_order() {
    let mut barrier = ready(3, OnLoss::Wait);
    assert_eq!(barrier.begin(|_| true, None).len(), 3);
    assert_eq!(barrier.handle(trained(2, 1, 1)), []);
    assert_eq!(barrier.handle(trained(0, 1, 1)), []);
    assert_eq!(barrier.handle(trained(1, 1, 1)), [complete(1, &[0, 1, 2])]);
}

#[test]
fn whoever_has_not_handed_in_a_share_is_awaited_and_so_is_whoever_is_being_started() {
    let (mut barrier, _) = Barrier::new(2, OnLoss::Wait, 3);
    assert_eq!(barrier.awaited(), [(0, true), (1, true)]);
    for worker in 0..2 {
        barrier.handle(Event::Ready(who(worker, 1)));
    }
    assert_eq!(barrier.awaited(), []);
    barrier.begin(|_| true, None);
    barrier.handle(trained(0, 1, 1));
    assert_eq!(barrier.awaited(), [(1, false)]);
    barrier.handle(Event::Lost(who(1, 1)));
    assert_eq!(barrier.awaited(), [(1, true)]);
}

#[test]
fn a_share_counts_once_and_only_in_its_round() {
    let mut barrier = ready(2, OnLoss::Wait);
    barrier.begin(|_| true, None);
    assert_eq!(barrier.handle(trained(0, 1, 1)), []);
    assert_eq!(barrier.handle(trained(0, 1, 1)), []);
    assert_eq!(barrier.handle(trained(1, 1, 7)), []);
    assert_eq!(barrier.handle(trained(1, 1, 1)), [complete(1, &[0, 1])]);
    assert_eq!(barrier.handle(trained(1, 1, 1)), []);
}

#[test]
fn a_lost_worker_is_started_again_and_does_its_share() {
    let mut barrier = ready(2, OnLoss::Wait);
    barrier.begin(|_| true, None);
    barrier.handle(trained(0, 1, 1));
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(1, 2))), [assign(1, 2, 1)]);
    assert_eq!(barrier.handle(trained(1, 1, 1)), [], "an old claim counts nothing");
    assert_eq!(barrier.handle(trained(1, 2, 1)), [complete(1, &[0, 1])]);
}

#[test]
fn a_round_goes_on_without_the_lost_where_they_are_dropped() {
    let mut barrier = ready(2, OnLoss::Drop);
    barrier.begin(|_| true, None);
    barrier.handle(trained(0, 1, 1));
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2)), complete(1, &[0])]);
    assert_eq!(barrier.begin(|_| true, None), [assign(0, 1, 2)]);
    assert_eq!(barrier.handle(Event::Ready(who(1, 2))), [], "it is back in the next round");
    assert_eq!(barrier.handle(trained(0, 1, 2)), [complete(2, &[0])]);
    assert_eq!(barrier.begin(|_| true, None).len(), 2);
}

#[test]
fn a_round_without_anybody_waits_even_where_losses_are_dropped() {
    let mut barrier = ready(1, OnLoss::Drop);
    barrier.begin(|_| true, None);
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(0, 2))), [assign(0, 2, 1)]);
    assert_eq!(barrier.handle(trained(0, 2, 1)), [complete(1, &[0])]);
}

#[test]
fn whoever_is_back_already_is_called_when_nobody_is_left() {
    let mut barrier = ready(2, OnLoss::Drop);
    barrier.begin(|_| true, None);
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(0, 2))), [], "the round goes on without it");
    let called = [Action::Start(who(1, 2)), assign(0, 2, 1)];
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), called);
}

#[test]
fn a_share_stays_when_its_worker_is_lost_afterwards() {
    let mut barrier = ready(2, OnLoss::Wait);
    barrier.begin(|_| true, None);
    barrier.handle(trained(0, 1, 1));
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))]);
    assert_eq!(barrier.handle(trained(1, 1, 1)), [complete(1, &[0, 1])]);
    assert_eq!(barrier.begin(|_| true, None), [assign(1, 1, 2)], "the other is not back yet");
}

#[test]
fn whoever_is_overdue_is_abandoned_and_started_again() {
    let mut barrier = ready(2, OnLoss::Wait);
    barrier.begin(|_| true, None);
    barrier.handle(trained(0, 1, 1));
    assert_eq!(barrier.handle(Event::Overdue { round: 0 }), [], "an old alarm");
    let late = [Action::Abandon(who(1, 1)), Action::Start(who(1, 2))];
    assert_eq!(barrier.handle(Event::Overdue { round: 1 }), late);
}

#[test]
fn failing_again_and_again_ends_it() {
    let mut barrier = ready(1, OnLoss::Wait);
    barrier.begin(|_| true, None);
    for claim in 1..3 {
        assert_eq!(barrier.handle(Event::Lost(who(0, claim))), [Action::Start(who(0, claim + 1))]);
        barrier.handle(Event::Ready(who(0, claim + 1)));
    }
    assert_eq!(barrier.handle(Event::Lost(who(0, 3))), [Action::GiveUp { worker: 0, round: 1 }]);
}

#[test]
fn a_round_of_one_leaves_the_others_alone() {
    let mut barrier = ready(3, OnLoss::Drop);
    assert_eq!(barrier.begin(|worker| worker == 0, None).len(), 1);
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(0, 2))), [assign(0, 2, 1)]);
    assert_eq!(barrier.handle(trained(0, 2, 1)), [complete(1, &[0])]);
}

#[test]
fn places_come_and_go_between_rounds_and_claims_never_come_back() {
    let mut barrier = ready(2, OnLoss::Wait);
    assert_eq!(barrier.resize(3), [Action::Start(who(2, 1))]);
    assert_eq!(barrier.handle(Event::Lost(who(2, 1))), [Action::Start(who(2, 2))]);
    assert_eq!(barrier.begin(|_| true, None), [assign(0, 1, 1), assign(1, 1, 1)]);
    assert_eq!(barrier.handle(Event::Ready(who(2, 2))), [assign(2, 2, 1)]);
    for (worker, claim) in [(0, 1), (1, 1)] {
        assert_eq!(barrier.handle(trained(worker, claim, 1)), []);
    }
    assert_eq!(barrier.handle(trained(2, 2, 1)), [complete(1, &[0, 1, 2])]);
    assert_eq!(barrier.resize(1), [Action::Abandon(who(1, 1)), Action::Abandon(who(2, 2))]);
    assert_eq!(barrier.claim(2), None);
    assert_eq!(barrier.resize(3), [Action::Start(who(1, 2)), Action::Start(who(2, 3))]);
    assert_eq!(barrier.handle(Event::Ready(who(2, 2))), []);
    assert_eq!(barrier.awaited(), [(1, true), (2, true)], "an old claim is not there");
}

#[test]
fn a_place_that_comes_back_is_waited_for_even_where_losses_are_dropped() {
    let mut barrier = ready(2, OnLoss::Drop);
    barrier.resize(1);
    assert_eq!(barrier.resize(2), [Action::Start(who(1, 2))]);
    assert_eq!(barrier.begin(|_| true, None), [assign(0, 1, 1)]);
    assert_eq!(barrier.handle(trained(0, 1, 1)), [], "it is new, not lost");
    assert_eq!(barrier.handle(Event::Ready(who(1, 2))), [assign(1, 2, 1)]);
    assert_eq!(barrier.handle(trained(1, 2, 1)), [complete(1, &[0, 1])]);
}
