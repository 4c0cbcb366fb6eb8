//! What is known of a study: what is kept on disk, and what a client is told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weft_core::tune::spec::TuneSpec;
use weft_core::tune::study::{End, Event, Settings, State, Trial};

use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::meta::Record;
use crate::names::Name;
use crate::tenant::TenantId;
use crate::text;

/// How far a study is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TuneState {
    Running,
    /// By somebody. It can go on.
    Stopped,
    /// It has nothing more to do, and a best trial.
    Done,
    /// No trial came to anything.
    Failed,
}

impl TuneState {
    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// Where a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrialState {
    /// Drawn, but there are not enough workers for it yet.
    Waiting,
    Running,
    /// About to pause.
    Pausing,
    /// With a checkpoint and without workers, until it is promoted.
    Paused,
    /// About to stop.
    Stopping,
    /// Trained for all its epochs, or ended by itself.
    Done,
    /// Stopped because others were better.
    Pruned,
    /// Stopped because the study ended, or by somebody.
    Stopped,
    Failed,
}

impl From<&State> for TrialState {
    fn from(state: &State) -> Self {
        match state {
            State::Waiting => Self::Waiting,
            State::Running => Self::Running,
            State::Pausing => Self::Pausing,
            State::Paused => Self::Paused,
            State::Stopping(_) => Self::Stopping,
            State::Done => Self::Done,
            State::Pruned => Self::Pruned,
            State::Stopped => Self::Stopped,
            State::Failed(_) => Self::Failed,
        }
    }
}

/// How a trial ended, in the words of a loop outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Finished,
    Failed,
    Paused,
    Stopped,
}

/// Something that a study's followers are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum TuneEvent {
    /// It runs, waits for something, or is over.
    State { state: TuneState, reason: String },
    /// A trial is in another state than before, or is new.
    Trial {
        trial: u32,
        state: TrialState,
        reason: String,
        /// Epochs that are done, and up to where it trains for now.
        epoch: u32,
        until: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<f64>,
        cost: f64,
    },
    /// A trial came to a value of the goal.
    Report { trial: u32, epoch: u32, value: f64 },
    /// A trial is better than all before.
    Best { trial: u32, value: f64 },
}

impl TuneEvent {
    /// The event's name on the wire.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::State { .. } => "state",
            Self::Trial { .. } => "trial",
            Self::Report { .. } => "report",
            Self::Best { .. } => "best",
        }
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        let beside = match self {
            Self::State { reason, .. } | Self::Trial { reason, .. } => reason.len() as u64,
            Self::Report { .. } | Self::Best { .. } => 0,
        };
        size_of::<(u64, Self)>() as u64 + beside
    }
}

/// What a study takes beside what its record says: its place among all, its driver, those who follow it.
const STUDY_OVERHEAD: u64 = 8 << 10;

/// A study, as it is kept. Its events and its trials are kept apart, each a record of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyRecord {
    pub tenant: TenantId,
    pub name: Name,
    /// Told from every other study of the same name.
    pub id: u64,
    pub spec: TuneSpec,
    /// What the words meant when it was asked for.
    pub settings: Settings,
    /// The function's version that its trials train, whatever is deployed meanwhile.
    #[serde(default)]
    pub version: Option<Digest>,
    /// The data set's version.
    #[serde(default)]
    pub data: Option<Digest>,
    pub state: TuneState,
    /// Why it is over, or what it waits for.
    #[serde(default)]
    pub reason: String,
    /// Why it is over, once it is.
    #[serde(default)]
    pub end: Option<End>,
    pub created_ms: u64,
    #[serde(default)]
    pub ended_ms: Option<u64>,
    /// The key that the client gave with its request, and the digest of that.
    #[serde(default)]
    pub idempotency: Option<(String, Digest)>,
}

impl StudyRecord {
    /// Bytes of memory that it takes without its trials, about.
    pub(super) fn bytes(&self) -> u64 {
        serde_json::to_vec(self).map_or(0, |record| record.len() as u64).saturating_add(STUDY_OVERHEAD)
    }

    /// What the job of a trial is called.
    pub fn job_name(&self, trial: u32) -> String {
        format!("{}-{trial:04}", self.name)
    }

    /// Whether its trials are a loop's outside.
    pub fn is_driven(&self) -> bool {
        self.settings.parallel == 0
    }

    pub(super) fn end(&mut self, state: TuneState, reason: impl Into<String>) {
        (self.state, self.reason, self.ended_ms) = (state, text::cut(reason.into(), text::MOST_ERROR), Some(unix_ms()));
    }
}

impl Record for StudyRecord {
    const TABLE: &'static str = "studies";

    fn key(&self) -> String {
        study_key(self.tenant, &self.name)
    }
}

pub(super) fn study_key(tenant: TenantId, name: &Name) -> String {
    format!("{}/{name}", tenant.key())
}

/// Something that a study was told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptEvent {
    pub tenant: TenantId,
    pub study: Name,
    /// Counted from 0.
    pub number: u64,
    pub at_ms: u64,
    pub told: Event,
}

impl Record for KeptEvent {
    const TABLE: &'static str = "study-events";

    fn key(&self) -> String {
        part_key(self.tenant, &self.study, self.number)
    }
}

/// A trial as it was after what the study was told last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptTrial {
    pub tenant: TenantId,
    pub study: Name,
    #[serde(flatten)]
    pub row: Row,
}

impl Record for KeptTrial {
    const TABLE: &'static str = "study-trials";

    fn key(&self) -> String {
        part_key(self.tenant, &self.study, self.row.trial.number.into())
    }
}

pub(super) fn part_key(tenant: TenantId, study: &Name, number: u64) -> String {
    format!("{}/{study}/{number:010}", tenant.key())
}

/// A trial, and when it was what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub trial: Trial,
    /// Time of its epochs.
    #[serde(default)]
    pub seconds: f64,
    #[serde(default)]
    pub started_ms: Option<u64>,
    #[serde(default)]
    pub ended_ms: Option<u64>,
    /// The model that its job has left.
    #[serde(default)]
    pub model: Option<Name>,
}

impl Row {
    /// Bytes of memory that it takes, about, with what is kept of the events that led to it.
    pub(super) fn bytes(&self) -> u64 {
        let point: usize = self.trial.point.keys().map(|name| name.len() + POINT_BYTES).sum();
        let reports = self.trial.reports.len() * REPORT_BYTES;
        let failed = if let State::Failed(why) = &self.trial.state { why.len() } else { 0 };
        (size_of::<Self>() + point + reports + failed) as u64
    }

    pub fn reason(&self) -> String {
        match &self.trial.state {
            State::Failed(why) => why.clone(),
            State::Stopping(then) => match &**then {
                State::Failed(why) => why.clone(),
                _ => String::new(),
            },
            _ => String::new(),
        }
    }
}

/// What a value of a point takes beside its name.
const POINT_BYTES: usize = 96;
/// What a report takes, with its place in a table of events.
const REPORT_BYTES: usize = 64;
