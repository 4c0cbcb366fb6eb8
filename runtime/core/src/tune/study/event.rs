//! What a study is told, what it answers, and why it ends.

use serde::{Deserialize, Serialize};

use super::SettingsError;
use crate::tune::space::Point;

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// The study may begin. Also what a caller says to hear whether there is more to do.
    Looked,
    /// A trial was asked for by a loop outside, in a study with `parallel` zero.
    Asked,
    /// A trial has trained up to an epoch and came to this value of the goal.
    Reported {
        trial: u32,
        epoch: u32,
        #[serde(with = "any_number")]
        value: f64,
    },
    /// The same, and what it cost since it was told of last: so that an epoch's cost is never seen without the epoch.
    Trained {
        trial: u32,
        epoch: u32,
        #[serde(with = "any_number")]
        value: f64,
        cost: f64,
    },
    /// A trial cost so much more.
    Spent {
        trial: u32,
        cost: f64,
    },
    /// A trial has paused: it has a checkpoint and no workers.
    Paused {
        trial: u32,
    },
    /// A trial has trained for all its epochs.
    Finished {
        trial: u32,
    },
    /// A trial has stopped before its end, told or not.
    Stopped {
        trial: u32,
    },
    Failed {
        trial: u32,
        why: String,
    },
    /// It is this late.
    Passed {
        now: f64,
    },
    /// Somebody wants the study to end.
    Ended,
}

/// JSON has no word for what is no number, and a study that is told of it must hear the same again.
mod any_number {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Word {
        Number(f64),
        Text(String),
    }

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        match value.is_finite() {
            true => serializer.serialize_f64(*value),
            false => serializer.serialize_str(&value.to_string()),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Word::deserialize(deserializer)? {
            Word::Number(value) => Ok(value),
            Word::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// Train with these values up to an epoch.
    Start { trial: u32, point: Point, workers: u32, until: u32 },
    /// Train on from the checkpoint up to an epoch.
    Resume { trial: u32, workers: u32, until: u32 },
    /// Keep a checkpoint and give the workers back.
    Pause { trial: u32 },
    /// The same, and it is not gone on with.
    Stop { trial: u32 },
    /// There is nothing more to do.
    End { reason: End },
}

/// Why a study is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "end")]
pub enum End {
    Complete { trials: u32 },
    Exhausted { points: u32 },
    AllFailed { trials: u32, first: String },
    Target { value: f64, target: f64 },
    Budget { spent: f64, budget: f64 },
    BelowOneTrial { budget: f64, trial: Option<f64> },
    Deadline { deadline: f64 },
    Asked,
}

impl std::fmt::Display for End {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Complete { trials } => write!(out, "all {trials} trials are over"),
            Self::Exhausted { points } => write!(out, "all {points} points that the sampler has were tried"),
            Self::AllFailed { trials, first } => write!(out, "all {trials} trials failed; the first one: {first}"),
            Self::Target { value, target } => write!(out, "{value} reached the target of {target}"),
            Self::Budget { spent, budget } => write!(out, "more would exceed the budget: {spent} of {budget} is spent"),
            Self::BelowOneTrial { budget, trial: Some(cost) } => {
                write!(out, "the budget of {budget} is less than one trial costs, which is about {cost}")
            }
            Self::BelowOneTrial { budget, trial: None } => {
                write!(out, "the budget of {budget} is less than one trial costs")
            }
            Self::Deadline { deadline } => write!(out, "the deadline of {deadline} has come"),
            Self::Asked => out.write_str("it was ended"),
        }
    }
}

/// An event that cannot be. The study is as it was before.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StudyError {
    #[error("there is no trial {0}")]
    NoTrial(u32),
    #[error("trial {trial} is {state}, so it cannot have {what}")]
    State { trial: u32, state: String, what: &'static str },
    #[error("trial {trial} reported epoch {epoch} after epoch {last}")]
    Epoch { trial: u32, epoch: u32, last: u32 },
    #[error("a cost of {0} cannot be: it must be finite and not negative")]
    Cost(f64),
    #[error("the study is over: {0}")]
    Over(End),
    #[error("this study starts trials by itself: `parallel` is not zero")]
    NotDriven,
}

/// A record that is none of such a study.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("event {number} of the record: {error}")]
    Event { number: usize, error: StudyError },
}
