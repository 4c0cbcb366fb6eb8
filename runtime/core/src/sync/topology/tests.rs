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

#[test]
fn the_papers_tree_of_100_is_the_papers() {
    assert_eq!(TreeShape::Paper.layers(100).unwrap(), [1, 5, 22, 100]);
    assert_eq!(TreeShape::Paper.layers(10).unwrap(), [1, 3, 10]);
    assert_eq!(TreeShape::Paper.layers(2).unwrap(), [1, 2]);
    assert_eq!(TreeShape::Paper.layers(1).unwrap(), [1]);
}

fn steps(layers: &[u32]) -> u32 {
    layers.windows(2).map(|pair| pair[1].div_ceil(pair[0])).sum()
}

#[test]
fn the_automatic_tree_is_the_best_of_all_with_two_inner_layers() {
    for workers in 1..=150 {
        let found = TreeShape::Auto.layers(workers).unwrap();
        // The number of steps, then the number of layers.
        let mut best = (workers, 2);
        for outer in 2..workers {
            best = best.min((steps(&[1, outer, workers]), 3));
            for inner in 2..outer {
                best = best.min((steps(&[1, inner, outer, workers]), 4));
            }
        }
        if workers == 1 {
            assert_eq!(found, [1]);
            continue;
        }
        assert_eq!((steps(&found), found.len()), best, "{workers} workers: {found:?}");
        assert!(found[0] == 1 && found.is_sorted_by(|one, next| one < next), "{workers} workers: {found:?}");
    }
    assert_eq!(TreeShape::Auto.layers(4).unwrap(), [1, 4], "fewer layers where more are no better");
    assert_eq!(TreeShape::Auto.layers(6).unwrap(), [1, 2, 6]);
    assert_eq!(TreeShape::Auto.layers(100).unwrap(), [1, 4, 20, 100]);
}

#[test]
fn layers_fit_the_workers_or_say_how() {
    let error = plan(&topology("tree:1,5,22,100"), 99).unwrap_err();
    assert_eq!(error, TopologyError::LastLayer { last: 100, workers: 99 });
    assert!(error.to_string().contains("let them end with 99"));
    let shape = TreeShape::Layers(vec![3, 2]);
    assert!(matches!(shape.layers(2), Err(TopologyError::Layers(text)) if text == "3,2"));
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
fn no_merger_of_a_tree_has_more_parts_than_its_layers_say() {
    for workers in 2..200 {
        for shape in [TreeShape::Auto, TreeShape::Paper] {
            let layers = shape.layers(workers).unwrap();
            let plan = plan(&Topology::Tree(shape), workers).unwrap();
            let depth = layers.len() as u32 - 1;
            for merge in &plan.merges {
                let (above, below) =
                    (layers[(depth - merge.layer) as usize], layers[(depth - merge.layer + 1) as usize]);
                let size = merge.from.len() as u32;
                assert!((below / above..=below.div_ceil(above)).contains(&size), "{workers} workers: {merge:?}");
            }
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
