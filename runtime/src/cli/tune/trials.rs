//! All trials of a study, from a node.

use weft_core::tune::space::Space;
use weft_core::tune::study::State;
use weft_core::tune::table::{Row, Table};

use crate::api::types::{TrialView, TuneDetail};
use crate::cli::client::{Client, ClientError};
use crate::names::Name;
use crate::study::TrialState;

/// All of them, by their numbers.
pub fn all(name: &Name, client: &Client) -> Result<Vec<TrialView>, ClientError> {
    let (mut trials, mut after) = (Vec::new(), None);
    loop {
        let page = client.trials(name, after)?;
        trials.extend(page.trials);
        after = page.next;
        if after.is_none() {
            return Ok(trials);
        }
    }
}

/// The study as a table, for pictures and for other programs.
pub fn table(detail: &TuneDetail, trials: &[TrialView]) -> anyhow::Result<Table> {
    Ok(Table {
        name: detail.tune.name.clone(),
        goal: detail.tune.goal.clone(),
        direction: detail.tune.direction,
        space: Space::parse(&detail.search)?,
        seed: detail.seed,
        rows: trials.iter().map(row).collect(),
    })
}

fn row(trial: &TrialView) -> Row {
    let state = match trial.state {
        TrialState::Waiting => State::Waiting,
        TrialState::Running => State::Running,
        TrialState::Pausing => State::Pausing,
        TrialState::Paused => State::Paused,
        TrialState::Stopping => State::Stopping(Box::new(State::Stopped)),
        TrialState::Done => State::Done,
        TrialState::Pruned => State::Pruned,
        TrialState::Stopped => State::Stopped,
        TrialState::Failed => State::Failed(trial.reason.clone()),
    };
    Row {
        number: trial.trial,
        point: trial.point.clone(),
        state,
        reports: trial.reports.clone(),
        workers: trial.workers,
        cost: trial.cost,
        seconds: trial.seconds,
        job: trial.job.clone(),
        started: trial.started_ms,
        ended: trial.ended_ms,
    }
}
