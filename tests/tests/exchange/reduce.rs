//! All-reduces by threads over every channel: the same bits as a merge of all at once.

use std::sync::Arc;

use anyhow::{Result, ensure};
use tokio::runtime::Handle;
use weft::job::channel::EVERY_ROUND;
use weft::job::exchange::{Layout, Offer, Scheme};
use weft_core::sync::accumulate::Arithmetic;
use weft_core::sync::merge;
use weft_core::sync::topology::{Source, Topology, plan};
use weft_tests::exchange::all_reduce;

use super::backends::{Place, on_all_channels, run};

const WORKERS: u32 = 5;
const LENGTH: usize = 50_001;

on_all_channels! {
    leader,
    scatter,
    peers,
    tree,
    automatic_tree,
    paper_tree,
}

fn contributions(workers: u32) -> Vec<Offer> {
    let contribution = |worker: u32| {
        let numbers: Vec<f32> = (0..LENGTH).map(|at| (at as f32 * 0.01 + worker as f32).sin()).collect();
        Offer { samples: u64::from(worker * 3 + 1), numbers: numbers.into(), encoded: None }
    };
    (0..workers).map(contribution).collect()
}

async fn reduce(
    place: Place,
    workers: u32,
    topology: Topology,
    arithmetic: Arithmetic,
    expected: Vec<f32>,
) -> Result<()> {
    let plan = Arc::new(plan(&topology, workers)?);
    let scheme = Scheme { plan, layout: Layout::plain(LENGTH), arithmetic, decode: None };
    let channel = place.channel(1);
    let channels = vec![channel.clone(); workers as usize];
    let runtime = Handle::current();
    let handed_in = contributions(workers);
    let reduced = tokio::task::spawn_blocking(move || all_reduce(&runtime, &scheme, &channels, &handed_in, 3));
    for round in reduced.await?? {
        for (worker, results) in round.results.into_iter().enumerate() {
            ensure!(results.samples == contributions(workers).iter().map(|part| part.samples).sum::<u64>());
            ensure!(results.into_numbers()[..] == expected, "worker {worker} of {workers}, {topology}");
        }
    }
    channel.forget(EVERY_ROUND).await?;
    place.must_be_empty().await
}

async fn same_as_mean(place: Place, topology: &str) -> Result<()> {
    let all = contributions(WORKERS);
    let parts: Vec<(&[f32], u64)> = all.iter().map(|part| (&part.numbers[..], part.samples)).collect();
    let mut mean = vec![0.0; LENGTH];
    merge::mean(&mut mean, &parts);
    reduce(place, WORKERS, topology.parse()?, Arithmetic::Mean, mean).await
}

async fn leader(place: Place) -> Result<()> {
    same_as_mean(place, "leader").await
}

async fn scatter(place: Place) -> Result<()> {
    same_as_mean(place, "scatter").await
}

async fn peers(place: Place) -> Result<()> {
    same_as_mean(place, "peers").await
}

/// Groups of workers 0 to 2 and 3 to 4, then the two of them.
async fn tree(place: Place) -> Result<()> {
    let all = contributions(WORKERS);
    let group = |workers: &[Offer]| -> Vec<f32> {
        let sum = |at: usize| {
            let terms = workers.iter().map(|part| part.samples as f32 * part.numbers[at]);
            terms.reduce(|sum, term| sum + term).expect("a group has workers")
        };
        (0..LENGTH).map(sum).collect()
    };
    let total = all.iter().map(|part| part.samples).sum::<u64>() as f32;
    let sums = group(&all[..3]).into_iter().zip(group(&all[3..]));
    let expected = sums.map(|(first, second)| (first + second) / total).collect();
    reduce(place, WORKERS, "tree:1,2,5".parse()?, Arithmetic::WeightedSum, expected).await
}

/// What the merges of a plan come to, one after the other, each as a sum of its parts in their order.
async fn same_as_its_merges(place: Place, workers: u32, topology: &str) -> Result<()> {
    let (topology, all) = (topology.parse::<Topology>()?, contributions(workers));
    let (mut sums, mut deepest) = (Vec::<Vec<f32>>::new(), 0);
    for merge in &plan(&topology, workers)?.merges {
        let term = |source: &Source, at: usize| match source {
            Source::Worker(worker) => {
                let part = &all[*worker as usize];
                part.samples as f32 * part.numbers[at]
            }
            Source::Merge(before) => sums[*before][at],
        };
        let sum = |at: usize| merge.from.iter().map(|source| term(source, at)).reduce(|sum, term| sum + term);
        deepest = deepest.max(merge.layer);
        sums.push((0..LENGTH).map(|at| sum(at).expect("a merge has parts")).collect());
    }
    ensure!(deepest > 1, "{topology} of {workers} workers is no tree of merges");
    let total = all.iter().map(|part| part.samples).sum::<u64>() as f32;
    let root = sums.pop().expect("a plan has merges");
    let expected = root.into_iter().map(|number| number / total).collect();
    reduce(place, workers, topology, Arithmetic::WeightedSum, expected).await
}

async fn automatic_tree(place: Place) -> Result<()> {
    same_as_its_merges(place, 11, "tree").await
}

async fn paper_tree(place: Place) -> Result<()> {
    same_as_its_merges(place, 7, "tree:paper").await
}

#[test]
fn trees_of_any_number_of_workers_add_as_their_plan_says() -> Result<()> {
    run(async {
        for topology in ["tree", "tree:paper"] {
            for workers in 7..=11 {
                same_as_its_merges(Place::memory().await?, workers, topology).await?;
            }
        }
        Ok(())
    })
}
