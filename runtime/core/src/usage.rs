//! What training uses: time by stage, resources, and what both come to.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Seconds that all workers spent, by what they spent them on. No second is in two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Stages {
    /// Waiting for samples.
    pub data: f64,
    /// In the function's `step`.
    pub compute: f64,
    /// Handing over gradients, weights or statistics, beside putting their parts.
    pub send: f64,
    /// Taking over the merged model, beside getting the results of a merge.
    pub receive: f64,
    /// Where workers merge: putting parts of contributions ("UL-shard" of LambdaML, section 3.2.3).
    pub put_parts: f64,
    /// Getting others' parts ("DL-shard").
    pub get_parts: f64,
    /// Merging, whoever does it.
    pub merge: f64,
    /// Putting what was merged ("UL-aggr").
    pub put_results: f64,
    /// Getting what was merged ("DL-grad").
    pub get_results: f64,
    /// The optimizer's step, and the function's `update`.
    pub update: f64,
    pub validate: f64,
}

impl Stages {
    /// By name, in the order of a round.
    pub fn named(&self) -> [(&'static str, f64); 11] {
        [
            ("data", self.data),
            ("compute", self.compute),
            ("send", self.send),
            ("put_parts", self.put_parts),
            ("get_parts", self.get_parts),
            ("merge", self.merge),
            ("put_results", self.put_results),
            ("get_results", self.get_results),
            ("receive", self.receive),
            ("update", self.update),
            ("validate", self.validate),
        ]
    }

    pub fn add(&mut self, other: &Self) {
        self.data += other.data;
        self.compute += other.compute;
        self.send += other.send;
        self.receive += other.receive;
        self.put_parts += other.put_parts;
        self.get_parts += other.get_parts;
        self.merge += other.merge;
        self.put_results += other.put_results;
        self.get_results += other.get_results;
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

/// How often the model of a worker that makes it itself was compared with the coordinator's, and was another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Replicas {
    pub compared: u64,
    pub differed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_is_named_and_added() {
        let words = serde_json::to_value(Stages::default()).unwrap();
        let mut numbered = words.as_object().unwrap().clone();
        (1..).zip(numbered.values_mut()).for_each(|(number, value): (i32, _)| *value = f64::from(number).into());
        let one: Stages = serde_json::from_value(numbered.clone().into()).unwrap();
        let mut two = one;
        two.add(&one);
        assert_eq!(one.named().len(), numbered.len());
        for ((name, once), (_, twice)) in one.named().into_iter().zip(two.named()) {
            assert_eq!(numbered[name], once, "{name}");
            assert_eq!(twice, 2.0 * once, "{name}");
        }
    }
}
