//! Jobs that follow a data set: they wait for it to grow, at no cost, and miss nothing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::api::types::JobDetail;
use weft::job::{EpochRecord, State};
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};

use super::infer::leases;
use super::{LONG, weights};

/// What answers at once has answered by then, also on a busy machine.
const SOON: Duration = Duration::from_secs(10);

fn prepare(client: &Client) -> Result<()> {
    client.must_deploy("logistic", &component("functions/logistic-regression")?)?;
    Ok(())
}

pub(super) fn samples(train: u64, seed: u64) -> Value {
    json!({ "synthetic": { "kind": "binary20", "train": train, "test": 100, "seed": seed } })
}

pub(super) fn create(client: &Client, name: &str, spec: &Value) -> Result<()> {
    let made = client.send("PUT", &format!("/v1/datasets/{name}"), &[], &serde_json::to_vec(spec)?)?;
    ensure!(made.status == 201, "{made:?}");
    Ok(())
}

pub(super) fn append(client: &Client, name: &str, spec: &Value) -> Result<()> {
    let made = client.post(&format!("/v1/datasets/{name}/append"), spec)?;
    ensure!(made.status == 200, "{made:?}");
    Ok(())
}

/// A job that follows a data set; `more` is put over it.
fn following(dataset: &str, follow: Value, more: Value) -> Value {
    let mut spec = json!({
        "function": "logistic", "dataset": dataset, "params": { "features": 20 }, "epochs": 2, "batch": 8, "lr": 0.05,
        "seed": 7, "memory": 32 << 20, "workers": 2, "k": 4, "follow": follow,
    });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}

/// Waits until a job has trained on so many versions beside its first, and waits for the next.
fn caught_up(client: &Client, job: &str, followed: u64) -> Result<JobDetail> {
    client.job_until(job, LONG, |detail| {
        detail.job.state == State::Waiting && detail.following.as_ref().is_some_and(|it| it.followed == followed)
    })
}

/// What is the same however often it is done: not how long it took.
fn learnt(detail: &JobDetail) -> Vec<Value> {
    let fact = |epoch: &EpochRecord| {
        json!([epoch.epoch, epoch.train_loss, epoch.validation, epoch.samples, epoch.data, epoch.lr])
    };
    detail.history.iter().map(fact).collect()
}

#[test]
fn a_job_follows_three_appends_to_the_same_bits_whatever_is_killed() -> Result<()> {
    let mut node = Options::default().dev().start()?;
    prepare(&node.anybody())?;
    let follow = json!({ "replay": 0.25, "epochs": 2 });
    let more = json!({ "checkpoint_every": 40 });
    let begin = |client: &Client, name: &str| -> Result<()> {
        create(client, name, &samples(400, 1))?;
        let mut spec = following(name, follow.clone(), more.clone());
        spec["name"] = json!(format!("follows-{name}"));
        client.must_submit(&spec)?;
        caught_up(client, &format!("follows-{name}"), 0)?;
        Ok(())
    };
    // A run that nobody disturbs.
    let client = node.anybody();
    begin(&client, "calm")?;
    let sizes = [(300, 2), (20_000, 3), (250, 4)];
    for (version, (size, seed)) in (1..).zip(sizes) {
        append(&client, "calm", &samples(size, seed))?;
        caught_up(&client, "follows-calm", version)?;
    }
    let calm = client.job("follows-calm")?;
    // And one whose node is killed while the job waits, and while it trains.
    begin(&client, "rough")?;
    node = node.kill_and_restart()?;
    let client = node.anybody();
    ensure!(client.job("follows-rough")?.job.state == State::Waiting, "{:?}", client.job("follows-rough")?.job);
    append(&client, "rough", &samples(300, 2))?;
    caught_up(&client, "follows-rough", 1)?;
    append(&client, "rough", &samples(20_000, 3))?;
    let before = client.job("follows-rough")?.checkpoint.context("no checkpoint")?.step;
    client.job_until("follows-rough", LONG, |detail| {
        detail.job.state == State::Running && detail.checkpoint.is_some_and(|checkpoint| checkpoint.step > before)
    })?;
    node = node.kill_and_restart()?;
    let client = node.anybody();
    let rough = caught_up(&client, "follows-rough", 2)?;
    ensure!(rough.starts >= 1, "it was not training when the node was killed: {rough:?}");
    append(&client, "rough", &samples(250, 4))?;
    let rough = caught_up(&client, "follows-rough", 3)?;
    ensure!(learnt(&rough) == learnt(&calm), "{:#?}\n{:#?}", learnt(&rough), learnt(&calm));
    ensure!(weights(&client, "follows-rough")? == weights(&client, "follows-calm")?, "other bits");

    // What it was trained on is in its history, version by version.
    let data: Vec<_> = calm.history.iter().map(|epoch| epoch.data.context("no data")).collect::<Result<_>>()?;
    let counts: Vec<(u64, u64, u64)> =
        calm.history.iter().zip(&data).map(|(epoch, data)| (data.new, data.replayed, epoch.samples)).collect();
    let twice = |new, replayed| [(new, replayed, new + replayed); 2];
    let expected = [twice(400, 0), twice(300, 100), twice(20_000, 175), twice(250, 5_175)].concat();
    ensure!(counts == expected, "{counts:?}");
    for version in data.chunks(2) {
        ensure!(version[0].version == version[1].version && version[0].loss_after.is_none(), "{version:?}");
        ensure!(version[1].loss_before.is_none(), "{version:?}");
    }
    ensure!(data[0].loss_before.is_none() && data[1].loss_after.is_none(), "the first version has nothing before it");
    for version in data[2..].chunks(2) {
        let (before, after) = (version[0].loss_before.context("none")?, version[1].loss_after.context("none")?);
        ensure!(before.is_finite() && after.is_finite() && before != after, "{version:?}");
    }
    Ok(())
}

/// The names of a process's threads.
fn threads(node: &Node) -> Result<Vec<String>> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", node.pid().as_raw_nonzero()))?;
    // One that ends meanwhile has no name any more.
    Ok(tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect())
}

#[test]
fn a_job_that_waits_takes_nothing_and_stops_at_once() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({ "jobs": 1, "queued_jobs": 1 }))?;
    prepare(&client)?;
    create(&client, "grows", &samples(200, 1))?;
    client.must_submit(&following("grows", json!({}), json!({ "name": "waits" })))?;
    caught_up(&client, "waits", 0)?;
    eventually(SOON, || Ok(leases(&node)? == 0))?;
    eventually(SOON, || Ok(!threads(&node)?.iter().any(|name| name.trim() == "job" || name.trim() == "worker")))?;
    let (usage, spending) = (client.usage()?.usage, client.job("waits")?.spending);
    // Others of its tenant run beside it and wait beside it, as if it were not there.
    for name in ["other", "another"] {
        let spec = following("grows", json!({}), json!({ "name": name, "epochs": 1 }));
        let mut spec = spec.as_object().cloned().context("no object")?;
        spec.remove("follow");
        client.must_submit(&Value::Object(spec))?;
    }
    client.must_finish("other", LONG)?;
    let others = client.must_finish("another", LONG)?.spending.cost + client.job("other")?.spending.cost;
    let now = client.job("waits")?;
    ensure!(now.spending == spending && now.job.reason == "waits for data", "{now:?}");
    let cost = client.usage()?.usage.cost() - usage.cost();
    // The ledger counts in billionths.
    ensure!((cost - others).abs() <= 0.001 * others + 1e-7, "waiting cost {} beside {others}", cost - others);
    // It is stopped by the answer, and nothing wakes it any more.
    let stopped = client.order("waits", "stop")?.json()?;
    ensure!(stopped["state"] == "stopped", "{stopped}");
    append(&client, "grows", &samples(50, 2))?;
    client.order("waits", "resume")?.json()?;
    caught_up(&client, "waits", 1)?;
    Ok(())
}

#[test]
fn an_append_that_comes_while_it_trains_is_not_missed() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    prepare(&client)?;
    create(&client, "grows", &samples(2_000, 1))?;
    client.must_submit(&following("grows", json!({ "versions": 2 }), json!({ "name": "first" })))?;
    append(&client, "grows", &samples(100, 2))?;
    let latest = |client: &Client| -> Result<Value> {
        Ok(client.get("/v1/datasets/grows")?.json()?["dataset"]["version"].clone())
    };
    let version = latest(&client)?;
    let detail = caught_up(&client, "first", 1)?;
    ensure!(json!(detail.data_version) == version, "{:?} is not {version}", detail.data_version);
    // The second version is the last that was asked for.
    append(&client, "grows", &samples(100, 3))?;
    let done = client.must_finish("first", LONG)?;
    ensure!(done.job.reason.contains("all 2 versions") && json!(done.data_version) == latest(&client)?, "{done:?}");
    Ok(())
}

#[test]
fn a_data_set_that_is_deleted_or_replaced_ends_those_who_follow_it() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    prepare(&client)?;
    create(&client, "goes", &samples(200, 1))?;
    for name in ["one", "two"] {
        client.must_submit(&following("goes", json!({}), json!({ "name": name })))?;
        caught_up(&client, name, 0)?;
    }
    ensure!(client.send("DELETE", "/v1/datasets/goes", &[], b"")?.status == 204);
    for name in ["one", "two"] {
        let over = client.must_finish(name, SOON)?;
        ensure!(over.job.reason.contains("`goes` was deleted"), "{:?}", over.job);
    }
    // One that trained when that happened, and finds another data set of that name when it is done.
    create(&client, "goes", &samples(5_000, 1))?;
    client.must_submit(&following("goes", json!({}), json!({ "name": "late", "epochs": 40 })))?;
    client.job_in("late", State::Running, LONG)?;
    ensure!(client.send("DELETE", "/v1/datasets/goes", &[], b"")?.status == 204);
    create(&client, "goes", &samples(300, 9))?;
    eventually(LONG, || Ok(client.job("late")?.job.state.is_over()))?;
    let late = client.job("late")?.job;
    ensure!(late.state == State::Failed && late.reason.contains("another data set"), "{late:?}");
    Ok(())
}

#[test]
fn as_many_follow_as_the_quota_says_and_they_end_with_their_tenant() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({ "following_jobs": 1 }))?;
    prepare(&client)?;
    create(&client, "grows", &samples(200, 1))?;
    let job = |name: &str, follow: Value| following("grows", follow, json!({ "name": name }));
    client.must_submit(&job("one", json!({})))?;
    caught_up(&client, "one", 0)?;
    let refused = client.submit(&job("two", json!({})))?;
    ensure!(refused.status == 403 && refused.text().contains("following_jobs"), "{refused:?}");
    let refused = client.submit(&job("two", json!({ "replay": 2 })))?;
    ensure!(refused.status == 422 && refused.problem()?.word.as_deref() == Some("follow"), "{refused:?}");
    ensure!(node.operator()?.send("DELETE", "/v1/tenants/one", &[], b"")?.status == 204);
    // Nothing of it comes back with the node.
    let node = node.kill_and_restart()?;
    let again = node.tenant("one", json!({}))?;
    ensure!(again.get("/v1/jobs")?.json()?["jobs"].as_array().is_some_and(Vec::is_empty));
    Ok(())
}

#[test]
fn a_job_ends_when_it_has_waited_for_as_long_as_it_may() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    prepare(&client)?;
    create(&client, "grows", &samples(200, 1))?;
    client.must_submit(&following("grows", json!({ "idle_ms": 300 }), json!({ "name": "impatient" })))?;
    let done = client.must_finish("impatient", LONG)?;
    ensure!(done.job.reason.contains("no more data came within 0.3 s"), "{:?}", done.job);
    Ok(())
}
