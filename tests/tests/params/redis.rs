//! What only a store elsewhere can do: be away, be full, be emptied, be locked.
//!
//! - [`asking`]: what tests ask a server
//! - `limits`: what it holds is bounded; `ends`: the end of a tenant

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weft::params::bucket::{Contributed, Keeping};
use weft::params::redis::{Incarnations, Link, Redis};
use weft::params::{ParamError, ParamStore};
use weft_tests::redis::{RedisCluster, RedisServer};

use self::asking::{bucket, floats};
use super::backends::{PATIENCE, connect, key, run};

pub mod asking;
mod ends;
mod limits;

/// Paused for ten seconds in the middle of contributions: nothing is lost, and nothing is counted twice.
#[test]
fn a_pause_loses_and_repeats_nothing() -> Result<()> {
    const ROUNDS: u32 = 40;
    const WORKERS: u32 = 3;
    let server = RedisServer::start()?;
    run(async {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let address = server.address();
                tokio::spawn(async move {
                    let bucket = bucket(connect(&address).await?);
                    for round in 0..ROUNDS {
                        let name = key(&format!("round/{round}"));
                        // Some of them in chunks.
                        let value = floats((worker + 1) as f32, if round % 8 == 0 { 100_000 } else { 10 });
                        let sent = bucket.contribute(&name, worker, value, Keeping::default()).await?;
                        ensure!(sent == Contributed::Counted, "{sent:?} in round {round}");
                        let merged = bucket.merged(&name, WORKERS, Duration::from_secs(60)).await?;
                        let sum = f32::from_le_bytes(merged.value.data[..4].try_into()?);
                        ensure!(sum == 6.0, "{sum} in round {round}");
                        bucket.increment(key("count"), 1).await?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        let watching = bucket(connect(&server.address()).await?);
        watching.wait_newer(&key("round/9"), 0, Duration::from_secs(60)).await?;
        server.pause()?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        server.go_on()?;
        for worker in workers {
            worker.await??;
        }
        let count = watching.get(&key("count")).await?.and_then(|entry| entry.value.count());
        ensure!(count == Some(i64::from(ROUNDS * WORKERS)), "{count:?}");
        Ok(())
    })
}

/// Killed and started again while it is written to, with everything on its disk before it answers.
#[test]
fn a_persistent_server_that_is_killed_loses_nothing_acknowledged() -> Result<()> {
    let mut server = RedisServer::persistent()?;
    run(async {
        let store = connect(&server.address()).await?;
        for cycle in 0..4 {
            let writing = {
                let bucket = bucket(store.clone());
                tokio::spawn(async move {
                    let mut acknowledged = Vec::new();
                    for number in 0..60 {
                        let large = if number % 20 == 7 { 3_000_000 } else { 10 };
                        let name = format!("cycle/{cycle}/{number}");
                        bucket.set(key(&name), floats(number as f32, large), Keeping::default()).await?;
                        bucket.increment(key("count"), 1).await?;
                        acknowledged.push((name, floats(number as f32, large)));
                    }
                    anyhow::Ok(acknowledged)
                })
            };
            let watching = bucket(store.clone());
            watching.wait_newer(&key(&format!("cycle/{cycle}/{}", 5 + cycle * 3)), 0, Duration::from_secs(60)).await?;
            server.restart()?;
            let acknowledged = writing.await??;
            for (name, value) in acknowledged {
                let found = watching.get(&key(&name)).await?.with_context(|| format!("`{name}` is gone"))?;
                ensure!(found.value == value, "`{name}`");
            }
        }
        let count = bucket(store).get(&key("count")).await?.and_then(|entry| entry.value.count());
        ensure!(count == Some(240), "{count:?}");
        Ok(())
    })
}

#[test]
fn an_emptied_server_is_lost_state_and_not_an_empty_store() -> Result<()> {
    let mut server = RedisServer::start()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("incarnations");
    let tenant = "tenant".parse()?;
    run(async {
        let open = async || -> Result<std::sync::Arc<Redis>> {
            let incarnations = Incarnations::open(&path).map_err(anyhow::Error::msg)?;
            Ok(Redis::connect(Link::open(&server.address(), None, PATIENCE).await?, incarnations).await?)
        };
        let store = open().await?;
        let used = bucket(store.clone());
        used.set(key("a"), floats(1.0, 10), Keeping::default()).await?;
        server.restart()?;
        let is_lost = |result: Result<(), ParamError>| matches!(result, Err(ParamError::Lost(_)));
        ensure!(is_lost(used.get(&key("a")).await.map(drop)));
        ensure!(is_lost(used.set(key("a"), floats(1.0, 10), Keeping::default()).await.map(drop)));
        ensure!(is_lost(used.increment(key("n"), 1).await.map(drop)));
        ensure!(is_lost(used.list("", None, 10).await.map(drop)));
        // Also for a node that was started again.
        drop((used, store));
        let incarnations = Incarnations::open(&path).map_err(anyhow::Error::msg)?;
        let again = Redis::connect(Link::open(&server.address(), None, PATIENCE).await?, incarnations).await?;
        let used = bucket(again.clone());
        ensure!(is_lost(used.get(&key("a")).await.map(drop)));
        again.accept_loss(&tenant).await?;
        ensure!(used.get(&key("a")).await?.is_none());
        used.set(key("a"), floats(2.0, 10), Keeping::default()).await?;
        Ok(())
    })
}

#[test]
fn missing_chunks_are_lost_state() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        bucket.set(key("large"), floats(1.0, 3_000_000), Keeping::default()).await?;
        let chunks = server.ask(&["--scan", "--pattern", "weft:chunk:*"])?;
        ensure!(chunks.lines().count() == 3, "{chunks}");
        server.ask(&["DEL", chunks.lines().next().context("no chunk")?])?;
        let lost = bucket.get(&key("large")).await;
        ensure!(matches!(lost, Err(ParamError::Lost(_))), "{lost:?}");
        Ok(())
    })
}

#[test]
fn what_is_replaced_is_collected() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&server.address()).await?;
        let bucket = bucket(store.clone());
        for value in 0..3 {
            bucket.set(key("large"), floats(value as f32, 3_000_000), Keeping::default()).await?;
        }
        let count = || -> Result<usize> { Ok(server.ask(&["--scan", "--pattern", "weft:chunk:*"])?.lines().count()) };
        ensure!(count()? == 9, "{}", count()?);
        store.collect().await?;
        ensure!(count()? == 9, "somebody may be reading them");
        // A minute later.
        for reference in server.ask(&["ZRANGE", "weft:{tenant}:g", "0", "-1"])?.lines() {
            server.ask(&["ZADD", "weft:{tenant}:g", "1", reference])?;
        }
        store.collect().await?;
        ensure!(count()? == 3, "{}", count()?);
        ensure!(bucket.get(&key("large")).await?.is_some_and(|entry| entry.value == floats(2.0, 3_000_000)));
        bucket.clear().await?;
        ensure!(store.used(&"tenant".parse()?).await? == 0);
        Ok(())
    })
}

#[test]
fn a_server_without_room_says_so() -> Result<()> {
    let server = RedisServer::with(&["--save", "", "--maxmemory", "16mb", "--maxmemory-policy", "noeviction"])?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        bucket.set(key("a"), floats(1.0, 1_000_000), Keeping::default()).await?;
        let full = loop {
            match bucket.set(key("b"), floats(1.0, 3_000_000), Keeping::default()).await {
                Ok(_) => continue,
                Err(error) => break error,
            }
        };
        ensure!(matches!(&full, ParamError::Full(text) if text.contains("maxmemory")), "{full:?}");
        ensure!(bucket.get(&key("a")).await?.is_some_and(|entry| entry.value == floats(1.0, 1_000_000)));
        Ok(())
    })
}

#[test]
fn passwords_are_used_and_never_told() -> Result<()> {
    let server = RedisServer::with(&["--save", "", "--requirepass", "sesame"])?;
    run(async {
        let right = format!("redis://:sesame@127.0.0.1:{}", server.port());
        bucket(connect(&right).await?).set(key("a"), floats(1.0, 1), Keeping::default()).await?;
        for address in [server.address(), format!("redis://:wrong-one@127.0.0.1:{}", server.port())] {
            let link = Link::open(&address, None, Duration::from_secs(2)).await?;
            let refused = Redis::connect(link, Incarnations::in_memory()).await.err().context("it was let in")?;
            let text = format!("{refused} {refused:?}");
            ensure!(!text.contains("wrong-one") && text.contains("127.0.0.1"), "{text}");
        }
        Ok(())
    })
}

#[test]
fn a_server_that_is_not_there_is_told_in_time() -> Result<()> {
    let mut server = RedisServer::start()?;
    let address = server.address();
    run(async {
        let link = Link::open(&address, None, Duration::from_secs(1)).await?;
        let bucket = bucket(Redis::connect(link, Incarnations::in_memory()).await?);
        bucket.set(key("a"), floats(1.0, 1), Keeping::default()).await?;
        server.kill()?;
        let start = Instant::now();
        let away = bucket.get(&key("a")).await;
        ensure!(matches!(away, Err(ParamError::Unavailable(_))), "{away:?}");
        ensure!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        Ok(())
    })
}

#[test]
fn chunks_are_spread_over_a_cluster() -> Result<()> {
    let cluster = RedisCluster::start()?;
    run(async {
        let bucket = bucket(connect(&cluster.address()).await?);
        bucket.set(key("large"), floats(1.0, 30_000_000), Keeping::default()).await?;
        for server in cluster.servers() {
            let chunks = server.ask(&["--scan", "--pattern", "weft:chunk:*"])?.lines().count();
            ensure!(chunks > 0, "none at port {}", server.port());
        }
        ensure!(bucket.get(&key("large")).await?.is_some_and(|entry| entry.value == floats(1.0, 30_000_000)));
        Ok(())
    })
}

#[test]
fn tls_is_spoken_and_strangers_are_not_trusted() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [certificate, secret] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name).display().to_string());
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&secret, made.signing_key.serialize_pem())?;
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &secret, "--tls-ca-cert-file", &certificate];
    let server = RedisServer::with_tls(&[&["--save", "", "--tls-auth-clients", "no"], &files[..]].concat())?;
    let address = format!("rediss://localhost:{}", server.tls_port().context("no TLS")?);
    run(async {
        let ca = std::path::Path::new(&certificate);
        let link = Link::open(&address, Some(ca), PATIENCE).await?;
        let bucket = bucket(Redis::connect(link, Incarnations::in_memory()).await?);
        bucket.set(key("a"), floats(1.0, 100_000), Keeping::default()).await?;
        ensure!(bucket.get(&key("a")).await?.is_some_and(|entry| entry.value == floats(1.0, 100_000)));
        let link = Link::open(&address, None, Duration::from_secs(1)).await?;
        let refused = Redis::connect(link, Incarnations::in_memory()).await.err().context("a stranger was trusted")?;
        ensure!(refused.to_string().contains("localhost"), "{refused}");
        Ok(())
    })
}
