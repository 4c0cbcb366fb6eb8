//! Studies over the wire. What is asked for is a [`TuneSpec`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weft_core::tune::space::Point;
use weft_core::tune::study::{Direction, Report};

use crate::study::{Outcome, TrialState, TuneEvent, TuneSpec, TuneState};

/// A study.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TuneView {
    pub name: String,
    pub state: TuneState,
    /// Why it is over, or what it waits for.
    pub reason: String,
    /// Absent for a study of a loop outside that says none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// What trials are compared by.
    pub goal: String,
    pub direction: Direction,
    pub sampler: String,
    pub prune: String,
    /// Trials that were asked for.
    pub trials: u32,
    /// Trials that run at once; 0 for a loop outside.
    pub parallel: u32,
    /// Epochs of a trial that nothing stops.
    pub epochs: u32,
    /// How many trials there are by now, by their states.
    pub counts: TrialCounts,
    /// The best trial so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<BestTrial>,
    /// What all trials have cost so far.
    pub spent: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// From when it was asked for until it was over, or until now.
    pub seconds: f64,
}

/// How many trials are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrialCounts {
    pub waiting: u32,
    /// With those that are about to pause or to stop.
    pub running: u32,
    pub paused: u32,
    pub done: u32,
    pub pruned: u32,
    pub stopped: u32,
    pub failed: u32,
}

/// The best trial of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BestTrial {
    pub trial: u32,
    /// Its job; absent where trials are a loop's outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Its model, if that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its best value of the goal.
    pub value: f64,
    /// Values of what is searched, by name.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub point: Point,
}

/// A page of studies.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TuneList {
    pub tunes: Vec<TuneView>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All about a study.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TuneDetail {
    pub tune: TuneView,
    /// What was asked for.
    pub spec: TuneSpec,
    /// What is searched, also where that is what the function declares.
    pub search: Vec<String>,
    /// What is tried follows from it, also when none was asked for.
    pub seed: u64,
    /// For each trial that came to a value, in the order of their ends, the best value so far.
    pub curve: Vec<CurvePoint>,
    /// How much each parameter mattered, the most important first; nothing while too little is known.
    pub importance: Vec<Importance>,
}

/// The best value once a trial had ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CurvePoint {
    pub trial: u32,
    pub best: f64,
}

/// How much a parameter mattered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Importance {
    pub parameter: String,
    /// Of all shares, which add up to 1.
    pub share: f64,
}

/// A trial of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrialView {
    /// Counted from 0.
    pub trial: u32,
    /// The job that it is, which may have been deleted; absent where trials are a loop's outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    pub state: TrialState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Values of what is searched, by name; without those that do not count.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub point: Point,
    pub workers: u32,
    /// Epochs that are done, and up to where it trains for now.
    pub epoch: u32,
    pub until: u32,
    /// Its best value of the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// After which epochs it came to which values.
    #[schema(value_type = Vec<TrialReport>)]
    pub reports: Vec<Report>,
    pub cost: f64,
    /// Time of its epochs; 0 where trials are a loop's outside.
    pub seconds: f64,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// Milliseconds since 1970; absent while it may go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// A value after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrialReport {
    pub epoch: u32,
    pub value: f64,
}

/// A page of trials, by their numbers.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TrialList {
    pub trials: Vec<TrialView>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// Something that a study's followers are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TuneEventView {
    /// Grows with every event of the study.
    pub id: u64,
    #[serde(flatten)]
    pub event: TuneEvent,
}

/// The events of a study that are still kept.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TuneEventList {
    pub events: Vec<TuneEventView>,
}

/// A trial for a loop outside: new, or one that was paused and goes on.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AskAnswer {
    /// Absent when there is none to be had: the study's `state` and `reason` say why, or others have to be told of first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialView>,
    pub state: TuneState,
    pub reason: String,
}

/// What a loop outside says of a trial.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TellRequest {
    pub trial: u32,
    /// The epochs that it has trained for; with a `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// What its goal came to after that epoch; `null` for what is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// What it cost since it was told of last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// How it ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is to become of a trial that a loop outside has told of.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TellAnswer {
    /// In state `running` it goes on until the epoch `until`, `pausing` it pauses, keeping what it needs to go on; `stopping`
    /// or anything else, it ends.
    pub trial: TrialView,
    pub state: TuneState,
    pub reason: String,
}
