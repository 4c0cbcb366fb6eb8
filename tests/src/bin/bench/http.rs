//! A node under load, and what idle functions and parked instances cost.
//!
//! Load comes from wrk, a process of its own on the same machine. The baseline of an invocation, which makes and drops an
//! instance, is the same server's `/livez`, which does nothing.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft::sandbox::InvokeError;
use weft::tenant::TenantId;
use weft_tests::components::{echo, hostile};
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};
use weft_tests::sandbox::{self, call_until};

use crate::{Measurement, percentile};

const BENCH: &str = "http";
const ROUNDS: usize = 5;
const FUNCTIONS: usize = 200;
const PARKED: usize = 1_000;
/// Whose they are: no tenant alone may have so many of a node's instances.
const TENANTS: usize = 4;

pub fn run() -> Result<()> {
    let node = Options::default().start()?;
    let everything = json!({ "requests_per_second": u32::MAX, "functions": 1_000, "instances": 1_000 });
    let tenant = node.tenant("bench", everything)?;
    under_load(&node, &tenant)?;
    idle_functions(&node, &tenant)?.print()?;
    parked_instances()?.print()
}

/// What wrk saw: requests per second, and the 99th percentile of latency in microseconds.
struct Load {
    rps: f64,
    p99_us: f64,
}

fn under_load(node: &Node, tenant: &Client) -> Result<()> {
    tenant.must_deploy("echo", &echo()?)?;
    ensure!(tenant.must_invoke("echo", "hello")? == "hello", "echo does not");
    let script = node.folder().path().join("invoke.lua");
    let key = tenant.key().context("the tenant has no key")?;
    std::fs::write(
        &script,
        format!(
            "wrk.method = 'POST'\nwrk.body = 'hello'\nwrk.headers['content-type'] = 'text/plain'\n\
             wrk.headers['authorization'] = 'Bearer {key}'\n"
        ),
    )?;
    let invoke_url = format!("{}/v1/functions/echo/invoke", node.url());
    let invoke = |seconds| wrk(&["-s", &script.to_string_lossy(), &invoke_url], seconds);
    let livez = |seconds| wrk(&[&format!("{}/livez", node.url())], seconds);
    livez(1)?;
    invoke(1)?;
    let (mut invokes, mut livezs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        livezs.push(livez(2)?);
        invokes.push(invoke(2)?);
    }
    let median =
        |loads: &[Load], figure: fn(&Load) -> f64| percentile(&mut loads.iter().map(figure).collect::<Vec<_>>(), 0.5);
    let beside = |metric, unit, figure: fn(&Load) -> f64| {
        Measurement::beside(BENCH, metric, unit, median(&invokes, figure), median(&livezs, figure)).print()
    };
    beside("http.invoke_rps", "per_s", |load| load.rps)?;
    beside("http.invoke_p99", "us", |load| load.p99_us)
}

fn wrk(arguments: &[&str], seconds: u64) -> Result<Load> {
    let output = Command::new("wrk")
        .args(["-t1", "-c32", "--latency", &format!("-d{seconds}s")])
        .args(arguments)
        .output()
        .context("wrk could not be started: `scripts/setup.sh test` installs it")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && !text.contains("Non-2xx"),
        "wrk: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let after = |label: &str| {
        let rest = text.lines().find_map(|line| line.trim().strip_prefix(label));
        rest.map(str::trim).with_context(|| format!("no `{label}` in {text}"))
    };
    Ok(Load { rps: after("Requests/sec:")?.parse()?, p99_us: microseconds(after("99%")?)? })
}

/// wrk writes `850.00us`, `1.25ms` or `2.01s`.
fn microseconds(text: &str) -> Result<f64> {
    let (number, scale) = [("us", 1.0), ("ms", 1e3), ("s", 1e6)]
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)))
        .with_context(|| format!("`{text}` is not a time of wrk's"))?;
    Ok(number.parse::<f64>()? * scale)
}

/// Resident memory of a function that is deployed, has answered once, and is idle.
fn idle_functions(node: &Node, tenant: &Client) -> Result<Measurement> {
    let component = echo()?;
    let before = node.resident()?;
    for number in 0..FUNCTIONS {
        let name = format!("idle-{number}");
        tenant.must_deploy(&name, &marked(&component, number))?;
        tenant.must_invoke(&name, "hello")?;
    }
    let grown = node.resident()?.saturating_sub(before);
    Ok(Measurement::alone("density", "density.idle_function_bytes", "bytes", grown as f64 / FUNCTIONS as f64))
}

/// The same component with other bytes: a custom section is added that nobody reads.
fn marked(component: &[u8], number: usize) -> Vec<u8> {
    let content = format!("\u{4}mark{number:08}");
    let mut marked = component.to_vec();
    marked.extend([0, content.len() as u8]);
    marked.extend(content.as_bytes());
    marked
}

/// Memory of an instance of a Rust function that is in the middle of a call, with a thousand of them at once.
fn parked_instances() -> Result<Measurement> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let sandbox = sandbox::new()?;
    let tenant = sandbox::tenant()?;
    let stop = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let loaded = sandbox::load(&sandbox, &hostile()?).await?;
        let before = resident()?;
        let mut parked = Vec::new();
        for number in 0..PARKED {
            let permit = sandbox.gate().enter(TenantId((number % TENANTS) as u64), u32::MAX).await?;
            let call = call_until(&tenant, number as u64, b"stop", stop.clone());
            let (sandbox, loaded) = (sandbox.clone(), loaded.clone());
            parked.push(tokio::spawn(async move { sandbox.invoke(&loaded, call, permit).await }));
        }
        // Each has its memory once it has had a turn.
        let (start, minimum) = (Instant::now(), PARKED as u64 * 64 * 1024);
        while tenant.memory.used() < minimum || sandbox.turns().waiting() < PARKED - 2 {
            ensure!(start.elapsed() < Duration::from_secs(60), "the instances did not all start");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let grown = resident()?.saturating_sub(before);
        stop.store(true, Relaxed);
        for instance in parked {
            // The guest's way of saying that it was told to stop.
            let result = instance.await?.result;
            ensure!(matches!(result, Err(InvokeError::Function { kind: "cancelled", .. })), "a parked instance failed");
        }
        Ok(Measurement::alone("density", "density.parked_instance_bytes", "bytes", grown as f64 / PARKED as f64))
    })
}

/// Resident memory of this process.
fn resident() -> Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let resident: u64 = pages.split(' ').nth(1).context("statm")?.parse()?;
    Ok(resident * rustix::param::page_size() as u64)
}
