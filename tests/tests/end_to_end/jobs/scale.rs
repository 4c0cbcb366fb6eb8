//! Jobs whose workers become more or fewer, larger or smaller, while they run.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::api::types::JobDetail;
use weft::job::{JobEvent, State};
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};

use super::{LONG, lenet, node, prepare, weights};

fn scale(client: &Client, job: &str, change: &Value) -> Result<JobDetail> {
    let answer = client.post(&format!("/v1/jobs/{job}/scale"), change)?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(serde_json::from_value(answer.json()?)?)
}

fn refused(client: &Client, job: &str, change: &Value) -> Result<String> {
    let answer = client.post(&format!("/v1/jobs/{job}/scale"), change)?;
    ensure!((400..500).contains(&answer.status), "{change}: {answer:?}");
    Ok(answer.problem()?.detail)
}

fn accuracy(detail: &JobDetail) -> Result<f64> {
    detail.job.accuracy.context("no accuracy")
}

/// From 1 worker to 4, to 2, to 8, each from the beginning of an epoch.
const CHANGES: [(u32, u64); 3] = [(4, 6), (2, 11), (8, 16)];
const EPOCHS: u64 = 22;

/// The workers of each epoch of a job that changes them like that.
fn workers_by_epoch() -> Vec<u32> {
    let last = |epoch: u64| CHANGES.iter().rev().find(|(_, from)| *from <= epoch).map_or(1, |(workers, _)| *workers);
    (1..=EPOCHS).map(last).collect()
}

/// A node whose tenant may run one job at a time, with `digits` and lenet on it.
fn one_at_a_time() -> Result<(Node, Client)> {
    let node = Options::default().start()?;
    let tenant = node.tenant("ada", json!({ "jobs": 1 }))?;
    prepare(&tenant)?;
    Ok((node, tenant))
}

/// Submits a job that changes its workers from epochs on. Another one runs until all changes are asked for.
fn submit_with(client: &Client, spec: &Value, changes: &[(u32, u64)]) -> Result<String> {
    let before = client.must_submit(&lenet(json!({ "epochs": 100_000 })))?;
    client.job_in(&before, State::Running, LONG)?;
    let name = client.must_submit(spec)?;
    for (workers, from_epoch) in changes {
        scale(client, &name, &json!({ "workers": workers, "from_epoch": from_epoch }))?;
    }
    client.order(&before, "stop")?.json()?;
    Ok(name)
}

/// Submits a job that changes its workers as in [`CHANGES`].
fn submit_changing(client: &Client, name: &str, sync: &Value) -> Result<()> {
    let spec = json!({ "name": name, "workers": 1, "epochs": EPOCHS, "global_batch": 32, "sync": sync });
    submit_with(client, &lenet(spec), &CHANGES).map(drop)
}

#[test]
fn a_job_scaled_at_the_same_rounds_gives_the_same_bits_whoever_dies() -> Result<()> {
    let (_node, client) = one_at_a_time()?;
    for (word, sync) in [
        ("memory", json!({ "rule": "gradient-average" })),
        ("tree", json!({ "rule": "gradient-average", "topology": "tree", "channel": "store" })),
        ("average", json!({ "k": 4, "topology": "scatter" })),
        ("top-k", json!({ "rule": "gradient-average", "codec": "top-k:0.1" })),
    ] {
        let [calm, disturbed] = ["calm", "disturbed"].map(|what| format!("{what}-{word}"));
        submit_changing(&client, &calm, &sync)?;
        let calm_detail = client.must_finish(&calm, LONG)?;
        submit_changing(&client, &disturbed, &sync)?;
        for epoch in [1, 6, 11, 16] {
            client.job_until(&disturbed, LONG, |detail| detail.job.epoch >= epoch)?;
            let killed = client.order(&disturbed, "workers/0/kill")?;
            ensure!(killed.status == 204, "{word}, epoch {epoch}: {killed:?}");
        }
        let detail = client.must_finish(&disturbed, LONG)?;
        ensure!(detail.losses >= 2, "{word}: {} losses", detail.losses);
        ensure!(weights(&client, &calm)? == weights(&client, &disturbed)?, "{word}: other bits");
        let workers: Vec<u32> = detail.history.iter().map(|epoch| epoch.workers).collect();
        ensure!(workers == workers_by_epoch(), "{word}: {workers:?}");
        for (workers, epoch) in CHANGES {
            let told = &calm_detail.history[epoch as usize - 1].reshaped;
            ensure!(told.len() == 1 && told[0].workers == workers, "{word}: {told:?}");
        }
        ensure!(accuracy(&detail)? > 0.6, "{word}: {detail:?}");
        ensure!(detail.changes.is_empty() && detail.shape.workers == 8, "{detail:?}");
    }
    Ok(())
}

#[test]
fn a_running_job_is_scaled_in_the_middle_of_an_epoch_and_sees_every_sample_once() -> Result<()> {
    let (_node, client) = node()?;
    // One sample a step: an epoch has steps enough to be met in its middle.
    client.must_submit(&lenet(
        json!({ "name": "grows", "workers": 1, "epochs": 6, "batch": 1, "checkpoint_every": 20 }),
    ))?;
    client.job_in("grows", State::Running, LONG)?;
    for workers in [3, 2, 4] {
        scale(&client, "grows", &json!({ "workers": workers }))?;
        client.job_until("grows", LONG, |detail| detail.shape.workers == workers || detail.job.state.is_over())?;
    }
    scale(&client, "grows", &json!({ "batch": 8, "memory": 96 << 20 }))?;
    let detail = client.must_finish("grows", LONG)?;
    for epoch in &detail.history {
        ensure!(epoch.samples == 1_438, "epoch {}: {} samples", epoch.epoch, epoch.samples);
    }
    let changes: Vec<u32> =
        detail.history.iter().flat_map(|epoch| &epoch.reshaped).map(|change| change.workers).collect();
    ensure!(changes == [3, 2, 4, 4], "{changes:?}");
    ensure!(detail.shape.memory == 96 << 20 && detail.history.last().is_some_and(|epoch| epoch.batch == 8));
    let events = client.events("grows")?;
    let told = events.iter().filter(|view| matches!(view.event, JobEvent::Reshaped(_))).count();
    ensure!(told == 4, "{told} changes were told");
    Ok(())
}

#[test]
fn every_pace_and_rule_goes_on_with_other_workers() -> Result<()> {
    let (node, client) = one_at_a_time()?;
    client.must_deploy("logreg", &component("functions/logistic-regression")?)?;
    let made = json!({ "synthetic": { "kind": "binary20", "train": 640, "test": 64, "seed": 1 } });
    let made = client.send("PUT", "/v1/datasets/teacher", &[], &serde_json::to_vec(&made)?)?;
    ensure!(made.status == 201, "{made:?}");
    for (name, more) in [
        ("on-arrival", json!({ "sync": { "pace": "on-arrival" } })),
        ("stale", json!({ "sync": { "pace": "staleness:2" } })),
        ("overwrite", json!({ "sync": { "pace": "overwrite", "k": 4 } })),
        ("quorum", json!({ "sync": { "pace": "quorum:2" } })),
        ("one-shot", json!({ "sync": { "k": "end" } })),
        ("fan-out", json!({ "fan_out": 2 })),
        ("whole-epoch", json!({ "fan_out": "epoch" })),
        (
            "admm",
            json!({
                "function": "logreg", "dataset": "teacher", "params": { "features": 20, "classes": 2 },
                "sync": { "rule": "admm", "inner_epochs": 1 },
            }),
        ),
    ] {
        let mut spec = lenet(json!({ "name": name, "workers": 3, "epochs": 6 }));
        if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        submit_with(&client, &spec, &[(2, 3), (4, 5)])?;
        let detail = client.must_finish(name, LONG)?;
        let workers: Vec<u32> = detail.history.iter().map(|epoch| epoch.workers).collect();
        ensure!(workers == [3, 3, 2, 2, 4, 4], "{name}: {workers:?}");
    }
    let devices = node.operator()?.get("/v1/devices")?.json()?;
    ensure!(devices["devices"][0]["reserved"] == 0, "{devices}");
    Ok(())
}

#[test]
fn a_killed_node_goes_on_with_as_many_workers_as_the_job_had_then() -> Result<()> {
    let (node, client) = one_at_a_time()?;
    submit_changing(&client, "calm", &json!({ "k": 4 }))?;
    client.must_finish("calm", LONG)?;
    submit_changing(&client, "killed", &json!({ "k": 4 }))?;
    client.job_until("killed", LONG, |detail| detail.job.epoch >= 3)?;
    let node = node.kill_and_restart()?;
    let client = Client::new(node.url(), client.key());
    let detail = client.must_finish("killed", LONG)?;
    let workers: Vec<u32> = detail.history.iter().map(|epoch| epoch.workers).collect();
    ensure!(workers == workers_by_epoch(), "{workers:?}");
    ensure!(weights(&client, "calm")? == weights(&client, "killed")?, "other bits");
    Ok(())
}

#[test]
fn what_no_room_is_for_is_put_off_and_the_job_goes_on() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("small", json!({ "workers": 4, "worker_memory": 1 << 30 }))?;
    prepare(&tenant)?;
    // Another job of the tenant's has what is missing.
    let endless = |name: &str, workers: u32| lenet(json!({ "name": name, "workers": workers, "epochs": 100_000 }));
    tenant.must_submit(&endless("other", 2))?;
    tenant.must_submit(&endless("grows", 2))?;
    for name in ["other", "grows"] {
        tenant.job_until(name, LONG, |detail| detail.job.epoch >= 1)?;
    }
    let detail = scale(&tenant, "grows", &json!({ "workers": 3 }))?;
    ensure!(detail.changes.len() == 1, "{detail:?}");
    tenant.job_until("grows", LONG, |detail| detail.job.reason.contains("`workers` of 4"))?;
    let before = tenant.job("grows")?.job.epoch;
    tenant.job_until("grows", LONG, |detail| detail.job.epoch > before)?;
    ensure!(tenant.job("grows")?.shape.workers == 2);
    tenant.order("other", "stop")?.json()?;
    let detail = tenant.job_until("grows", LONG, |detail| detail.shape.workers == 3)?;
    ensure!(detail.job.reason.is_empty() && detail.changes.is_empty(), "{detail:?}");
    tenant.order("grows", "stop")?.json()?;
    tenant.job_in("grows", State::Stopped, LONG)?;
    // One that does not run has another shape when it does.
    ensure!(scale(&tenant, "grows", &json!({ "workers": 1 }))?.shape.workers == 1);
    ensure!(tenant.order("grows", "resume")?.status == 200);
    let epoch = tenant.job("grows")?.job.epoch;
    let detail = tenant.job_until("grows", LONG, |detail| detail.job.epoch > epoch)?;
    ensure!(detail.history.last().is_some_and(|epoch| epoch.workers == 1), "{detail:?}");
    Ok(())
}

#[test]
fn a_change_that_cannot_be_is_refused_with_its_reason() -> Result<()> {
    let (_node, client) = node()?;
    let spec = json!({ "name": "job", "workers": "2..4", "epochs": 100_000, "sync": { "topology": "peers", "pace": "quorum:2" } });
    client.must_submit(&lenet(spec))?;
    for (change, reason) in [
        (json!({}), "nothing is to change"),
        (json!({ "workers": 5 }), "2..4"),
        (json!({ "workers": 1 }), "2..4"),
        (json!({ "workers": 0 }), "between 1 and"),
        (json!({ "memory": 1 }), "between"),
        (json!({ "batch": 0 }), "between"),
        (json!({ "batch": 100_000 }), "samples of a worker's shard"),
        (json!({ "workers": 3, "from_epoch": 100_001 }), "ends after epoch"),
        (json!({ "memory": 1_u64 << 43 }), "no device"),
        (json!({ "wokers": 3 }), "unknown field"),
    ] {
        let told = refused(&client, "job", &change)?;
        ensure!(told.contains(reason), "{change}: {told}");
    }
    ensure!(refused(&client, "nobody", &json!({ "workers": 3 }))?.contains("there is no job"));
    client.order("job", "stop")?.json()?;
    let fixed = json!({ "name": "tree", "workers": 4, "epochs": 1, "sync": { "topology": "tree:1,2,4" } });
    client.must_submit(&lenet(fixed))?;
    client.must_finish("tree", LONG)?;
    ensure!(refused(&client, "tree", &json!({ "workers": 3 }))?.contains("done"));
    Ok(())
}

#[test]
fn a_job_begins_with_as_many_workers_as_find_room() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("ada", json!({ "workers": 3, "worker_memory": 1 << 30 }))?;
    prepare(&tenant)?;
    let detail = tenant.must_train(&lenet(json!({ "name": "range", "workers": "2..8", "global_batch": 48 })), LONG)?;
    ensure!(detail.shape.workers == 3 && detail.history.iter().all(|epoch| epoch.batch == 16), "{detail:?}");
    let too_many = tenant.submit(&lenet(json!({ "workers": "4..8" })))?;
    ensure!(too_many.problem()?.detail.contains("`workers` of 3"));
    let empty = tenant.submit(&lenet(json!({ "workers": "4..2" })))?;
    ensure!(empty.status == 400, "{empty:?}");
    Ok(())
}

#[test]
fn a_worker_that_runs_out_of_memory_is_given_more_if_it_may_be() -> Result<()> {
    let (_node, client) = node()?;
    // Too much for the size that it begins with.
    let spec = json!({ "name": "auto", "memory": "auto", "batch": 1438, "epochs": 2 });
    let detail = client.must_train(&lenet(spec), LONG)?;
    ensure!(detail.shape.memory > 64 << 20, "{detail:?}");
    // Nobody else is given more than was asked for.
    let spec = json!({ "name": "fixed", "memory": 32 << 20, "batch": 1438, "epochs": 2 });
    let failed = client.submit(&lenet(spec))?;
    if failed.status < 300 {
        client.job_in("fixed", State::Failed, LONG)?;
    }
    Ok(())
}

#[test]
fn a_function_computes_no_more_than_its_memory_gives_it_cores() -> Result<()> {
    let train = |options: Options| -> Result<(f64, f64)> {
        let node = options.dev().start()?;
        let client = node.anybody();
        prepare(&client)?;
        let spec = lenet(json!({ "name": "job", "workers": 2, "epochs": 20, "memory": 128 << 20, "k": 4 }));
        let (mut used, mut seconds) = (0.0, 0.0);
        for epoch in &client.must_train(&spec, LONG)?.history {
            used += epoch.spending.device_seconds;
            seconds += epoch.seconds;
        }
        Ok((used, seconds))
    };
    // An eighth of a core for each of two workers, a reserve of 0.1 s each, and what a worker's last steps count before it
    // rests.
    let most = |seconds: f64| 2.0 * (0.125 * seconds + 0.2);
    let (used, seconds) = train(Options::default().set("cores-per-gib", "1"))?;
    ensure!(used <= most(seconds), "capped: {used} s in {seconds} s");
    let (used, seconds) = train(Options::default())?;
    ensure!(used > most(seconds), "without a cap: {used} s in {seconds} s, which a cap would not change");
    Ok(())
}
