//! `weft:train/job`: what a function knows about its run, and its log and seeded randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use wasmtime::Result;

use super::bindings::weft::train::job::{Error, Host, Level};
use super::{HostState, wasi};
use crate::digest::Digest;
use crate::logs::{self, LogSink, invocation_id};
use crate::names::Name;

/// What is known of a run before it starts.
pub struct Facts {
    pub invocation: u64,
    pub function: Name,
    pub version: Digest,
    pub seed: u64,
    /// Set when the node is stopping.
    pub stopping: Arc<AtomicBool>,
}

/// The `job` interface's part of an instance.
pub struct JobState {
    pub facts: Facts,
    pub log: wasi::SharedLog,
    pub deadline: Instant,
    /// The most that one host call may carry, in bytes.
    pub payload: u64,
    /// What the numbers of this call follow from.
    drawing_seed: u64,
    /// Made at the first number; most functions draw none, and need not carry it about.
    random: Option<Box<ChaCha12Rng>>,
}

impl JobState {
    pub fn new(facts: Facts, log: LogSink, deadline: Instant, payload: u64) -> Self {
        Self { drawing_seed: facts.seed, facts, log: wasi::SharedLog::new(log), deadline, payload, random: None }
    }

    /// Starts the numbers again, for a call that is to draw the same whenever it is made.
    pub fn reseed(&mut self, seed: u64) {
        self.drawing_seed = seed;
        self.random = None;
    }

    fn random(&mut self) -> &mut ChaCha12Rng {
        self.random.get_or_insert_with(|| Box::new(ChaCha12Rng::seed_from_u64(self.drawing_seed)))
    }
}

impl From<Level> for logs::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}

impl Host for HostState {
    fn log(&mut self, level: Level, message: String) -> Result<()> {
        self.job.log.lock().write(level.into(), &message);
        Ok(())
    }

    fn id(&mut self) -> Result<String> {
        Ok(invocation_id(self.job.facts.invocation))
    }

    fn function_name(&mut self) -> Result<String> {
        Ok(self.job.facts.function.to_string())
    }

    fn function_version(&mut self) -> Result<String> {
        Ok(self.job.facts.version.to_string())
    }

    fn seed(&mut self) -> Result<u64> {
        Ok(self.job.facts.seed)
    }

    fn random_u64(&mut self) -> Result<u64> {
        Ok(self.job.random().next_u64())
    }

    fn random_bytes(&mut self, length: u32) -> Result<Result<Vec<u8>, Error>> {
        let limit = self.job.payload;
        if u64::from(length) > limit {
            return Ok(Err(Error::Quota(format!("{length} random bytes are more than `max_payload` = {limit}"))));
        }
        let mut bytes = vec![0; length as usize];
        self.job.random().fill_bytes(&mut bytes);
        Ok(Ok(bytes))
    }

    fn time_left(&mut self) -> Result<u64> {
        let left = self.job.deadline.saturating_duration_since(Instant::now());
        Ok(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
    }

    fn should_stop(&mut self) -> Result<bool> {
        Ok(self.job.facts.stopping.load(Relaxed))
    }

    fn step(&mut self) -> Result<u64> {
        Ok(self.training.place.step)
    }

    fn epoch(&mut self) -> Result<u64> {
        Ok(self.training.place.epoch)
    }

    fn learning_rate(&mut self) -> Result<f32> {
        Ok(self.training.place.rate)
    }

    fn worker(&mut self) -> Result<u32> {
        Ok(self.training.place.worker)
    }

    fn workers(&mut self) -> Result<u32> {
        Ok(self.training.place.workers)
    }
}
