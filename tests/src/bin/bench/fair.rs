//! What one tenant notices of others who compute: a function of about 20 microseconds beside eight tenants with long kernels.
//!
//! Each of the eight has one call that keeps the device busy with an operation of its own. The baseline is the same function
//! on the same node before they come. The same beside one tenant with forty calls, more than there are turns and threads;
//! and how long the node takes to say that it lives meanwhile, which no kernel should hold up.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
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

/// Long calls of the one tenant, and the memory for tensors that each of them has: forty fit into the 2 GiB of a software GPU.
const OF_ONE: usize = 40;
const SMALL_LEASE: u64 = 48 << 20;

const SOON: Duration = Duration::from_secs(60);

pub fn run() -> Result<()> {
    let devices = [("fair.bystander_p99_ms", "cpu", ON_CORES), ("fair.bystander_gpu_p99_ms", "gpu:0", ON_A_GPU)];
    for (metric, device, operations) in devices {
        if is_wanted(metric) {
            beside_hogs(metric, device, operations)?.print()?;
        }
    }
    let devices = [
        (["fair.one_tenant_p99_ms", "fair.one_tenant_livez_ms"], "cpu"),
        (["fair.one_tenant_gpu_p99_ms", "fair.one_tenant_gpu_livez_ms"], "gpu:0"),
    ];
    for (metrics, device) in devices {
        if metrics.into_iter().any(is_wanted) {
            beside_one_tenant(metrics, device)?;
        }
    }
    Ok(())
}

/// Measures a bystander's calls, and the longest `/livez`, beside many long kernels of one tenant.
fn beside_one_tenant([p99, livez]: [&'static str; 2], device: &str) -> Result<()> {
    let node = Options::default().set("devices", device).start()?;
    let bystander = node.tenant("bystander", json!({ "requests_per_second": u32::MAX }))?;
    bystander.must_deploy("echo", &echo()?)?;
    calls(&bystander, Duration::from_secs(1))?;
    let mut alone = calls(&bystander, ALONE)?;
    let quota = json!({ "cpu_ms": 600_000, "wall_ms": 600_000, "device_memory": SMALL_LEASE });
    let greedy = node.tenant("greedy", quota)?;
    greedy.must_deploy("hog", &component("tests/guests/hog")?)?;
    let hogs = Held::invoke_all(&greedy, "hog", "softmax", OF_ONE)?;
    eventually(SOON, || Ok(node.view()?.instances as usize >= OF_ONE))?;
    let (mut beside, lives) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| longest_livez(&node.anybody(), BESIDE));
        let beside = calls(&bystander, BESIDE);
        let lives = asking.join().map_err(|_| anyhow!("whoever asked for `/livez` panicked"))?;
        anyhow::Ok((beside?, lives?))
    })?;
    ensure!(node.view()?.instances as usize >= OF_ONE, "a hog has come to an end");
    drop(hogs);
    let worst = percentile(&mut beside, 1.0);
    eprintln!("{p99}: {} calls beside them, the longest took {worst:.1} ms", beside.len());
    Measurement::beside(BENCH, p99, "ms", percentile(&mut beside, 0.99), percentile(&mut alone, 0.99)).print()?;
    Measurement::alone(BENCH, livez, "ms", lives).print()
}

/// The longest that the node took to say that it lives, in milliseconds, asked every few milliseconds.
fn longest_livez(anybody: &Client, time: Duration) -> Result<f64> {
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < time {
        let asked = Instant::now();
        ensure!(anybody.get("/livez")?.status == 200, "the node does not live");
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(longest.as_secs_f64() * 1e3)
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
