//! What a job would take with so many workers, calculated from constants of the machine (LambdaML, section 5.3).
//!
//! ```text
//! start(w) + (s/w)/B + epochs(w) · (rounds · messages(w) · (part/B + L) + C/w)
//! ```
//! `s` is the size of the data, `C` the time of one epoch on one worker, `B` and `L` bandwidth and latency of what the data
//! and the messages go through. Where the paper's formulas cannot be right by its own figures, this follows the figures:
//! - Each worker loads its own share, `s/w`; all of the 8 GB of Higgs would take 123 s at 65 MB/s, more than the 96 s that
//!   table 5 gives for the whole job.
//! - Communication counts *rounds*, not epochs: one round per step of gradient averaging, one per epoch of model
//!   averaging, one per ten epochs of ADMM.
//! - `3w − 2` messages of `1/w` of the model are those of scatter-reduce; a leader handles `w + 2` whole ones.
//!
//! It says nothing about convergence: [`epochs`] are counted on a sample, and how much more of them more workers need is
//! given as a curve.

use serde::{Deserialize, Serialize};

pub mod constants;
pub mod epochs;
pub mod what_if;

pub use constants::{Constants, Curve, Link, Measured};

/// How often workers exchange what they computed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounds {
    /// Every step: the rounds of an epoch are the samples over all workers' batches.
    Gradient { samples: u64, batch: u32 },
    /// Every `k` steps of a worker.
    KAverage { samples: u64, batch: u32, k: u32 },
    /// Once per epoch.
    Model,
    /// Once per so many scans of the data: ten in LambdaML, section 5.1.
    Admm { scans: u32 },
}

impl Rounds {
    /// Rounds of one epoch.
    pub fn per_epoch(&self, workers: u32) -> f64 {
        let steps = |samples: u64, batch: u32| samples.div_ceil(u64::from(workers.max(1)) * u64::from(batch.max(1)));
        match *self {
            Self::Gradient { samples, batch } => steps(samples, batch) as f64,
            Self::KAverage { samples, batch, k } => steps(samples, batch).div_ceil(u64::from(k.max(1))) as f64,
            Self::Model => 1.0,
            Self::Admm { scans } => 1.0 / f64::from(scans.max(1)),
        }
    }
}

/// By which way a round's messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One worker merges all, through storage.
    Leader,
    /// Each merges one shard, through storage: `3w − 2` messages one after the other.
    Scatter,
    /// The same between machines that talk to each other: `2w − 2`.
    Ring,
}

impl Pattern {
    /// Seconds of a round in which `workers` exchange `megabytes`.
    pub fn seconds(self, workers: u32, megabytes: f64, link: Rate) -> f64 {
        let w = f64::from(workers);
        let (messages, part) = match self {
            _ if workers <= 1 => return 0.0,
            Self::Leader => (w + 2.0, megabytes),
            Self::Scatter => (3.0 * w - 2.0, megabytes / w),
            Self::Ring => (2.0 * w - 2.0, megabytes / w),
        };
        messages * (part / link.bandwidth + link.latency)
    }
}

/// A link at one end of what was measured of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// MB/s.
    pub bandwidth: f64,
    /// Seconds.
    pub latency: f64,
}

/// What is to be trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// MB that all workers load together.
    pub data: f64,
    /// MB that a worker hands over in a round.
    pub model: f64,
    /// Epochs that one worker needs.
    pub epochs: f64,
    /// How many times as many epochs more workers need, by their number.
    #[serde(default)]
    pub scaling: Curve,
    /// Seconds that one worker computes for an epoch.
    pub compute: Measured,
    pub rounds: Rounds,
    pub pattern: Pattern,
}

/// A time and what it consists of, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    pub start: f64,
    pub load: f64,
    pub communicate: f64,
    pub compute: f64,
}

impl Stages {
    pub fn total(&self) -> f64 {
        self.start + self.load + self.communicate + self.compute
    }
}

/// What a job would take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub workers: u32,
    pub epochs: f64,
    /// Rounds of the whole job.
    pub rounds: f64,
    pub stages: Stages,
    pub seconds: f64,
    /// The time if all constants are at the better, and at the worse, end of what was measured.
    pub least: f64,
    pub most: f64,
    pub cost: f64,
}

impl Prediction {
    /// By how much of the measured time the prediction is off: 0.1 is a tenth too much.
    pub fn error(&self, measured: f64) -> f64 {
        self.seconds / measured - 1.0
    }

    /// What takes most of the time, in a sentence.
    pub fn why(&self) -> String {
        let Stages { start, load, communicate, compute } = self.stages;
        let stages = [("computing", compute), ("exchanging", communicate), ("loading", load), ("starting", start)];
        let (name, most) = stages.into_iter().fold(stages[0], |most, it| if it.1 > most.1 { it } else { most });
        format!(
            "{} workers would take {:.1} s ({:.1} to {:.1}), most of it for {name}: {most:.1} s.",
            self.workers, self.seconds, self.least, self.most
        )
    }
}

/// What training takes with so many workers.
pub fn predict(constants: &Constants, work: &Work, workers: u32) -> Prediction {
    let workers = workers.max(1);
    let epochs = work.epochs * work.scaling.at(workers).unwrap_or(1.0);
    let per_epoch = work.rounds.per_epoch(workers);
    let at = |side: f64| {
        let storage = constants.storage.rate(side);
        let channel = constants.channel.rate(side);
        let share = work.data / f64::from(workers);
        Stages {
            start: constants.start.at(workers).unwrap_or(0.0) * (1.0 + side * constants.start_spread),
            load: if work.data > 0.0 { share / storage.bandwidth + storage.latency } else { 0.0 },
            communicate: epochs * per_epoch * work.pattern.seconds(workers, work.model, channel),
            compute: epochs * work.compute.at(side) / f64::from(workers),
        }
    };
    let stages = at(0.0);
    let seconds = stages.total();
    let cost = seconds * (f64::from(workers) * constants.worker_second + constants.channel_second);
    let (least, most) = (at(-1.0).total(), at(1.0).total());
    Prediction { workers, epochs, rounds: epochs * per_epoch, stages, seconds, least, most, cost }
}

#[cfg(test)]
mod tests;
