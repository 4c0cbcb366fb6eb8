//! Workers and nodes that die in the middle: it only costs time.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weft::job::{JobEvent, State};
use weft_tests::command::User;
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually, in_use};

use super::{LONG, lenet, node, weights};

/// Within which a job that is told to stop has given everything back.
const A_SECOND: Duration = Duration::from_secs(1);

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
fn whoever_follows_a_job_does_so_beyond_the_death_of_the_node() -> Result<()> {
    // A port that is free now, and will be again.
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let node = Options::default().dev().set("listen", free).start()?;
    let client = node.anybody();
    super::prepare(&client)?;
    client.must_submit(&lenet(json!({ "name": "watched", "epochs": 40, "workers": 2 })))?;
    let user = User::of(&client)?;
    let mut command = user.command(&["job", "watch", "watched", "--json"])?;
    let watch = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    client.job_until("watched", LONG, |detail| detail.job.epoch >= 2)?;
    let _node = node.kill_and_restart()?;
    let ended = watch.wait_with_output()?;
    let told = String::from_utf8(ended.stdout)?;
    ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let epochs = told.lines().filter(|line| line.contains("\"event\":\"epoch\"")).count();
    ensure!(epochs >= 38 && told.contains("\"state\":\"done\""), "{told}");
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
    eventually(A_SECOND, || Ok(client.job("endless")?.job.state == State::Stopped))?;
    eventually(A_SECOND.saturating_sub(start.elapsed()), || {
        Ok(in_use(&serde_json::from_value(client.get("/v1/node")?.json()?)?) == 0)
    })?;
    println!("stopped, and all is free, after {:?}", start.elapsed());
    ensure!(!weights(&client, "endless")?.is_empty(), "its model is kept");
    ensure!(client.order("endless", "resume")?.status < 300);
    client.job_in("endless", State::Running, LONG)?;
    client.order("endless", "stop")?.json()?;
    eventually(A_SECOND, || Ok(client.job("endless")?.job.state == State::Stopped))?;
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

/// A tenant who has deployed what does harm, and data for it.
fn harmed(quota: Value) -> Result<(Node, Client)> {
    let node = Options::default().start()?;
    let client = node.tenant("harmed", quota)?;
    client.must_deploy("harm", &component("tests/guests/hostile-trainer")?)?;
    let made = json!({ "synthetic": { "kind": "binary20", "train": 320, "test": 80, "seed": 1 } });
    let made = client.send("PUT", "/v1/datasets/teacher", &[], &serde_json::to_vec(&made)?)?;
    ensure!(made.status == 201, "{made:?}");
    Ok((node, client))
}

#[test]
fn a_straggler_is_left_behind_or_tried_again() -> Result<()> {
    let (_node, client) = harmed(json!({}))?;
    let straggling = |on_loss: &str| {
        let more = json!({ "on_loss": on_loss, "straggler_ms": 3_000, "epochs": 300, "name": on_loss });
        let spec = with(harmful("straggle"), "params", json!({ "harm": "straggle" }));
        more.as_object().into_iter().flatten().fold(spec, |spec, (key, value)| with(spec, key, value.clone()))
    };
    // Its share of the second epoch is missing, and nobody else's. It may still be starting when the next ones begin, which
    // do not wait for it.
    let detail = client.must_train(&straggling("drop"), LONG)?;
    let samples: Vec<u64> = detail.history.iter().map(|epoch| epoch.samples).collect();
    let is_back = matches!(samples[..], [320, 160, .., 320]);
    ensure!(is_back && detail.losses >= 1, "{samples:?}, {} losses", detail.losses);
    // Worker 0 has waited for three seconds with its 64 MiB, and is not billed for that.
    let billed = detail.history[1].spending.memory_gib_seconds;
    ensure!(billed < 2.0 / 16.0, "{billed} GiB-seconds");
    let name = client.must_submit(&straggling("wait"))?;
    eventually(LONG, || Ok(client.job(&name)?.job.state.is_over()))?;
    let detail = client.job(&name)?;
    ensure!(detail.job.state == State::Failed && detail.job.epoch == 1, "{:?}", detail.job);
    ensure!(detail.job.reason.contains("`straggler` = 3000 ms"), "{}", detail.job.reason);
    Ok(())
}

#[test]
fn a_round_that_stands_still_says_whom_it_waits_for() -> Result<()> {
    let (_node, client) = harmed(json!({ "wall_ms": 600_000 }))?;
    let name = client.must_submit(&with(harmful("straggle"), "params", json!({ "harm": "straggle" })))?;
    let detail = client.job_until(&name, LONG, |detail| detail.job.reason.starts_with("waits: nothing was heard"))?;
    ensure!(detail.job.reason.ends_with("from worker 1") && detail.job.state == State::Running, "{:?}", detail.job);
    // Another one takes its place: that is heard, and told.
    ensure!(client.order(&name, "workers/1/kill")?.status == 204);
    client.job_until(&name, LONG, |detail| detail.job.reason.is_empty())?;
    let told = client.events(&name)?;
    let reasons = told.iter().filter_map(|view| match &view.event {
        JobEvent::State { state: State::Running, reason } => Some(reason.as_str()),
        _ => None,
    });
    let reasons: Vec<&str> = reasons.collect();
    ensure!(matches!(reasons[..], ["", waits, ""] if waits.contains("worker 1")), "{reasons:?}");
    client.order(&name, "stop")?.json()?;
    eventually(A_SECOND * 10, || Ok(client.job(&name)?.job.state == State::Stopped))?;
    Ok(())
}

#[test]
fn a_share_that_fails_again_and_again_ends_the_job_with_its_own_words() -> Result<()> {
    let (_node, client) = harmed(json!({ "wall_ms": 500 }))?;
    for (harm, words) in [
        ("panic", "told to panic"),
        ("trap", "unreachable"),
        ("loop", "wall_ms"),
        ("one-matmul", "wall_ms"),
        ("memory", "memory"),
        ("allocate", "out of device memory"),
        ("shapes", "matmul"),
        // A job waits for a device that was lost. This one is there.
        ("device-lost", "which was not"),
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
fn a_weight_that_is_no_number_fails_the_job_however_many_workers_there_are() -> Result<()> {
    let (_node, client) = harmed(json!({}))?;
    for workers in [1, 2] {
        let spec = with(harmful("weight-nan"), "params", json!({ "harm": "weight-nan" }));
        let spec = with(with(spec, "workers", json!(workers)), "name", json!(format!("of-{workers}")));
        let name = client.must_submit(&spec)?;
        eventually(LONG, || Ok(client.job(&name)?.job.state.is_over()))?;
        let job = client.job(&name)?.job;
        ensure!(job.state == State::Failed, "{workers} workers: {job:?}");
        ensure!(job.reason.contains("not finite") && job.reason.contains("`scale`"), "{workers} workers: {job:?}");
    }
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
