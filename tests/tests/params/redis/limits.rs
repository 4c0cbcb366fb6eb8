//! What a server holds of a tenant is bounded, and so is the work of one script.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weft::params::bucket::Keeping;
use weft::params::redis::MAX_KEPT_ANSWERS;
use weft::params::{Bucket, Expect, ParamError, Space, Value};
use weft_tests::redis::RedisServer;

use super::super::backends::{LIMIT, PATIENCE, account, connect, key, run};
use super::asking::{bucket, chunks, floats, held, kept_answers, scripts};

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
