//! Studies that are stopped, resumed and deleted; their tenants; and what is done to their jobs by hand.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft::job::State;
use weft::study::{TrialState, TuneState};
use weft_tests::node::{Options, eventually};

use super::{LONG, decisions, node, prepare, study};

#[test]
fn a_stopped_study_goes_on_to_the_same_decisions() -> Result<()> {
    let (_node, client) = node()?;
    let spec = |name: &str| study(name, json!({ "parallel": 1, "trials": 5 }));
    let calm = client.must_tune(&spec("calm"))?;
    client.tune_in(&calm, TuneState::Done, LONG)?;
    let calm = decisions(&client.trials(&calm)?)?;
    let name = client.must_tune(&spec("halted"))?;
    for trials in [1, 2, 4] {
        client.tune_until(&name, LONG, |detail| {
            let counts = detail.tune.counts;
            counts.paused + counts.done + counts.running >= trials || detail.tune.state.is_over()
        })?;
        if client.order_tune(&name, "stop")?.status != 200 {
            continue;
        }
        // Nothing of it runs any more.
        let is_at_rest = || Ok(client.jobs(true)?.iter().all(|job| job.state.is_over()));
        eventually(LONG, is_at_rest)?;
        ensure!(client.tune(&name)?.tune.state == TuneState::Stopped);
        ensure!(client.order_tune(&name, "stop")?.status == 409);
        ensure!(client.order_tune(&name, "resume")?.status == 200);
    }
    client.tune_in(&name, TuneState::Done, LONG)?;
    let halted = decisions(&client.trials(&name)?)?;
    ensure!(halted == calm, "{halted:?} instead of {calm:?}");
    ensure!(client.order_tune(&name, "resume")?.status == 409);
    Ok(())
}

#[test]
fn a_deleted_study_takes_its_jobs_with_it_and_leaves_the_best_model() -> Result<()> {
    let (_node, client) = node()?;
    let name = client.must_tune(&study("gone", json!({ "trials": 3 })))?;
    let refused = client.send("DELETE", &format!("/v1/tunes/{name}"), &[], b"")?;
    ensure!(refused.status == 409 && refused.text().contains("stop it first"), "{refused:?}");
    let best = client.tune_in(&name, TuneState::Done, LONG)?.tune.best.context("no best")?;
    let deleted = client.send("DELETE", &format!("/v1/tunes/{name}"), &[], b"")?;
    ensure!(deleted.status == 204, "{deleted:?}");
    ensure!(client.get(&format!("/v1/tunes/{name}"))?.status == 404 && client.jobs(true)?.is_empty());
    ensure!(!client.model_file(&best.model.context("no model")?)?.is_empty());
    Ok(())
}

#[test]
fn a_trial_that_is_stopped_by_hand_is_a_row_and_the_study_goes_on() -> Result<()> {
    let (_node, client) = node()?;
    let mut spec = study("by-hand", json!({ "trials": 2, "parallel": 1, "prune": "none" }));
    spec["job"]["epochs"] = json!(2_000);
    client.must_tune(&spec)?;
    client.tune_until("by-hand", LONG, |detail| detail.tune.counts.running == 1)?;
    let runs = |name: &str| Ok(client.jobs(true)?.iter().any(|job| job.name == name && job.state == State::Running));
    eventually(LONG, || runs("by-hand-0000"))?;
    ensure!(client.order("by-hand-0000", "stop")?.status == 200);
    client.tune_until("by-hand", LONG, |detail| detail.tune.counts.stopped == 1 && detail.tune.counts.running == 1)?;
    eventually(LONG, || runs("by-hand-0001"))?;
    ensure!(client.order("by-hand-0001", "stop")?.status == 200);
    client.tune_until("by-hand", LONG, |detail| detail.tune.state.is_over())?;
    let trials = client.trials("by-hand")?;
    ensure!(trials.iter().all(|trial| trial.state == TrialState::Stopped), "{trials:?}");
    Ok(())
}

#[test]
fn tenants_see_no_others_studies_and_take_theirs_with_them() -> Result<()> {
    let node = Options::default().start()?;
    let (one, two) = (node.tenant("one", json!({}))?, node.tenant("two", json!({}))?);
    prepare(&one)?;
    let mut spec = study("secret", json!({ "trials": 40, "prune": "none" }));
    spec["job"]["epochs"] = json!(500);
    let name = one.must_tune(&spec)?;
    one.tune_until(&name, LONG, |detail| detail.tune.counts.running > 0)?;
    for path in ["", "/trials", "/events"] {
        ensure!(two.get(&format!("/v1/tunes/{name}{path}"))?.status == 404);
    }
    for what in ["stop", "resume", "ask"] {
        ensure!(two.order_tune(&name, what)?.status == 404);
    }
    ensure!(two.send("DELETE", &format!("/v1/tunes/{name}"), &[], b"")?.status == 404);
    ensure!(two.get("/v1/tunes")?.json()?["tunes"].as_array().is_some_and(Vec::is_empty));
    let operator = node.operator()?;
    let deleted = operator.send("DELETE", "/v1/tenants/one", &[], b"")?;
    ensure!(deleted.status == 204, "{deleted:?}");
    node.idle(LONG)?;
    eventually(LONG, || Ok(node.view()?.job_bytes == 0))?;
    // A later tenant of that name finds nothing, now and after a restart.
    let node = node.kill_and_restart()?;
    let again = node.tenant("one", json!({}))?;
    ensure!(again.get("/v1/tunes")?.json()?["tunes"].as_array().is_some_and(Vec::is_empty));
    ensure!(again.jobs(true)?.is_empty());
    Ok(())
}

#[test]
fn a_study_waits_while_the_queue_is_full() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("small", json!({ "jobs": 1, "queued_jobs": 1 }))?;
    prepare(&client)?;
    let name = client.must_tune(&study("patient", json!({ "trials": 6, "parallel": 6, "prune": "none" })))?;
    let detail = client.tune_in(&name, TuneState::Done, LONG)?;
    ensure!(detail.tune.counts.done == 6, "{detail:?}");
    Ok(())
}
