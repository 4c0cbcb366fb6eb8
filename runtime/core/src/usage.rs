//! What training uses: time by stage, resources, and what both come to.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Seconds that all workers spent, by what they spent them on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Stages {
    /// Waiting for samples.
    pub data: f64,
    /// In the function's `step`.
    pub compute: f64,
    /// Handing over gradients, weights or statistics.
    pub send: f64,
    /// Taking over the merged model.
    pub receive: f64,
    /// Merging.
    pub merge: f64,
    /// The optimizer's step, and the function's `update`.
    pub update: f64,
    pub validate: f64,
}

impl Stages {
    /// By name, in the order of a round.
    pub fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("data", self.data),
            ("compute", self.compute),
            ("send", self.send),
            ("receive", self.receive),
            ("merge", self.merge),
            ("update", self.update),
            ("validate", self.validate),
        ]
    }

    pub fn add(&mut self, other: &Self) {
        self.data += other.data;
        self.compute += other.compute;
        self.send += other.send;
        self.receive += other.receive;
        self.merge += other.merge;
        self.update += other.update;
        self.validate += other.validate;
    }
}

/// What was used, and what that costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Spending {
    /// Processor time of the workers' threads.
    pub cpu_seconds: f64,
    /// Time of devices, whatever they are.
    pub device_seconds: f64,
    /// Of those, time of GPUs.
    pub gpu_seconds: f64,
    /// Memory that workers had set aside while they were at work, over time: GiB-seconds.
    pub memory_gib_seconds: f64,
    /// Functions' instances that were started.
    pub cold_starts: u64,
    /// Exported calls of functions.
    pub invocations: u64,
    /// Bytes that workers handed over and took over.
    pub bytes: u64,
    /// By the node's price table.
    pub cost: f64,
}

impl Spending {
    pub fn add(&mut self, other: &Self) {
        self.cpu_seconds += other.cpu_seconds;
        self.device_seconds += other.device_seconds;
        self.gpu_seconds += other.gpu_seconds;
        self.memory_gib_seconds += other.memory_gib_seconds;
        self.cold_starts += other.cold_starts;
        self.invocations += other.invocations;
        self.bytes += other.bytes;
        self.cost += other.cost;
    }
}

/// The resources that one contribution took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    pub stages: Stages,
    pub cpu: Duration,
    pub device: Duration,
    pub is_gpu: bool,
    /// Which kind of GPU, as its driver calls it, with its class; empty for cores.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub gpu: Box<str>,
    pub wall: Duration,
    /// Bytes of device memory and linear memory held.
    pub memory: u64,
    pub invocations: u64,
    pub cold_starts: u64,
    pub bytes: u64,
}

/// What went through a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Traffic {
    /// Messages that were put and taken.
    pub items: u64,
    pub bytes: u64,
    /// Seconds that all workers and the job spent on it.
    pub seconds: f64,
}

impl Traffic {
    pub fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
    }
}
