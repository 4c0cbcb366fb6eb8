//! Studies over HTTP: trials are real jobs of real functions on real nodes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::api::types::TrialView;
use weft::study::{TrialState, TuneEvent, TuneState};
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};

mod driven;
mod orders;
mod refused;

/// Longer than any of these studies takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// A node with `digits` and a small function on it.
fn node() -> Result<(Node, Client)> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    prepare(&client)?;
    Ok((node, client))
}

fn prepare(client: &Client) -> Result<()> {
    client.must_deploy("mlp", &component("functions/mlp")?)?;
    let made = client.send("PUT", "/v1/datasets/digits", &[], &serde_json::to_vec(&json!({ "shipped": "digits" }))?)?;
    ensure!(made.status == 201, "{made:?}");
    Ok(())
}

/// A study of a small perceptron on digits; `more` is put over it.
fn study(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "name": name,
        "job": {
            "function": "mlp", "dataset": "digits", "batch": 64, "epochs": 4, "seed": 7, "memory": 64 << 20,
            "params": { "features": 64, "classes": 10, "layers": 1, "width": 16 },
        },
        "search": ["lr=log:1e-4..0.5", "momentum=0..0.95"],
        "sampler": "tpe", "prune": "asha:2", "trials": 8, "parallel": 2, "seed": 3,
    });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What was decided: which points, how far each trial trained, and to what values.
fn decisions(trials: &[TrialView]) -> Result<Vec<Value>> {
    let of = |trial: &TrialView| -> Result<Value> {
        let reports = serde_json::to_value(&trial.reports)?;
        Ok(json!({ "trial": trial.trial, "point": trial.point, "state": trial.state, "reports": reports }))
    };
    trials.iter().map(of).collect()
}

#[test]
fn a_study_ends_with_a_best_trial_and_its_model() -> Result<()> {
    let (_node, client) = node()?;
    let name = client.must_tune(&study("first", json!({})))?;
    let detail = client.tune_in(&name, TuneState::Done, LONG)?;
    let best = detail.tune.best.clone().context("no best trial")?;
    let trials = client.trials(&name)?;
    ensure!(trials.len() == 8 && detail.tune.reason.contains("all 8 trials"), "{}", detail.tune.reason);
    let values: Vec<f64> = trials.iter().filter_map(|trial| trial.value).collect();
    ensure!(values.len() == 8 && best.value > median(values.clone()), "{best:?} of {values:?}");
    let trial = &trials[best.trial as usize];
    ensure!(trial.value == Some(best.value) && trial.point == best.point, "{trial:?}");
    // Halving: not all have trained to the end, and those that have not keep a checkpoint.
    let paused: Vec<_> = trials.iter().filter(|trial| trial.state == TrialState::Paused).collect();
    ensure!(!paused.is_empty() && paused.iter().all(|trial| trial.epoch < 4), "{trials:?}");
    let job = client.job(paused[0].job.as_deref().context("a trial without a job")?)?;
    ensure!(job.checkpoint.is_some() && job.job.reason.contains("`until`"), "{job:?}");
    ensure!(job.job.tune.as_deref() == Some("first") && job.job.trial == Some(paused[0].trial), "{:?}", job.job);
    // Of all models only the best one's stays, and it is a model like any other.
    let models = client.get("/v1/models")?.json()?;
    let models: Vec<&str> =
        models["models"].as_array().context("no models")?.iter().filter_map(|model| model["name"].as_str()).collect();
    let model = best.model.context("the best has no model")?;
    ensure!(models == [model.as_str()] && Some(&model) == best.job.as_ref(), "{models:?}");
    ensure!(!client.model_file(&model)?.is_empty());
    // Trials are jobs, but they are not in the way of others.
    ensure!(client.jobs(false)?.is_empty() && client.jobs(true)?.len() == 8);
    let pruned = client.send("POST", "/v1/jobs/prune", &[], b"")?;
    ensure!(pruned.status == 200 && client.jobs(true)?.len() == 8, "{pruned:?}");
    ensure!(detail.tune.spent > 0.0 && !detail.curve.is_empty(), "{detail:?}");
    let events = client.tune_events(&name)?;
    ensure!(events.windows(2).all(|pair| pair[0].id < pair[1].id));
    let bests = events.iter().filter(|view| matches!(view.event, TuneEvent::Best { .. })).count();
    let reports = events.iter().filter(|view| matches!(view.event, TuneEvent::Report { .. })).count();
    ensure!(bests >= 1 && reports == trials.iter().map(|trial| trial.reports.len()).sum::<usize>(), "{events:?}");
    let last = &events.last().context("no event")?.event;
    ensure!(matches!(last, TuneEvent::State { state: TuneState::Done, .. }), "{last:?}");
    Ok(())
}

#[test]
fn the_same_seed_tries_the_same_and_comes_to_the_same_values() -> Result<()> {
    let (_node, client) = node()?;
    let mut decided = Vec::new();
    for name in ["one", "two"] {
        let name = client.must_tune(&study(name, json!({ "parallel": 1, "trials": 5 })))?;
        client.tune_in(&name, TuneState::Done, LONG)?;
        decided.push(decisions(&client.trials(&name)?)?);
    }
    ensure!(decided[0] == decided[1], "{:?} and {:?}", decided[0], decided[1]);
    Ok(())
}

#[test]
fn a_killed_node_goes_on_to_the_same_trials_and_decisions() -> Result<()> {
    let (node, client) = node()?;
    let spec = |name: &str| study(name, json!({ "parallel": 1, "trials": 6 }));
    let calm = client.must_tune(&spec("calm"))?;
    client.tune_in(&calm, TuneState::Done, LONG)?;
    let calm = decisions(&client.trials(&calm)?)?;
    let name = client.must_tune(&spec("killed"))?;
    let mut node = Some(node);
    for trials in [1, 3, 4] {
        let client = node.as_ref().context("no node")?.anybody();
        client.tune_until(&name, LONG, |detail| {
            let counts = detail.tune.counts;
            counts.paused + counts.done + counts.running >= trials || detail.tune.state.is_over()
        })?;
        node = Some(node.take().context("no node")?.kill_and_restart()?);
    }
    let client = node.as_ref().context("no node")?.anybody();
    client.tune_in(&name, TuneState::Done, LONG)?;
    let killed = decisions(&client.trials(&name)?)?;
    ensure!(killed == calm, "{killed:?} instead of {calm:?}");
    let models = client.get("/v1/models")?.json()?;
    ensure!(models["models"].as_array().map(Vec::len) == Some(2), "{models}");
    Ok(())
}

#[test]
fn a_study_that_searches_nothing_searches_what_the_function_declares() -> Result<()> {
    let (_node, client) = node()?;
    let described = client.get("/v1/functions/mlp/description")?.json()?;
    let search: Vec<&str> =
        described["search"].as_array().context("no search")?.iter().filter_map(Value::as_str).collect();
    ensure!(search.contains(&"params.dropout=0.0..0.9"), "{search:?}");
    ensure!(described["parameters"].as_array().is_some_and(|all| all.len() == 10), "{described}");
    let spec = json!({
        "name": "declared", "parallel": 0,
        "job": { "function": "mlp", "dataset": "digits", "params": { "features": 64, "classes": 10 } },
    });
    client.must_tune(&spec)?;
    ensure!(client.tune("declared")?.search == search, "{:?}", client.tune("declared")?.search);
    let asked = client.ask("declared")?.trial.context("no trial")?;
    ensure!(asked.point.contains_key("params.width"), "{asked:?}");
    Ok(())
}
