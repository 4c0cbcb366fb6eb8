//! Training jobs over HTTP, with real functions on real nodes.

use std::io::Cursor;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::job::{JobEvent, State};
use weft::model::Model;
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};

mod channels;
mod checkpoints;
mod codecs;
mod combinations;
mod devices;
mod exchange;
mod faults;
mod follow;
mod full;
mod infer;
mod on_append;
mod optimum;
mod pipeline;
mod plan;
mod refused;
mod restarts;
mod scale;
mod slow;
mod tenants;
mod written;

/// Longer than any of these jobs takes on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(120);

/// A node with `digits` and lenet on it.
fn node() -> Result<(Node, Client)> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    prepare(&client)?;
    Ok((node, client))
}

pub(super) fn prepare(client: &Client) -> Result<()> {
    client.must_deploy("lenet", &component("functions/lenet")?)?;
    let made = client.send("PUT", "/v1/datasets/digits", &[], &serde_json::to_vec(&json!({ "shipped": "digits" }))?)?;
    ensure!(made.status == 201, "{made:?}");
    Ok(())
}

/// A job of lenet on digits; `more` is put over it.
pub(super) fn lenet(more: Value) -> Value {
    let mut spec = json!({
        "function": "lenet", "dataset": "digits", "epochs": 3, "batch": 16, "lr": 0.02, "seed": 7, "memory": 64 << 20,
    });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}

/// All numbers of a job's model: equal when all bits are.
pub(super) fn weights(client: &Client, job: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let mut model = Model::open(Cursor::new(client.model_file(job)?))?;
    let names: Vec<String> = model.tensors().map(|tensor| tensor.name.clone()).collect();
    names.into_iter().map(|name| Ok((name.clone(), model.tensor(&name)?))).collect()
}

#[test]
fn a_job_trains_and_tells_what_it_did() -> Result<()> {
    let (_node, client) = node()?;
    let spec = lenet(json!({ "name": "first", "workers": 2, "epochs": 8, "goal_accuracy": 0.5 }));
    let detail = client.must_train(&spec, LONG)?;
    ensure!(detail.job.reason.contains("reached the goal"), "{}", detail.job.reason);
    let events = client.events("first")?;
    let epochs = events.iter().filter_map(|view| match &view.event {
        JobEvent::Epoch(epoch) => Some(epoch),
        _ => None,
    });
    let epochs: Vec<_> = epochs.collect();
    let last = epochs.last().context("no epoch was told")?;
    ensure!(last.validation["accuracy"] >= 0.5, "{last:?}");
    ensure!(last.samples == 1_438 && last.workers == 2 && last.seconds > 0.0, "{last:?}");
    ensure!(last.stages.compute > 0.0 && last.stages.merge > 0.0 && last.stages.validate > 0.0, "{last:?}");
    ensure!(last.spending.device_seconds > 0.0 && last.spending.bytes > 0 && last.spending.cost > 0.0, "{last:?}");
    ensure!(epochs[0].spending.cold_starts == 2, "{:?}", epochs[0]);
    ensure!(events.windows(2).all(|pair| pair[0].id < pair[1].id));
    ensure!(matches!(&events.last().context("no event")?.event, JobEvent::State { state: State::Done, .. }));
    let usage = client.usage()?.usage;
    ensure!(usage.jobs == 1 && usage.workers >= 2 && usage.device_us > 0, "{usage:?}");
    let sample: Vec<f32> = vec![0.0; 64];
    let answer = client.post("/v1/jobs/first/infer", &json!({ "samples": [sample, sample] }))?.json()?;
    let outputs: Vec<Vec<f32>> = serde_json::from_value(answer["outputs"].clone())?;
    ensure!(outputs.len() == 2 && outputs[0].len() == 10 && outputs[0] == outputs[1], "{outputs:?}");
    Ok(())
}

#[test]
fn the_same_job_gives_the_same_bits_whatever_it_is_called() -> Result<()> {
    let (_node, client) = node()?;
    for more in [json!({ "workers": 3 }), json!({ "workers": 2, "k": 4 }), json!({ "workers": 2, "fan_out": 2 })] {
        let mut models = Vec::new();
        for _ in 0..2 {
            let name = client.must_submit(&lenet(more.clone()))?;
            client.must_finish(&name, LONG)?;
            models.push(weights(&client, &name)?);
        }
        ensure!(models[0] == models[1], "{more}");
    }
    Ok(())
}

#[test]
fn averaged_gradients_are_those_of_one_large_batch() -> Result<()> {
    let (_node, client) = node()?;
    let loss = |more: Value| -> Result<f64> {
        let name = client.must_submit(&lenet(more))?;
        client.must_finish(&name, LONG)?;
        let history = client.get(&format!("/v1/jobs/{name}/history"))?.json()?;
        history["epochs"][0]["train_loss"].as_f64().context("no loss")
    };
    // In an order that all agree on, the first steps see the same samples.
    let alone = loss(json!({ "epochs": 1, "batch": 1438, "memory": 512 << 20 }))?;
    let together = loss(json!({ "epochs": 1, "workers": 2, "batch": 719, "memory": 512 << 20 }))?;
    ensure!((alone - together).abs() < 1e-5 * alone.abs(), "{alone} and {together}");
    Ok(())
}

#[test]
fn statistics_are_added_up() -> Result<()> {
    let (_node, client) = node()?;
    client.must_deploy("kmeans", &component("functions/kmeans")?)?;
    let made = json!({ "synthetic": { "kind": "higgs", "train": 600, "seed": 1 } });
    let made = client.send("PUT", "/v1/datasets/higgs", &[], &serde_json::to_vec(&made)?)?;
    ensure!(made.status == 201, "{made:?}");
    let run = |workers: u32| -> Result<Vec<(String, Vec<u8>)>> {
        let spec = json!({
            "function": "kmeans", "dataset": "higgs", "epochs": 4, "seed": 3, "workers": workers, "memory": 64 << 20,
        });
        let name = client.must_submit(&spec)?;
        client.must_finish(&name, LONG)?;
        weights(&client, &name)
    };
    let numbers =
        |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect() };
    for ((name, one), (_, three)) in run(1)?.iter().zip(&run(3)?) {
        for (one, three) in numbers(one).iter().zip(numbers(three)) {
            ensure!((one - three).abs() <= 1e-3 * one.abs().max(1.0), "{name}: {one} and {three}");
        }
    }
    Ok(())
}

#[test]
fn clusters_of_images_are_found() -> Result<()> {
    let (_node, client) = node()?;
    client.must_deploy("kmeans", &component("functions/kmeans")?)?;
    let spec = json!({
        "function": "kmeans", "dataset": "digits", "epochs": 3, "seed": 3, "workers": 2, "memory": 64 << 20,
        "params": { "features": "64" },
    });
    let losses: Vec<f64> = client.must_train(&spec, LONG)?.history.iter().map(|epoch| epoch.train_loss).collect();
    ensure!(losses.len() == 3 && losses.is_sorted_by(|before, after| after < before), "{losses:?}");
    Ok(())
}

#[test]
fn accuracies_are_exact_counts_however_many_workers_measured_them() -> Result<()> {
    const TESTS: f64 = 359.0;
    let (_node, client) = node()?;
    for workers in [1, 3] {
        let history = client.must_train(&lenet(json!({ "workers": workers, "batch": 13 })), LONG)?.history;
        for epoch in &history {
            let accuracy = *epoch.validation.get("accuracy").context("no accuracy")?;
            let right = (accuracy * TESTS).round();
            ensure!(accuracy == right / TESTS, "{accuracy} is not {right} of {TESTS}");
        }
    }
    Ok(())
}

#[test]
fn learning_is_steered() -> Result<()> {
    let (_node, client) = node()?;
    let spec = lenet(json!({
        "epochs": 6, "lr": 1e-7, "plateau": { "factor": 0.5, "patience": 1, "min": 1e-8 },
        "early_stop": { "patience": 4, "delta": 10.0 }, "batch_schedule": { "2": 32 },
    }));
    let name = client.must_submit(&spec)?;
    let detail = client.must_finish(&name, LONG)?;
    ensure!(detail.job.reason.contains("stopped early"), "{}", detail.job.reason);
    let history = client.get(&format!("/v1/jobs/{name}/history"))?.json()?;
    let epochs = history["epochs"].as_array().context("no history")?;
    ensure!(epochs.len() == 5, "{} epochs", epochs.len());
    ensure!(epochs[0]["batch"] == 16 && epochs[1]["batch"] == 32, "{history}");
    Ok(())
}

#[test]
fn an_idempotent_request_makes_one_job() -> Result<()> {
    let (_node, client) = node()?;
    let spec = lenet(json!({ "epochs": 1 }));
    let first = client.submit_with_key(&spec, "one-key")?;
    let again = client.submit_with_key(&spec, "one-key")?;
    ensure!((first.status, again.status) == (201, 200), "{first:?} {again:?}");
    ensure!(first.json()?["name"] == again.json()?["name"]);
    let other = client.submit_with_key(&lenet(json!({ "epochs": 2 })), "one-key")?;
    ensure!(other.status == 409, "{other:?}");
    Ok(())
}

#[test]
fn models_of_the_latest_epochs_are_kept_and_can_be_started_from() -> Result<()> {
    let (_node, client) = node()?;
    client.must_train(&lenet(json!({ "name": "kept", "keep": 2 })), LONG)?;
    let models = client.get("/v1/models")?.json()?;
    let names: Vec<&str> =
        models["models"].as_array().context("no models")?.iter().filter_map(|model| model["name"].as_str()).collect();
    ensure!(names == ["kept", "kept-e2", "kept-e3"], "{names:?}");
    let on = client.must_submit(&lenet(json!({ "init_from": "kept", "epochs": 1 })))?;
    client.must_finish(&on, LONG)?;
    let first = |job: &str| -> Result<f64> {
        let history = client.get(&format!("/v1/jobs/{job}/history"))?.json()?;
        history["epochs"][0]["train_loss"].as_f64().context("no loss")
    };
    ensure!(first(&on)? < first("kept")?, "what was learned is lost");
    Ok(())
}

#[test]
fn the_best_model_is_the_one_that_is_kept() -> Result<()> {
    let (_node, client) = node()?;
    let spec = lenet(json!({ "name": "best", "keep": "best", "epochs": 8, "lr": 0.05 }));
    let history = client.must_train(&spec, LONG)?.history;
    let accuracies = history.iter().filter_map(|epoch| epoch.validation.get("accuracy").copied());
    let best = accuracies.fold(0.0, f64::max);
    let model = Model::open(Cursor::new(client.model_file("best")?))?;
    ensure!(model.meta.metrics.get("accuracy") == Some(&best), "{:?} and {best}", model.meta.metrics);
    Ok(())
}
