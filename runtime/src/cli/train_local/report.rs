//! What a training on this machine came to: for people, and for programs.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use weft_core::spec::Shape;

use crate::api::types::{JobDetail, JobView};
use crate::cli::output::{Output, bytes};
use crate::cli::train::watch;
use crate::clock::{rfc3339, unix_ms};
use crate::job::engine::Ending;
use crate::job::team::Halt;
use crate::job::{EpochRecord, State, costs, total};
use crate::local::FileKeeper;
use crate::names::Name;

/// What is known of a training that is over.
pub struct Report<'a> {
    pub keeper: &'a FileKeeper,
    pub name: &'a Name,
    pub shape: Shape,
    pub device: String,
    pub began_ms: u64,
    pub ready_ms: Option<f64>,
    pub start: Instant,
}

/// What a training came to: what a node says of a job, and the files that are left here.
#[derive(Serialize)]
pub struct Trained {
    #[serde(flatten)]
    pub detail: JobDetail,
    function: String,
    device: String,
    /// How many numbers are trained; none where nothing was.
    parameters: Option<usize>,
    /// The same as `history`.
    epochs: Vec<EpochRecord>,
    seconds: f64,
    model: Option<PathBuf>,
    bytes: Option<u64>,
    /// Steps of the model that is left.
    #[serde(skip)]
    steps: u64,
}

fn state(ending: Ending) -> (State, String) {
    match ending {
        Ending::Done(reason) => (State::Done, reason),
        Ending::Halted(Halt::OutOfBudget(why)) => (State::Done, format!("its budget is used up: {why}")),
        // Nothing here grows that could be waited for.
        Ending::CaughtUp => (State::Done, "all epochs are done".to_owned()),
        Ending::Halted(Halt::OutOfTime) => (State::Done, "`max_time` is over".to_owned()),
        Ending::Halted(Halt::Stopped | Halt::Paused) => (State::Stopped, "interrupted".to_owned()),
        Ending::Halted(Halt::Rested(epoch)) => (State::Stopped, format!("it rests after epoch {epoch}")),
        // There is nobody here who would make room, or start it again.
        Ending::Halted(Halt::Failed(reason) | Halt::Waits(reason) | Halt::OutOfMemory(reason)) => {
            (State::Failed, reason)
        }
    }
}

impl Trained {
    pub fn new(report: &Report<'_>, ending: Ending) -> Self {
        let subject = report.keeper.subject();
        let (state, reason) = state(ending);
        let seconds = report.start.elapsed().as_secs_f64();
        report.keeper.kept(|kept| {
            let validated = kept.history.iter().rev().find(|epoch| !epoch.validation.is_empty());
            let validation = |metric: &str| validated.and_then(|epoch| epoch.validation.get(metric).copied());
            let (spending, _) = total(kept.history.iter());
            let model = kept.models.last();
            let job = JobView {
                name: report.name.to_string(),
                state,
                reason,
                queue_position: None,
                function: report.name.to_string(),
                dataset: subject.spec.dataset.clone(),
                workers: report.shape.workers,
                epochs: subject.spec.epochs,
                epoch: kept.epoch,
                train_loss: kept.history.last().map(|epoch| epoch.train_loss),
                validation_loss: validation("loss"),
                accuracy: validation("accuracy"),
                cost: spending.cost,
                created_at: rfc3339(report.began_ms),
                started_at: Some(rfc3339(report.began_ms)),
                ended_at: Some(rfc3339(unix_ms())),
                seconds,
                tune: None,
                trial: None,
            };
            let detail = JobDetail {
                job,
                spec: subject.spec.clone(),
                shape: report.shape,
                changes: Vec::new(),
                following: None,
                seed: subject.spec.seed.unwrap_or(0),
                version: subject.version.to_string(),
                data_version: subject.data_version.map(|digest| digest.to_string()),
                ready_ms: report.ready_ms,
                checkpoint: kept.checkpoint,
                models: kept.models.iter().map(|model| model.path.display().to_string()).collect(),
                spending,
                costs: costs(kept.history.iter()),
                losses: kept.losses,
                starts: subject.starts,
                history: kept.history.clone(),
            };
            Self {
                detail,
                function: report.name.to_string(),
                device: report.device.clone(),
                parameters: model.map(|model| model.parameters),
                epochs: kept.history.clone(),
                seconds,
                model: model.map(|model| model.path.clone()),
                bytes: model.map(|model| model.bytes),
                steps: model.map_or(0, |model| model.step),
            }
        })
    }

    pub fn summary(&self, out: &Output) -> String {
        let mut rows = watch::rows(&self.detail, out);
        rows.push(("device", self.device.clone()));
        if let (Some(model), Some(size), Some(parameters)) = (&self.model, self.bytes, self.parameters) {
            rows.push(("model", format!("{}, {parameters} parameters, {}", model.display(), bytes(size))));
        }
        if let Some(checkpoint) = &self.detail.checkpoint {
            rows.push(("checkpoint", format!("after step {}, {}", checkpoint.step, bytes(checkpoint.size))));
        }
        out.fields(&rows)
    }

    /// What is left of a training that was interrupted.
    pub fn how_to_go_on(&self) -> String {
        match (&self.model, &self.detail.checkpoint) {
            (Some(model), Some(checkpoint)) if checkpoint.step == self.steps => format!(
                "interrupted after {} steps: `{}` and its checkpoint are kept, go on with `--resume`",
                self.steps,
                model.display()
            ),
            (Some(model), Some(checkpoint)) => format!(
                "interrupted: `{}` is the model after {} steps, `--resume` goes on after step {}",
                model.display(),
                self.steps,
                checkpoint.step
            ),
            (Some(model), None) => {
                format!("interrupted: `{}` is the model after {} steps", model.display(), self.steps)
            }
            (None, Some(checkpoint)) => {
                format!("interrupted: `--resume` goes on after step {}", checkpoint.step)
            }
            (None, None) => "interrupted before there was anything to keep".to_owned(),
        }
    }
}
