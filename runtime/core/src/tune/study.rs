//! A study: which trials to start, to pause, to go on with and to stop, until there is a reason to end. A state machine:
//! [`Event`]s in, [`Action`]s out.
//!
//! It knows no clock and no money but by what it is told. The same settings and the same events give the same actions, so
//! the events are all that has to be kept: [`Study::replay`] has the study back, and [`Study::in_force`] says what should be
//! going on. Trials are jobs: what happens to a job is an event, and it happens once.
//!
//! - **Workers.** All running trials together have no more than the cap. A trial starts whole, as soon as it fits; one that
//!   does not fit lets others pass, but not for ever.
//! - **Money.** A budget is hard. Nothing starts that would exceed it if each epoch cost as much as the dearest so far; while
//!   nothing is known about that, one trial runs alone. What runs is stopped, the latest first, before its next epoch would
//!   exceed it.
//! - **Nothing is lost.** A trial that failed is a row with its reason. A paused one keeps its checkpoint and its value.
//!
//! Values of paused and stopped trials would be unfair to compare with those of trials that trained for longer. What a
//! sampler sees of them is moved by as much as those that trained for longest have gained since that epoch, in the median.
//!
//! - [`settings`]: what can be asked; [`event`]: what goes in and out; [`trial`]: one row; `start`: what may start next

use serde::{Deserialize, Serialize};

use super::prune;
use super::sampler::{Observation, Sampler};
use super::space::Point;

pub mod event;
pub mod settings;
mod start;
pub mod trial;

pub use event::{Action, End, Event, ReplayError, StudyError};
pub use settings::{Direction, Settings, SettingsError, Workers};
pub use trial::{Report, State, Trial};

#[derive(Clone, Debug)]
pub struct Study {
    settings: Settings,
    ladders: Vec<Vec<u32>>,
    sampler: Sampler,
    kept: Kept,
}

/// All that changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    trials: Vec<Trial>,
    now: Option<f64>,
    /// How many trials were asked for and not started yet, where they are asked for.
    asked: u32,
    /// How many trials have told something.
    told: u32,
    /// Nothing starts any more, for this reason.
    ending: Option<End>,
    /// The sampler has no more points.
    is_exhausted: bool,
    is_over: bool,
}

impl Study {
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        let ladders = settings.pruner.ladders(settings.least_epochs, settings.epochs);
        let sampler = Sampler::new(settings.sampler, settings.space.clone(), settings.seed);
        Ok(Self { settings, ladders, sampler, kept: Kept::default() })
    }

    /// The study that had seen these events.
    pub fn replay(settings: Settings, events: &[Event]) -> Result<Self, ReplayError> {
        let mut study = Self::new(settings)?;
        for (number, event) in events.iter().enumerate() {
            study.tell(event.clone()).map_err(|error| ReplayError::Event { number, error })?;
        }
        Ok(study)
    }

    /// Takes in what happened, and says what is to be done now.
    pub fn tell(&mut self, event: Event) -> Result<Vec<Action>, StudyError> {
        let mut actions = Vec::new();
        self.take_in(event, &mut actions)?;
        self.advance(&mut actions);
        Ok(actions)
    }

    fn take_in(&mut self, event: Event, actions: &mut Vec<Action>) -> Result<(), StudyError> {
        match event {
            Event::Looked => {}
            Event::Asked => {
                if self.settings.parallel > 0 {
                    return Err(StudyError::NotDriven);
                }
                if let Some(reason) = self.kept.ending.clone().filter(|_| self.kept.is_over) {
                    return Err(StudyError::Over(reason));
                }
                self.kept.asked = self.kept.asked.saturating_add(1);
            }
            Event::Reported { trial, epoch, value } => self.reported(trial, epoch, value, actions)?,
            Event::Trained { trial, epoch, value, cost } => {
                check_cost(cost)?;
                self.reported(trial, epoch, value, actions)?;
                self.trial_mut(trial)?.cost += cost;
            }
            Event::Spent { trial, cost } => {
                check_cost(cost)?;
                self.trial_mut(trial)?.cost += cost;
            }
            Event::Paused { trial } => {
                let paused = self.in_flight(trial, "paused")?;
                match &paused.state {
                    State::Stopping(then) => paused.state = (**then).clone(),
                    _ if paused.reports.is_empty() => paused.state = State::Failed("paused without a value".to_owned()),
                    // A trial may pause by itself at its rung, or anywhere.
                    _ => paused.state = State::Paused,
                }
                self.has_told(trial);
            }
            Event::Finished { trial } => {
                let finished = self.in_flight(trial, "finished")?;
                finished.state = match &finished.state {
                    State::Stopping(then) if matches!(**then, State::Failed(_)) => (**then).clone(),
                    _ if finished.reports.is_empty() => State::Failed("ended without a value of the goal".to_owned()),
                    _ => State::Done,
                };
                self.has_told(trial);
            }
            Event::Stopped { trial } => {
                let stopped = self.in_flight(trial, "stopped")?;
                stopped.state = match &stopped.state {
                    State::Stopping(then) => (**then).clone(),
                    _ => State::Stopped,
                };
                self.has_told(trial);
            }
            Event::Failed { trial, why } => {
                self.in_flight(trial, "failed")?.state = State::Failed(why);
                self.has_told(trial);
            }
            Event::Passed { now } => {
                if now.is_finite() {
                    self.kept.now = Some(self.kept.now.map_or(now, |before| before.max(now)));
                }
            }
            Event::Ended => self.end(End::Asked),
        }
        Ok(())
    }

    fn reported(&mut self, number: u32, epoch: u32, value: f64, actions: &mut Vec<Action>) -> Result<(), StudyError> {
        let (direction, goal) = (self.settings.direction, self.settings.goal.clone());
        let trial = self.in_flight(number, "reported")?;
        if epoch <= trial.epoch() {
            return Err(StudyError::Epoch { trial: number, epoch, last: trial.epoch() });
        }
        if !value.is_finite() {
            let why = format!("its goal `{goal}` was {value} after epoch {epoch}");
            trial.state = State::Stopping(Box::new(State::Failed(why)));
            actions.push(Action::Stop { trial: number });
            return Ok(());
        }
        trial.reports.push(Report { epoch, value });
        let is_running = trial.state == State::Running;
        let trial = &mut self.kept.trials[number as usize];
        let ladder = &self.ladders[trial.ladder];
        trial.rungs = ladder.iter().filter(|rung| **rung <= epoch).count();
        let is_at_rung = epoch >= trial.until && trial.rungs < ladder.len();
        if is_running && is_at_rung {
            trial.state = State::Pausing;
            actions.push(Action::Pause { trial: number });
        }
        if let Some(target) = self.settings.target
            && direction.turned(value) <= direction.turned(target)
        {
            self.end(End::Target { value, target });
        } else if is_running && epoch < self.settings.epochs && self.is_pruned_by_median(number, epoch) {
            self.kept.trials[number as usize].state = State::Stopping(Box::new(State::Pruned));
            actions.push(Action::Stop { trial: number });
        }
        Ok(())
    }

    fn is_pruned_by_median(&self, number: u32, epoch: u32) -> bool {
        if self.settings.pruner != prune::Pruner::Median || epoch < self.settings.least_epochs {
            return false;
        }
        let values = |trial: &Trial| -> Vec<f64> {
            let until = trial.reports.iter().filter(|report| report.epoch <= epoch);
            until.map(|report| self.settings.direction.turned(report.value)).collect()
        };
        let came_as_far = |trial: &&Trial| trial.number != number && trial.epoch() >= epoch;
        let others: Vec<Vec<f64>> = self.kept.trials.iter().filter(came_as_far).map(values).collect();
        prune::is_below_median(&values(&self.kept.trials[number as usize]), &others)
    }

    /// Nothing starts any more. The first reason stands.
    fn end(&mut self, reason: End) {
        self.kept.ending.get_or_insert(reason);
    }

    fn trial_mut(&mut self, number: u32) -> Result<&mut Trial, StudyError> {
        self.kept.trials.get_mut(number as usize).ok_or(StudyError::NoTrial(number))
    }

    fn in_flight(&mut self, number: u32, what: &'static str) -> Result<&mut Trial, StudyError> {
        let trial = self.trial_mut(number)?;
        if trial.state.is_in_flight() {
            return Ok(trial);
        }
        Err(StudyError::State { trial: number, state: format!("{:?}", trial.state).to_lowercase(), what })
    }

    /// Gives a trial its place in the order in which samplers see them.
    fn has_told(&mut self, number: u32) {
        let told = self.kept.told;
        if let Some(trial) = self.kept.trials.get_mut(number as usize)
            && trial.order.is_none()
        {
            trial.order = Some(told);
            self.kept.told += 1;
        }
    }

    /// What the sampler is told.
    fn seen(&self) -> (Vec<Observation>, Vec<Point>) {
        let turned = |value| self.settings.direction.turned(value);
        let furthest = self.kept.trials.iter().map(Trial::epoch).max().unwrap_or(0);
        // What those that trained for longest have gained since an epoch, in the median.
        let gained = |epoch: u32| {
            let longest = self.kept.trials.iter().filter(|trial| trial.epoch() == furthest);
            let gain = |trial: &Trial| Some(trial.best_until(furthest, turned)? - trial.best_until(epoch, turned)?);
            let mut gains: Vec<f64> = longest.filter_map(gain).collect();
            gains.sort_by(f64::total_cmp);
            gains.get(gains.len() / 2).copied().unwrap_or(0.0)
        };
        let mut told: Vec<&Trial> = self.kept.trials.iter().filter(|trial| trial.order.is_some()).collect();
        told.sort_by_key(|trial| trial.order);
        let observation = |trial: &Trial| Observation {
            point: trial.point.clone(),
            value: match trial.state {
                State::Failed(_) => None,
                _ => trial.best_until(trial.epoch(), turned).map(|value| value + gained(trial.epoch())),
            },
        };
        let done = told.into_iter().map(observation).collect();
        let pending = self.kept.trials.iter().filter(|trial| trial.order.is_none()).map(|trial| trial.point.clone());
        (done, pending.collect())
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All trials, by their numbers.
    pub fn trials(&self) -> &[Trial] {
        &self.kept.trials
    }

    /// What all trials cost so far.
    pub fn spent(&self) -> f64 {
        self.kept.trials.iter().map(|trial| trial.cost).sum()
    }

    /// How many workers hold all trials that run.
    pub fn workers(&self) -> u32 {
        self.kept.trials.iter().filter(|trial| trial.state.is_in_flight()).map(|trial| trial.workers).sum()
    }

    /// How many trials were asked for and have not started yet.
    pub fn asked(&self) -> u32 {
        self.kept.asked
    }

    /// Whether nothing starts any more.
    pub fn is_ending(&self) -> bool {
        self.kept.ending.is_some()
    }

    /// Why it is over, once it is.
    pub fn end_reason(&self) -> Option<&End> {
        self.kept.ending.as_ref().filter(|_| self.kept.is_over)
    }

    /// What should be going on: for a caller that has the study back and looks for the jobs that belong to it.
    pub fn in_force(&self) -> Vec<Action> {
        let action = |trial: &Trial| match &trial.state {
            State::Running if trial.order.is_some() => Some(self.resume(trial)),
            State::Running => Some(Self::start(trial)),
            State::Pausing => Some(Action::Pause { trial: trial.number }),
            State::Stopping(_) => Some(Action::Stop { trial: trial.number }),
            _ => None,
        };
        self.kept.trials.iter().filter_map(action).collect()
    }

    /// The best trial so far, and its best value.
    pub fn best(&self) -> Option<(&Trial, f64)> {
        best(self.kept.trials.iter(), self.settings.direction)
    }

    /// For each trial that came to a value, in the order of their ends, the best value so far.
    pub fn curve(&self) -> Vec<(u32, f64)> {
        curve(self.kept.trials.iter(), self.settings.direction)
    }
}

fn check_cost(cost: f64) -> Result<(), StudyError> {
    match cost.is_finite() && cost >= 0.0 {
        true => Ok(()),
        false => Err(StudyError::Cost(cost)),
    }
}

/// The best of some trials, and its best value. The first of equal ones.
pub fn best<'a>(trials: impl Iterator<Item = &'a Trial>, direction: Direction) -> Option<(&'a Trial, f64)> {
    let best = trials.filter_map(|trial| Some((trial, direction.turned(trial.value(direction)?))));
    best.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(trial, value)| (trial, direction.turned(value)))
}

/// For each trial that came to a value, in the order of their ends, the best value so far.
pub fn curve<'a>(trials: impl Iterator<Item = &'a Trial>, direction: Direction) -> Vec<(u32, f64)> {
    let mut told: Vec<&Trial> = trials.filter(|trial| trial.order.is_some()).collect();
    told.sort_by_key(|trial| trial.order);
    let mut best = f64::INFINITY;
    let step = |trial: &Trial| {
        best = best.min(direction.turned(trial.value(direction)?));
        Some((trial.number, direction.turned(best)))
    };
    told.into_iter().filter_map(step).collect()
}

/// What a sampler would be told of trials that have ended, without what it is told of unfair comparisons.
pub fn observations<'a>(trials: impl Iterator<Item = &'a Trial>, direction: Direction) -> Vec<Observation> {
    let ended = trials.filter(|trial| trial.order.is_some());
    let of = |trial: &Trial| Observation {
        point: trial.point.clone(),
        value: trial.value(direction).map(|value| direction.turned(value)),
    };
    ended.map(of).collect()
}

#[cfg(test)]
mod tests;
