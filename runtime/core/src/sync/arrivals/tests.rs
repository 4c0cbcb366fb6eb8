use super::*;

mod exhaustive;
mod random;

fn who(worker: u32, claim: u64) -> Who {
    Who { worker, claim }
}

fn done(worker: u32, claim: u64, clock: u64) -> Event {
    Event::Done { who: who(worker, claim), stretch: 1, clock }
}

fn assign(worker: u32, claim: u64, clock: u64) -> Action {
    Action::Assign { who: who(worker, claim), stretch: 1, clock }
}

fn apply(worker: u32, clock: u64, staleness: u64) -> Action {
    Action::Apply { worker, clock, staleness }
}

fn complete(rounds: &[(u32, u64)], finished: &[Who]) -> Action {
    Action::Complete { stretch: 1, rounds: rounds.to_vec(), finished: finished.to_vec() }
}

/// (by whom, of which of its rounds, how old)
fn average(by: Who, clock: u64, of: &[(Who, u64, u64)]) -> Action {
    let of = of.iter().map(|&(who, clock, age)| Message { who, clock, age }).collect();
    Action::Average { who: by, clock, of }
}

/// A stretch that has begun, among workers that are all there.
fn begun(pace: LoosePace, on_loss: OnLoss, rounds: &[u64]) -> Arrivals {
    let (mut arrivals, _) = Arrivals::new(rounds.len() as u32, pace, on_loss, 3);
    for worker in 0..rounds.len() as u32 {
        assert_eq!(arrivals.handle(Event::Ready(who(worker, 1))), []);
    }
    assert_eq!(arrivals.begin(rounds).len(), rounds.len());
    arrivals
}

#[test]
fn what_arrives_is_applied_and_its_worker_goes_on() {
    let mut arrivals = begun(LoosePace::OnArrival, OnLoss::Wait, &[2, 2]);
    assert_eq!(arrivals.handle(done(1, 1, 0)), [apply(1, 0, 0), assign(1, 1, 1)]);
    assert_eq!(arrivals.handle(done(1, 1, 0)), [], "it came before");
    assert_eq!(arrivals.handle(done(1, 1, 1)), [apply(1, 1, 0)], "nobody has changed the model meanwhile");
    assert_eq!(arrivals.handle(done(0, 1, 0)), [apply(0, 0, 2), assign(0, 1, 1)], "it was changed twice");
    let end = complete(&[(0, 2), (1, 2)], &[who(0, 1), who(1, 1)]);
    assert_eq!(arrivals.handle(done(0, 1, 1)), [apply(0, 1, 0), end]);
}

#[test]
fn nobody_is_further_ahead_than_the_staleness_allows() {
    let mut arrivals = begun(LoosePace::Staleness(1), OnLoss::Wait, &[4, 4]);
    assert_eq!(arrivals.handle(done(0, 1, 0)), [apply(0, 0, 0), assign(0, 1, 1)]);
    assert_eq!(arrivals.handle(done(0, 1, 1)), [apply(0, 1, 0)], "round 2 waits for the other's first");
    assert_eq!(arrivals.awaited(), [(1, false)]);
    assert_eq!(arrivals.handle(done(1, 1, 0)), [apply(1, 0, 2), assign(0, 1, 2), assign(1, 1, 1)]);
}

#[test]
fn without_staleness_all_go_in_step() {
    let mut arrivals = begun(LoosePace::Staleness(0), OnLoss::Wait, &[2, 2]);
    assert_eq!(arrivals.handle(done(0, 1, 0)), [apply(0, 0, 0)]);
    assert_eq!(arrivals.handle(done(1, 1, 0)), [apply(1, 0, 1), assign(0, 1, 1), assign(1, 1, 1)]);
}

#[test]
fn whoever_has_finished_holds_nobody_back() {
    let mut arrivals = begun(LoosePace::Staleness(0), OnLoss::Wait, &[1, 3]);
    arrivals.handle(done(0, 1, 0));
    assert_eq!(arrivals.handle(done(1, 1, 0)), [apply(1, 0, 1), assign(1, 1, 1)]);
    assert_eq!(arrivals.handle(done(1, 1, 1)), [apply(1, 1, 0), assign(1, 1, 2)]);
    let end = complete(&[(0, 1), (1, 3)], &[who(0, 1), who(1, 1)]);
    assert_eq!(arrivals.handle(done(1, 1, 2)), [apply(1, 2, 0), end]);
}

#[test]
fn a_lost_worker_holds_the_others_back_until_it_is_back() {
    let mut arrivals = begun(LoosePace::Staleness(0), OnLoss::Wait, &[2, 2]);
    arrivals.handle(done(0, 1, 0));
    assert_eq!(arrivals.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2))]);
    assert_eq!(arrivals.handle(done(1, 1, 0)), [], "an old claim counts nothing");
    assert_eq!(arrivals.handle(Event::Ready(who(1, 2))), [assign(1, 2, 0)]);
    assert_eq!(arrivals.handle(done(1, 2, 0)), [apply(1, 0, 0), assign(0, 1, 1), assign(1, 2, 1)]);
}

#[test]
fn a_dropped_worker_is_left_out_and_back_in_the_next_stretch() {
    let mut arrivals = begun(LoosePace::Staleness(0), OnLoss::Drop, &[2, 2]);
    arrivals.handle(done(0, 1, 0));
    assert_eq!(arrivals.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2)), assign(0, 1, 1)]);
    assert_eq!(arrivals.handle(Event::Ready(who(1, 2))), []);
    let end = complete(&[(0, 2), (1, 0)], &[who(0, 1)]);
    assert_eq!(arrivals.handle(done(0, 1, 1)), [apply(0, 1, 0), end]);
    assert_eq!(arrivals.begin(&[1, 1]).len(), 2);
}

#[test]
fn a_stretch_without_anybody_waits_even_where_losses_are_dropped() {
    let mut arrivals = begun(LoosePace::OnArrival, OnLoss::Drop, &[1, 2]);
    arrivals.handle(done(0, 1, 0));
    arrivals.handle(Event::Lost(who(0, 1)));
    assert_eq!(arrivals.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2))]);
    assert_eq!(arrivals.handle(Event::Ready(who(1, 2))), [assign(1, 2, 0)]);
}

#[test]
fn a_message_of_the_stretch_before_counts_nothing() {
    let mut arrivals = begun(LoosePace::OnArrival, OnLoss::Wait, &[1]);
    arrivals.handle(done(0, 1, 0));
    assert_eq!(arrivals.begin(&[1]), [Action::Assign { who: who(0, 1), stretch: 2, clock: 0 }]);
    assert_eq!(arrivals.handle(done(0, 1, 0)), []);
}

#[test]
fn a_stretch_without_rounds_is_over_at_once() {
    let (mut arrivals, _) = Arrivals::new(2, LoosePace::Overwrite, OnLoss::Wait, 3);
    assert_eq!(arrivals.begin(&[0, 0]), [complete(&[], &[])]);
}

#[test]
fn failing_again_and_again_in_one_round_ends_it() {
    let mut arrivals = begun(LoosePace::OnArrival, OnLoss::Wait, &[9]);
    for claim in 1..3 {
        arrivals.handle(Event::Lost(who(0, claim)));
        arrivals.handle(Event::Ready(who(0, claim + 1)));
    }
    arrivals.handle(done(0, 3, 0));
    for claim in 3..5 {
        assert_eq!(arrivals.handle(Event::Lost(who(0, claim))), [Action::Start(who(0, claim + 1))], "it got on");
    }
    assert_eq!(arrivals.handle(Event::Lost(who(0, 5))), [Action::GiveUp { worker: 0, stretch: 1 }]);
}

#[test]
fn whoever_is_overdue_is_abandoned_and_started_again() {
    let mut arrivals = begun(LoosePace::OnArrival, OnLoss::Wait, &[2, 2]);
    arrivals.handle(done(0, 1, 0));
    let overdue = |clock| Event::Overdue { who: who(0, 1), stretch: 1, clock };
    assert_eq!(arrivals.handle(overdue(0)), [], "it has done that round");
    assert_eq!(arrivals.handle(overdue(1)), [Action::Abandon(who(0, 1)), Action::Start(who(0, 2))]);
}

#[test]
fn a_quorum_is_averaged_by_everybody_who_waits_for_it() {
    let pace = LoosePace::Quorum { quorum: 2, max_age: None };
    let mut arrivals = begun(pace, OnLoss::Wait, &[2, 2, 2]);
    assert_eq!(arrivals.handle(done(2, 1, 0)), [], "its own is not enough");
    let of = [(who(0, 1), 0, 0), (who(2, 1), 0, 0)];
    let both = [average(who(0, 1), 0, &of), average(who(2, 1), 0, &of), assign(0, 1, 1), assign(2, 1, 1)];
    assert_eq!(arrivals.handle(done(0, 1, 0)), both);
    // What was published before counts again.
    let of = [(who(0, 1), 1, 0), (who(2, 1), 0, 1)];
    assert_eq!(arrivals.handle(done(0, 1, 1)), [average(who(0, 1), 1, &of)]);
    let of = [(who(0, 1), 1, 0), (who(1, 1), 0, 0), (who(2, 1), 0, 0)];
    assert_eq!(arrivals.handle(done(1, 1, 0)), [average(who(1, 1), 0, &of), assign(1, 1, 1)]);
}

#[test]
fn an_old_message_does_not_count() {
    let pace = LoosePace::Quorum { quorum: 2, max_age: Some(0) };
    let mut arrivals = begun(pace, OnLoss::Wait, &[3, 3]);
    arrivals.handle(done(0, 1, 0));
    arrivals.handle(done(1, 1, 0));
    assert_eq!(arrivals.handle(done(0, 1, 1)), [], "the other's is of the round before");
    let of = [(who(0, 1), 1, 0), (who(1, 1), 1, 0)];
    let both = [average(who(0, 1), 1, &of), average(who(1, 1), 1, &of), assign(0, 1, 2), assign(1, 1, 2)];
    assert_eq!(arrivals.handle(done(1, 1, 1)), both);
}

#[test]
fn whoever_waits_for_a_quorum_that_cannot_come_goes_on() {
    let pace = LoosePace::Quorum { quorum: 2, max_age: Some(0) };
    let mut arrivals = begun(pace, OnLoss::Wait, &[2, 1]);
    arrivals.handle(done(0, 1, 0));
    arrivals.handle(done(1, 1, 0));
    let end = complete(&[(0, 2), (1, 1)], &[who(0, 1), who(1, 1)]);
    assert_eq!(arrivals.handle(done(0, 1, 1)), [average(who(0, 1), 1, &[(who(0, 1), 1, 0)]), end]);
}

#[test]
fn a_quorum_of_more_than_there_are_is_one_of_all() {
    let pace = LoosePace::Quorum { quorum: 9, max_age: None };
    let mut arrivals = begun(pace, OnLoss::Drop, &[2, 2]);
    assert_eq!(arrivals.handle(done(0, 1, 0)), []);
    let lost = [Action::Start(who(1, 2)), average(who(0, 1), 0, &[(who(0, 1), 0, 0)]), assign(0, 1, 1)];
    assert_eq!(arrivals.handle(Event::Lost(who(1, 1))), lost);
}

#[test]
fn a_peer_that_was_lost_while_it_waited_averages_when_it_is_back() {
    let pace = LoosePace::Quorum { quorum: 2, max_age: None };
    let mut arrivals = begun(pace, OnLoss::Wait, &[1, 1]);
    arrivals.handle(done(0, 1, 0));
    arrivals.handle(Event::Lost(who(0, 1)));
    let of = [(who(0, 1), 0, 0), (who(1, 1), 0, 0)];
    assert_eq!(arrivals.handle(done(1, 1, 0)), [average(who(1, 1), 0, &of)]);
    let end = complete(&[(0, 1), (1, 1)], &[who(0, 2), who(1, 1)]);
    assert_eq!(arrivals.handle(Event::Ready(who(0, 2))), [average(who(0, 2), 0, &of), end]);
}

#[test]
fn claims_never_come_back() {
    let (mut arrivals, starts) = Arrivals::new(2, LoosePace::OnArrival, OnLoss::Wait, 3);
    assert_eq!(starts, [Action::Start(who(0, 1)), Action::Start(who(1, 1))]);
    arrivals.handle(Event::Lost(who(1, 1)));
    assert_eq!(arrivals.resize(1), [Action::Abandon(who(1, 2))]);
    assert_eq!(arrivals.resize(2), [Action::Start(who(1, 3))]);
}
