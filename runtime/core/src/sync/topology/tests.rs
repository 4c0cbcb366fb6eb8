use super::*;

fn topology(word: &str) -> Topology {
    word.parse().unwrap()
}

fn plan_of(word: &str, workers: u32) -> MergePlan {
    plan(&topology(word), workers).unwrap()
}

fn workers(of: &[u32]) -> Vec<Source> {
    of.iter().copied().map(Source::Worker).collect()
}

#[test]
fn words_come_back_as_they_were() {
    for word in
        ["memory", "leader", "scatter", "scatter:16", "tree", "tree:paper", "tree:1,5,22,100", "tree:1,2", "peers"]
    {
        assert_eq!(topology(word).to_string(), word);
        let json = serde_json::to_string(&topology(word)).unwrap();
        assert_eq!(json, format!("\"{word}\""));
        assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), topology(word));
    }
    assert_eq!(topology("tree:auto").to_string(), "tree");
    assert_eq!(topology("tree:1, 3, 9").to_string(), "tree:1,3,9");
}

#[test]
fn what_is_no_topology_is_told_what_is() {
    let refusal = |word: &str| word.parse::<Topology>().unwrap_err().to_string();
    for word in ["", "ring", "memory:1", "leader:", "peers:2", "Tree"] {
        assert!(refusal(word).contains("`scatter:SHARDS`"), "{word}: {}", refusal(word));
    }
    for word in ["scatter:", "scatter:0", "scatter:-1", "scatter:65537", "scatter:x"] {
        assert!(refusal(word).contains("from 1 to 65536"), "{word}: {}", refusal(word));
    }
    let many: Vec<String> = (1..=17).map(|layer: u32| layer.to_string()).collect();
    let many = format!("tree:{}", many.join(","));
    for word in ["tree:", "tree:2,4", "tree:1,4,4", "tree:1,5,3", "tree:0,1", "tree:1,,3", "tree:papers", &many] {
        assert!(refusal(word).contains("whole numbers that grow"), "{word}: {}", refusal(word));
    }
    let json: Result<Topology, _> = serde_json::from_str("\"ring\"");
    assert!(json.unwrap_err().to_string().contains("`ring` is no topology"));
}

#[test]
fn memory_and_one_worker_merge_nothing() {
    assert_eq!(plan_of("memory", 7).merges, []);
    for word in ["memory", "leader", "scatter:3", "tree", "tree:1,5", "peers"] {
        let plan = plan_of(word, 1);
        assert_eq!((plan.merges.len(), plan.result(0, 0)), (0, None), "{word}");
        assert_eq!(super::plan(&topology(word), 0), Err(TopologyError::NoWorkers));
    }
}

#[test]
fn the_leader_is_worker_0() {
    let plan = plan_of("leader", 3);
    assert_eq!(plan.merges, [Merge { layer: 1, shard: 0, by: 0, from: workers(&[0, 1, 2]) }]);
    assert_eq!((0..3).map(|worker| plan.result(worker, 0)).collect::<Vec<_>>(), [Some(0); 3]);
    assert_eq!(plan.result(0, 1), None, "there is no such shard");
}

#[test]
fn shards_go_round_the_workers() {
    let by = |word: &str, workers| plan_of(word, workers).merges.iter().map(|merge| merge.by).collect::<Vec<_>>();
    assert_eq!(by("scatter", 3), [0, 1, 2]);
    assert_eq!(by("scatter:7", 3), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(by("scatter:2", 3), [0, 1], "the third merges nothing");
    let plan = plan_of("scatter:7", 3);
    assert_eq!(plan.shards, 7);
    assert!(plan.merges.iter().all(|merge| merge.from == workers(&[0, 1, 2]) && merge.layer == 1));
    assert_eq!((0..7).map(|shard| plan.result(2, shard)).collect::<Vec<_>>(), (0..7).map(Some).collect::<Vec<_>>());
}

#[test]
fn every_peer_merges_all_and_takes_its_own() {
    let plan = plan_of("peers", 3);
    assert_eq!(plan.merges.len(), 3);
    for worker in 0..3 {
        let own = plan.result(worker, 0).unwrap();
        assert_eq!(plan.merges[own], Merge { layer: 1, shard: 0, by: worker, from: workers(&[0, 1, 2]) });
        assert!(!plan.keeps(Source::Worker(worker), 0, worker), "the others need its part");
    }
}

#[test]
fn a_group_is_merged_by_its_last_member() {
    let plan = plan_of("tree:1,2,6", 6);
    let groups = [
        Merge { layer: 1, shard: 0, by: 2, from: workers(&[0, 1, 2]) },
        Merge { layer: 1, shard: 0, by: 5, from: workers(&[3, 4, 5]) },
        Merge { layer: 2, shard: 0, by: 5, from: vec![Source::Merge(0), Source::Merge(1)] },
    ];
    assert_eq!(plan.merges, groups);
    assert_eq!(plan.result(0, 0), Some(2));
    assert_eq!((plan.consumers(0), plan.consumers(2), plan.results(0)), (&[2][..], &[][..], &[2][..]));
}

#[test]
fn whoever_merges_its_own_part_keeps_it() {
    let tree = plan_of("tree:1,2,6", 6);
    let kept: Vec<u32> = (0..6).filter(|&worker| tree.keeps(Source::Worker(worker), 0, worker)).collect();
    assert_eq!(kept, [2, 5]);
    assert!(tree.keeps(Source::Merge(1), 0, 5), "it merges on");
    assert!(!tree.keeps(Source::Merge(1), 0, 4), "somebody in its place has to hand it over");
    assert!(!tree.keeps(Source::Merge(0), 0, 2) && !tree.keeps(Source::Merge(2), 0, 5));
    let scatter = plan_of("scatter:4", 3);
    let kept =
        |worker| (0..4).filter(|&shard| scatter.keeps(Source::Worker(worker), shard, worker)).collect::<Vec<_>>();
    assert_eq!([kept(0), kept(1), kept(2)], [vec![0, 3], vec![1], vec![2]]);
}

#[test]
fn a_merge_descends_from_whom_it_has_parts_of() {
    let tree = plan_of("tree:1,2,6", 6);
    assert_eq!(tree.descends_from(1), [true, false, true]);
    assert_eq!(tree.descends_from(4), [false, true, true]);
    assert_eq!(tree.descends_from(6), [false; 3]);
}

/// How many merges each layer has, from the root on, and how many workers there are.
fn layers(plan: &MergePlan) -> Vec<usize> {
    let depth = plan.merges.iter().map(|merge| merge.layer).max().unwrap_or(0);
    let count = |layer| plan.merges.iter().filter(|merge| merge.layer == layer).count();
    (1..=depth).rev().map(count).chain([plan.workers as usize]).collect()
}

#[test]
fn the_papers_tree_of_100_is_the_papers() {
    assert_eq!(layers(&plan_of("tree:paper", 100)), [1, 5, 22, 100]);
    assert_eq!(layers(&plan_of("tree:paper", 10)), [1, 3, 10]);
    assert_eq!(layers(&plan_of("tree:paper", 2)), [1, 2]);
}

/// Transfers one after another until everybody has the result, if each worker does one at a time in each direction, and a
/// merger begins when all of its parts are there.
fn transfers(plan: &MergePlan) -> u32 {
    let mut is_there: Vec<u32> = Vec::new();
    let mut is_free = vec![0; plan.workers as usize];
    for (index, merge) in plan.merges.iter().enumerate() {
        let own = |source: &Source| match *source {
            Source::Worker(worker) => worker == merge.by,
            Source::Merge(before) => plan.merges[before].by == merge.by && plan.keeps(*source, 0, merge.by),
        };
        let there = |source: &Source| match *source {
            Source::Worker(worker) => u32::from(!plan.keeps(*source, 0, worker)),
            Source::Merge(before) => is_there[before],
        };
        let begins = merge.from.iter().map(there).max().unwrap_or(0).max(is_free[merge.by as usize]);
        let others = merge.from.iter().filter(|source| !own(source)).count() as u32;
        let hands_on = u32::from(!plan.keeps(Source::Merge(index), 0, merge.by));
        is_free[merge.by as usize] = begins + others + hands_on;
        is_there.push(begins + others + hands_on);
    }
    is_there.into_iter().max().unwrap_or(0) + 1
}

#[test]
fn the_automatic_tree_has_the_fewest_transfers_one_after_another() {
    let of = |word: &str, workers| transfers(&plan_of(word, workers));
    // The flat one: its part, all others' but its own, the result, and the result again.
    assert_eq!([of("leader", 100), of("tree:paper", 100), of("tree:1,4,20,100", 100)], [102, 17, 16]);
    assert_eq!(layers(&plan_of("tree", 100)), [1, 3, 10, 33, 100]);
    for workers in 2..=300 {
        let automatic = of("tree", workers);
        assert!(automatic <= of("leader", workers) && automatic <= of("tree:paper", workers), "{workers}");
        // All ways to take so many parts in each of up to four layers.
        let mut ways = vec![Vec::new()];
        let mut shortest = u32::MAX;
        while let Some(takes) = ways.pop() {
            // By layer: the workers that a result has, and those of a merger that merges on.
            let (mut result, mut goes_on) = (1, 1);
            for take in &takes {
                (result, goes_on) = (goes_on + take * result, goes_on + (take + 1) * result);
            }
            let layers = takes.len() as u32;
            let length = 2 + takes.iter().sum::<u32>() + layers;
            if result >= workers {
                shortest = shortest.min(length);
            } else if layers < 4 && length < automatic {
                ways.extend((1..workers).take_while(|take| length + take < automatic).map(|take| {
                    let mut takes = takes.clone();
                    takes.push(take);
                    takes
                }));
            }
        }
        assert!(automatic <= shortest, "{workers} workers: {automatic}, and {shortest} would do");
    }
    assert_eq!(of("tree", 100), 14);
    assert_eq!(layers(&plan_of("tree", 4)), [1, 4], "fewer layers where more are no better");
}

#[test]
fn layers_fit_the_workers_or_say_how() {
    let error = plan(&topology("tree:1,5,22,100"), 99).unwrap_err();
    assert_eq!(error, TopologyError::LastLayer { last: 100, workers: 99 });
    assert!(error.to_string().contains("let them end with 99"));
    let shape = Topology::Tree(TreeShape::Layers(vec![3, 2]));
    assert!(matches!(plan(&shape, 2), Err(TopologyError::Layers(text)) if text == "3,2"));
    assert_eq!(plan_of("tree:1,5,22,100", 100).merges.len(), 28);
}

#[test]
fn too_many_parts_are_refused_before_they_are_made() {
    assert_eq!(plan_of("peers", 1_024).merges.len(), 1_024);
    let error = plan(&Topology::Peers, 4_096).unwrap_err();
    assert!(error.to_string().contains("`peers` with 4096 workers would move 16777216 parts"), "{error}");
    let shards = Some(u32::MAX);
    let error = plan(&Topology::Scatter { shards }, u32::MAX).unwrap_err();
    assert!(matches!(error, TopologyError::TooManyParts { .. }));
    assert!(plan(&topology("tree"), 4_096).is_ok());
}

/// Every plan: each worker counts exactly once in what each worker takes for each shard.
#[test]
fn everybody_is_merged_once_into_every_result() {
    let words = ["leader", "scatter", "scatter:1", "scatter:5", "scatter:23", "tree", "tree:paper", "peers"];
    for (word, workers) in words.iter().flat_map(|word| (2..40).map(move |workers| (word, workers))) {
        let plan = plan_of(word, workers);
        let mut counts: Vec<Vec<u32>> = Vec::new();
        for (index, merge) in plan.merges.iter().enumerate() {
            assert!(merge.by < workers && !merge.from.is_empty());
            let mut count = vec![0; workers as usize];
            for source in &merge.from {
                match *source {
                    Source::Worker(worker) => {
                        assert_eq!(merge.layer, 1);
                        count[worker as usize] += 1;
                    }
                    Source::Merge(before) => {
                        assert!(before < index && plan.merges[before].layer + 1 == merge.layer);
                        assert_eq!(plan.merges[before].shard, merge.shard);
                        count.iter_mut().zip(&counts[before]).for_each(|(sum, more)| *sum += more);
                    }
                }
            }
            counts.push(count);
        }
        for (worker, shard) in (0..workers).flat_map(|worker| (0..plan.shards).map(move |shard| (worker, shard))) {
            let result = plan.result(worker, shard).unwrap();
            assert_eq!(plan.merges[result].shard, shard);
            assert_eq!(counts[result], vec![1; workers as usize], "{word} of {workers}");
        }
    }
}

#[test]
fn groups_of_a_layer_are_equal_but_for_one() {
    for workers in 2..200 {
        let plan = plan_of("tree:paper", workers);
        let layers = layers(&plan);
        let depth = layers.len() - 1;
        for merge in &plan.merges {
            let above = depth - merge.layer as usize;
            let sizes = layers[above + 1] / layers[above]..=layers[above + 1].div_ceil(layers[above]);
            assert!(sizes.contains(&merge.from.len()), "{workers} workers: {merge:?}");
        }
    }
}

#[test]
fn shards_cover_a_vector_without_gaps() {
    assert_eq!((0..4).map(|shard| shard_range(shard, 4, 10, 1)).collect::<Vec<_>>(), [0..3, 3..6, 6..8, 8..10]);
    assert_eq!(shard_range(4, 4, 10, 1), 10..10, "there is no such shard");
    for (shards, elements, align) in
        [(1, 0, 1), (3, 2, 1), (7, 1_000, 1), (4, 2_048, 512), (4, 2_500, 512), (9, 513, 512), (5, 42_601, 512)]
    {
        let mut end = 0;
        for shard in 0..shards {
            let range = shard_range(shard, shards, elements, align);
            assert_eq!(range.start, end, "{shards} shards of {elements}");
            assert!(range.end >= range.start && (range.end.is_multiple_of(align) || range.end == elements));
            if align == 1 {
                let more = usize::from((shard as usize) < elements % shards as usize);
                assert_eq!(range.len(), elements / shards as usize + more);
            } else {
                assert!(range.len() < elements / shards as usize + 2 * align);
            }
            end = range.end;
        }
        assert_eq!(end, elements);
    }
    assert_eq!(shard_range(0, 1, usize::MAX, 512), 0..usize::MAX);
}

#[test]
fn a_trees_time_follows_its_layers() {
    assert_eq!(tree::predicted_seconds(&[1, 100], 0.5), 50.0);
    assert_eq!(tree::predicted_seconds(&[1, 4, 20, 100], 1.0), 14.0);
    // Formula (4): with the best real layers it is (k + 1) * n^(1 / (k + 1)).
    assert_eq!(tree::predicted_seconds(&[1, 10, 100, 1_000], 1.0), 3.0 * 1_000_f64.cbrt());
    assert_eq!(tree::predicted_seconds(&[1], 1.0), 0.0);
}
