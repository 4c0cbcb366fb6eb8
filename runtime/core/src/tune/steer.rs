//! What is to be done next for a trial that is a job: what the study wants of it beside what the job is.
//!
//! Pure, and by state alone: it does not matter what was asked for before, nor whether that was done. So a node that was
//! killed between two steps goes on by looking, in whatever order a job ended, was stopped or was deleted meanwhile. What is
//! told here is told once, because a study that was told it is in another state afterwards.

use super::study::{Event, State, Trial};

/// A trial's job, as far as its study cares.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSeen {
    pub phase: Phase,
    /// Epochs that are done, with rising numbers.
    pub epochs: Vec<EpochSeen>,
    /// What the trial cost so far, jobs of it that were deleted included.
    pub cost: f64,
}

/// How a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits or runs.
    Alive,
    /// It was stopped because its study was.
    Held,
    /// It has come to the epoch at which it was to rest.
    Rested,
    /// By somebody, or because it takes its node with it.
    Stopped,
    Done,
    Failed(String),
}

/// What an epoch came to.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochSeen {
    pub epoch: u32,
    pub value: ValueSeen,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ValueSeen {
    Value(f64),
    /// It was not validated.
    None,
    /// It was, and the goal was not among the numbers that came of it.
    Missing(String),
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing, until the job has changed or the study was told something.
    Wait,
    /// The study is to be told.
    Tell(Event),
    /// There is to be a job, which rests after an epoch.
    Submit { until: u32 },
    /// The job is to go on from its checkpoint, up to an epoch.
    Resume { until: u32 },
    /// The job is to end.
    Stop,
    /// The job is to end, and to go on once the study does.
    Hold,
}

/// What is next for a trial. `is_stopped` is whether somebody has stopped the study, which can go on later.
pub fn step(trial: &Trial, job: Option<&JobSeen>, is_stopped: bool) -> Step {
    let is_alive = job.is_some_and(|job| job.phase == Phase::Alive);
    if !trial.state.is_in_flight() {
        return if is_alive { Step::Stop } else { Step::Wait };
    }
    if is_stopped {
        return if is_alive { Step::Hold } else { Step::Wait };
    }
    let number = trial.number;
    let Some(job) = job else {
        return match trial.state {
            State::Running => Step::Submit { until: trial.until },
            State::Pausing => Step::Tell(Event::Paused { trial: number }),
            _ => Step::Tell(Event::Stopped { trial: number }),
        };
    };
    if let Some(event) = news(trial, job) {
        return Step::Tell(event);
    }
    let stops = matches!(trial.state, State::Stopping(_));
    match &job.phase {
        Phase::Alive if stops => Step::Stop,
        Phase::Alive => Step::Wait,
        Phase::Held | Phase::Rested | Phase::Stopped if stops => Step::Tell(Event::Stopped { trial: number }),
        Phase::Held => Step::Resume { until: trial.until },
        Phase::Rested if trial.state == State::Pausing => Step::Tell(Event::Paused { trial: number }),
        Phase::Rested => rested(trial, job),
        Phase::Stopped => Step::Tell(Event::Stopped { trial: number }),
        Phase::Done => Step::Tell(Event::Finished { trial: number }),
        Phase::Failed(why) => Step::Tell(Event::Failed { trial: number, why: why.clone() }),
    }
}

/// What the study does not know yet of the epochs of a job.
fn news(trial: &Trial, job: &JobSeen) -> Option<Event> {
    let number = trial.number;
    let cost = (job.cost - trial.cost).max(0.0);
    // What rounding leaves is no cost.
    let cost = if cost <= job.cost * 1e-12 { 0.0 } else { cost };
    // One that is about to fail hears nothing more of values.
    let fails = matches!(&trial.state, State::Stopping(then) if matches!(**then, State::Failed(_)));
    let next = job.epochs.iter().find(|seen| seen.epoch > trial.epoch() && seen.value != ValueSeen::None && !fails);
    match next.map(|seen| (seen.epoch, &seen.value)) {
        Some((epoch, ValueSeen::Value(value))) => {
            // What came after it is told with a later one, or at the end.
            let later = job.epochs.iter().filter(|seen| seen.epoch > epoch).count() as f64;
            let unknown = job.epochs.iter().filter(|seen| seen.epoch > trial.epoch()).count().max(1) as f64;
            let cost = cost * (1.0 - later / unknown);
            Some(Event::Trained { trial: number, epoch, value: *value, cost })
        }
        Some((epoch, ValueSeen::Missing(why))) => {
            Some(Event::Failed { trial: number, why: format!("after epoch {epoch} {why}") })
        }
        _ if cost > 0.0 => Some(Event::Spent { trial: number, cost }),
        _ => None,
    }
}

/// A job has come to rest, and its trial is to go on.
fn rested(trial: &Trial, job: &JobSeen) -> Step {
    let number = trial.number;
    let last = job.epochs.last().map_or(0, |seen| seen.epoch);
    if last < trial.until {
        return Step::Resume { until: trial.until };
    }
    match trial.epoch() >= trial.until {
        true => Step::Tell(Event::Finished { trial: number }),
        false => {
            let why = format!("after epoch {last} there was no value of its goal: nothing was validated");
            Step::Tell(Event::Failed { trial: number, why })
        }
    }
}

#[cfg(test)]
mod tests;
