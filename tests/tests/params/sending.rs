//! Large values on their way to a server: given up, collected, renewed, cut off.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weft::params::bucket::Keeping;
use weft::params::redis::{Incarnations, Link, Redis};
use weft::params::{Bucket, ParamError, ParamStore};
use weft_tests::redis::RedisServer;

use super::backends::{PATIENCE, connect, key, run};
use super::redis::asking::{bucket, calls, chunks, floats, held, until};

/// Where the child sends to; only the child has it.
const ADDRESS: &str = "WEFT_TEST_PARAMS_ADDRESS";

/// Of the large value, and the chunks that it is cut into.
const ELEMENTS: u64 = 40_000_000;
const CHUNKS: u64 = 39;

/// The address of a server by a way that carries so many bytes a second on each connection. There are four of them.
async fn slow_way(server: &RedisServer, bytes_per_second: u32) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, to) = (listener.local_addr()?, server.port());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, to, bytes_per_second));
        }
    });
    Ok(format!("redis://{address}"))
}

async fn carry(client: TcpStream, to: u16, bytes_per_second: u32) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = TcpStream::connect(("127.0.0.1", to)).await?.into_split();
    let requests = async {
        let mut part = vec![0; 64 << 10];
        loop {
            let bytes = from_client.read(&mut part).await?;
            if bytes == 0 {
                return Ok(());
            }
            to_server.write_all(&part[..bytes]).await?;
            tokio::time::sleep(Duration::from_secs(1) * bytes as u32 / bytes_per_second).await;
        }
    };
    tokio::select! {
        done = requests => done,
        done = tokio::io::copy(&mut from_server, &mut to_client) => done.map(drop),
    }
}

/// Whoever uses the server; this question is one of them.
fn connections(server: &RedisServer) -> Result<usize> {
    Ok(server.ask(&["CLIENT", "LIST"])?.matches(" addr=").count())
}

/// What is garbage at its time is garbage now.
fn let_the_time_pass(server: &RedisServer) -> Result<()> {
    for reference in server.ask(&["ZRANGE", "weft:{tenant}:g", "0", "-1"])?.lines() {
        server.ask(&["ZADD", "weft:{tenant}:g", "XX", "1", reference])?;
    }
    Ok(())
}

/// Begins to send a value, and goes away in the middle of that.
async fn give_up_sending(server: &RedisServer, bucket: Bucket) -> Result<()> {
    let sending =
        tokio::spawn(async move { bucket.set(key("large"), floats(1.0, ELEMENTS), Keeping::default()).await });
    until("chunks are sent", || Ok(chunks(server)? > 0)).await?;
    sending.abort();
    ensure!(sending.await.is_err(), "it was sent before it could be given up");
    Ok(())
}

#[test]
fn a_write_that_nobody_waits_for_leaves_no_reservation() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&slow_way(&server, 32 << 20).await?).await?);
        give_up_sending(&server, bucket.clone()).await?;
        until("nothing is reserved", || Ok(held(&server, "reserved")? == "0")).await?;
        ensure!(server.ask(&["ZCARD", "weft:{tenant}:g"])?.trim() == "0");
        ensure!(bucket.get(&key("large")).await?.is_some_and(|entry| entry.value == floats(1.0, ELEMENTS)));
        Ok(())
    })
}

#[test]
fn a_write_that_nobody_waits_for_leaves_nothing_of_a_tenant_that_is_gone() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&slow_way(&server, 32 << 20).await?).await?;
        give_up_sending(&server, bucket(store.clone())).await?;
        store.end(&"tenant".parse()?).await?;
        drop(store);
        until("nothing is under way", || Ok(connections(&server)? == 1)).await?;
        ensure!(chunks(&server)? == 0, "{} chunks are left", chunks(&server)?);
        Ok(())
    })
}

/// The answer to a reservation comes when whoever asked for room has gone.
#[test]
fn room_that_nobody_waits_for_is_given_back() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        bucket.set(key("a"), floats(1.0, 1), Keeping::default()).await?;
        let mut given_up = 0;
        while given_up < 20 {
            let large = bucket.set(key("large"), floats(1.0, 100_000), Keeping::default());
            given_up += u32::from(tokio::time::timeout(Duration::from_micros(100), large).await.is_err());
        }
        drop(bucket);
        until("nothing is under way", || Ok(connections(&server)? == 1)).await?;
        ensure!(held(&server, "reserved")? == "0", "{} bytes are reserved", held(&server, "reserved")?);
        Ok(())
    })
}

#[test]
fn whoever_gives_up_after_the_end_of_a_tenant_does_not_bring_it_back() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let store = connect(&slow_way(&server, 32 << 20).await?).await?;
        let sending = {
            let bucket = bucket(store.clone());
            tokio::spawn(async move { bucket.set(key("large"), floats(1.0, ELEMENTS), Keeping::default()).await })
        };
        until("chunks are sent", || Ok(chunks(&server)? > 0)).await?;
        store.end(&"tenant".parse()?).await?;
        let refused = sending.await?;
        ensure!(matches!(refused, Err(ParamError::Ended)), "{refused:?}");
        ensure!(chunks(&server)? == 0, "{} chunks are left", chunks(&server)?);
        let tenants = server.ask(&["SMEMBERS", "weft:tenants"])?;
        ensure!(tenants.trim().is_empty(), "{tenants}");
        Ok(())
    })
}

/// A server that stands still for longer than its answer is waited for gets the same request twice.
#[test]
fn room_that_is_asked_for_twice_is_reserved_once() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let bucket = bucket(connect(&server.address()).await?);
        bucket.set(key("a"), floats(1.0, 1), Keeping::default()).await?;
        server.pause()?;
        let sending =
            tokio::spawn(async move { bucket.set(key("large"), floats(1.0, 100_000), Keeping::default()).await });
        tokio::time::sleep(Duration::from_secs(7)).await;
        server.go_on()?;
        sending.await??;
        ensure!(held(&server, "reserved")? == "0", "{} bytes are still reserved", held(&server, "reserved")?);
        ensure!(server.ask(&["ZCARD", "weft:{tenant}:g"])?.trim() == "0");
        Ok(())
    })
}

#[test]
fn a_value_whose_chunks_were_collected_while_it_was_sent_is_sent_again() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let sender = bucket(connect(&slow_way(&server, 32 << 20).await?).await?);
        let sending =
            tokio::spawn(async move { sender.set(key("large"), floats(1.0, ELEMENTS), Keeping::default()).await });
        until("chunks are sent", || Ok(chunks(&server)? > 0)).await?;
        let_the_time_pass(&server)?;
        let other = connect(&server.address()).await?;
        other.collect().await?;
        ensure!(held(&server, "reserved")? == "0" && !sending.is_finished(), "it was not collected while it was sent");
        sending.await??;
        ensure!(bucket(other).get(&key("large")).await?.is_some_and(|entry| entry.value == floats(1.0, ELEMENTS)));
        ensure!(chunks(&server)? as u64 == CHUNKS, "{} chunks", chunks(&server)?);
        Ok(())
    })
}

#[test]
fn a_value_that_takes_long_to_send_is_not_collected_meanwhile() -> Result<()> {
    const KEPT: Duration = Duration::from_secs(4);
    let server = RedisServer::start()?;
    run(async {
        // About five seconds for all of it.
        let link = Link::open(&slow_way(&server, 8 << 20).await?, None, PATIENCE).await?;
        let sender = bucket(Redis::connect_to_send_within(link, Incarnations::in_memory(), KEPT).await?);
        let other = connect(&server.address()).await?;
        let began = std::time::Instant::now();
        let sending =
            tokio::spawn(async move { sender.set(key("large"), floats(1.0, ELEMENTS), Keeping::default()).await });
        while !sending.is_finished() {
            other.collect().await?;
            ensure!(began.elapsed() < PATIENCE, "it is sent again and again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        sending.await??;
        ensure!(began.elapsed() > KEPT, "{:?} is no long time", began.elapsed());
        // A few more are those of scripts.
        let sent = calls(&server, "set")?;
        ensure!(sent < CHUNKS + 10, "{sent} chunks were sent, not {CHUNKS}");
        Ok(())
    })
}

/// Sends until it is killed. No test, so never run as one: another test starts this program with only this in it, to have
/// a process of its own to kill.
#[test]
#[ignore = "the process that is killed by another test"]
fn child() -> Result<()> {
    let Ok(address) = std::env::var(ADDRESS) else { return Ok(()) };
    run(async {
        let bucket = bucket(connect(&address).await?);
        bucket.set(key("large"), floats(1.0, ELEMENTS), Keeping::default()).await?;
        Ok(())
    })
}

#[test]
fn a_node_that_is_killed_while_it_sends_leaves_nothing_after_its_time() -> Result<()> {
    let server = RedisServer::start()?;
    run(async {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "params::sending::child", "--ignored", "--test-threads", "1"])
            .env(ADDRESS, slow_way(&server, 8 << 20).await?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let sends = until("chunks are sent", || Ok(chunks(&server)? > 0)).await;
        child.kill()?;
        child.wait()?;
        sends?;
        until("nothing is under way", || Ok(connections(&server)? == 1)).await?;
        let reserved: u64 = held(&server, "reserved")?.parse().context("no number")?;
        ensure!(reserved > 4 * ELEMENTS, "{reserved}");
        let other = connect(&server.address()).await?;
        other.collect().await?;
        ensure!(chunks(&server)? > 0, "it may be alive");
        let_the_time_pass(&server)?;
        other.collect().await?;
        ensure!(chunks(&server)? == 0, "{} chunks are left", chunks(&server)?);
        ensure!(held(&server, "reserved")? == "0" && held(&server, "bytes")?.parse::<u64>().unwrap_or(0) == 0);
        for kind in ["g", "d", "r"] {
            ensure!(server.ask(&["EXISTS", &format!("weft:{{tenant}}:{kind}")])?.trim() == "0", "`{kind}` is left");
        }
        Ok(())
    })
}
