//! Rounds in which workers merge, one thing that happens at a time.

use std::sync::Arc;

use super::super::*;
use super::{assign, who};
use crate::sync::topology::{Topology, plan};

/// A round that has begun, among workers that are all there.
fn begun(topology: &str, workers: u32, on_loss: OnLoss) -> Barrier {
    let mut barrier = super::ready(workers, on_loss);
    let merges = plan(&topology.parse::<Topology>().unwrap(), workers).unwrap();
    assert_eq!(barrier.begin(|_| true, Some(Arc::new(merges))).len(), workers as usize);
    barrier
}

fn trained(worker: u32, claim: u64, generation: u32) -> Event {
    Event::Trained { who: who(worker, claim), round: 1, generation, samples: 10 }
}

/// A worker's own part.
fn own(worker: u32, claim: u64) -> MergePart {
    MergePart { source: Source::Worker(worker), who: who(worker, claim), layer: 0, samples: 10 }
}

fn order(by: Who, merge: usize, generation: u32, parts: &[MergePart]) -> Action {
    let total = parts.iter().map(|part| part.samples).sum();
    Action::Merge { who: by, round: 1, merge, generation, parts: parts.to_vec(), total }
}

fn merged(by: Who, merge: usize, generation: u32) -> Event {
    Event::Merged { who: by, round: 1, merge, generation }
}

fn missing(by: Who, merge: usize, generation: u32, sources: &[Source]) -> Event {
    Event::Missing { who: by, round: 1, merge, generation, sources: sources.to_vec() }
}

fn complete(workers: &[u32], results: &[(u32, usize, Who)]) -> Action {
    let contributions = workers.iter().map(|&worker| (worker, 10)).collect();
    let results = results.iter().map(|&(shard, merge, who)| MergeResult { shard, merge, who }).collect();
    Action::Complete { round: 1, contributions, results }
}

#[test]
fn the_leader_merges_when_all_is_there() {
    let mut barrier = begun("leader", 3, OnLoss::Wait);
    assert_eq!(barrier.handle(trained(0, 1, 0)), []);
    assert_eq!(barrier.handle(trained(2, 1, 0)), []);
    let parts = [own(0, 1), own(1, 1), own(2, 1)];
    assert_eq!(barrier.handle(trained(1, 1, 0)), [order(who(0, 1), 0, 0, &parts)]);
    assert_eq!(barrier.awaited(), [(0, false)]);
    assert_eq!(barrier.handle(merged(who(0, 1), 0, 0)), [complete(&[0, 1, 2], &[(0, 0, who(0, 1))])]);
    assert_eq!(barrier.handle(merged(who(0, 1), 0, 0)), []);
}

#[test]
fn a_worker_merges_its_shards_one_after_the_other() {
    let mut barrier = begun("scatter:3", 2, OnLoss::Wait);
    barrier.handle(trained(0, 1, 0));
    let parts = [own(0, 1), own(1, 1)];
    let first = [order(who(0, 1), 0, 0, &parts), order(who(1, 1), 1, 0, &parts)];
    assert_eq!(barrier.handle(trained(1, 1, 0)), first);
    assert_eq!(barrier.handle(merged(who(1, 1), 1, 0)), []);
    assert_eq!(barrier.handle(merged(who(0, 1), 0, 0)), [order(who(0, 1), 2, 0, &parts)]);
    let results = [(0, 0, who(0, 1)), (1, 1, who(1, 1)), (2, 2, who(0, 1))];
    assert_eq!(barrier.handle(merged(who(0, 1), 2, 0)), [complete(&[0, 1], &results)]);
}

#[test]
fn a_group_of_a_tree_does_not_wait_for_others() {
    let mut barrier = begun("tree:1,2,4", 4, OnLoss::Wait);
    barrier.handle(trained(0, 1, 0));
    assert_eq!(barrier.handle(trained(1, 1, 0)), [order(who(1, 1), 0, 0, &[own(0, 1), own(1, 1)])]);
    barrier.handle(merged(who(1, 1), 0, 0));
    barrier.handle(trained(3, 1, 0));
    assert_eq!(barrier.handle(trained(2, 1, 0)), [order(who(3, 1), 1, 0, &[own(2, 1), own(3, 1)])]);
    let part = |merge, by| MergePart { source: Source::Merge(merge), who: by, layer: 1, samples: 20 };
    let root = order(who(3, 1), 2, 0, &[part(0, who(1, 1)), part(1, who(3, 1))]);
    assert_eq!(barrier.handle(merged(who(3, 1), 1, 0)), [root]);
    assert_eq!(barrier.handle(merged(who(3, 1), 2, 0)), [complete(&[0, 1, 2, 3], &[(0, 2, who(3, 1))])]);
}

#[test]
fn a_lost_leader_trains_again_because_its_own_part_was_in_its_memory() {
    let mut barrier = begun("leader", 2, OnLoss::Wait);
    barrier.handle(trained(0, 1, 0));
    barrier.handle(trained(1, 1, 0));
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))]);
    let again = Action::Assign { who: who(0, 2), round: 1, generation: 1 };
    assert_eq!(barrier.handle(Event::Ready(who(0, 2))), [again]);
    assert_eq!(barrier.handle(merged(who(0, 1), 0, 0)), [], "an old claim merges nothing");
    let merge = order(who(0, 2), 0, 1, &[own(0, 2), own(1, 1)]);
    assert_eq!(barrier.handle(trained(0, 2, 1)), [merge]);
    assert_eq!(barrier.handle(merged(who(0, 2), 0, 1)), [complete(&[0, 1], &[(0, 0, who(0, 2))])]);
}

#[test]
fn what_the_lost_had_put_stays() {
    let mut barrier = begun("leader", 2, OnLoss::Wait);
    barrier.handle(trained(1, 1, 0));
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(1, 2))), [], "its part is in the channel");
    assert_eq!(barrier.handle(trained(0, 1, 0)), [order(who(0, 1), 0, 0, &[own(0, 1), own(1, 1)])]);
}

#[test]
fn whoever_takes_the_place_of_a_dropped_leader_merges_without_its_share() {
    let mut barrier = begun("leader", 3, OnLoss::Drop);
    for worker in 0..3 {
        barrier.handle(trained(worker, 1, 0));
    }
    let merge = order(who(1, 1), 0, 1, &[own(1, 1), own(2, 1)]);
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2)), merge]);
    assert_eq!(barrier.handle(Event::Ready(who(0, 2))), [], "somebody merges already");
    assert_eq!(barrier.handle(merged(who(1, 1), 0, 1)), [complete(&[1, 2], &[(0, 0, who(1, 1))])]);
}

#[test]
fn a_share_is_dropped_from_all_shards_or_from_none() {
    let mut barrier = begun("scatter", 2, OnLoss::Drop);
    barrier.handle(trained(0, 1, 0));
    barrier.handle(trained(1, 1, 0));
    assert_eq!(barrier.handle(merged(who(0, 1), 0, 0)), [], "shard 0 is merged of both");
    let again = [Action::Start(who(1, 2)), order(who(0, 1), 0, 1, &[own(0, 1)])];
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), again);
    assert_eq!(barrier.handle(merged(who(0, 1), 0, 0)), [], "of an older generation");
    assert_eq!(barrier.handle(merged(who(0, 1), 0, 1)), [order(who(0, 1), 1, 1, &[own(0, 1)])]);
    let results = [(0, 0, who(0, 1)), (1, 1, who(0, 1))];
    assert_eq!(barrier.handle(merged(who(0, 1), 1, 1)), [complete(&[0], &results)]);
}

#[test]
fn a_missing_part_is_handed_in_again_by_whoever_made_it() {
    let mut barrier = begun("leader", 3, OnLoss::Wait);
    for worker in 0..3 {
        barrier.handle(trained(worker, 1, 0));
    }
    let again = Action::Assign { who: who(2, 1), round: 1, generation: 1 };
    assert_eq!(barrier.handle(missing(who(0, 1), 0, 0, &[Source::Worker(2)])), [again]);
    assert_eq!(barrier.handle(missing(who(0, 1), 0, 0, &[Source::Worker(1)])), [], "it was heard");
    assert_eq!(barrier.handle(trained(2, 1, 0)), [], "that was the first time");
    let merge = order(who(0, 1), 0, 1, &[own(0, 1), own(1, 1), own(2, 1)]);
    assert_eq!(barrier.handle(trained(2, 1, 1)), [merge]);
}

#[test]
fn a_missing_part_is_left_out_where_losses_are_dropped() {
    let mut barrier = begun("leader", 3, OnLoss::Drop);
    for worker in 0..3 {
        barrier.handle(trained(worker, 1, 0));
    }
    let merge = order(who(0, 1), 0, 1, &[own(0, 1), own(1, 1)]);
    assert_eq!(barrier.handle(missing(who(0, 1), 0, 0, &[Source::Worker(2)])), [merge]);
    // If nothing is left, everybody makes it again.
    let all = [0, 1].map(Source::Worker);
    let again = [0, 1, 2].map(|worker| Action::Assign { who: who(worker, 1), round: 1, generation: 3 });
    assert_eq!(barrier.handle(missing(who(0, 1), 0, 1, &all)), again);
}

#[test]
fn a_missing_result_is_merged_again() {
    let mut barrier = begun("tree:1,2,4", 4, OnLoss::Wait);
    for worker in 0..4 {
        barrier.handle(trained(worker, 1, 0));
    }
    barrier.handle(merged(who(1, 1), 0, 0));
    barrier.handle(merged(who(3, 1), 1, 0));
    let again = order(who(1, 1), 0, 1, &[own(0, 1), own(1, 1)]);
    assert_eq!(barrier.handle(missing(who(3, 1), 2, 0, &[Source::Merge(0)])), [again]);
    let root = barrier.handle(merged(who(1, 1), 0, 1));
    assert!(matches!(root[..], [Action::Merge { merge: 2, generation: 1, total: 40, .. }]), "{root:?}");
}

#[test]
fn a_result_that_the_coordinator_does_not_find_opens_the_round_again() {
    let mut barrier = begun("leader", 2, OnLoss::Wait);
    barrier.handle(trained(0, 1, 0));
    barrier.handle(trained(1, 1, 0));
    barrier.handle(merged(who(0, 1), 0, 0));
    let merge = order(who(0, 1), 0, 1, &[own(0, 1), own(1, 1)]);
    assert_eq!(barrier.handle(Event::ResultMissing { round: 1, merge: 0 }), [merge]);
    assert_eq!(barrier.handle(Event::ResultMissing { round: 1, merge: 0 }), [], "it is under way");
    assert_eq!(barrier.handle(merged(who(0, 1), 0, 1)), [complete(&[0, 1], &[(0, 0, who(0, 1))])]);
    assert_eq!(barrier.handle(Event::ResultMissing { round: 1, merge: 7 }), [], "there is none");
}

#[test]
fn what_goes_missing_again_and_again_ends_it() {
    let mut barrier = begun("leader", 2, OnLoss::Wait);
    barrier.handle(trained(0, 1, 0));
    for generation in 0..3 {
        let merge = barrier.handle(trained(1, 1, generation));
        assert!(matches!(merge[..], [Action::Merge { .. }]), "{merge:?}");
        let told = barrier.handle(missing(who(0, 1), 0, generation, &[Source::Worker(1)]));
        match generation {
            2 => assert_eq!(told, [Action::GiveUp { worker: 1, round: 1 }]),
            _ => assert_eq!(told, [Action::Assign { who: who(1, 1), round: 1, generation: generation + 1 }]),
        }
    }
}

#[test]
fn a_worker_that_misses_what_nobody_asked_for_is_not_asked_for_ever() {
    let mut barrier = begun("leader", 2, OnLoss::Wait);
    barrier.handle(trained(0, 1, 0));
    barrier.handle(trained(1, 1, 0));
    for generation in 0..2 {
        let again = barrier.handle(missing(who(0, 1), 0, generation, &[Source::Worker(9), Source::Merge(9)]));
        assert_eq!(again, [order(who(0, 1), 0, generation + 1, &[own(0, 1), own(1, 1)])]);
    }
    assert_eq!(barrier.handle(missing(who(0, 1), 0, 2, &[])), [Action::GiveUp { worker: 0, round: 1 }]);
}

#[test]
fn every_peer_merges_for_itself_and_the_lost_are_not_waited_for() {
    let mut barrier = begun("peers", 3, OnLoss::Wait);
    barrier.handle(trained(0, 1, 0));
    barrier.handle(trained(1, 1, 0));
    assert_eq!(barrier.handle(trained(2, 1, 0)).len(), 3);
    barrier.handle(merged(who(0, 1), 0, 0));
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2))]);
    assert_eq!(barrier.handle(Event::Ready(who(1, 2))), [], "it gets the model from the coordinator");
    let results = [(0, 0, who(0, 1)), (0, 2, who(2, 1))];
    assert_eq!(barrier.handle(merged(who(2, 1), 2, 0)), [complete(&[0, 1, 2], &results)]);
}

#[test]
fn the_coordinator_needs_the_result_of_one_peer() {
    let mut barrier = begun("peers", 2, OnLoss::Wait);
    barrier.handle(trained(0, 1, 0));
    barrier.handle(trained(1, 1, 0));
    barrier.handle(Event::Lost(who(0, 1)));
    barrier.handle(Event::Lost(who(1, 1)));
    assert_eq!(barrier.awaited(), [(0, true), (1, true)]);
    let merge = order(who(1, 2), 1, 0, &[own(0, 1), own(1, 1)]);
    assert_eq!(barrier.handle(Event::Ready(who(1, 2))), [merge]);
    assert_eq!(barrier.handle(merged(who(1, 2), 1, 0)), [complete(&[0, 1], &[(0, 1, who(1, 2))])]);
}

#[test]
fn whoever_merges_too_long_is_overdue() {
    let mut barrier = begun("leader", 2, OnLoss::Wait);
    barrier.handle(trained(0, 1, 0));
    barrier.handle(trained(1, 1, 0));
    let late = [Action::Abandon(who(0, 1)), Action::Start(who(0, 2))];
    assert_eq!(barrier.handle(Event::Overdue { round: 1 }), late);
    assert_eq!(barrier.awaited(), [(0, true)]);
}

#[test]
fn nobody_merges_two_groups_of_one_layer() {
    let mut barrier = begun("tree:1,2,4", 4, OnLoss::Drop);
    barrier.handle(trained(0, 1, 0));
    barrier.handle(trained(2, 1, 0));
    let group = order(who(3, 1), 1, 0, &[own(2, 1), own(3, 1)]);
    assert_eq!(barrier.handle(trained(3, 1, 0)), [group]);
    barrier.handle(merged(who(3, 1), 1, 0));
    barrier.handle(Event::Lost(who(2, 1)));
    // Worker 1, who is to merge worker 0's part, is lost; worker 3 is idle, but has merged a group of this layer.
    let substitute = order(who(0, 1), 0, 0, &[own(0, 1)]);
    assert_eq!(barrier.handle(Event::Lost(who(1, 1))), [Action::Start(who(1, 2)), substitute]);
    assert_eq!(barrier.handle(Event::Lost(who(0, 1))), [Action::Start(who(0, 2))], "nobody else may");
    let back = order(who(2, 2), 0, 0, &[own(0, 1)]);
    assert_eq!(barrier.handle(Event::Ready(who(2, 2))), [back]);
}

#[test]
fn a_worker_in_the_middle_of_an_old_merge_has_work_when_it_is_through() {
    let mut barrier = begun("leader", 2, OnLoss::Drop);
    barrier.handle(trained(0, 1, 0));
    barrier.handle(trained(1, 1, 0));
    // The leader merges of both, and somebody tells that the share of worker 1 is gone.
    assert_eq!(barrier.handle(missing(who(1, 1), 0, 0, &[Source::Worker(1)])), [], "it was not asked");
    assert_eq!(barrier.handle(missing(who(0, 1), 0, 0, &[Source::Worker(1)])), [order(who(0, 1), 0, 1, &[own(0, 1)])]);
    assert_eq!(barrier.handle(merged(who(0, 1), 0, 1)), [complete(&[0], &[(0, 0, who(0, 1))])]);
    assert_eq!(barrier.begin(|_| true, None), [assign(0, 1, 2), assign(1, 1, 2)]);
}
