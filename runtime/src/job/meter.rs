//! How far a job is, and how fast: for those who follow it.

use std::time::Instant;

use super::record::Progress;
use super::team::EpochSteps;
use super::workshop::Workshop;

/// Turns the steps that a worker tells of into the progress of the whole job.
pub struct Meter {
    /// Samples of an epoch; none for a trainer that makes its own data.
    samples: Option<u64>,
    began: Instant,
    /// Epochs that were done when this run of the job began.
    epochs_before: u64,
}

impl Meter {
    pub fn new(workshop: &Workshop, epochs_before: u64) -> Self {
        let samples = workshop.data.as_ref().map(|data| data.manifest.train.count);
        Self { samples, began: Instant::now(), epochs_before }
    }

    /// Where a job is when `epoch` epochs are done and so many steps of the next.
    pub fn progress(&self, epoch: u64, steps: EpochSteps, loss: f64) -> Progress {
        let EpochSteps { done: step, all: steps } = steps;
        let done = epoch.saturating_sub(self.epochs_before) as f64 + step as f64 / steps.max(1) as f64;
        let samples = self.samples.map_or(0.0, |samples| samples as f64 * done);
        let samples_per_second = samples / self.began.elapsed().as_secs_f64().max(1e-9);
        Progress { epoch: epoch + 1, step, steps, loss, samples_per_second }
    }
}
