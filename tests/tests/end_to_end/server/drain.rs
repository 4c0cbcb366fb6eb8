//! The orderly stop.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::json;
use weft_tests::components;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options, eventually};
use weft_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(10);

/// A node that is busy for `milliseconds`, and the caller that waits for it.
fn busy(options: Options, milliseconds: u64) -> Result<(Node, Client, JoinHandle<Result<Answer>>)> {
    let node = options.start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("hostile", &components::hostile()?)?;
    let caller = tenant.clone();
    let answer = thread::spawn(move || caller.invoke("hostile", format!("sleep-busy:{milliseconds}").as_bytes()));
    eventually(SOON, || Ok(node.operator()?.get("/v1/node")?.json()?["instances"] == 1))?;
    Ok((node, tenant, answer))
}

/// The same, told to stop and stopping.
fn stopping() -> Result<(Node, Client, JoinHandle<Result<Answer>>)> {
    let (node, tenant, answer) = busy(Options::default(), 2_000)?;
    node.terminate()?;
    eventually(SOON, || Ok(node.anybody().get("/readyz")?.status != 200))?;
    Ok((node, tenant, answer))
}

#[test]
fn a_stopping_node_is_not_ready() -> Result<()> {
    let (node, _, _) = stopping()?;
    let answer = node.anybody().get("/readyz")?;
    ensure!(answer.status == 503 && answer.problem_kind()?.0 == "draining", "{answer:?}");
    Ok(())
}

#[test]
fn a_stopping_node_is_alive() -> Result<()> {
    let (node, _, _) = stopping()?;
    ensure!(node.anybody().get("/livez")?.status == 200);
    Ok(())
}

#[test]
fn a_stopping_node_takes_no_new_invocation() -> Result<()> {
    let (_node, tenant, _) = stopping()?;
    let answer = tenant.invoke("hostile", b"state")?;
    ensure!(answer.status == 503 && answer.problem_kind()?.0 == "draining", "{answer:?}");
    ensure!(answer.header("retry-after").is_some(), "{answer:?}");
    Ok(())
}

#[test]
fn a_stopping_node_takes_no_new_deploy() -> Result<()> {
    let (_node, tenant, _) = stopping()?;
    let answer = tenant.deploy("echo", &components::echo()?)?;
    ensure!(answer.problem_kind()?.0 == "draining", "{answer:?}");
    Ok(())
}

#[test]
fn what_runs_when_a_node_stops_is_answered_and_the_node_ends_well() -> Result<()> {
    let (mut node, _, answer) = stopping()?;
    let answer = answer.join().map_err(|_| anyhow!("the caller panicked"))??;
    ensure!((answer.status, answer.text().as_str()) == (200, "2000"), "{answer:?}");
    ensure!(node.wait(SOON)?.code() == Some(0));
    Ok(())
}

#[test]
fn an_idle_node_stops_at_once() -> Result<()> {
    let mut node = Options::default().start()?;
    // A connection that is kept alive does not keep the node.
    let client = node.anybody();
    client.get("/livez")?;
    let start = Instant::now();
    node.terminate()?;
    ensure!(node.wait(SOON)?.code() == Some(0));
    ensure!(start.elapsed() < Duration::from_secs(3), "it took {:?}", start.elapsed());
    Ok(())
}

#[test]
fn after_its_grace_a_node_waits_for_nobody() -> Result<()> {
    let (mut node, _, _answer) = busy(Options::default().set("grace", "1s"), 20_000)?;
    let start = Instant::now();
    node.terminate()?;
    ensure!(node.wait(SOON)?.code() == Some(0), "{}", node.log()?);
    let took = start.elapsed();
    ensure!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&took), "it took {took:?}");
    Ok(())
}

#[test]
fn a_second_signal_ends_the_wait() -> Result<()> {
    let (mut node, _, _answer) = busy(Options::default().set("grace", "60s"), 20_000)?;
    node.terminate()?;
    eventually(SOON, || Ok(node.anybody().get("/readyz")?.status != 200))?;
    let start = Instant::now();
    node.terminate()?;
    ensure!(node.wait(SOON)?.code() == Some(0), "{}", node.log()?);
    ensure!(start.elapsed() < Duration::from_secs(4), "it took {:?}", start.elapsed());
    Ok(())
}

#[test]
fn an_answer_that_is_being_read_is_sent_to_its_end() -> Result<()> {
    const BYTES: usize = 32_000_000;
    let mut node = Options::default().dev().set("max-payload", "64MiB").start()?;
    node.anybody().must_deploy("hostile", &components::hostile()?)?;
    let mut reader = Wire::connect(&node.anybody())?;
    reader.request("POST", "/v1/functions/hostile/invoke", &[], format!("huge:{BYTES}").as_bytes())?;
    // The guest is gone, and most of its answer is not: a socket holds less than that.
    eventually(SOON, || {
        let now = node.anybody().get("/v1/node")?.json()?;
        Ok(now["instances"] == 0 && now["memory"].as_u64() >= Some(BYTES as u64))
    })?;
    node.terminate()?;
    eventually(SOON, || Ok(node.anybody().get("/livez").is_err()))?;
    ensure!(reader.answer()?.body.len() == BYTES);
    ensure!(node.wait(SOON)?.success());
    Ok(())
}
