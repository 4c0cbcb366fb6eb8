//! Studies that cannot be, and studies that come to nothing: both say why.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::study::TuneState;

use super::{LONG, node, study};

#[test]
fn what_makes_no_sense_is_refused_with_its_word() -> Result<()> {
    let (_node, client) = node()?;
    let mut dataset = study("d", json!({}));
    dataset["job"]["dataset"] = json!("nothing");
    let mut named = study("n", json!({}));
    named["job"]["name"] = json!("mine");
    for (spec, word, text) in [
        (study("a", json!({ "search": ["lr"] })), "search", "does not say what is searched"),
        (study("a", json!({ "search": ["lr=1..0"] })), "search", "wrong way round"),
        (study("a", json!({ "search": ["lr=0.1"] })), "search", "constant"),
        (study("a", json!({ "search": ["hiden=int:1..9"] })), "params", "there is no parameter `hiden`"),
        (study("a", json!({ "search": ["batch=0..1"] })), "search", "makes no job"),
        (study("a", json!({ "search": ["a=1|2 if b=1"] })), "search", "not searched"),
        (study("a", json!({ "sampler": "best" })), "sampler", "is no sampler"),
        (study("a", json!({ "prune": "asha:0" })), "prune", "is no pruner"),
        (study("a", json!({ "goal": "f1" })), "direction", "`maximise` or to `minimise`"),
        (study("a", json!({ "trials": 0 })), "trials", "between 1 and 10000"),
        (study("a", json!({ "parallel": 1000 })), "parallel", "between 0 and 256"),
        (study("a", json!({ "budget": -1.0 })), "budget", "0 or more"),
        (study("a", json!({ "enqueue": [{ "rate": 1 }] })), "enqueue", "no parameter of the search"),
        (study(&"a".repeat(60), json!({})), "name", "57 letters"),
        (named, "job", "leave out its `name`"),
    ] {
        let refused = client.post("/v1/tunes", &spec)?;
        let problem = refused.problem()?;
        ensure!(refused.status == 422 && problem.word.as_deref() == Some(word), "{spec}: {problem:?}");
        ensure!(problem.detail.contains(text), "{spec}: {problem:?}");
    }
    ensure!(client.post("/v1/tunes", &dataset)?.status == 404);
    ensure!(client.get("/v1/tunes")?.json()?["tunes"].as_array().is_some_and(Vec::is_empty));
    Ok(())
}

#[test]
fn the_same_request_sent_again_begins_no_second_study() -> Result<()> {
    let (_node, client) = node()?;
    let spec = |trials: u32| -> Result<Vec<u8>> {
        let mut spec = study("x", json!({ "trials": trials, "prune": "none" }));
        spec.as_object_mut().context("no object")?.remove("name");
        Ok(serde_json::to_vec(&spec)?)
    };
    let headers = [("content-type", "application/json"), ("idempotency-key", "try-1")];
    let send = |body: &[u8]| client.send("POST", "/v1/tunes", &headers, body);
    let (first, again, other) = (send(&spec(1)?)?, send(&spec(1)?)?, send(&spec(2)?)?);
    ensure!((first.status, again.status, other.status) == (201, 200, 409), "{first:?} {again:?} {other:?}");
    ensure!(first.json()?["name"] == again.json()?["name"]);
    Ok(())
}

#[test]
fn a_study_whose_trials_all_fail_says_so() -> Result<()> {
    let (_node, client) = node()?;
    // Far too large a rate: what comes of it is no number.
    let more = json!({ "search": ["lr=1e30..1e35"], "goal": "loss", "trials": 2, "prune": "none" });
    let name = client.must_tune(&study("hopeless", more))?;
    let detail = client.tune_until(&name, LONG, |detail| detail.tune.state.is_over())?;
    ensure!(detail.tune.state == TuneState::Failed && detail.tune.reason.contains("all 2 trials failed"), "{detail:?}");
    ensure!(detail.tune.best.is_none() && detail.tune.counts.failed == 2, "{detail:?}");
    Ok(())
}

#[test]
fn a_goal_that_the_function_does_not_report_is_said() -> Result<()> {
    let (_node, client) = node()?;
    let more = json!({ "goal": "f1", "direction": "maximise", "trials": 2, "prune": "none" });
    let name = client.must_tune(&study("unknown-goal", more))?;
    let detail = client.tune_until(&name, LONG, |detail| detail.tune.state.is_over())?;
    let reason = &detail.tune.reason;
    ensure!(
        detail.tune.state == TuneState::Failed && reason.contains("`f1`") && reason.contains("`accuracy`"),
        "{reason}"
    );
    Ok(())
}

#[test]
fn budgets_and_deadlines_end_a_study_and_are_said() -> Result<()> {
    let (_node, client) = node()?;
    let ended = |name: &str, more: Value| -> Result<_> {
        let name = client.must_tune(&study(name, more))?;
        Ok(client.tune_until(&name, LONG, |detail| detail.tune.state.is_over())?.tune)
    };
    let nothing = ended("no-money", json!({ "budget": 0.0 }))?;
    ensure!(nothing.state == TuneState::Failed && nothing.reason.contains("less than one trial"), "{nothing:?}");
    let one = ended("measured", json!({ "trials": 1, "prune": "none" }))?;
    // What runs is stopped by what its epochs have cost so far, and a busy machine is not that even.
    let budget = 3.5 * one.spent;
    let some = ended("some-money", json!({ "trials": 50, "parallel": 1, "prune": "none", "budget": budget }))?;
    ensure!(some.reason.contains("budget") && some.spent <= 1.5 * budget, "{some:?}");
    let mut late = study("late", json!({ "trials": 1, "prune": "none", "deadline_ms": 1500 }));
    late["job"]["epochs"] = json!(100_000);
    let name = client.must_tune(&late)?;
    let late = client.tune_until(&name, LONG, |detail| detail.tune.state.is_over())?.tune;
    ensure!(late.reason.contains("deadline of 1.5 s"), "{late:?}");
    Ok(())
}
