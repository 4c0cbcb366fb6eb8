//! How well lenet learns to read digits: `weft train-local` on MNIST, as anybody would run it.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use weft_tests::components;

use crate::{Measurement, is_wanted};

const BENCH: &str = "mnist";
const EPOCHS: &str = "15";
const BATCH: &str = "32";
/// All steps of the 60,000 samples.
const DECAY: &str = "decay-steps=28125";

pub fn run() -> Result<()> {
    if !is_wanted("mnist.lenet.accuracy") {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let trained = Command::new(components::weft()?)
        .arg("train-local")
        .arg(components::repository().join("functions/lenet"))
        .args(["--dataset", "mnist", "--device", "cpu", "--epochs", EPOCHS, "--batch", BATCH, "--lr", "0.01"])
        .args(["--param", DECAY, "--json", "--output"])
        .arg(folder.path().join("lenet.safetensors"))
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(trained.status.success(), "`weft train-local` failed: {}", trained.status);
    let trained: Value = serde_json::from_slice(&trained.stdout)?;
    // Of the model that is left behind, not of the best one on the way.
    let last = trained["epochs"].as_array().and_then(|epochs| epochs.last()).context("no epochs")?;
    let accuracy = last["validation"]["accuracy"].as_f64().context("no accuracy")?;
    Measurement::alone(BENCH, "mnist.lenet.accuracy", "share", accuracy).print()?;
    let speed = last["samples_per_second"].as_f64().context("no speed")?;
    Measurement::alone(BENCH, "mnist.lenet.speed", "per_s", speed).print()
}
