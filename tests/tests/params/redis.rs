//! What only a store elsewhere can do: be away, be full, be emptied, be locked.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weft::params::bucket::{Contributed, Keeping};
use weft::params::redis::{Incarnations, Link, MAX_KEPT_ANSWERS, Redis};
use weft::params::{Bucket, Expect, ParamError, ParamStore, Space, Value};
use weft_gpu::DType;
use weft_tests::redis::{RedisCluster, RedisServer};

use super::backends::{LIMIT, PATIENCE, account, connect, key, run};

pub fn bucket(store: std::sync::Arc<Redis>) -> Bucket {
    let space = Space::of_job("tenant".parse().expect("a name"), "job".parse().expect("a name"));
    Bucket::new(store, space, account(LIMIT))
}

pub fn floats(value: f32, count: u64) -> Value {
    let data: Vec<u8> = (0..count).flat_map(|_| value.to_le_bytes()).collect();
    Value::tensor(DType::F32, vec![count], data).expect("as many bytes as elements")
}

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
fn scripts(server: &RedisServer) -> Result<u64> {
    Ok(calls(server, "evalsha")? + calls(server, "eval")?)
}

pub fn held(server: &RedisServer, what: &str) -> Result<String> {
    Ok(server.ask(&["HGET", "weft:{tenant}:u", what])?.trim().to_owned())
}

#[test]
fn what_is_over_the_limit_is_never_sent() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&server.address()).await?;
        let space = Space::of_job("tenant".parse()?, "job".parse()?);
        let bucket = Bucket::new(store, space, account(20_000_000));
        bucket.set(key("a"), floats(1.0, 3_000_000), Keeping::default()).await?;
        server.ask(&["CONFIG", "RESETSTAT"])?;
        let over = bucket.set(key("b"), floats(1.0, 3_000_000), Keeping::default()).await;
        ensure!(matches!(over, Err(ParamError::OverLimit(_))), "{over:?}");
        let done = server.ask(&["INFO", "commandstats"])?;
        ensure!(!done.contains("cmdstat_set:"), "something was sent: {done}");
        ensure!(chunks(&server)? == 3 && matches!(held(&server, "reserved")?.as_str(), "0"));
        Ok(())
    })
}

#[test]
fn what_is_refused_is_gone_at_once() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        bucket.set(key("a"), floats(1.0, 1), Keeping::default()).await?;
        let large = || floats(1.0, 3_000_000);
        let conflict = bucket.compare_and_set(key("a"), Expect::Version(1), large(), Keeping::default()).await;
        ensure!(matches!(conflict, Err(ParamError::Conflict { .. })), "{conflict:?}");
        let old = bucket.claimed(&key("worker")).await?;
        bucket.claimed(&key("worker")).await?;
        let fenced = old.set(key("b"), large(), Keeping::default()).await;
        ensure!(matches!(fenced, Err(ParamError::Fenced { .. })), "{fenced:?}");
        ensure!(chunks(&server)? == 0, "{} chunks are left", chunks(&server)?);
        ensure!(held(&server, "reserved")? == "0" && server.ask(&["ZCARD", "weft:{tenant}:g"])?.trim() == "0");
        Ok(())
    })
}

/// A writer that replaces a value again and again keeps no more for its readers than it may have.
#[test]
fn what_is_replaced_is_bounded_by_the_limit() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&server.address()).await?;
        let space = Space::of_job("tenant".parse()?, "job".parse()?);
        let bucket = Bucket::new(store, space, account(30_000_000));
        for value in 0..12 {
            bucket.set(key("large"), floats(value as f32, 3_000_000), Keeping::default()).await?;
            ensure!(chunks(&server)? <= 3 * 5, "{} chunks after {value}", chunks(&server)?);
        }
        ensure!(bucket.get(&key("large")).await?.is_some_and(|entry| entry.value == floats(11.0, 3_000_000)));
        Ok(())
    })
}

#[test]
fn what_is_read_is_counted_before_it_comes() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&server.address()).await?;
        let writer = bucket(store.clone());
        writer.set(key("large"), floats(1.0, 3_000_000), Keeping::default()).await?;
        writer.contribute(&key("round"), 0, floats(1.0, 3_000_000), Keeping::default()).await?;
        writer.publish(&key("topic"), 0, floats(1.0, 3_000_000), Keeping::default()).await?;
        let poor = account(1_000_000);
        let reader = Bucket::new(store, Space::of_job("tenant".parse()?, "job".parse()?), poor.clone());
        server.ask(&["CONFIG", "RESETSTAT"])?;
        for refused in [
            reader.get(&key("large")).await.map(drop),
            reader.get_if_newer(&key("large"), 0).await.map(drop),
            reader.wait_newer(&key("large"), 0, Duration::from_secs(1)).await.map(drop),
            reader.get_range(&key("large"), 0..5_000_000).await.map(drop),
            reader.take(&[key("large")]).await.map(drop),
            reader.merged(&key("round"), 1, Duration::from_secs(1)).await.map(drop),
            reader.latest(&key("topic")).await.map(drop),
        ] {
            ensure!(matches!(refused, Err(ParamError::OverLimit(_))), "{refused:?}");
        }
        let sent = server.ask(&["INFO", "stats"])?;
        let sent =
            sent.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")).context("no statistic")?;
        ensure!(sent.trim().parse::<u64>()? < 1_000_000, "{sent} bytes came");
        ensure!(poor.used() == 0);
        let part = reader.get_range(&key("large"), 0..500_000).await?.context("it is there")?;
        ensure!(poor.used() == 500_000, "{}", poor.used());
        drop(part);
        ensure!(poor.used() == 0 && writer.take(&[key("large")]).await?[0].is_some());
        Ok(())
    })
}

/// While a script runs, nobody else is served.
#[test]
fn no_script_looks_at_more_than_some_names() -> Result<()> {
    const NAMES: usize = 20_000;
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        let names: Vec<_> = (0..NAMES).map(|number| key(&format!("name/{number:05}"))).collect();
        for names in names.chunks(1_000) {
            let values = names.iter().map(|name| (name.clone(), floats(1.0, 1))).collect();
            bucket.set_many(values, Keeping::default()).await?;
        }
        let before = scripts(&server)?;
        ensure!(bucket.clear().await? == NAMES as u64);
        let run = scripts(&server)? - before;
        ensure!(run >= 20, "{NAMES} names in {run} scripts");
        ensure!(server.ask(&["EXISTS", "weft:{tenant}:h:job", "weft:{tenant}:z:job"])?.trim() == "0");
        Ok(())
    })
}

#[test]
fn no_script_lists_or_reads_more_than_some_at_once() -> Result<()> {
    const NAMES: usize = 1_000;
    const BYTES: usize = 60_000;
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        let names: Vec<_> = (0..NAMES).map(|number| key(&format!("name/{number:05}"))).collect();
        for names in names.chunks(100) {
            let values = names.iter().map(|name| (name.clone(), Value::bytes(vec![7; BYTES]))).collect();
            bucket.set_many(values, Keeping::default()).await?;
        }
        let before = scripts(&server)?;
        ensure!(bucket.list("name/", None, NAMES).await?.items.len() == NAMES);
        let run = scripts(&server)? - before;
        ensure!(run >= 4, "{NAMES} names in {run} scripts");
        let before = scripts(&server)?;
        ensure!(bucket.get_many(&names).await?.iter().flatten().count() == NAMES);
        let run = (scripts(&server)? - before) as usize;
        ensure!(run >= (NAMES * BYTES) >> 20, "{} bytes in {run} scripts", NAMES * BYTES);
        Ok(())
    })
}

#[test]
fn a_short_list_passes_over_many_expired_names_in_few_steps() -> Result<()> {
    const NAMES: usize = 2_000;
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        let names: Vec<_> = (0..NAMES).map(|number| key(&format!("name/{number:05}"))).collect();
        let values = names.iter().map(|name| (name.clone(), floats(1.0, 1))).collect();
        bucket.set_many(values, Keeping { expires: Some(Duration::from_millis(1)), ..Keeping::default() }).await?;
        bucket.set(key("name/last"), floats(1.0, 1), Keeping::default()).await?;
        let end = Instant::now() + PATIENCE;
        while bucket.head(&names[0]).await?.is_some() {
            ensure!(Instant::now() < end, "it does not expire");
        }
        let before = scripts(&server)?;
        let page = bucket.list("", None, 1).await?;
        let run = scripts(&server)? - before;
        ensure!(page.items.len() == 1 && page.items[0].0 == key("name/last") && page.next.is_none(), "{page:?}");
        ensure!(run <= 10, "{NAMES} expired names were passed over in {run} scripts");
        Ok(())
    })
}

/// A server that is full lets go of what is deleted.
#[test]
fn what_is_deleted_makes_room_in_a_full_server() -> Result<()> {
    let server = RedisServer::with(&["--save", "", "--maxmemory", "24mb", "--maxmemory-policy", "noeviction"])?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        bucket.set(key("a"), floats(1.0, 2_000_000), Keeping::default()).await?;
        for number in 0.. {
            let name = key(&format!("fill/{number}"));
            if let Err(error) = bucket.set(name, floats(1.0, 10_000), Keeping::default()).await {
                ensure!(matches!(error, ParamError::Full(_)), "{error:?}");
                break;
            }
        }
        ensure!(bucket.delete(&[key("a")]).await? == 1);
        Ok(())
    })
}

/// Nothing of a tenant that is gone is left, but the knowledge that it is.
#[test]
fn a_server_keeps_nothing_of_a_tenant_that_is_gone() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&server.address()).await?;
        let bucket = bucket(store.clone());
        bucket.set(key("large"), floats(1.0, 3_000_000), Keeping::default()).await?;
        bucket.set(key("large"), floats(2.0, 3_000_000), Keeping::default()).await?;
        bucket.claimed(&key("worker")).await?;
        store.end(&"tenant".parse()?).await?;
        ensure!(chunks(&server)? == 0, "{} chunks are left", chunks(&server)?);
        let left = server.ask(&["--scan", "--pattern", "weft:{tenant}*"])?;
        let left: Vec<&str> = left.lines().filter(|name| !name.contains(":o:")).collect();
        ensure!(left.iter().all(|name| name.ends_with(":u") || name.ends_with(":i")), "{left:?}");
        // Nor does a job bring it back that is cleared after that.
        ensure!(bucket.clear().await? == 0);
        ensure!(server.ask(&["SMEMBERS", "weft:tenants"])?.trim().is_empty());
        // A node that has not heard of it is told too.
        let elsewhere = connect(&server.address()).await?;
        let space = Space::of_job("tenant".parse()?, "job".parse()?);
        let late =
            Bucket::new(elsewhere, space, account(LIMIT)).set(key("a"), floats(1.0, 1), Keeping::default()).await;
        ensure!(matches!(late, Err(ParamError::Ended)), "{late:?}");
        Ok(())
    })
}

/// A tenant with more garbage than can be deleted in the time that one try has.
#[test]
fn the_end_of_a_tenant_is_not_reached_before_all_of_it_is_gone() -> Result<()> {
    const GARBAGE: usize = 5_000;
    let server = RedisServer::start()?;
    run(async {
        let link = Link::open(&server.address(), None, Duration::from_millis(1)).await?;
        let store = Redis::connect(link, Incarnations::in_memory()).await?;
        bucket(store.clone()).set(key("a"), floats(1.0, 1), Keeping::default()).await?;
        let garbage = "for i = 1, ARGV[1] do \
            redis.call('ZADD', 'weft:{tenant}:g', 1, '0.' .. i .. ' 1') \
            redis.call('SET', 'weft:chunk:tenant:0.' .. i .. ':0', 'x') end";
        server.ask(&["EVAL", garbage, "0", &GARBAGE.to_string()])?;
        ensure!(chunks(&server)? == GARBAGE);
        let tenant = "tenant".parse()?;
        let (mut tries, end) = (1, Instant::now() + PATIENCE);
        while let Err(error) = store.end(&tenant).await {
            ensure!(matches!(error, ParamError::Unavailable(_)), "{error:?}");
            ensure!(server.ask(&["SMEMBERS", "weft:tenants"])?.contains("tenant"), "nobody collects the rest");
            ensure!(Instant::now() < end, "{} chunks are left", chunks(&server)?);
            tries += 1;
        }
        ensure!(tries > 1, "{GARBAGE} chunks in one try");
        let left = server.ask(&["--scan", "--pattern", "weft:*"])?;
        let left: Vec<&str> = left.lines().filter(|name| !name.contains(":o:")).collect();
        ensure!(left.iter().all(|name| name.ends_with(":u") || name.ends_with(":i")), "{left:?}");
        Ok(())
    })
}

/// Bytes of answers that a server keeps for a tenant, by its own count.
fn kept_answers(server: &RedisServer) -> Result<u64> {
    let places = server.ask(&["--scan", "--pattern", "weft:{tenant}:o*"])?;
    let counted = places.lines().map(|place| anyhow::Ok(server.ask(&["HGET", place, "bytes"])?.trim().parse::<u64>()?));
    counted.sum()
}

/// A server keeps answers for whoever asks again. Those that have arrived nobody asks for.
#[test]
fn answers_that_have_arrived_are_forgotten() -> Result<()> {
    const CHANGES: i64 = 2_000;
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&server.address()).await?;
        let bucket = bucket(store.clone());
        for _ in 0..CHANGES {
            bucket.increment(key("count"), 1).await?;
        }
        bucket.set(key("large"), floats(1.0, 100_000), Keeping::default()).await?;
        let kept = kept_answers(&server)?;
        ensure!(kept < 2_000, "{kept} bytes of answers are kept of {CHANGES} changes");
        // What was counted is what is there, also of a node that died before it could say what had arrived.
        drop((bucket, store));
        let places = server.ask(&["--scan", "--pattern", "weft:{tenant}:o*"])?;
        for place in places.lines() {
            let expires: i64 = server.ask(&["PTTL", place])?.trim().parse()?;
            ensure!((1..=120_000).contains(&expires), "`{place}` expires in {expires} ms");
        }
        Ok(())
    })
}

/// A tenant whose answers do not arrive has no more of them kept than it may, and can still read.
#[test]
fn answers_that_are_kept_are_bounded() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        bucket.increment(key("count"), 1).await?;
        let kept = kept_answers(&server)?;
        let span = server.ask(&["TIME"])?.lines().next().context("no time")?.trim().parse::<u64>()? / 60;
        let place = format!("weft:{{tenant}}:o:{span}");
        server.ask(&["HINCRBY", &place, "bytes", &(MAX_KEPT_ANSWERS - kept).to_string()])?;
        let refused = bucket.increment(key("count"), 1).await;
        // The one that had arrived was forgotten, and makes no room for a whole one.
        ensure!(matches!(refused, Err(ParamError::KeptAnswers { most: MAX_KEPT_ANSWERS })), "{refused:?}");
        for large in [10, 100_000] {
            let refused = bucket.set(key("other"), floats(1.0, large), Keeping::default()).await;
            ensure!(matches!(refused, Err(ParamError::KeptAnswers { .. })), "{large}: {refused:?}");
        }
        ensure!(bucket.delete(&[key("count")]).await.is_err(), "a deletion is a change");
        let count = bucket.get(&key("count")).await?.and_then(|entry| entry.value.count());
        ensure!(count == Some(1) && bucket.get(&key("other")).await?.is_none(), "{count:?}");
        ensure!(chunks(&server)? == 0, "chunks of a change that was refused");
        server.ask(&["DEL", &place])?;
        bucket.increment(key("count"), 1).await?;
        Ok(())
    })
}

/// What a server answered is kept for a while: it must not hold values.
#[test]
fn what_was_taken_leaves_no_copy_in_the_server() -> Result<()> {
    const TAKEN: u64 = 200;
    const BYTES: u64 = 60_000;
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        let memory = || -> Result<u64> {
            let told = server.ask(&["INFO", "memory"])?;
            let used = told.lines().find_map(|line| line.strip_prefix("used_memory_dataset:")).context("no memory")?;
            Ok(used.trim().parse()?)
        };
        bucket.increment(key("warm"), 1).await?;
        let before = memory()?;
        for round in 0..TAKEN {
            let value = Value::bytes(vec![round as u8; BYTES as usize]);
            bucket.set(key("a"), value.clone(), Keeping::default()).await?;
            ensure!(bucket.take(&[key("a")]).await?[0].as_ref().is_some_and(|entry| entry.value == value));
        }
        let more = memory()?.saturating_sub(before);
        ensure!(more < TAKEN * BYTES / 4, "{more} bytes are left of values that are gone");
        Ok(())
    })
}

/// A tenant that replaces a lot gives up what it keeps for readers. A value that is being taken is not among that.
#[test]
fn what_is_taken_arrives_while_other_values_are_replaced() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&server.address()).await?;
        let space = Space::of_job("tenant".parse()?, "job".parse()?);
        // Room for three values, so that no more than that is kept for readers.
        let crowded = Bucket::new(store.clone(), space, account(45_000_000));
        let replacing = tokio::spawn(async move {
            for round in 0.. {
                crowded.set(key("other"), floats(round as f32, 3_000_000), Keeping::default()).await?;
            }
            anyhow::Ok(())
        });
        let bucket = bucket(store);
        for round in 0..30 {
            bucket.set(key("a"), floats(round as f32, 3_000_000), Keeping::default()).await?;
            let taken = bucket.take(&[key("a")]).await?.pop().flatten().context("nobody else takes it")?;
            ensure!(taken.value == floats(round as f32, 3_000_000), "round {round}");
        }
        ensure!(!replacing.is_finished(), "{:?}", replacing.await?);
        replacing.abort();
        Ok(())
    })
}

#[test]
fn a_sum_is_counted_for_as_long_as_it_is_held() -> Result<()> {
    const BYTES: u64 = 400_000;
    let server = RedisServer::start()?;
    run(async {
        let account = account(LIMIT);
        let space = Space::of_job("tenant".parse()?, "job".parse()?);
        let bucket = Bucket::new(connect(&server.address()).await?, space, account.clone());
        for round in ["merged", "drained"] {
            for worker in 0..2 {
                bucket.contribute(&key(round), worker, floats(1.0, BYTES / 4), Keeping::default()).await?;
            }
        }
        let merged = bucket.merged(&key("merged"), 2, PATIENCE).await?;
        ensure!(account.used() == BYTES, "{}", account.used());
        drop(merged);
        let drained = bucket.drain(&key("drained"), 2).await?;
        ensure!(account.used() == BYTES, "{}", account.used());
        drop(drained);
        ensure!(account.used() == 0, "{}", account.used());
        Ok(())
    })
}

/// Two nodes share a store, and the tenant of one of them is deleted.
#[test]
fn a_tenant_that_lives_begins_anew_after_its_store_was_ended() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let (one, two) = (connect(&server.address()).await?, connect(&server.address()).await?);
        let (tenant, living) = ("tenant".parse()?, bucket(two.clone()));
        let before = living.set(key("a"), floats(1.0, 1), Keeping::default()).await?;
        one.end(&tenant).await?;
        let ended = living.set(key("a"), floats(1.0, 1), Keeping::default()).await;
        ensure!(matches!(ended, Err(ParamError::Ended)), "{ended:?}");
        two.accept_loss(&tenant).await?;
        ensure!(living.get(&key("a")).await?.is_none(), "it was deleted");
        ensure!(living.set(key("a"), floats(2.0, 1), Keeping::default()).await? > before);
        for kind in ["u", "i"] {
            let left = server.ask(&["PTTL", &format!("weft:{{tenant}}:{kind}")])?;
            ensure!(left.trim() == "-1", "`{kind}` goes in {left}");
        }
        ensure!(server.ask(&["SMEMBERS", "weft:tenants"])?.contains("tenant"));
        Ok(())
    })
}

#[test]
fn a_tenant_that_lives_finishes_an_end_that_was_cut_short() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&server.address()).await?;
        let living = bucket(store.clone());
        living.set(key("large"), floats(1.0, 100_000), Keeping::default()).await?;
        // The node that deletes dies after its first step.
        server.ask(&["HSET", "weft:{tenant}:u", "ended", "1"])?;
        store.accept_loss(&"tenant".parse()?).await?;
        ensure!(chunks(&server)? == 0 && living.get(&key("large")).await?.is_none());
        living.set(key("large"), floats(2.0, 100_000), Keeping::default()).await?;
        Ok(())
    })
}

#[test]
fn whoever_is_late_to_end_a_store_leaves_the_one_that_began_anew() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let (late, other) = (connect(&server.address()).await?, connect(&server.address()).await?);
        let tenant = "tenant".parse()?;
        bucket(late.clone()).set(key("a"), floats(1.0, 1), Keeping::default()).await?;
        other.end(&tenant).await?;
        other.accept_loss(&tenant).await?;
        let living = bucket(other);
        living.set(key("a"), floats(2.0, 1), Keeping::default()).await?;
        late.end(&tenant).await?;
        ensure!(living.get(&key("a")).await?.is_some_and(|entry| entry.value == floats(2.0, 1)));
        Ok(())
    })
}
