//! The exchange without functions: topologies over links as slow as a cloud's, and all-reduces as fast as memory and a
//! Redis are. And with one: what a job's steps cost that go through the embedded store.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::runtime::Runtime;
use weft::job::channel::{Channel, EVERY_ROUND, LinkChannel, MemoryChannel, Numbers, Speed, StoreChannel};
use weft::job::exchange::{ExchangeTimes, Layout, Offer, Scheme};
use weft::params::redis::{Incarnations, Link, PATIENCE, Redis};
use weft_core::sync::accumulate::Arithmetic;
use weft_core::sync::topology::{Topology, plan};
use weft_tests::components::component;
use weft_tests::exchange::{Reduced, all_reduce};
use weft_tests::node::Options;
use weft_tests::redis::RedisServer;

use super::stores::{bucket, empty, redis_benchmark};
use super::{Measurement, is_wanted, percentile};

const BENCH: &str = "exchange";

/// 89 MB, as ResNet-50 has in LambdaML.
const LARGE: usize = 89_000_000 / size_of::<f32>();
const LARGE_WORKERS: u32 = 10;
/// Between a cloud function and its object store (LambdaML, Table 6).
const CLOUD: Speed = Speed { bytes_per_second: 65e6, latency: Duration::from_millis(80) };
/// Seconds that LambdaML measured for an all-reduce by a leader of that.
const LAMBDAML_LEADER: f64 = 17.3;

/// As the merge tree's paper has it: a small model, many workers, and a transfer that takes as long however small it is.
const SMALL: usize = 42_601;
const SMALL_WORKERS: u32 = 100;
const ONE_MILLISECOND: Speed = Speed { bytes_per_second: f64::INFINITY, latency: Duration::from_millis(1) };

const ROUNDS: usize = 5;

pub fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if is_wanted("exchange.tree.100") {
        tree(&runtime)?;
    }
    if is_wanted("exchange.scatter.89mb") || is_wanted("exchange.leader.89mb_s") {
        scatter(&runtime)?;
    }
    if is_wanted("exchange.memory.89mb") {
        memory(&runtime)?;
    }
    if is_wanted("exchange.redis.89mb") {
        redis(&runtime)?;
    }
    if is_wanted("exchange.step_overhead") {
        step_overhead()?;
    }
    Ok(())
}

fn scheme(topology: &str, workers: u32, elements: usize) -> Result<Scheme> {
    let topology: Topology = topology.parse()?;
    let arithmetic = if matches!(topology, Topology::Tree(_)) { Arithmetic::WeightedSum } else { Arithmetic::Mean };
    Ok(Scheme { plan: Arc::new(plan(&topology, workers)?), layout: Layout::plain(elements), arithmetic, decode: None })
}

fn numbers(elements: usize, seed: u32) -> Numbers {
    (0..elements).map(|at| (at % 1_000) as f32 * 1e-3 + seed as f32).collect::<Vec<f32>>().into()
}

/// Contributions that are all the same vector, where only transfers are measured.
fn shared(workers: u32, elements: usize) -> Vec<Offer> {
    let numbers = numbers(elements, 0);
    (0..workers).map(|_| Offer { samples: 64, numbers: numbers.clone(), encoded: None }).collect()
}

fn seconds(reduced: &Reduced) -> f64 {
    reduced.took.as_secs_f64()
}

/// Seconds of all-reduces, each worker with a link of its own.
fn linked(
    runtime: &Runtime,
    topology: &str,
    workers: u32,
    elements: usize,
    speed: Speed,
    rounds: usize,
) -> Result<f64> {
    let scheme = scheme(topology, workers, elements)?;
    let memory: Arc<dyn Channel> = Arc::new(MemoryChannel::new());
    let link = || Arc::new(LinkChannel::new(memory.clone(), speed)) as Arc<dyn Channel>;
    let channels: Vec<_> = (0..workers).map(|_| link()).collect();
    let reduced = all_reduce(runtime.handle(), &scheme, &channels, &shared(workers, elements), rounds)?;
    if let Some(last) = reduced.last() {
        steps(topology, &last.times);
    }
    Ok(percentile(&mut reduced.iter().map(seconds).collect::<Vec<_>>(), 0.5))
}

/// What the steps took the worker that they took longest, told on the side.
fn steps(topology: &str, times: &[ExchangeTimes]) {
    let longest = |step: fn(&ExchangeTimes) -> Duration| times.iter().map(step).max().unwrap_or_default().as_secs_f64();
    eprintln!(
        "  {topology}: UL-shard {:.3} s, DL-shard {:.3} s, merging {:.3} s, UL-aggr {:.3} s, DL-grad {:.3} s",
        longest(|times| times.put_parts),
        longest(|times| times.get_parts),
        longest(|times| times.merging),
        longest(|times| times.put_results),
        longest(|times| times.get_results),
    );
}

fn tree(runtime: &Runtime) -> Result<()> {
    let took = |topology| linked(runtime, topology, SMALL_WORKERS, SMALL, ONE_MILLISECOND, ROUNDS);
    let (tree, flat) = (took("tree")?, took("leader")?);
    Measurement::faster(BENCH, "exchange.tree.100", "ms", tree * 1e3, flat * 1e3).print()
}

fn scatter(runtime: &Runtime) -> Result<()> {
    let took = |topology| linked(runtime, topology, LARGE_WORKERS, LARGE, CLOUD, 1);
    let (scatter, leader) = (took("scatter")?, took("leader")?);
    Measurement::faster(BENCH, "exchange.scatter.89mb", "s", scatter, leader).print()?;
    Measurement::beside(BENCH, "exchange.leader.89mb_s", "s", leader, LAMBDAML_LEADER).print()
}

fn memory(runtime: &Runtime) -> Result<()> {
    let scheme = scheme("scatter", LARGE_WORKERS, LARGE)?;
    let contributions: Vec<Offer> = (0..LARGE_WORKERS)
        .map(|worker| Offer { samples: 64, numbers: numbers(LARGE, worker), encoded: None })
        .collect();
    let channel: Arc<dyn Channel> = Arc::new(MemoryChannel::new());
    let channels = vec![channel; LARGE_WORKERS as usize];
    // The first one makes the memory that later ones find.
    let reduced = all_reduce(runtime.handle(), &scheme, &channels, &contributions, ROUNDS + 1)?;
    let mut times: Vec<f64> = reduced[1..].iter().map(seconds).collect();
    steps("scatter in memory", &reduced[ROUNDS].times);
    Measurement::alone(BENCH, "exchange.memory.89mb", "s", percentile(&mut times, 0.5)).print()
}

/// All that passes through the server, by the second; beside what the server's own benchmark sets and gets in the same
/// proportion.
fn redis(runtime: &Runtime) -> Result<()> {
    let server = RedisServer::start()?;
    let store = runtime.block_on(async {
        let link = Link::open(&server.address(), None, PATIENCE).await?;
        anyhow::Ok(Redis::connect(link, Incarnations::in_memory()).await?)
    })?;
    let scheme = scheme("scatter", LARGE_WORKERS, LARGE)?;
    let contributions = shared(LARGE_WORKERS, LARGE);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..ROUNDS {
        let channel: Arc<dyn Channel> = Arc::new(StoreChannel::new(bucket(store.clone())?, run as u64));
        let channels = vec![channel.clone(); LARGE_WORKERS as usize];
        let reduced = all_reduce(runtime.handle(), &scheme, &channels, &contributions, 1)?;
        let reduced = reduced.first().context("one round")?;
        steps("scatter through Redis", &reduced.times);
        let traffic = channel.traffic();
        let (out, back) = (traffic.bytes_out as f64, traffic.bytes_in as f64);
        ours.push((out + back) / seconds(reduced));
        runtime.block_on(channel.forget(EVERY_ROUND))?;
        // Chunks that no value names any more wait a minute for their readers; here there are none.
        runtime.block_on(empty(&server, &store))?;
        // A chunk's key is never written twice, so theirs are not either.
        let set = redis_benchmark(&server, &["-t", "set", "-r", "1000000"], "SET")?;
        runtime.block_on(empty(&server, &store))?;
        let get = redis_benchmark(&server, &["-t", "set,get"], "GET")?;
        runtime.block_on(empty(&server, &store))?;
        theirs.push((out + back) / (out / set + back / get));
    }
    let (ours, theirs) = (percentile(&mut ours, 0.5), percentile(&mut theirs, 0.5));
    Measurement::beside(BENCH, "exchange.redis.89mb", "bytes_per_s", ours, theirs).print()
}

/// Samples a second of a job of four workers whose gradients and models go through the embedded store in every step, beside
/// those of the same job in memory; in turns.
fn step_overhead() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    client.must_deploy("lenet", &component("functions/lenet")?)?;
    let digits = serde_json::to_vec(&json!({ "shipped": "digits" }))?;
    ensure!(client.send("PUT", "/v1/datasets/digits", &[], &digits)?.status == 201);
    let train = |channel: &str| -> Result<Vec<f64>> {
        let spec = json!({
            "function": "lenet", "dataset": "digits", "seed": 1, "memory": 64 << 20, "workers": 4, "batch": 64,
            "epochs": 40, "validate_every": 0, "sync": { "rule": "gradient-average", "channel": channel },
        });
        let name = client.must_submit(&spec)?;
        // Followed, not asked again and again: whoever asks takes time from those who compute.
        client.follow(&name, None)?.try_for_each(|event| event.map(drop))?;
        let history = client.must_finish(&name, Duration::from_secs(600))?.history;
        Ok(history.iter().skip(1).map(|epoch| epoch.samples_per_second).collect())
    };
    let (mut store, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        memory.extend(train("memory")?);
        store.extend(train("store")?);
    }
    let (store, memory) = (percentile(&mut store, 0.5), percentile(&mut memory, 0.5));
    Measurement::beside(BENCH, "exchange.step_overhead", "per_s", store, memory).print()
}
