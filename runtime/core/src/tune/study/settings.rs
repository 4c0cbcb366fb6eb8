//! What can be asked of a study, and what cannot.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::tune::prune::Pruner;
use crate::tune::sampler::SamplerKind;
use crate::tune::space::{Domain, Point, PointError, Space, Value};

/// Whether a large value is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    #[serde(alias = "maximize")]
    Maximise,
    #[serde(alias = "minimize")]
    Minimise,
}

impl Direction {
    /// The value turned so that lower is better; turning it twice gives it back.
    pub fn turned(self, value: f64) -> f64 {
        match self {
            Self::Maximise => -value,
            Self::Minimise => value,
        }
    }
}

/// How many workers a trial has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workers {
    Fixed(u32),
    /// As many as this parameter of the search says.
    Parameter(String),
}

/// What a study is to do. Costs and times are in the caller's units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub space: Space,
    #[serde(default)]
    pub sampler: SamplerKind,
    #[serde(default)]
    pub pruner: Pruner,
    /// The metric that trials are compared by.
    pub goal: String,
    pub direction: Direction,
    /// A value of the goal with which the study is content.
    #[serde(default)]
    pub target: Option<f64>,
    pub trials: u32,
    /// How many trials run at once; zero if each is asked for by [`super::Event::Asked`].
    pub parallel: u32,
    /// What a trial trains for if nothing stops it.
    pub epochs: u32,
    /// After how many epochs a trial can be paused or stopped at the earliest.
    pub least_epochs: u32,
    pub workers: Workers,
    /// How many workers all running trials have together.
    #[serde(default)]
    pub max_workers: Option<u32>,
    #[serde(default)]
    pub budget: Option<f64>,
    #[serde(default)]
    pub deadline: Option<f64>,
    pub seed: u64,
    /// Points, or parts of points, that are tried first.
    #[serde(default)]
    pub enqueued: Vec<Point>,
}

/// A study that could not do what is asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    #[error("a study of no trials finds nothing: `trials` must be at least 1")]
    NoTrials,
    #[error("a trial of no epochs has no value: `epochs` and `least_epochs` must be at least 1")]
    NoEpochs,
    #[error("a trial needs at least one worker")]
    NoWorkers,
    #[error("a trial may have {workers} workers, but all together may have {cap}: lower the one or raise the other")]
    TooManyWorkers { workers: u32, cap: u32 },
    #[error(
        "`{0}` is no parameter that counts workers: it must always count, and be whole numbers from 1 on, as in `int:1..8`"
    )]
    WorkersParameter(String),
    #[error("`{name}` is {value}, which is not a finite number")]
    NotFinite { name: &'static str, value: f64 },
    #[error("enqueued point {number}: {error}")]
    Enqueued { number: usize, error: PointError },
}

impl Settings {
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.trials == 0 {
            return Err(SettingsError::NoTrials);
        }
        if self.epochs == 0 || self.least_epochs == 0 {
            return Err(SettingsError::NoEpochs);
        }
        for (name, value) in [("budget", self.budget), ("deadline", self.deadline), ("target", self.target)] {
            if let Some(value) = value.filter(|value| !value.is_finite()) {
                return Err(SettingsError::NotFinite { name, value });
            }
        }
        let most = self.most_workers()?;
        if most == 0 {
            return Err(SettingsError::NoWorkers);
        }
        if let Some(cap) = self.max_workers.filter(|cap| most > *cap) {
            return Err(SettingsError::TooManyWorkers { workers: most, cap });
        }
        for (number, given) in self.enqueued.iter().enumerate() {
            let middle = self.space.decode(&[]);
            self.space.complete(given, &middle).map_err(|error| SettingsError::Enqueued { number, error })?;
        }
        Ok(())
    }

    /// How many workers a trial can have at most.
    fn most_workers(&self) -> Result<u32, SettingsError> {
        let name = match &self.workers {
            Workers::Fixed(workers) => return Ok(*workers),
            Workers::Parameter(name) => name,
        };
        let bad = || SettingsError::WorkersParameter(name.clone());
        let parameter = self.space.parameters().iter().find(|parameter| parameter.name == *name).ok_or_else(bad)?;
        let counts: Vec<&Value> = match &parameter.domain {
            Domain::Integer { low, high, .. } => {
                let most = u32::try_from(*high).map_err(|_| bad())?;
                return if *low >= 1 && parameter.conditions.is_empty() { Ok(most) } else { Err(bad()) };
            }
            Domain::Choice(values) => values.iter().collect(),
            Domain::Constant(value) => vec![value],
            Domain::Number { .. } => Vec::new(),
        };
        let count = |value: &Value| match value {
            Value::Integer(count) => u32::try_from(*count).ok().filter(|count| *count > 0),
            _ => None,
        };
        let counts: Option<Vec<u32>> = counts.into_iter().map(count).collect();
        counts.and_then(|counts| counts.into_iter().max()).filter(|_| parameter.conditions.is_empty()).ok_or_else(bad)
    }

    /// How many workers the trial of a point has.
    pub fn workers_of(&self, point: &Point) -> u32 {
        match &self.workers {
            Workers::Fixed(workers) => *workers,
            Workers::Parameter(name) => match point.get(name) {
                Some(Value::Integer(count)) => u32::try_from(*count).unwrap_or(1).max(1),
                _ => 1,
            },
        }
    }
}
