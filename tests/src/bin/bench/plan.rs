//! The planner on capped compute, beside the best setting of a grid: whether deadlines are kept, what that costs more, and
//! how much of a job its tries are.
//!
//! A function may compute on half a core for each 128 MiB of its memory, so that larger ones are faster. What each setting
//! of the grid takes is measured by short jobs. The deadline lies between what the fastest and the cheapest take, so that
//! neither is the answer.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::Options;

use super::{Measurement, is_wanted, percentile};

const BENCH: &str = "plan";
const LONG: Duration = Duration::from_secs(600);

const CORES_PER_GIB: f64 = 4.0;
const WORKERS: [u32; 3] = [1, 2, 4];
const MEMORY: [u64; 3] = [64 << 20, 128 << 20, 256 << 20];
/// Epochs of a job that is planned, and of one that measures a setting.
const EPOCHS: u64 = 400;
const GRID_EPOCHS: u64 = 8;
const SEEDS: u64 = 5;

/// What a whole job takes with a setting.
struct Setting {
    seconds: f64,
    cost: f64,
}

pub fn run() -> Result<()> {
    let wanted = ["plan.deadline_kept", "plan.cost", "plan.profiling"];
    if !wanted.iter().any(|metric| is_wanted(metric)) {
        return Ok(());
    }
    // Memory has the price of a public cloud's functions, which sell no cores apart.
    let node = Options::default().dev().set("cores-per-gib", CORES_PER_GIB).set("prices", "cloud").start()?;
    let client = node.anybody();
    client.must_deploy("lenet", &component("functions/lenet")?)?;
    let digits = serde_json::to_vec(&json!({ "shipped": "digits" }))?;
    ensure!(client.send("PUT", "/v1/datasets/digits", &[], &digits)?.status == 201);
    let grid = grid(&client)?;
    let least = |value: fn(&Setting) -> f64| grid.iter().map(value).fold(f64::INFINITY, f64::min);
    let cheapest = grid.iter().min_by(|one, other| one.cost.total_cmp(&other.cost)).context("an empty grid")?;
    let deadline = (least(|it| it.seconds) * cheapest.seconds.max(2.0 * least(|it| it.seconds))).sqrt();
    let within = grid.iter().filter(|it| it.seconds <= deadline);
    let optimum = within.map(|it| it.cost).fold(f64::INFINITY, f64::min);
    eprintln!("  a deadline of {deadline:.1} s, for {optimum:.6} at best");
    let (mut kept, mut ratios, mut profiling) = (0.0, Vec::new(), Vec::new());
    for seed in 0..SEEDS {
        let planned = planned(&client, deadline, seed)?;
        eprintln!("  seed {seed}: {:.1} s for {:.6}, {:.3} of it tries", planned.seconds, planned.cost, planned.tries);
        kept += f64::from(u8::from(planned.seconds <= deadline)) / SEEDS as f64;
        ratios.push(planned.cost / optimum);
        profiling.push(planned.tries);
    }
    Measurement::beside(BENCH, "plan.deadline_kept", "share", kept, 0.95).print()?;
    let ratio = percentile(&mut ratios, 0.5);
    Measurement::beside(BENCH, "plan.cost", "times", ratio, 1.0).print()?;
    Measurement::beside(BENCH, "plan.profiling", "share", percentile(&mut profiling, 0.5), 0.05).print()
}

fn lenet(more: Value) -> Value {
    let mut spec = json!({
        "function": "lenet", "dataset": "digits", "epochs": EPOCHS, "global_batch": 64, "lr": 0.02, "validate_every": 0,
        "sync": { "rule": "gradient-average" },
    });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}

/// Every setting, by a job that is as long as it needs to be: its first epoch does not count.
fn grid(client: &Client) -> Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for workers in WORKERS {
        for memory in MEMORY {
            let spec = lenet(json!({ "workers": workers, "memory": memory, "epochs": GRID_EPOCHS, "seed": 1 }));
            let name = client.must_submit(&spec)?;
            // Followed, not asked again and again: whoever asks takes time from those who compute.
            client.follow(&name, None)?.try_for_each(|event| event.map(drop))?;
            let history = client.must_finish(&name, LONG)?.history;
            let counted = &history[1..];
            let mean = |value: fn(&weft::job::EpochRecord) -> f64| {
                counted.iter().map(value).sum::<f64>() / counted.len() as f64 * EPOCHS as f64
            };
            let setting = Setting { seconds: mean(|epoch| epoch.seconds), cost: mean(|epoch| epoch.spending.cost) };
            let mib = memory >> 20;
            eprintln!("  {workers} workers of {mib} MiB: {:.1} s for {:.6}", setting.seconds, setting.cost);
            settings.push(setting);
        }
    }
    Ok(settings)
}

/// What a job took that was planned, and which part of that its tries took.
struct Planned {
    seconds: f64,
    cost: f64,
    tries: f64,
}

fn planned(client: &Client, deadline: f64, seed: u64) -> Result<Planned> {
    let [least, .., most] = MEMORY;
    let plan = json!({
        "policy": "cheapest", "deadline_ms": (deadline * 1e3) as u64, "least_memory": least, "most_memory": most,
        "memory_step": 32 << 20,
    });
    let name =
        client.must_submit(&lenet(json!({ "workers": "1..4", "memory": 128 << 20, "seed": seed, "plan": plan })))?;
    client.follow(&name, None)?.try_for_each(|event| event.map(drop))?;
    let detail = client.must_finish(&name, LONG)?;
    let plan = client.get(&format!("/v1/jobs/{name}/plan"))?.json()?;
    let probing = plan["spent"]["probing_seconds"].as_f64().context("nothing is said of tries")?;
    let seconds: f64 = detail.history.iter().map(|epoch| epoch.seconds).sum();
    Ok(Planned { seconds, cost: detail.spending.cost, tries: probing / seconds })
}
