//! Training steps beside PyTorch's on the same machine.
//!
//! Both sides run the same networks, forward, backward and the SGD update, on data that is already in memory, each with
//! the better of one and two threads. Rounds alternate, and the median round counts. PyTorch runs in a process of its own
//! (`scripts/torch_steps.py`), which waits while ours runs.

use anyhow::Result;
use serde::Deserialize;
use serde_json::json;
use weft_gpu::models::ModelKind;

use crate::framework::{PYTORCH, Process};
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
    // Theirs first: until it answers it is still starting, on a core that ours would miss.
    theirs.choose_threads()?;
    ours.choose_threads()?;
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
        let answer: Answer = self.torch.0.ask(&request)?;
        Ok(answer.samples_per_s)
    }
}

/// PyTorch, waiting for requests.
pub struct Torch(Process);

#[derive(Deserialize)]
struct Answer {
    samples_per_s: f64,
}

impl Torch {
    pub fn start() -> Result<Self> {
        Ok(Self(PYTORCH.start("torch_steps.py", &[])?))
    }
}
