//! Nodes that are started again with jobs that cannot go on, beside others that can.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::job::State;
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};
use weft_tests::s3::{BUCKET, KEY_ID, SECRET, Server};

use super::{LONG, lenet, prepare, weights};

fn make_dataset(client: &Client, name: &str, spec: &Value) -> Result<()> {
    let made = client.send("PUT", &format!("/v1/datasets/{name}"), &[], &serde_json::to_vec(spec)?)?;
    ensure!(made.status == 201, "{made:?}");
    Ok(())
}

/// The bucket answers for everything but the samples of one job.
#[test]
fn a_job_whose_blobs_do_not_come_holds_up_no_other_at_a_restart() -> Result<()> {
    let bucket = Server::start()?;
    let node = Options::default()
        .dev()
        .set("blob-store", format!("s3://{BUCKET}/node"))
        .set("s3-endpoint", bucket.endpoint())
        .with("AWS_ACCESS_KEY_ID", KEY_ID)
        .with("AWS_SECRET_ACCESS_KEY", SECRET)
        .start()?;
    let client = node.anybody();
    prepare(&client)?;
    let before = bucket.keys()?;
    make_dataset(&client, "away", &json!({ "shipped": "digits", "split": 0.6 }))?;
    let away: Vec<String> = bucket.keys()?.into_iter().filter(|key| !before.contains(key)).collect();
    ensure!(away.len() >= 2, "blocks and a manifest: {away:?}");
    let waits = |name: &str| lenet(json!({ "dataset": "away", "name": name, "epochs": 20, "checkpoint_every": 7 }));
    let goes_on = |name: &str| lenet(json!({ "name": name, "epochs": 60, "checkpoint_every": 7 }));
    let calm = client.must_train(&waits("calm"), LONG)?.job.name;

    // Two that cannot go on come before those that can.
    for name in ["waits-1", "waits-2"] {
        client.must_submit(&waits(name))?;
    }
    for name in ["goes-on-1", "goes-on-2"] {
        client.must_submit(&goes_on(name))?;
        client.job_until(name, LONG, |detail| detail.job.epoch >= 1)?;
    }
    bucket.hold(away);
    let node = node.kill_and_restart()?;
    let client = node.anybody();
    client.must_submit(&goes_on("new"))?;
    for name in ["goes-on-1", "goes-on-2", "new"] {
        client.must_finish(name, LONG)?;
    }
    for name in ["waits-1", "waits-2"] {
        let job = client.job(name)?.job;
        ensure!(matches!(job.state, State::Queued | State::Running), "{job:?}");
    }
    // Whoever is told to stop meanwhile does.
    client.order("waits-2", "stop")?.json()?;
    client.job_in("waits-2", State::Stopped, Duration::from_secs(10))?;
    bucket.hold(Vec::new());
    client.must_finish("waits-1", LONG)?;
    ensure!(weights(&client, &calm)? == weights(&client, "waits-1")?, "other bits");
    // A bucket takes its time to delete what a job leaves, too, and others are not to wait for that.
    bucket.hold(bucket.keys()?);
    let start = Instant::now();
    for name in ["waits-2", "goes-on-1", "waits-1"] {
        ensure!(client.send("DELETE", &format!("/v1/jobs/{name}"), &[], b"")?.status == 204, "{name}");
    }
    ensure!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    Ok(())
}

fn tenant_of(node: &Node, tenant: &Client) -> Client {
    Client::new(node.url(), tenant.key())
}

/// kill -9, three times, while a job runs that comes to nothing.
#[test]
fn a_job_under_which_the_node_dies_three_times_is_held_back_and_others_go_on() -> Result<()> {
    let node = Options::default().start()?;
    let suspect = node.tenant("suspect", json!({ "wall_ms": 600_000 }))?;
    suspect.must_deploy("harm", &component("tests/guests/hostile-trainer")?)?;
    make_dataset(
        &suspect,
        "teacher",
        &json!({ "synthetic": { "kind": "binary20", "train": 320, "test": 80, "seed": 1 } }),
    )?;
    let other = node.tenant("other", json!({}))?;
    prepare(&other)?;
    // Its second epoch has no end.
    let spec = json!({
        "function": "harm", "dataset": "teacher", "name": "deadly", "workers": 2, "batch": 16, "epochs": 2,
        "params": { "harm": "straggle" }, "memory": 64 << 20,
    });
    suspect.must_submit(&spec)?;
    suspect.job_until("deadly", LONG, |detail| detail.job.epoch == 1)?;

    let node = node.kill_and_restart()?;
    let (suspect, other) = (tenant_of(&node, &suspect), tenant_of(&node, &other));
    suspect.job_in("deadly", State::Running, LONG)?;
    other.must_submit(&lenet(json!({ "name": "innocent", "epochs": 100_000, "checkpoint_every": 7 })))?;
    other.job_in("innocent", State::Running, LONG)?;

    let node = node.kill_and_restart()?;
    let (suspect, other) = (tenant_of(&node, &suspect), tenant_of(&node, &other));
    suspect.job_in("deadly", State::Running, LONG)?;

    let node = node.kill_and_restart()?;
    let (suspect, other) = (tenant_of(&node, &suspect), tenant_of(&node, &other));
    // What the node has found is told once it has looked.
    other.job_until("innocent", LONG, |detail| detail.job.epoch >= 1)?;
    let deadly = suspect.job("deadly")?.job;
    ensure!(deadly.state == State::Stopped, "{deadly:?}");
    ensure!(deadly.reason.contains("held back: the node died 3 times in a row"), "{deadly:?}");
    ensure!(node.log()?.contains("a job is held back"), "the operator is not told");
    // A fourth death is nobody's: it is not started again.
    let before = other.job("innocent")?.job.epoch;
    let node = node.kill_and_restart()?;
    let (suspect, other) = (tenant_of(&node, &suspect), tenant_of(&node, &other));
    other.job_until("innocent", LONG, |detail| detail.job.epoch > before)?;
    ensure!(suspect.job("deadly")?.job.state == State::Stopped);
    // Its tenant may try it again.
    ensure!(suspect.order("deadly", "resume")?.status < 300);
    suspect.job_in("deadly", State::Running, LONG).context("resumed")?;
    Ok(())
}
