//! Training jobs on a node: what they cost over training in one process, merges, starts by the hundred.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use weft_tests::command::User;
use weft_tests::components::{self, component};
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};

use crate::{Measurement, is_wanted, percentile};

const BENCH: &str = "jobs";
const LONG: Duration = Duration::from_secs(600);
const MANY: usize = 200;

pub fn run() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    client.must_deploy("lenet", &component("functions/lenet")?)?;
    let digits = serde_json::to_vec(&json!({ "shipped": "digits" }))?;
    ensure!(client.send("PUT", "/v1/datasets/digits", &[], &digits)?.status == 201);
    if is_wanted("job.start_200_workers") {
        starts(&client)?;
    }
    if is_wanted("job.kavg_merge") {
        merges(&client)?;
    }
    if is_wanted("job.200_jobs") {
        many(&node, &client)?;
    }
    if is_wanted("job.overhead") {
        overhead(&client)?;
    }
    Ok(())
}

fn lenet(more: Value) -> Value {
    let mut spec = json!({ "function": "lenet", "dataset": "digits", "seed": 1, "memory": 32 << 20, "batch": 4 });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}

/// From the accepted request until the last of 200 fresh, leased instances has returned from `init`.
fn starts(client: &Client) -> Result<()> {
    let mut seconds = Vec::new();
    for _ in 0..5 {
        let name = client.must_submit(&lenet(json!({ "workers": MANY, "epochs": 1 })))?;
        let ready = client.must_finish(&name, LONG)?.ready_ms;
        seconds.push(ready.context("it never said that all were ready")? / 1e3);
    }
    Measurement::alone(BENCH, "job.start_200_workers", "s", percentile(&mut seconds, 0.5)).print()
}

/// The mean of four workers' weights, from the last share to the model.
fn merges(client: &Client) -> Result<()> {
    let name = client.must_submit(&lenet(json!({ "workers": 4, "k": 2, "epochs": 10, "batch": 16 })))?;
    client.must_finish(&name, LONG)?;
    let history = client.job(&name)?.history;
    let each = |epoch: &weft::job::EpochRecord| epoch.stages.merge / epoch.steps.div_ceil(2) as f64 * 1e6;
    let mut microseconds: Vec<f64> = history.iter().map(each).collect();
    Measurement::alone(BENCH, "job.kavg_merge", "us", percentile(&mut microseconds, 0.5)).print()
}

/// Two hundred jobs of two workers at once.
fn many(node: &Node, client: &Client) -> Result<()> {
    let batch = |count: usize| -> Result<f64> {
        let start = Instant::now();
        let submit = |_| client.must_submit(&lenet(json!({ "workers": 2, "epochs": 1, "batch": 16 })));
        let names = (0..count).map(submit).collect::<Result<Vec<_>>>()?;
        for name in &names {
            client.must_finish(name, LONG)?;
        }
        Ok(start.elapsed().as_secs_f64())
    };
    batch(MANY)?;
    let before = node.resident()?;
    let seconds = batch(MANY)?;
    let after = node.resident()?;
    Measurement::alone(BENCH, "job.200_jobs", "s", seconds).print()?;
    Measurement::beside(BENCH, "job.200_jobs_memory", "bytes", after as f64, before as f64).print()
}

/// Samples a second of a job with one worker, beside those of `weft train-local`.
fn overhead(client: &Client) -> Result<()> {
    let user = User::of(client)?;
    let pulled = user.command(&["dataset", "pull", "mnist"])?.stderr(Stdio::inherit()).output()?;
    ensure!(pulled.status.success(), "`weft dataset pull mnist` failed: {}", pulled.status);
    let (mut jobs, mut locals) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let spec = json!({
            "function": "lenet", "dataset": "mnist", "seed": 1, "epochs": 2, "batch": 64, "validate_every": 0,
        });
        let name = client.must_submit(&spec)?;
        // Followed, not asked again and again: whoever asks takes time from those who compute.
        client.follow(&name, None)?.try_for_each(|event| event.map(drop))?;
        let history = client.must_finish(&name, LONG)?.history;
        jobs.extend(history.iter().map(|epoch| epoch.samples_per_second));
        let folder = tempfile::tempdir()?;
        let local = Command::new(components::weft()?)
            .arg("train-local")
            .arg(components::repository().join("functions/lenet"))
            .args(["--dataset", "mnist", "--device", "cpu", "--epochs", "2", "--batch", "64", "--json", "--output"])
            .arg(folder.path().join("lenet.safetensors"))
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(local.status.success(), "`weft train-local` failed: {}", local.status);
        let local: Value = serde_json::from_slice(&local.stdout)?;
        let epochs = local["epochs"].as_array().context("no epochs")?;
        locals.extend(epochs.iter().filter_map(|epoch| epoch["samples_per_second"].as_f64()));
    }
    let (job, local) = (percentile(&mut jobs, 0.5), percentile(&mut locals, 0.5));
    Measurement::beside(BENCH, "job.overhead", "per_s", job, local).print()
}
