//! Workers and nodes that die in the middle: it only costs time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weft::job::State;
use weft_tests::components::component;
use weft_tests::node::{Options, eventually};

use super::{LONG, lenet, node, weights};

/// How jobs can be divided among workers.
fn ways() -> [Value; 4] {
    [
        json!({ "workers": 1 }),
        json!({ "workers": 3 }),
        json!({ "workers": 3, "k": 5 }),
        json!({ "workers": 2, "fan_out": 2, "k": "epoch" }),
    ]
}

fn with(mut way: Value, key: &str, value: Value) -> Value {
    way[key] = value;
    way
}

#[test]
fn a_worker_that_is_killed_changes_no_bit() -> Result<()> {
    let (_node, client) = node()?;
    for (number, way) in ways().into_iter().enumerate() {
        let way = with(way, "epochs", json!(20));
        let calm = client.must_submit(&lenet(way.clone()))?;
        client.must_finish(&calm, LONG)?;
        let name = format!("disturbed-{number}");
        client.must_submit(&lenet(with(way, "name", json!(name))))?;
        client.job_until(&name, LONG, |detail| detail.job.epoch >= 1)?;
        let killed = client.order(&name, "workers/0/kill")?;
        ensure!(killed.status == 204, "{killed:?}");
        client.must_finish(&name, LONG)?;
        ensure!(weights(&client, &calm)? == weights(&client, &name)?, "{name}");
    }
    Ok(())
}

#[test]
fn a_killed_node_goes_on_and_changes_no_bit() -> Result<()> {
    let (mut node, mut client) = node()?;
    for (number, way) in ways().into_iter().enumerate() {
        let way = with(way, "epochs", json!(20));
        let calm = client.must_submit(&lenet(way.clone()))?;
        client.must_finish(&calm, LONG)?;
        let name = format!("killed-{number}");
        let way = with(with(way, "name", json!(name)), "checkpoint_every", json!(7));
        client.must_submit(&lenet(way))?;
        client.job_until(&name, LONG, |detail| detail.job.epoch >= 2)?;
        node = node.kill_and_restart()?;
        client = node.anybody();
        client.must_finish(&name, LONG)?;
        ensure!(weights(&client, &calm)? == weights(&client, &name)?, "{name}");
    }
    Ok(())
}

#[test]
fn a_node_that_stops_in_order_goes_on_too() -> Result<()> {
    let (node, client) = node()?;
    client.must_submit(&lenet(json!({ "name": "long", "epochs": 60, "workers": 2 })))?;
    client.job_until("long", LONG, |detail| detail.job.epoch >= 1)?;
    let folder = node.stop()?;
    let node = Options::default().dev().start_in(folder)?;
    node.anybody().must_finish("long", LONG)?;
    Ok(())
}

#[test]
fn a_lost_share_is_dropped_where_that_was_asked() -> Result<()> {
    let (_node, client) = node()?;
    client.must_submit(&lenet(json!({ "name": "dropping", "epochs": 30, "workers": 3, "on_loss": "drop" })))?;
    client.job_until("dropping", LONG, |detail| detail.job.epoch >= 1)?;
    client.order("dropping", "workers/1/kill")?;
    client.must_finish("dropping", LONG)?;
    let losses = client.get("/v1/jobs/dropping")?.json()?;
    ensure!(losses["losses"] == 1, "{losses}");
    Ok(())
}

#[test]
fn a_stop_answers_at_once_and_frees_everything() -> Result<()> {
    let (_node, client) = node()?;
    client.must_submit(&lenet(json!({ "name": "endless", "epochs": 100_000, "workers": 4 })))?;
    client.job_until("endless", LONG, |detail| detail.job.epoch >= 1)?;
    let start = Instant::now();
    client.order("endless", "stop")?.json()?;
    eventually(Duration::from_secs(10), || Ok(client.job("endless")?.job.state == State::Stopped))?;
    println!("stopped after {:?}", start.elapsed());
    eventually(Duration::from_secs(10), || Ok(client.get("/v1/node")?.json()?["memory"] == 0))?;
    ensure!(!weights(&client, "endless")?.is_empty(), "its model is kept");
    ensure!(client.order("endless", "resume")?.status < 300);
    client.job_in("endless", State::Running, LONG)?;
    client.order("endless", "stop")?.json()?;
    eventually(Duration::from_secs(10), || Ok(client.job("endless")?.job.state == State::Stopped))?;
    Ok(())
}

#[test]
fn instances_are_replaced_after_their_lifetime() -> Result<()> {
    let (_node, client) = node()?;
    let calm = client.must_submit(&lenet(json!({ "workers": 2 })))?;
    client.must_finish(&calm, LONG)?;
    let renewed = client.must_submit(&lenet(json!({ "workers": 2, "lifetime_ms": 5 })))?;
    client.must_finish(&renewed, LONG)?;
    let detail = client.get(&format!("/v1/jobs/{renewed}"))?.json()?;
    let starts = detail["spending"]["cold_starts"].as_u64().unwrap_or(0);
    ensure!(starts > 4, "{starts} cold starts: {detail}");
    ensure!(weights(&client, &calm)? == weights(&client, &renewed)?);
    Ok(())
}

/// A job whose functions do this harm whenever they evaluate, which nobody tries out before.
fn harmful(harm: &str) -> Value {
    json!({
        "function": "harm", "dataset": "teacher", "name": format!("doomed-{harm}"), "workers": 2, "batch": 16,
        "epochs": 2, "params": { "harm": harm, "when": "evaluate" }, "memory": 64 << 20,
    })
}

#[test]
fn a_share_that_fails_again_and_again_ends_the_job_with_its_own_words() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("harmed", json!({ "wall_ms": 500 }))?;
    client.must_deploy("harm", &component("tests/guests/hostile-trainer")?)?;
    let made = json!({ "synthetic": { "kind": "binary20", "train": 320, "test": 80, "seed": 1 } });
    let made = client.send("PUT", "/v1/datasets/teacher", &[], &serde_json::to_vec(&made)?)?;
    ensure!(made.status == 201, "{made:?}");
    for (harm, words) in [
        ("panic", "told to panic"),
        ("trap", "unreachable"),
        ("loop", "wall_ms"),
        ("one-matmul", "wall_ms"),
        ("memory", "memory"),
        ("allocate", "out of device memory"),
        ("shapes", "matmul"),
    ] {
        let name = client.must_submit(&harmful(harm))?;
        eventually(LONG, || Ok(client.job(&name)?.job.state.is_over()))?;
        let detail = client.job(&name)?;
        let reason = &detail.job.reason;
        ensure!(detail.job.state == State::Failed && reason.contains(words), "{harm}: {reason}");
        ensure!(reason.contains("failed 3 times"), "{harm}: {reason}");
        ensure!(!weights(&client, &name)?.is_empty(), "{harm}: its model is kept");
    }
    // Nobody else has noticed.
    super::prepare(&client)?;
    client.must_train(&lenet(json!({ "epochs": 1 })), LONG)?;
    Ok(())
}

#[test]
fn time_that_is_over_ends_a_job_with_its_model() -> Result<()> {
    let (_node, client) = node()?;
    let spec = lenet(json!({ "name": "timed", "epochs": 100_000, "max_time_ms": 1_000 }));
    let detail = client.must_train(&spec, LONG)?;
    ensure!(detail.job.reason.contains("max_time"), "{}", detail.job.reason);
    ensure!(!weights(&client, "timed")?.is_empty());
    Ok(())
}
