//! What tests ask a server, and what they put into it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use weft::params::redis::Redis;
use weft::params::{Bucket, Space, Value};
use weft_gpu::DType;
use weft_tests::redis::RedisServer;

use super::super::backends::{LIMIT, PATIENCE, account};

pub fn bucket(store: std::sync::Arc<Redis>) -> Bucket {
    let space = Space::of_job("tenant".parse().expect("a name"), "job".parse().expect("a name"));
    Bucket::new(store, space, account(LIMIT))
}

pub fn floats(value: f32, count: u64) -> Value {
    let data: Vec<u8> = (0..count).flat_map(|_| value.to_le_bytes()).collect();
    Value::tensor(DType::F32, vec![count], data).expect("as many bytes as elements")
}

pub fn chunks(server: &RedisServer) -> Result<usize> {
    Ok(server.ask(&["--scan", "--pattern", "weft:chunk:*"])?.lines().count())
}

/// Waits until the server is as it should be.
pub async fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds()? {
        ensure!(Instant::now() < end, "{what}: not after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// How often a command was run.
pub fn calls(server: &RedisServer, command: &str) -> Result<u64> {
    let statistics = server.ask(&["INFO", "commandstats"])?;
    let prefix = format!("cmdstat_{command}:calls=");
    let line = statistics.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
    Ok(line.map_or(Ok(0), str::parse)?)
}

/// How many scripts were run.
pub fn scripts(server: &RedisServer) -> Result<u64> {
    Ok(calls(server, "evalsha")? + calls(server, "eval")?)
}

pub fn held(server: &RedisServer, what: &str) -> Result<String> {
    Ok(server.ask(&["HGET", "weft:{tenant}:u", what])?.trim().to_owned())
}

/// Bytes of answers that a server keeps for a tenant, by its own count.
pub fn kept_answers(server: &RedisServer) -> Result<u64> {
    let places = server.ask(&["--scan", "--pattern", "weft:{tenant}:o*"])?;
    let counted = places.lines().map(|place| anyhow::Ok(server.ask(&["HGET", place, "bytes"])?.trim().parse::<u64>()?));
    counted.sum()
}
