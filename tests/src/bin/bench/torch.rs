//! Training steps beside PyTorch's on the same machine.
//!
//! Both sides run the same networks, forward, backward and the SGD update, on data that is already in memory, each with
//! the better of one and two threads. Rounds alternate, and the median round counts. PyTorch runs in a process of its own
//! (`scripts/torch_steps.py`), which waits while ours runs.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::json;
use weft_gpu::models::ModelKind;
use weft_tests::components::repository;

use crate::percentile;

const ROUNDS: usize = 7;
const ROUND_SECONDS: f64 = 1.0;
/// How long each number of threads is tried before one of them is chosen, twice.
const TRIAL_SECONDS: f64 = 0.3;
pub const THREADS: [usize; 2] = [1, 2];
pub const LEAST_STEPS: usize = 2;
pub const RATE: f32 = 0.01;

/// Something that trains: samples per second over some time.
pub trait Trainer {
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

/// Samples per second of both, by turns: the medians.
pub fn compare(ours: &mut dyn Trainer, theirs: &mut dyn Trainer) -> Result<(f64, f64)> {
    ours.choose_threads()?;
    theirs.choose_threads()?;
    let (mut our_rounds, mut their_rounds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        our_rounds.push(ours.measure(ROUND_SECONDS)?);
        their_rounds.push(theirs.measure(ROUND_SECONDS)?);
    }
    Ok((percentile(&mut our_rounds, 0.5), percentile(&mut their_rounds, 0.5)))
}

/// A model in PyTorch.
pub struct Theirs<'a> {
    torch: &'a mut Torch,
    kind: ModelKind,
    batch: usize,
    threads: usize,
}

impl<'a> Theirs<'a> {
    pub fn new(torch: &'a mut Torch, kind: ModelKind, batch: usize) -> Self {
        Self { torch, kind, batch, threads: 1 }
    }
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
pub struct Torch {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Answer {
    samples_per_s: f64,
}

impl Torch {
    pub fn start() -> Result<Self> {
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
