//! The benchmarks: `make bench`, or `make bench BENCH=name` for one.
//!
//! Each measurement is one JSON object a line on standard output; what is going on is told on standard error. Machines
//! are noisy, so whatever has a baseline is measured beside it, in turns, in the same run.

use anyhow::{Result, bail};
use serde::Serialize;

mod cold_start;
mod data;
mod exchange;
mod fair;
mod framework;
mod gpu;
mod hostcall;
mod http;
mod jobs;
mod kernels;
mod mnist;
mod native_vs_torch;
mod plan;
mod stores;
mod torch;
mod tta;
mod tune;
mod wasm_vs_torch;

/// One figure.
#[derive(Serialize)]
struct Measurement {
    bench: &'static str,
    metric: &'static str,
    value: f64,
    unit: &'static str,
    baseline: Option<f64>,
    ratio: Option<f64>,
}

impl Measurement {
    /// A figure beside its baseline; the ratio is ours over the baseline's.
    fn beside(bench: &'static str, metric: &'static str, unit: &'static str, value: f64, baseline: f64) -> Self {
        Self { bench, metric, value, unit, baseline: Some(baseline), ratio: Some(value / baseline) }
    }

    /// A time beside that of the baseline; the ratio is how many times faster ours is.
    fn faster(bench: &'static str, metric: &'static str, unit: &'static str, value: f64, baseline: f64) -> Self {
        Self { bench, metric, value, unit, baseline: Some(baseline), ratio: Some(baseline / value) }
    }

    /// A figure that stands alone.
    fn alone(bench: &'static str, metric: &'static str, unit: &'static str, value: f64) -> Self {
        Self { bench, metric, value, unit, baseline: None, ratio: None }
    }

    fn print(&self) -> Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

type Bench = (&'static str, fn() -> Result<()>);

const BENCHES: &[Bench] = &[
    ("cold_start", cold_start::run),
    ("data", data::run),
    ("exchange", exchange::run),
    ("fair", fair::run),
    ("gpu", gpu::run),
    ("hostcall", hostcall::run),
    ("http", http::run),
    ("jobs", jobs::run),
    ("kernels", kernels::run),
    ("mnist", mnist::run),
    ("native_vs_torch", native_vs_torch::run),
    ("plan", plan::run),
    ("stores", stores::run),
    ("tta", tta::run),
    ("tune", tune::run),
    ("wasm_vs_torch", wasm_vs_torch::run),
];

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("there is no benchmark `{unknown}`; there are: {}", names.join(", "));
    }
    for (name, run) in BENCHES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            eprintln!("running {name} …");
            run()?;
        }
    }
    Ok(())
}

/// Whether a metric is to be measured: all are, unless `WEFT_BENCH_ONLY` names some, with commas between them.
fn is_wanted(metric: &str) -> bool {
    match std::env::var("WEFT_BENCH_ONLY") {
        Ok(only) if !only.is_empty() => only.split(',').any(|name| name.trim() == metric),
        _ => true,
    }
}

/// The value below which a share of the samples lies.
fn percentile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let index = ((samples.len() as f64 * share) as usize).min(samples.len().saturating_sub(1));
    samples.get(index).copied().unwrap_or(f64::NAN)
}
