//! The parameter store: what workers of one process pay for a value, how fast parts become a sum, and how much of a Redis'
//! own speed is left.

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use weft::params::bucket::Keeping;
use weft::params::embedded::Embedded;
use weft::params::redis::{Incarnations, Link, PATIENCE, Redis};
use weft::params::{Bucket, Entry, Key, ParamStore, Space, Value, merge};
use weft::tenant::Account;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::Stream;
use weft_gpu::{Codec, Context, Crew, DType, Feedback, Limits};
use weft_tests::redis::RedisServer;

use super::{Measurement, is_wanted, percentile};

const BENCH: &str = "stores";

/// 100 MB of f32.
const ELEMENTS: u64 = 25_000_000;
const PARTS: usize = 8;

const GETS: usize = 1_000;
const ROUNDS: usize = 7;

/// As large as one chunk.
const CHUNK: usize = 4 << 20;
/// Chunks that each worker sets and gets in a round.
const CHUNKS: usize = 8;
/// As the store has them.
const CONNECTIONS: usize = 4;

pub fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if is_wanted("params.embedded_get_100mb") {
        runtime.block_on(embedded_get())?;
    }
    if is_wanted("params.merge_8x100mb") {
        merge_parts()?;
    }
    if is_wanted("codec.qsgd4") {
        qsgd4()?;
    }
    if is_wanted("params.redis_set") || is_wanted("params.redis_get") {
        runtime.block_on(redis())?;
    }
    Ok(())
}

pub(super) fn bucket(store: Arc<dyn ParamStore>) -> Result<Bucket> {
    let space = Space::of_job("bench".parse()?, "job".parse()?);
    Ok(Bucket::new(store, space, Account::new("params_bytes", u64::MAX, None)))
}

fn tensor(seed: f32) -> Result<Value> {
    let data: Vec<u8> = (0..ELEMENTS).flat_map(|element| (element as f32 * 1e-7 + seed).to_le_bytes()).collect();
    Ok(Value::tensor(DType::F32, vec![ELEMENTS], data)?)
}

/// One worker sets, another gets: the same memory.
async fn embedded_get() -> Result<()> {
    let store: Arc<dyn ParamStore> = Embedded::in_memory();
    let (writer, reader) = (bucket(store.clone())?, bucket(store)?);
    let key: Key = "weights".parse()?;
    let value = tensor(0.5)?;
    let place = value.data.as_ptr();
    writer.set(key.clone(), value, Keeping::default()).await?;
    let mut times = Vec::with_capacity(GETS);
    for _ in 0..GETS {
        let start = Instant::now();
        let entry = black_box(reader.get(&key).await?);
        times.push(start.elapsed().as_secs_f64() * 1e6);
        ensure!(entry.is_some_and(|entry| entry.value.data.as_ptr() == place), "it was copied");
    }
    Measurement::alone(BENCH, "params.embedded_get_100mb", "us", percentile(&mut times, 0.5)).print()
}

/// Parts that are there become a sum; beside what the memory gives when as many threads copy.
fn merge_parts() -> Result<()> {
    let parts: Vec<(Key, Entry)> = (0..PARTS)
        .map(|worker| {
            let entry = Entry { version: 1, value: tensor(worker as f32)?, expires: None };
            Ok((format!("worker/{worker}").parse()?, entry))
        })
        .collect::<Result<_>>()?;
    let part = ELEMENTS as f64 * 4.0;
    let (mut ours, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        black_box(merge::sum(&parts)?);
        // Every part is read, and the sum is written.
        ours.push((PARTS + 1) as f64 * part / start.elapsed().as_secs_f64());
        copies.push(copy_bandwidth(&parts));
    }
    let (ours, copies) = (percentile(&mut ours, 0.5), percentile(&mut copies, 0.5));
    Measurement::beside(BENCH, "params.merge_8x100mb", "bytes_per_s", ours, copies).print()
}

/// Bytes read and written a second by all cores that copy what is there to memory that has been touched.
fn copy_bandwidth(parts: &[(Key, Entry)]) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut into = vec![1_u8; ELEMENTS as usize * 4];
    let share = into.len().div_ceil(cores);
    let start = Instant::now();
    for (_, entry) in parts {
        std::thread::scope(|scope| {
            for (into, from) in into.chunks_mut(share).zip(entry.value.data.chunks(share)) {
                scope.spawn(move || into.copy_from_slice(from));
            }
        });
    }
    black_box(&into);
    2.0 * parts.len() as f64 * ELEMENTS as f64 * 4.0 / start.elapsed().as_secs_f64()
}

/// Bytes on the wire of gradients in four bits, beside plain ones.
fn qsgd4() -> Result<()> {
    let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
    let values: Vec<f32> = (0..ELEMENTS / 10).map(|element| (element as f32 * 0.37).sin()).collect();
    let gradients = context.tensor(&[values.len()], &values)?;
    let sent = |codec: Codec| -> Result<f64> {
        Ok(codec.encode(&gradients, Feedback::default(), Stream { seed: 1, offset: 0 })?.to_wire()?.len() as f64)
    };
    let (ours, plain) = (sent("qsgd:4".parse()?)?, sent(Codec::Plain)?);
    Measurement::beside(BENCH, "codec.qsgd4", "bytes", ours, plain).print()
}

/// As many workers as the store has connections, each with values of one chunk.
async fn redis() -> Result<()> {
    let server = RedisServer::start()?;
    let link = Link::open(&server.address(), None, PATIENCE).await?;
    let store = Redis::connect(link, Incarnations::in_memory()).await?;
    let bucket = bucket(store.clone())?;
    let (mut sets, mut gets, mut their_sets, mut their_gets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        sets.push(by_workers(&bucket, true).await?);
        gets.push(by_workers(&bucket, false).await?);
        // What was replaced waits a minute for its readers; here there are none.
        empty(&server, &store).await?;
        // A chunk's key is never written twice, so theirs are not either.
        their_sets.push(redis_benchmark(&server, &["-t", "set", "-r", "1000000"], "SET")?);
        empty(&server, &store).await?;
        their_gets.push(redis_benchmark(&server, &["-t", "set,get"], "GET")?);
        empty(&server, &store).await?;
    }
    for (metric, ours, theirs) in
        [("params.redis_set", &mut sets, &mut their_sets), ("params.redis_get", &mut gets, &mut their_gets)]
    {
        let (ours, theirs) = (percentile(ours, 0.5), percentile(theirs, 0.5));
        Measurement::beside(BENCH, metric, "bytes_per_s", ours, theirs).print()?;
    }
    Ok(())
}

pub(super) async fn empty(server: &RedisServer, store: &Redis) -> Result<()> {
    server.ask(&["FLUSHALL"])?;
    Ok(store.accept_loss(&"bench".parse()?).await?)
}

/// Bytes a second that all workers together set, or get.
async fn by_workers(bucket: &Bucket, sets: bool) -> Result<f64> {
    let value = Value::bytes(vec![7_u8; CHUNK]);
    let start = Instant::now();
    let workers: Vec<_> = (0..CONNECTIONS)
        .map(|worker| {
            let (bucket, value) = (bucket.clone(), value.clone());
            tokio::spawn(async move {
                let key: Key = format!("worker/{worker}").parse()?;
                for _ in 0..CHUNKS {
                    if sets {
                        bucket.set(key.clone(), value.clone(), Keeping::default()).await?;
                    } else {
                        let entry = bucket.get(&key).await?.context("it was set")?;
                        ensure!(entry.value.data.len() == CHUNK);
                    }
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    Ok((CONNECTIONS * CHUNKS * CHUNK) as f64 / start.elapsed().as_secs_f64())
}

/// Bytes a second of Redis' own benchmark, with values as large as our chunks and as many connections as ours.
pub(super) fn redis_benchmark(server: &RedisServer, test: &[&str], figure: &str) -> Result<f64> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", "127.0.0.1", "-p", &server.port().to_string(), "--csv"]).args(test);
    let requests = (CONNECTIONS * CHUNKS).to_string();
    command.args(["-d", &CHUNK.to_string(), "-c", &CONNECTIONS.to_string(), "-n", &requests]);
    let output = command.output().context("no `redis-benchmark` here: run scripts/setup.sh test")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with(&format!("\"{figure}\"")));
    let per_second = line.and_then(|line| line.split(',').nth(1)?.trim_matches('"').parse::<f64>().ok());
    Ok(per_second.with_context(|| format!("redis-benchmark said: {text}"))? * CHUNK as f64)
}
