//! What one tenant notices of others who compute: a function of about 20 microseconds beside eight tenants with long kernels.
//!
//! Each of the eight has one call that keeps the device busy with an operation of its own. The baseline is the same function
//! on the same node before they come.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use weft_tests::components::{component, echo};
use weft_tests::held::Held;
use weft_tests::http::Client;
use weft_tests::node::{Options, eventually};

use crate::{Measurement, is_wanted, percentile};

const BENCH: &str = "fair";

/// What the eight compute. A software GPU refuses some of what cores take: the longest loops, and scratch of gigabytes.
const ON_CORES: [&str; 8] =
    ["matmul", "batched-matmul", "softmax", "max-pool", "average-pool", "top-k", "nearest", "sparse-matmul"];
const ON_A_GPU: [&str; 8] =
    ["adaptive-max-pool", "resize", "top-k", "gather", "scatter", "nearest", "sparse-matmul", "softmax"];

/// How long the bystander calls, alone and beside the others.
const ALONE: Duration = Duration::from_secs(3);
const BESIDE: Duration = Duration::from_secs(15);

const SOON: Duration = Duration::from_secs(60);

pub fn run() -> Result<()> {
    let devices = [("fair.bystander_p99_ms", "cpu", ON_CORES), ("fair.bystander_gpu_p99_ms", "gpu:0", ON_A_GPU)];
    for (metric, device, operations) in devices {
        if is_wanted(metric) {
            beside_hogs(metric, device, operations)?.print()?;
        }
    }
    Ok(())
}

fn beside_hogs(metric: &'static str, device: &str, operations: [&str; 8]) -> Result<Measurement> {
    let node = Options::default().set("devices", device).start()?;
    let bystander = node.tenant("bystander", json!({ "requests_per_second": u32::MAX }))?;
    bystander.must_deploy("echo", &echo()?)?;
    calls(&bystander, Duration::from_secs(1))?;
    let mut alone = calls(&bystander, ALONE)?;
    let mut hogs = Vec::new();
    for (number, operation) in operations.into_iter().enumerate() {
        let tenant = node.tenant(&format!("hog-{number}"), json!({ "cpu_ms": 600_000, "wall_ms": 600_000 }))?;
        tenant.must_deploy("hog", &component("tests/guests/hog")?)?;
        hogs.push(Held::invoke(&tenant, "hog", operation)?);
    }
    eventually(SOON, || Ok(node.view()?.instances as usize >= operations.len()))?;
    let mut beside = calls(&bystander, BESIDE)?;
    ensure!(node.view()?.instances as usize >= operations.len(), "a hog has come to an end");
    drop(hogs);
    let worst = percentile(&mut beside, 1.0);
    eprintln!("{metric}: {} calls beside them, the longest took {worst:.1} ms", beside.len());
    Ok(Measurement::beside(BENCH, metric, "ms", percentile(&mut beside, 0.99), percentile(&mut alone, 0.99)))
}

/// Calls one after the other for so long, and gives how many milliseconds each took.
fn calls(tenant: &Client, time: Duration) -> Result<Vec<f64>> {
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < time {
        let call = Instant::now();
        ensure!(tenant.must_invoke("echo", "hello")? == "hello", "echo does not");
        times.push(call.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}
