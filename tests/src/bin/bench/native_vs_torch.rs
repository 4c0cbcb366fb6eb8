//! How fast the native device trains models, beside PyTorch on the same machine.
//!
//! Both sides run the same networks, forward, backward and the SGD update, on data that is already in memory, each with
//! the better of one and two threads. Rounds alternate, and the median round counts. PyTorch runs in a process of its own
//! (`scripts/torch_steps.py`), which waits while ours runs.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::json;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::models::{Batch, Model, ModelKind};
use weft_gpu::{Context, Crew, Limits};
use weft_tests::components::repository;

use crate::{Measurement, is_wanted, percentile};

const BENCH: &str = "native_vs_torch";
const CASES: [(&str, ModelKind, usize); 9] = [
    ("lenet.16", ModelKind::LeNet, 16),
    ("lenet.128", ModelKind::LeNet, 128),
    ("mlp.32", ModelKind::Mlp, 32),
    ("logreg.128", ModelKind::LogReg, 128),
    ("mobilenetv3s.32", ModelKind::MobileNetV3Small, 32),
    ("squeezenet.32", ModelKind::SqueezeNet, 32),
    ("resnet18.32", ModelKind::ResNet18, 32),
    ("vgg11.32", ModelKind::Vgg11, 32),
    ("bert-small.8", ModelKind::BertSmall, 8),
];
const ROUNDS: usize = 7;
const ROUND_SECONDS: f64 = 1.0;
/// How long each number of threads is tried before one of them is chosen, twice.
const TRIAL_SECONDS: f64 = 0.3;
const THREADS: [usize; 2] = [1, 2];
const LEAST_STEPS: usize = 2;
const RATE: f32 = 0.01;

pub fn run() -> Result<()> {
    let cases: Vec<_> = CASES.into_iter().filter(|(metric, ..)| is_wanted(metric)).collect();
    if cases.is_empty() {
        return Ok(());
    }
    let mut torch = Torch::start()?;
    for (metric, kind, batch) in cases {
        eprintln!("{metric} …");
        compare(metric, Ours::new(kind, batch)?, Theirs { torch: &mut torch, kind, batch, threads: 1 })?.print()?;
    }
    Ok(())
}

/// Something that trains: samples per second over some time.
trait Trainer {
    fn set_threads(&mut self, threads: usize);
    fn measure(&mut self, seconds: f64) -> Result<f64>;

    /// Settles for the number of threads that is faster; this also warms up.
    fn choose_threads(&mut self) -> Result<()> {
        let mut best = (0.0, 1);
        for threads in THREADS.into_iter().chain(THREADS) {
            self.set_threads(threads);
            let speed = self.measure(TRIAL_SECONDS)?;
            if speed > best.0 {
                best = (speed, threads);
            }
        }
        self.set_threads(best.1);
        Ok(())
    }
}

fn compare(metric: &'static str, mut ours: Ours, mut theirs: Theirs<'_>) -> Result<Measurement> {
    ours.choose_threads()?;
    theirs.choose_threads()?;
    let (mut our_rounds, mut their_rounds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        our_rounds.push(ours.measure(ROUND_SECONDS)?);
        their_rounds.push(theirs.measure(ROUND_SECONDS)?);
    }
    let loss = ours.model.step(&ours.batch, RATE)?.item()?;
    ensure!(loss.is_finite(), "{metric}: training went astray, the loss is {loss}");
    let (value, baseline) = (percentile(&mut our_rounds, 0.5), percentile(&mut their_rounds, 0.5));
    Ok(Measurement::beside(BENCH, metric, "per_s", value, baseline))
}

struct Ours {
    context: Context,
    model: Model,
    batch: Batch,
    samples: usize,
}

impl Ours {
    fn new(kind: ModelKind, samples: usize) -> Result<Self> {
        let threads = THREADS.into_iter().max().unwrap_or(1);
        let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(threads)), Limits::default());
        Ok(Self { model: Model::new(&context, kind, 0)?, batch: kind.batch(&context, samples, 0)?, context, samples })
    }
}

impl Trainer for Ours {
    fn set_threads(&mut self, threads: usize) {
        self.context.set_threads(threads);
    }

    fn measure(&mut self, seconds: f64) -> Result<f64> {
        // Whatever PyTorch's threads still do after its round is over by the end of this step.
        self.model.step(&self.batch, RATE)?;
        let (start, mut steps) = (Instant::now(), 0);
        while steps < LEAST_STEPS || start.elapsed().as_secs_f64() < seconds {
            self.model.step(&self.batch, RATE)?;
            steps += 1;
        }
        Ok((steps * self.samples) as f64 / start.elapsed().as_secs_f64())
    }
}

struct Theirs<'a> {
    torch: &'a mut Torch,
    kind: ModelKind,
    batch: usize,
    threads: usize,
}

impl Trainer for Theirs<'_> {
    fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
    }

    fn measure(&mut self, seconds: f64) -> Result<f64> {
        let request = json!({
            "model": self.kind.name(), "batch": self.batch, "threads": self.threads, "seconds": seconds,
        });
        self.torch.ask(&request)
    }
}

/// PyTorch, waiting for requests.
struct Torch {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Answer {
    samples_per_s: f64,
}

impl Torch {
    fn start() -> Result<Self> {
        let scripts = repository().join("scripts");
        let ready = Command::new(scripts.join("torch-venv.sh")).stdout(Stdio::null()).status()?;
        ensure!(ready.success(), "there is no PyTorch to compare with: `scripts/torch-venv.sh` failed");
        let mut process = Command::new(environment()?.join("bin/python"))
            .arg(scripts.join("torch_steps.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("PyTorch's Python does not start")?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            bail!("a process was started without its pipes");
        };
        Ok(Self { process, requests, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, request: &serde_json::Value) -> Result<f64> {
        writeln!(self.requests, "{request}")?;
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "PyTorch gave up on {request}; see its message above");
        let answer: Answer = serde_json::from_str(&line).with_context(|| format!("PyTorch answered `{line}`"))?;
        Ok(answer.samples_per_s)
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // It may have ended by itself, and nothing depends on how it ends.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Where `scripts/torch-venv.sh` puts it.
fn environment() -> Result<PathBuf> {
    match std::env::var_os("WEFT_TORCH").filter(|folder| !folder.is_empty()) {
        Some(folder) => Ok(folder.into()),
        None => Ok(PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache/weft/torch")),
    }
}
