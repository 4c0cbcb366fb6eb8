//! How the jobs of a study are, as far as it cares.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_core::tune::steer::{EpochSeen, JobSeen, Phase, ValueSeen};
use weft_core::tune::study::Trial;

use super::Studies;
use super::live::goal_of;
use super::record::StudyRecord;
use crate::job::{EpochRecord, Job, JobError, State};

/// Jobs by the numbers of their trials; none where there is none.
pub(super) type Looked = BTreeMap<u32, Option<Arc<Job>>>;

impl Studies {
    /// The jobs of these trials. One that is somebody else's is a reason for the trial to fail.
    pub(super) fn look(
        &self,
        record: &StudyRecord,
        numbers: impl Iterator<Item = u32>,
    ) -> (Looked, Vec<(u32, JobError)>) {
        let (mut looked, mut taken) = (Looked::new(), Vec::new());
        for number in numbers {
            match self.jobs.trial(record.tenant, &record.job_name(number), record.id) {
                Ok(job) => drop(looked.insert(number, job)),
                Err(error) => taken.push((number, error)),
            }
        }
        (looked, taken)
    }
}

pub(super) fn is_alive(job: &Job) -> bool {
    !job.state.is_over()
}

/// What a study sees of the job of a trial.
pub(super) fn seen(goal: &str, trial: &Trial, job: &Job) -> JobSeen {
    let phase = match job.state {
        State::Queued | State::Running | State::Waiting => Phase::Alive,
        State::Done => Phase::Done,
        State::Failed => Phase::Failed(job.reason.clone()),
        State::Stopped if job.has_rested() => Phase::Rested,
        State::Stopped if job.trial.as_ref().is_some_and(|trial| trial.held) => Phase::Held,
        State::Stopped => Phase::Stopped,
    };
    // Those that were told already are left out, but for the last.
    let from = job.history.partition_point(|epoch| epoch.epoch < u64::from(trial.epoch()));
    let epoch = |record: &Arc<EpochRecord>| EpochSeen {
        epoch: u32::try_from(record.epoch).unwrap_or(u32::MAX),
        value: value(goal, record),
    };
    let before = job.trial.as_ref().map_or(0.0, |trial| trial.spent_before);
    JobSeen { phase, epochs: job.history[from..].iter().map(epoch).collect(), cost: before + job.spending.cost }
}

fn value(goal: &str, epoch: &EpochRecord) -> ValueSeen {
    if let Some(value) = goal_of(goal, epoch) {
        return ValueSeen::Value(value);
    }
    let others: Vec<String> = epoch.validation.keys().map(|name| format!("`{name}`")).collect();
    match others.is_empty() {
        true => ValueSeen::None,
        // What is no number is not among what is kept of a validation.
        false => ValueSeen::Missing(format!(
            "its goal `{goal}` was no number, or is not among what the function validates by: there was {}",
            others.join(", ")
        )),
    }
}
