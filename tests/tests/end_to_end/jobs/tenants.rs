//! Jobs of several tenants: within quotas, queued in turn, unseen by each other.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft::job::State;
use weft_tests::node::{Options, eventually};

use super::infer::{harm, leases, with_harm};
use super::{LONG, lenet, prepare};

#[test]
fn a_tenant_sees_only_its_own_jobs() -> Result<()> {
    let node = Options::default().start()?;
    let (one, two) = (node.tenant("one", json!({}))?, node.tenant("two", json!({}))?);
    prepare(&one)?;
    one.must_train(&lenet(json!({ "name": "mine", "epochs": 1 })), LONG)?;
    for path in ["", "/history", "/events", "/logs"] {
        ensure!(two.get(&format!("/v1/jobs/mine{path}"))?.status == 404, "{path}");
    }
    for order in ["stop", "resume", "workers/0/kill"] {
        ensure!(two.order("mine", order)?.status == 404, "{order}");
    }
    ensure!(two.get("/v1/jobs")?.json()?["jobs"].as_array().is_some_and(Vec::is_empty));
    Ok(())
}

#[test]
fn what_is_over_the_quota_waits_or_is_refused() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("small", json!({ "jobs": 1, "workers": 2, "queued_jobs": 1 }))?;
    prepare(&client)?;
    let refused = client.submit(&lenet(json!({ "workers": 3 })))?;
    ensure!(refused.status == 403 && refused.text().contains("`workers` of 2"), "{refused:?}");
    client.must_submit(&lenet(json!({ "name": "long", "epochs": 100_000 })))?;
    client.job_in("long", State::Running, LONG)?;
    client.must_submit(&lenet(json!({ "name": "next", "epochs": 1 })))?;
    let full = client.submit(&lenet(json!({ "epochs": 1 })))?;
    ensure!(full.status == 403 && full.text().contains("queued_jobs"), "{full:?}");
    ensure!(client.job("next")?.job.state == State::Queued);
    client.order("long", "stop")?.json()?;
    client.must_finish("next", LONG)?;
    Ok(())
}

/// Trainers that sleep while they are tried out, as many as are tried out at once for one tenant and more.
#[test]
fn a_trainer_that_sleeps_in_its_trial_holds_up_nobody_elses_submission() -> Result<()> {
    const WALL: Duration = Duration::from_secs(4);
    let node = Options::default().start()?;
    let sleepy = with_harm(&node, "sleepy", json!({ "wall_ms": WALL.as_millis() as u64 }))?;
    let other = node.tenant("other", json!({}))?;
    prepare(&other)?;
    std::thread::scope(|scope| {
        let start = Instant::now();
        let submit = |number: usize| {
            let (sleepy, spec) = (&sleepy, harm(&format!("sleeps-{number}"), "sleep", "init"));
            scope.spawn(move || sleepy.submit(&spec).map(|answer| (answer, start.elapsed())))
        };
        let sleeping: Vec<_> = (0..4).map(submit).collect();
        eventually(LONG, || Ok(leases(&node)? >= 4)).context("no trainer is being tried out")?;
        let asked = Instant::now();
        other.must_submit(&lenet(json!({ "name": "mine", "epochs": 1 })))?;
        ensure!(asked.elapsed() < WALL / 2, "it was held up for {:?}", asked.elapsed());
        for submission in sleeping {
            let (answer, took) = submission.join().ok().context("a client panicked")??;
            ensure!(answer.status == 422 && answer.problem()?.detail.contains("`init`"), "{answer:?}");
            ensure!(answer.problem()?.detail.contains("wall_ms"), "{answer:?}");
            ensure!(took >= WALL && took < 2 * WALL, "it took {took:?}");
        }
        Ok(())
    })
}

#[test]
fn a_job_that_goes_on_and_sleeps_holds_up_nobody_elses_submission() -> Result<()> {
    let node = Options::default().start()?;
    let sleepy = with_harm(&node, "sleepy", json!({ "wall_ms": 600_000 }))?;
    let other = node.tenant("other", json!({}))?;
    prepare(&other)?;
    sleepy.must_submit(&harm("sleeps", "sleep", "evaluate"))?;
    sleepy.job_in("sleeps", State::Running, LONG)?;
    sleepy.order("sleeps", "stop")?.json()?;
    eventually(LONG, || Ok(sleepy.job("sleeps")?.job.state == State::Stopped))?;
    sleepy.order("sleeps", "resume")?.json()?;
    sleepy.job_in("sleeps", State::Running, LONG)?;
    let asked = Instant::now();
    other.must_train(&lenet(json!({ "name": "mine", "epochs": 1 })), LONG)?;
    ensure!(asked.elapsed() < Duration::from_secs(30), "it was held up for {:?}", asked.elapsed());
    sleepy.order("sleeps", "stop")?.json()?;
    Ok(())
}

#[test]
fn device_seconds_that_are_used_up_end_a_job() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("poor", json!({ "device_seconds": 1 }))?;
    prepare(&client)?;
    client.must_submit(&lenet(json!({ "name": "dear", "epochs": 100_000 })))?;
    eventually(LONG, || Ok(client.job("dear")?.job.state.is_over()))?;
    let detail = client.job("dear")?;
    ensure!(detail.job.state == State::Failed && detail.job.reason.contains("device_seconds"), "{}", detail.job.reason);
    let refused = client.submit(&lenet(json!({})))?;
    ensure!(refused.status == 403 && refused.text().contains("device_seconds"), "{refused:?}");
    Ok(())
}

#[test]
fn jobs_are_listed_deleted_and_pruned() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    prepare(&client)?;
    for name in ["a", "b", "c"] {
        client.must_train(&lenet(json!({ "name": name, "epochs": 1 })), LONG)?;
    }
    let page = client.get("/v1/jobs?limit=2")?.json()?;
    ensure!(page["jobs"].as_array().is_some_and(|jobs| jobs.len() == 2) && page["next"].is_string(), "{page}");
    ensure!(client.send("DELETE", "/v1/jobs/a", &[], b"")?.status == 204);
    ensure!(client.get("/v1/jobs/a")?.status == 404);
    ensure!(client.get("/v1/models/a")?.status == 200, "its model stays");
    client.send("POST", "/v1/jobs/prune", &[], b"")?.json()?;
    ensure!(client.get("/v1/jobs")?.json()?["jobs"].as_array().is_some_and(Vec::is_empty));
    Ok(())
}
