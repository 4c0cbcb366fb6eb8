//! What a worker hands over at the end of a round. All of it can be written down and sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weft_core::sync::Slot;
use weft_core::usage::Used;

use super::channel::Content;
use super::model::WorkerState;
use super::numbers::{Numbers, as_bytes, as_numbers, as_owned_option};
use crate::train::run::Metrics;

/// The large part of what a worker hands over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Payload {
    /// Numbers as they are, in memory that whoever computed them shares.
    Plain(Numbers),
    /// What a codec has written.
    Encoded(#[serde(with = "as_bytes")] Bytes),
    /// It lies in this slot of the channel, with the buffers, for whoever needs it.
    Stored(Slot),
}

impl Payload {
    /// Bytes of what came here; none where it lies in the channel, which counts for itself.
    pub fn byte_count(&self) -> u64 {
        match self {
            Self::Plain(numbers) => numbers.byte_count(),
            Self::Encoded(bytes) => bytes.len() as u64,
            Self::Stored(_) => 0,
        }
    }
}

impl From<Vec<f32>> for Payload {
    fn from(numbers: Vec<f32>) -> Self {
        Self::Plain(numbers.into())
    }
}

impl From<Content> for Payload {
    fn from(content: Content) -> Self {
        match content {
            Content::Plain(numbers) => Self::Plain(numbers),
            Content::Encoded(bytes) => Self::Encoded(bytes),
        }
    }
}

/// What a worker hands over at the end of a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contribution {
    pub samples: u64,
    pub loss: f64,
    /// The loss of the latest step.
    pub latest: f64,
    /// Gradients, weights, statistics or duals, as the rule asks for; nothing where nothing was computed, or where workers
    /// merge, who have put its parts into the channel.
    pub payload: Option<Payload>,
    #[serde(with = "as_numbers")]
    pub buffers: Vec<f32>,
    /// Shared with whoever keeps it for the next round.
    #[serde(with = "as_owned_option")]
    pub worker_state: Option<Arc<WorkerState>>,
    /// Of its model as the round began, where that was asked for.
    #[serde(default)]
    pub model_checksum: Option<u32>,
    /// Metrics by name, each summed over samples.
    pub metrics: Metrics,
    pub used: Used,
}

impl Contribution {
    /// The numbers that were handed over, as they are.
    pub fn take_numbers(&mut self) -> Vec<f32> {
        match self.payload.take() {
            Some(Payload::Plain(numbers)) => numbers.into_vec(),
            Some(Payload::Encoded(_) | Payload::Stored(_)) | None => Vec::new(),
        }
    }
}

/// The mean of each metric over the samples of all workers.
pub fn means<'a>(contributions: impl Iterator<Item = &'a Contribution>) -> BTreeMap<String, f64> {
    let (mut sums, mut samples) = (BTreeMap::<String, f64>::new(), 0);
    for contribution in contributions {
        for (name, sum) in &contribution.metrics {
            *sums.entry(name.clone()).or_default() += sum;
        }
        samples += contribution.samples;
    }
    sums.into_iter().map(|(name, sum)| (name, sum / samples.max(1) as f64)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weft_core::usage::Stages;

    use super::*;

    #[test]
    fn a_contribution_is_read_as_it_was_written_wherever_its_numbers_lie() {
        let slot = Slot { round: 12, layer: 0, shard: 0, worker: 7, claim: 3 };
        let payloads = [
            None,
            Some(vec![1.0, -0.0].into()),
            Some(Payload::Encoded(Bytes::from_static(b"frame"))),
            Some(Payload::Stored(slot)),
        ];
        for payload in payloads {
            let contribution = Contribution {
                samples: 64,
                loss: 0.1 + 0.2,
                latest: 1e-300,
                payload,
                buffers: vec![2.5],
                worker_state: Some(Arc::new(WorkerState { moments: vec![0.5], steps: 3, ..WorkerState::default() })),
                model_checksum: Some(u32::MAX),
                metrics: BTreeMap::from([("accuracy".to_owned(), 0.97)]),
                used: Used {
                    stages: Stages { compute: 0.25, ..Stages::default() },
                    wall: Duration::from_nanos(1_000_000_001),
                    is_gpu: true,
                    gpu: "Tesla T4, discrete".into(),
                    bytes: u64::MAX,
                    ..Used::default()
                },
            };
            let packed = rmp_serde::to_vec_named(&contribution).unwrap();
            assert_eq!(rmp_serde::from_slice::<Contribution>(&packed).unwrap(), contribution);
            let text = serde_json::to_string(&contribution).unwrap();
            assert_eq!(serde_json::from_str::<Contribution>(&text).unwrap(), contribution);
        }
    }

    #[test]
    fn what_lies_in_a_slot_is_written_as_its_name_alone() {
        let stored = |round| Payload::Stored(Slot { round, layer: 0, shard: 0, worker: 0, claim: 0 });
        assert!(rmp_serde::to_vec(&stored(u64::MAX)).unwrap().len() < 64);
        let plain = Payload::from(vec![0.0; 1_000]);
        assert!(rmp_serde::to_vec(&plain).unwrap().len() > 4_000);
        assert_eq!((stored(1).byte_count(), plain.byte_count()), (0, 4_000));
    }
}
