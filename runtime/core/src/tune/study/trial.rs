//! A trial: one point of the space, and what became of it.

use serde::{Deserialize, Serialize};

use super::Direction;
use crate::tune::space::Point;

/// Where a trial is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Drawn, but there are not enough workers for it yet.
    Waiting,
    Running,
    /// Told to pause; it holds its workers until it says that it did.
    Pausing,
    /// With a checkpoint and without workers, until it is promoted.
    Paused,
    /// Told to stop, and as what it then counts.
    Stopping(Box<State>),
    /// Trained for all its epochs.
    Done,
    /// Stopped because others were better.
    Pruned,
    /// Stopped because the study ended, or by somebody.
    Stopped,
    Failed(String),
}

impl State {
    /// Whether it holds workers.
    pub fn is_in_flight(&self) -> bool {
        matches!(self, Self::Running | Self::Pausing | Self::Stopping(_))
    }

    /// Whether nothing more will come of it.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Done | Self::Pruned | Self::Stopped | Self::Failed(_))
    }
}

/// What a trial reported after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub epoch: u32,
    pub value: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub number: u32,
    pub point: Point,
    pub workers: u32,
    pub state: State,
    /// The epoch after which it pauses or is done.
    pub until: u32,
    /// With rising epochs.
    pub reports: Vec<Report>,
    pub cost: f64,
    /// The ladder it is on.
    pub ladder: usize,
    /// How many rungs it has come to.
    pub rungs: usize,
    /// When it first had to tell something, among all that had: the order in which samplers see them.
    pub order: Option<u32>,
    /// How often another trial was started before it since it waits.
    pub passed: u32,
}

impl Trial {
    pub fn epoch(&self) -> u32 {
        self.reports.last().map_or(0, |report| report.epoch)
    }

    /// The best value up to an epoch, by `turned`, which makes the lowest the best.
    pub fn best_until(&self, epoch: u32, turned: impl Fn(f64) -> f64) -> Option<f64> {
        let values = self.reports.iter().filter(|report| report.epoch <= epoch).map(|report| turned(report.value));
        values.min_by(f64::total_cmp)
    }

    /// The best value that it came to; none if it failed.
    pub fn value(&self, direction: Direction) -> Option<f64> {
        if matches!(self.state, State::Failed(_)) {
            return None;
        }
        let turned = |value| direction.turned(value);
        self.best_until(self.epoch(), turned).map(turned)
    }

    /// What an epoch cost on average.
    pub fn epoch_cost(&self) -> Option<f64> {
        (self.epoch() > 0 && self.cost > 0.0).then(|| self.cost / f64::from(self.epoch()))
    }
}
