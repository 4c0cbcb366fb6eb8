use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::dataset::BlockRef;
use crate::digest::Digest;

/// A split of blocks with so many samples of ten bytes each.
fn split(counts: &[u32]) -> Split {
    let block = |(index, &count): (usize, &u32)| {
        let digest = Digest::of(&index.to_le_bytes());
        BlockRef { digest, count, bytes: u64::from(count) * 10 }
    };
    let blocks = counts.iter().enumerate().map(block).collect();
    Split { count: counts.iter().map(|&count| u64::from(count)).sum(), blocks, classes: Vec::new() }
}

/// Labels for all samples, and the split that counts them.
fn labelled(counts: &[u32], class: impl Fn(u64) -> i32) -> (Split, Vec<Vec<i32>>) {
    let mut split = split(counts);
    let (mut sample, mut labels) = (0, Vec::new());
    for &count in counts {
        labels.push((sample..sample + u64::from(count)).map(&class).collect::<Vec<i32>>());
        sample += u64::from(count);
    }
    for &class in labels.iter().flatten() {
        split.classes.resize(split.classes.len().max(class as usize + 1), 0);
        split.classes[class as usize] += 1;
    }
    (split, labels)
}

fn no_labels(_: usize) -> Result<Vec<i32>, ShardError> {
    Err(ShardError::NoClasses)
}

fn positions(plan: &Plan, split: &Split, shard: u64) -> Vec<Position> {
    plan.shard(split, shard, no_labels).unwrap().positions().collect()
}

fn stratified(plan: &Plan, split: &Split, labels: &[Vec<i32>], shard: u64) -> Vec<Position> {
    let shard = plan.shard(split, shard, |block| Ok::<_, ShardError>(labels[block].clone())).unwrap();
    shard.positions().collect()
}

fn natural(split: &Split) -> Vec<Position> {
    let rows = |(block, of): (usize, &BlockRef)| (0..of.count).map(move |row| Position { block: block as u32, row });
    split.blocks.iter().enumerate().flat_map(rows).collect()
}

/// Blocks (some empty), shards and a window that may hold all, some or less than one of them.
fn cases() -> impl Strategy<Value = (Vec<u32>, u64, Plan)> {
    let plan = (any::<u64>(), 0..4_u64, any::<bool>(), 0..2500_u64).prop_map(|(seed, epoch, shuffle, window)| Plan {
        seed,
        epoch,
        shuffle,
        window,
        ..Plan::default()
    });
    let counts =
        prop::collection::vec(0..30_u32, 1..12).prop_filter("samples", |counts| counts.iter().sum::<u32>() > 0);
    (counts, plan, any::<prop::sample::Index>()).prop_map(|(counts, mut plan, shards)| {
        plan.shards = 1 + shards.index(counts.iter().sum::<u32>() as usize) as u64;
        (counts, plan.shards, plan)
    })
}

proptest! {
    #[test]
    fn shards_hold_every_sample_once((counts, shards, plan) in cases()) {
        let split = split(&counts);
        let mut all: Vec<Position> = (0..shards).flat_map(|shard| positions(&plan, &split, shard)).collect();
        all.sort_unstable();
        prop_assert_eq!(all, natural(&split));
    }

    #[test]
    fn shards_differ_by_at_most_one_sample((counts, shards, plan) in cases()) {
        let split = split(&counts);
        for shard in 0..shards {
            let count = positions(&plan, &split, shard).len() as u64;
            prop_assert!(count == split.count / shards || count == split.count.div_ceil(shards));
            prop_assert_eq!(count, plan.count(&split, shard).unwrap());
        }
    }

    #[test]
    fn stratified_shards_hold_every_sample_once((counts, shards, plan) in cases(), classes in 1..6_u64) {
        let (split, labels) = labelled(&counts, |sample| (sample * sample % classes) as i32);
        let plan = Plan { stratified: true, ..plan };
        let mut all: Vec<Position> =
            (0..shards).flat_map(|shard| stratified(&plan, &split, &labels, shard)).collect();
        all.sort_unstable();
        prop_assert_eq!(all, natural(&split));
    }

    #[test]
    fn stratified_shards_differ_by_at_most_one_sample_of_each_class(
        (counts, shards, plan) in cases(),
        classes in 1..6_u64,
    ) {
        let (split, labels) = labelled(&counts, |sample| (sample * sample % classes) as i32);
        let plan = Plan { stratified: true, ..plan };
        for shard in 0..shards {
            let positions = stratified(&plan, &split, &labels, shard);
            prop_assert_eq!(positions.len() as u64, plan.count(&split, shard).unwrap());
            let mut found = vec![0; split.classes.len()];
            for position in positions {
                found[labels[position.block as usize][position.row as usize] as usize] += 1;
            }
            for (found, &all) in found.into_iter().zip(&split.classes) {
                prop_assert!(found == all / shards || found == all.div_ceil(shards));
            }
        }
    }

    #[test]
    fn a_shard_reads_each_block_in_one_window_only((counts, shards, plan) in cases()) {
        let split = split(&counts);
        for shard in 0..shards {
            let shard = plan.shard(&split, shard, no_labels).unwrap();
            let (mut sample, mut earlier) = (0, HashSet::new());
            while sample < shard.count() {
                let end = shard.window_end(sample);
                let blocks: HashSet<u32> =
                    (sample..end).map(|sample| shard.position(sample).unwrap().block).collect();
                let bytes: u64 = blocks.iter().map(|&block| split.blocks[block as usize].bytes).sum();
                prop_assert!(bytes <= plan.window || blocks.len() == 1);
                prop_assert!(earlier.is_disjoint(&blocks));
                earlier.extend(blocks);
                sample = end;
            }
        }
    }

    #[test]
    fn without_shuffle_samples_come_in_their_order((counts, shards, plan) in cases()) {
        let split = split(&counts);
        let plan = Plan { shuffle: false, ..plan };
        let all: Vec<Position> = (0..shards).flat_map(|shard| positions(&plan, &split, shard)).collect();
        prop_assert_eq!(all, natural(&split));
    }
}

#[test]
fn only_the_blocks_at_the_edges_are_shared() {
    let split = split(&[100; 40]);
    let plan = Plan { shards: 6, window: 5000, ..Plan::default() };
    let blocks = |shard| positions(&plan, &split, shard).iter().map(|at| at.block).collect::<HashSet<u32>>();
    let read: usize = (0..6).map(|shard| blocks(shard).len()).sum();
    assert!(read <= 40 + 5, "{read} blocks are read");
}

#[test]
fn stratified_shards_of_mixed_blocks_read_little_more_than_their_own() {
    let (split, labels) = labelled(&[100; 40], |sample| (sample % 10) as i32);
    let plan = Plan { shards: 4, window: 5000, stratified: true, ..Plan::default() };
    for shard in 0..4 {
        let blocks: HashSet<u32> = stratified(&plan, &split, &labels, shard).iter().map(|at| at.block).collect();
        assert!(blocks.len() <= 11, "{}", blocks.len());
    }
}

#[test]
fn epochs_differ_in_order_and_in_assignment() {
    for window in [u64::MAX, 3000] {
        let split = split(&[100; 20]);
        let plan = Plan { shards: 3, window, ..Plan::default() };
        let (first, second) = (positions(&plan, &split, 0), positions(&Plan { epoch: 1, ..plan.clone() }, &split, 0));
        assert_ne!(first, second);
        let (first, second): (HashSet<_>, HashSet<_>) = (first.into_iter().collect(), second.into_iter().collect());
        assert_ne!(first, second);
    }
}

#[test]
fn seeds_differ() {
    let split = split(&[100; 20]);
    let plan = Plan::default();
    assert_ne!(positions(&plan, &split, 0), positions(&Plan { seed: 1, ..plan.clone() }, &split, 0));
}

#[test]
fn samples_within_a_window_are_shuffled_across_its_blocks() {
    let split = split(&[100; 20]);
    let plan = Plan { window: 5000, ..Plan::default() };
    let first: HashSet<u32> = positions(&plan, &split, 0)[..50].iter().map(|at| at.block).collect();
    assert_eq!(first.len(), 5);
}

/// As text, so that a difference can be read.
fn written(positions: &[Position]) -> String {
    positions.iter().map(|at| format!("{}:{}", at.block, at.row)).collect::<Vec<_>>().join(" ")
}

/// A restarted job must find its shards as they were. If this fails, seeds have lost their meaning: do not change the
/// expected values, but whatever made them differ.
#[test]
fn assignments_never_change() {
    let (split, labels) = labelled(&[5, 3, 7, 4], |sample| (sample / 7) as i32);
    let plan = Plan { seed: 2024, epoch: 5, shards: 2, ..Plan::default() };
    let (small, fair) = (Plan { window: 100, ..plan.clone() }, Plan { stratified: true, ..plan.clone() });
    let found = [
        written(&positions(&plan, &split, 1)),
        written(&positions(&small, &split, 1)),
        written(&stratified(&fair, &split, &labels, 1)),
        written(&stratified(&Plan { stratified: true, ..small.clone() }, &split, &labels, 1)),
    ];
    let expected = [
        "1:0 0:3 2:1 3:3 3:2 3:1 2:4 1:1 1:2",
        "0:4 0:3 2:4 2:2 2:6 2:5 2:1 2:0 2:3",
        "2:2 1:0 0:3 2:1 3:2 3:1 2:4 1:1 1:2",
        "0:2 0:3 3:3 0:4 2:6 2:4 2:5 2:2 2:3",
    ];
    assert_eq!(found, expected);
}

#[test]
fn more_shards_than_samples_are_refused() {
    let refused = Plan { shards: 6, ..Plan::default() }.count(&split(&[3, 2]), 0);
    assert_eq!(refused, Err(ShardError::TooManyShards { shards: 6, samples: 5 }));
}

#[test]
fn a_shard_that_is_not_there_is_refused() {
    let refused = Plan { shards: 2, ..Plan::default() }.count(&split(&[3, 2]), 2);
    assert_eq!(refused, Err(ShardError::NoSuchShard { shard: 2, shards: 2 }));
}

#[test]
fn no_shards_are_refused() {
    assert_eq!(Plan { shards: 0, ..Plan::default() }.count(&split(&[3]), 0), Err(ShardError::NoShards));
}

#[test]
fn a_split_whose_counts_disagree_is_refused() {
    let wrong = Split { count: 7, ..split(&[3, 2]) };
    let refused = Plan::default().count(&wrong, 0);
    assert_eq!(refused, Err(ShardError::WrongCount { what: "its blocks", counted: 5, said: 7 }));
}

#[test]
fn stratifying_without_classes_is_refused() {
    let refused = Plan { stratified: true, ..Plan::default() }.count(&split(&[3]), 0);
    assert_eq!(refused, Err(ShardError::NoClasses));
}

#[test]
fn labels_that_the_manifest_does_not_count_are_refused() {
    let (split, _) = labelled(&[4, 4], |sample| (sample % 2) as i32);
    for (window, wrong) in [(0, 0), (u64::MAX, 0), (0, -1), (0, 2), (0, i32::MAX)] {
        let plan = Plan { stratified: true, window, ..Plan::default() };
        let refused = plan.shard(&split, 0, |_| Ok::<_, ShardError>(vec![wrong; 4]));
        assert!(matches!(refused, Err(ShardError::WrongClass { class, .. }) if class == wrong), "{refused:?}");
    }
}

#[test]
fn missing_labels_are_refused() {
    let (split, _) = labelled(&[4, 4], |_| 0);
    let refused = Plan { stratified: true, ..Plan::default() }.shard(&split, 0, |_| Ok::<_, ShardError>(vec![0; 3]));
    assert_eq!(refused.err(), Some(ShardError::WrongLabels { block: 0, found: 3, count: 4 }));
}

#[test]
fn the_ragged_last_batch_is_kept_or_dropped() {
    let size = std::num::NonZeroU32::new(64).unwrap();
    assert_eq!([Last::Keep.batches(130, size), Last::Drop.batches(130, size)], [3, 2]);
    assert_eq!([Last::Keep.batches(128, size), Last::Drop.batches(128, size)], [2, 2]);
}

/// What is taken of an epoch whose shards change in number again and again: so many at first, then the rest in others.
fn taken(plan: &Plan, split: &Split, changes: &[(u64, u64)], shards: u64) -> Vec<Position> {
    let (mut plan, mut all) = (plan.clone(), Vec::new());
    for (from, taken) in changes {
        plan.shards = *from;
        for shard in 0..*from {
            all.extend(positions(&plan, split, shard).into_iter().take(*taken as usize));
        }
        plan.cuts = plan.cuts.iter().copied().chain([Cut { shards: *from, taken: *taken }]).collect();
    }
    plan.shards = shards;
    for shard in 0..shards {
        let samples = positions(&plan, split, shard);
        assert_eq!(samples.len() as u64, plan.count(split, shard).unwrap());
        all.extend(samples);
    }
    all
}

proptest! {
    #[test]
    fn every_sample_comes_once_however_often_the_number_of_shards_changes(
        (counts, shards, plan) in cases(),
        changes in proptest::collection::vec((1..6_u64, 0..40_u64), 0..4),
    ) {
        let split = split(&counts);
        let changes: Vec<_> = changes.into_iter().map(|(from, taken)| (from.min(split.count), taken)).collect();
        let mut all = taken(&plan, &split, &changes, shards);
        all.sort_unstable();
        prop_assert_eq!(all, natural(&split));
    }
}

#[test]
fn a_stratified_epoch_may_change_its_shards_too() {
    let (split, labels) = labelled(&[7, 9, 4], |sample| (sample % 3) as i32);
    let before = Plan { stratified: true, shards: 2, ..Plan::default() };
    let cuts: Cuts = [Cut { shards: 2, taken: 4 }].into();
    let after = Plan { shards: 3, cuts, ..before.clone() };
    let mut all: Vec<Position> =
        (0..2).flat_map(|shard| stratified(&before, &split, &labels, shard).into_iter().take(4)).collect();
    all.extend((0..3).flat_map(|shard| stratified(&after, &split, &labels, shard)));
    all.sort_unstable();
    assert_eq!(all, natural(&split));
}

#[test]
fn windows_of_what_was_left_never_end_before_they_begin() {
    let split = split(&[10; 8]);
    let cuts: Cuts = [Cut { shards: 3, taken: 5 }].into();
    let plan = Plan { window: 250, shards: 2, cuts, ..Plan::default() };
    for shard in 0..2 {
        let shard = plan.shard(&split, shard, no_labels).unwrap();
        for sample in 0..shard.count() {
            assert!(shard.window_end(sample) > sample && shard.window_end(sample) <= shard.count());
        }
    }
}

/// Whoever changes the number of shards again and again must not make the next shard cost more and more.
#[test]
fn many_changes_in_one_epoch_cost_little() {
    let split = split(&[1_000; 4]);
    let cuts: Cuts = (0..16).map(|change| Cut { shards: if change % 2 == 0 { 1 } else { 64 }, taken: 2 }).collect();
    let plan = Plan { shards: 64, cuts, ..Plan::default() };
    let samples: usize = (0..64).map(|shard| positions(&plan, &split, shard).len()).sum();
    assert_eq!(samples, 4_000 - 8 * 2 - 8 * 64 * 2);
}
