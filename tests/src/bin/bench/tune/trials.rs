//! Studies whose trials are jobs: what a trial costs beside its training, and how well many fill the cores.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use weft::api::types::{TuneDetail, TuneView};
use weft::study::TuneState;
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::Options;

use super::BENCH;
use crate::framework::PYTORCH;
use crate::{Measurement, is_wanted, percentile};

const LONG: Duration = Duration::from_secs(600);
const CORES: f64 = 2.0;
const TRIALS: u32 = 128;
/// What a trial of a small perceptron is.
const EPOCHS: u32 = 5;
const BATCH: u32 = 64;
const LAYERS: u32 = 2;
const WIDTH: u32 = 64;

pub fn run() -> Result<()> {
    // A study of a hundred trials is many jobs at once; nothing but the cores is to limit them.
    let node = Options::default().start()?;
    let client = node.tenant("tuner", json!({ "jobs": 64, "queued_jobs": 10_000, "requests_per_second": 100_000 }))?;
    client.must_deploy("mlp", &component("functions/mlp")?)?;
    if is_wanted("overhead") {
        overhead(&client)?;
    }
    if is_wanted("scaling") {
        scaling(&client)?;
    }
    Ok(())
}

/// A hundred trials whose training takes about a millisecond, from the request until the study is over.
fn overhead(client: &Client) -> Result<()> {
    make(client, "few", json!({ "synthetic": { "kind": "binary20", "train": 64, "test": 16, "seed": 1 } }))?;
    let mut seconds = Vec::new();
    for round in 0..5 {
        let job = json!({
            "function": "mlp", "dataset": "few", "seed": 1, "epochs": 1, "batch": 32, "memory": 32 << 20,
            "params": { "layers": "1", "width": "8" },
        });
        let spec = json!({
            "name": format!("overhead-{round}"), "job": job, "search": ["lr=log:1e-4..1e-1", "momentum=0..0.99"],
            "goal": "loss", "trials": 100, "parallel": 4, "sampler": "tpe", "seed": round, "keep": "none",
        });
        seconds.push(study(client, &spec, 100)?);
    }
    Measurement::alone(BENCH, "overhead", "s", percentile(&mut seconds, 0.5)).print()
}

/// Trials of a small perceptron on all cores, beside as many on one after another divided by the cores, and beside a loop of
/// PyTorch runs.
fn scaling(client: &Client) -> Result<()> {
    make(client, "digits", json!({ "shipped": "digits" }))?;
    let spec = |name: &str, trials: u32, parallel: u32| {
        let job = json!({
            "function": "mlp", "dataset": "digits", "seed": 1, "epochs": EPOCHS, "batch": BATCH, "memory": 32 << 20,
            "params": { "features": "64", "classes": "10", "layers": LAYERS.to_string(), "width": WIDTH.to_string() },
        });
        json!({
            "name": name, "job": job, "search": ["lr=log:1e-3..1e-1", "momentum=0..0.99"], "sampler": "random",
            "trials": trials, "parallel": parallel, "seed": 1, "keep": "none",
        })
    };
    let alone = study(client, &spec("alone", 32, 1), 32)? / 32.0;
    let together = study(client, &spec("together", TRIALS, 4), TRIALS)?;
    let ideal = alone * f64::from(TRIALS) / CORES;
    Measurement::faster(BENCH, "scaling", "s", together, ideal).print()?;
    if PYTORCH.is_there() {
        let mut torch = PYTORCH.start("tune_torch.py", &[])?;
        let mut best = f64::INFINITY;
        for threads in [1, 2] {
            let answer: Took = torch.ask(&json!({
                "runs": TRIALS, "epochs": EPOCHS, "batch": BATCH, "samples": 1_438, "features": 64, "classes": 10,
                "layers": LAYERS, "width": WIDTH, "threads": threads,
            }))?;
            best = best.min(answer.seconds);
        }
        Measurement::faster(BENCH, "scaling.torch_loop", "s", together, best).print()?;
    } else {
        eprintln!("tune: no PyTorch here, so no loop of its runs; `scripts/torch-venv.sh` brings it");
    }
    Ok(())
}

#[derive(Deserialize)]
struct Took {
    seconds: f64,
}

fn make(client: &Client, name: &str, spec: Value) -> Result<()> {
    let made = client.send("PUT", &format!("/v1/datasets/{name}"), &[], &serde_json::to_vec(&spec)?)?;
    ensure!(made.status == 201, "data set `{name}`: {} {}", made.status, made.text());
    Ok(())
}

/// Seconds from the request until a study is over; all of its trials must have come to a value.
fn study(client: &Client, spec: &Value, trials: u32) -> Result<f64> {
    let start = Instant::now();
    let answer = client.post("/v1/tunes", spec)?;
    ensure!(answer.status == 201, "{spec}: {} {}", answer.status, answer.text());
    let tune: TuneView = serde_json::from_value(answer.json()?)?;
    // Followed, not asked again and again: whoever asks takes time from those who compute.
    let follower = weft::cli::Client::new(client.url(), client.key(), None)?;
    for event in follower.follow_tune(&tune.name.parse()?, None)? {
        event?;
        if start.elapsed() > LONG {
            bail!("study `{}` is not over after {LONG:?}", tune.name);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let detail: TuneDetail = serde_json::from_value(client.get(&format!("/v1/tunes/{}", tune.name))?.json()?)?;
    let TuneView { state, reason, counts, .. } = &detail.tune;
    ensure!(
        *state == TuneState::Done && counts.done == trials,
        "study `{}` is {}: {reason}, {counts:?}",
        tune.name,
        state.word()
    );
    let deleted = client.send("DELETE", &format!("/v1/tunes/{}", tune.name), &[], b"")?;
    ensure!(deleted.status < 300, "deleting it: {} {}", deleted.status, deleted.text());
    Ok(seconds)
}
