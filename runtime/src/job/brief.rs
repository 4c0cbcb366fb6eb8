//! What a job is, apart from where it runs: facts that can be written down and sent.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use weft_core::spec::{CheckedSpec, TrainerKind};
use weft_core::sync::Sync;

use super::host_memory::HostMemory;
use crate::digest::Digest;
use crate::names::Name;
use crate::tenant::TenantId;
use crate::train::settings::{self, Settings};

/// Everything that a worker anywhere needs to know of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Brief {
    pub tenant: TenantId,
    pub job: Name,
    /// How often the job was started: what an earlier run has left in a channel is not this one's.
    pub run: u64,
    pub function: Name,
    pub version: Digest,
    pub data: Option<DataRef>,
    #[serde(with = "settings::as_words")]
    pub settings: Settings,
    pub trainer: TrainerKind,
    pub spec: CheckedSpec,
    pub sync: Sync,
    pub seed: u64,
    /// Epochs that were done before those that it trains now, and that are done then.
    pub epochs: Range<u64>,
    /// The host's memory for copies of the model.
    pub host: HostMemory,
}

/// A version of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRef {
    pub name: String,
    /// Of its manifest.
    pub version: Digest,
}
