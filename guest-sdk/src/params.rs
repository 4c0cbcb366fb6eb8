//! The parameter store: tensors under names, with versions, which functions and jobs of a tenant share.
//!
//! ```no_run
//! use std::time::Duration;
//! use weft_sdk::{Tensor, params};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let store = params::open()?;
//! let gradient = Tensor::new(&[0.1, -0.2], &[2])?;
//! store.contribute("round/7", 0, &gradient)?;
//! let sum = store.merged("round/7", 4, Duration::from_secs(10))?;
//! store.set("model/gradient", &sum)?;
//! # Ok(())
//! # }
//! ```
//!
//! Weights go from the device to the store and back on the host: no byte of them passes through the function's memory.
//! Only tasks have a store. Off wasm there is none.

use std::time::Duration;

#[cfg(target_arch = "wasm32")]
use crate::bindings::weft::train::params as host;
#[cfg(not(target_arch = "wasm32"))]
use absent as host;

use crate::{Result, Tensor};

#[cfg(not(target_arch = "wasm32"))]
mod absent;

/// The names of one job, or those that belong to none.
pub struct Bucket(host::Bucket);

/// A tensor as it was at a version.
#[derive(Clone, Debug)]
pub struct Versioned {
    pub value: Tensor,
    /// Versions of a name only grow, also when it is deleted and set again.
    pub version: u64,
}

/// How a value is kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keeping {
    /// After this it is gone.
    pub expires: Option<Duration>,
    /// On disk before the call returns.
    pub durable: bool,
}

/// What belongs to no job.
pub fn open() -> Result<Bucket> {
    host::open("").map(Bucket)
}

/// What belongs to a job.
pub fn open_job(job: &str) -> Result<Bucket> {
    host::open(job).map(Bucket)
}

fn versioned(found: host::Versioned) -> Versioned {
    Versioned { value: found.value.into(), version: found.version }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// At least one, as 0 is never.
fn after(span: Option<Duration>) -> u64 {
    span.map_or(0, |span| milliseconds(span).max(1))
}

impl Bucket {
    pub fn get(&self, name: &str) -> Result<Option<Versioned>> {
        Ok(self.0.get(name)?.map(versioned))
    }

    /// `None` if there is nothing newer than the version that is known.
    pub fn get_if_newer(&self, name: &str, known: u64) -> Result<Option<Versioned>> {
        Ok(self.0.get_if_newer(name, known)?.map(versioned))
    }

    /// Waits for something newer than the version that is known; 0 is any.
    pub fn wait_newer(&self, name: &str, known: u64, at_most: Duration) -> Result<Versioned> {
        self.0.wait_newer(name, known, milliseconds(at_most)).map(versioned)
    }

    /// Gives the version that it then has.
    pub fn set(&self, name: &str, value: &Tensor) -> Result<u64> {
        self.keep(name, value, Keeping::default())
    }

    /// [`Bucket::set`], kept as is said.
    pub fn keep(&self, name: &str, value: &Tensor, keeping: Keeping) -> Result<u64> {
        self.0.set(name, value.raw(), after(keeping.expires), keeping.durable)
    }

    /// Sets the value if it is at this version, 0 for none; else the error is [`Error::Conflict`](crate::Error).
    pub fn compare_and_set(&self, name: &str, expected: u64, value: &Tensor) -> Result<u64> {
        self.0.compare_and_set(name, expected, value.raw())
    }

    pub fn get_bytes(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.0.get_bytes(name)
    }

    pub fn set_bytes(&self, name: &str, value: &[u8]) -> Result<u64> {
        self.0.set_bytes(name, value)
    }

    /// Adds to a counter, which begins at 0, and gives what it then is.
    pub fn increment(&self, name: &str, by: i64) -> Result<i64> {
        self.0.increment(name, by)
    }

    /// Whether there was something.
    pub fn delete(&self, name: &str) -> Result<bool> {
        self.0.delete(name)
    }

    /// Deletes and gives what there was, in one step.
    pub fn take(&self, name: &str) -> Result<Option<Versioned>> {
        Ok(self.0.take(name)?.map(versioned))
    }

    /// `None` is never. Whether there was something.
    pub fn expire(&self, name: &str, span: Option<Duration>) -> Result<bool> {
        self.0.expire(name, after(span))
    }

    /// Names that begin so, in order, after a name (empty for the first).
    pub fn list(&self, prefix: &str, after: &str, at_most: u32) -> Result<Vec<String>> {
        self.0.list(prefix, after, at_most)
    }

    /// A worker's part of a round. Whether it counts: only the first one of each worker does.
    pub fn contribute(&self, round: &str, worker: u32, value: &Tensor) -> Result<bool> {
        self.0.contribute(round, worker, value.raw())
    }

    /// Waits for the parts of workers 0 to `workers`, and gives their sum in this order.
    pub fn merged(&self, round: &str, workers: u32, at_most: Duration) -> Result<Tensor> {
        self.0.merged(round, workers, milliseconds(at_most)).map(Tensor::from)
    }

    /// Waits until workers 0 to `workers` are here. Each name is for one time.
    pub fn barrier(&self, name: &str, worker: u32, workers: u32, at_most: Duration) -> Result<()> {
        self.0.barrier(name, worker, workers, milliseconds(at_most))
    }

    /// Replaces what this peer has published before.
    pub fn publish(&self, topic: &str, peer: u32, value: &Tensor) -> Result<u64> {
        self.0.publish(topic, peer, value.raw())
    }

    /// What each peer has published last, in their order.
    pub fn latest(&self, topic: &str) -> Result<Vec<(u32, Versioned)>> {
        let latest = self.0.latest(topic)?.into_iter();
        let of_peer =
            |found: host::PeerValue| (found.peer, Versioned { value: found.value.into(), version: found.version });
        Ok(latest.map(of_peer).collect())
    }

    /// Takes a claim, and gives its epoch. From now on this bucket writes in its name: once somebody else takes the claim,
    /// its writes end with [`Error::Conflict`](crate::Error).
    pub fn claim(&self, name: &str) -> Result<u64> {
        self.0.claim(name)
    }
}
