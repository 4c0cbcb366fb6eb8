//! The ledger: what each tenant has used.
//!
//! Counters only ever grow. They are counted in memory, where an invocation can afford it, and written to the metadata
//! store together once a second, with every epoch of a training job, and at shutdown. So a node that is killed forgets what
//! was used since the last write (a second, and as long as writing takes) and what was not counted yet: invocations that
//! were running, and up to half a second of training. What the record of an epoch says was used is never forgotten.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Declares the counters once, as atomics ([`Ledger`]) and as plain numbers ([`Usage`]).
macro_rules! ledger {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a tenant has used since it was created.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(default)]
        pub struct Usage {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        /// The live counters behind [`Usage`].
        #[derive(Debug, Default)]
        pub struct Ledger {
            $($name: AtomicU64,)+
        }

        impl Ledger {
            pub fn from_usage(usage: &Usage) -> Self {
                Self { $($name: AtomicU64::new(usage.$name),)+ }
            }

            pub fn usage(&self) -> Usage {
                Usage { $($name: self.$name.load(Relaxed),)+ }
            }

            fn add(&self, usage: &Usage) {
                $(if usage.$name != 0 { self.$name.fetch_add(usage.$name, Relaxed); })+
            }
        }
    };
}

ledger! {
    /// Invocations that got an instance.
    invocations,
    /// Of those, how many ended in an error.
    failures,
    /// CPU time of guests' turns, in microseconds, trial steps of submitted jobs included. A job's own `cpu_seconds` is
    /// that of its workers' threads: no trial step, but all that the node does on these threads for the guest.
    cpu_us,
    /// Time of devices, in microseconds.
    device_us,
    /// Linear memory held over time: byte-milliseconds.
    memory_byte_ms,
    /// Request body bytes.
    bytes_in,
    /// Response body bytes.
    bytes_out,
    /// Components that were uploaded and compiled.
    deploys,
    /// Log bytes written by functions.
    log_bytes,
    /// Training jobs that were started.
    jobs,
    /// Workers that training jobs started.
    workers,
    /// Memory that workers had set aside, over time: byte-milliseconds.
    worker_byte_ms,
    /// Bytes that workers exchanged.
    moved_bytes,
    /// Values that were read from or written to the parameter store.
    params_operations,
    /// Bytes of those.
    params_moved_bytes,
    /// What training cost by the node's price table, in billionths.
    cost_billionths,
}

/// What one invocation took, as its caller and the metrics see it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub wall: Duration,
    /// From the request for an instance until it was ready to be called.
    pub cold_start: Duration,
    /// Linear memory at the end, which is the most it had.
    pub memory: u64,
}

/// What part of a training job took.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainingUse {
    pub invocations: u64,
    pub workers: u64,
    pub device: Duration,
    pub memory_byte_ms: u128,
    pub moved_bytes: u64,
    pub cost: f64,
}

impl TrainingUse {
    pub fn add(&mut self, other: &Self) {
        self.invocations += other.invocations;
        self.workers += other.workers;
        self.device += other.device;
        self.memory_byte_ms += other.memory_byte_ms;
        self.moved_bytes += other.moved_bytes;
        self.cost += other.cost;
    }
}

impl Ledger {
    pub fn charge_invocation(&self, failed: bool, bytes_in: u64, bytes_out: u64) {
        self.add(&Usage { invocations: 1, failures: failed.into(), bytes_in, bytes_out, ..Usage::default() });
    }

    pub fn charge_cpu(&self, time: Duration) {
        self.add(&Usage { cpu_us: (time.as_nanos() as u64).div_ceil(1_000), ..Usage::default() });
    }

    pub fn charge_device(&self, time: Duration) {
        self.add(&Usage { device_us: (time.as_nanos() as u64).div_ceil(1_000), ..Usage::default() });
    }

    pub fn charge_memory(&self, byte_ns: u128) {
        let memory_byte_ms = u64::try_from(byte_ns / 1_000_000).unwrap_or(u64::MAX);
        self.add(&Usage { memory_byte_ms, ..Usage::default() });
    }

    pub fn charge_job(&self) {
        self.add(&Usage { jobs: 1, ..Usage::default() });
    }

    /// What a round of a training job took.
    pub fn charge_training(&self, spent: &TrainingUse) {
        self.add(&Usage {
            invocations: spent.invocations,
            workers: spent.workers,
            device_us: (spent.device.as_nanos() as u64).div_ceil(1_000),
            worker_byte_ms: u64::try_from(spent.memory_byte_ms).unwrap_or(u64::MAX),
            moved_bytes: spent.moved_bytes,
            cost_billionths: (spent.cost * 1e9) as u64,
            ..Usage::default()
        });
    }

    /// Values that went to or came from the parameter store.
    pub fn charge_params(&self, operations: u64, bytes: u64) {
        self.add(&Usage { params_operations: operations, params_moved_bytes: bytes, ..Usage::default() });
    }

    pub fn charge_log(&self, log_bytes: u64) {
        self.add(&Usage { log_bytes, ..Usage::default() });
    }

    pub fn charge_deploy(&self, bytes_in: u64) {
        self.add(&Usage { deploys: 1, bytes_in, ..Usage::default() });
    }
}

impl Usage {
    /// CPU seconds, for people.
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_us as f64 / 1e6
    }

    /// Seconds of devices, for people.
    pub fn device_seconds(&self) -> f64 {
        self.device_us as f64 / 1e6
    }

    /// What training cost, for people.
    pub fn cost(&self) -> f64 {
        self.cost_billionths as f64 / 1e9
    }

    /// GiB-seconds of memory, for people.
    pub fn memory_gib_seconds(&self) -> f64 {
        self.memory_byte_ms as f64 / 1e3 / (1u64 << 30) as f64
    }
}
