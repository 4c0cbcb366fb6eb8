//! The end of a tenant, on a server that outlives it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use weft::params::bucket::Keeping;
use weft::params::redis::{Incarnations, Link, Redis};
use weft::params::{Bucket, ParamError, ParamStore, Space};
use weft_tests::redis::RedisServer;

use super::super::backends::{LIMIT, PATIENCE, account, connect, key, run};
use super::asking::{bucket, chunks, floats};

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
