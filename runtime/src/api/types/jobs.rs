//! Training jobs over the wire. What is asked for is a [`JobSpec`]; what it came to, [`EpochRecord`]s and [`JobEvent`]s.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::job::following::Following;
use crate::job::record::CheckpointRef;
use weft_core::cost::Breakdown;
use weft_core::spec::{Shape, ShapeChange};

use crate::job::{EpochRecord, JobEvent, JobSpec, Spending, State};

/// A training job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Of the job and of its model.
    pub name: String,
    pub state: State,
    /// Why it is over, or what it waits for.
    pub reason: String,
    /// How many of the tenant's own jobs come before it, while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<usize>,
    pub function: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    pub workers: u32,
    /// Epochs that were asked for; of a job that follows its data set, those that are done with its present version.
    pub epochs: u64,
    /// Epochs that are done.
    pub epoch: u64,
    /// Of the last epoch that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// Of the last validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Of the last validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    pub cost: f64,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// From its first start until it was over, or until now.
    pub seconds: f64,
    /// The study that it is a trial of, and which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<u32>,
}

/// A page of jobs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    pub jobs: Vec<JobView>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All about a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    pub job: JobView,
    /// What was asked for.
    pub spec: JobSpec,
    /// How many workers it has now, and how large each is.
    pub shape: Shape,
    /// Changes of that which were asked for and are not made yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ShapeChange>,
    /// All its randomness derives from it, also when none was asked for.
    pub seed: u64,
    /// The function's version that is trained, `sha256:…`.
    pub version: String,
    /// The data set's version, `sha256:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
    /// How far it is with its data set's versions, if it follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub following: Option<Following>,
    /// Milliseconds from its acceptance until all workers had started for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_ms: Option<f64>,
    /// Where it goes on after a stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointRef>,
    /// Models that it has left, the latest last.
    pub models: Vec<String>,
    /// Of all epochs, those that were done again included.
    pub spending: Spending,
    /// What the epochs of its history cost, by stage and by worker.
    #[serde(default)]
    pub costs: Breakdown,
    /// Workers that were lost, and started again.
    pub losses: u64,
    /// How often it was started: once, and once after each stop or crash.
    pub starts: u64,
    /// Epoch by epoch, the latest 1,000 of them; all are at `/v1/jobs/{name}/history`.
    pub history: Vec<EpochRecord>,
}

/// What the epochs of a job came to.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobHistory {
    pub epochs: Vec<EpochRecord>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Something that a job's followers are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobEventView {
    /// Grows with every event of the job.
    pub id: u64,
    #[serde(flatten)]
    pub event: JobEvent,
}

/// The events of a job that are still kept.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobEventList {
    pub events: Vec<JobEventView>,
}

/// How far a job that is resumed goes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResumeRequest {
    /// After so many epochs it comes to rest again; without it, it goes on to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// What a prune deleted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobsPruned {
    /// Jobs that were over; their models stay.
    pub deleted: u64,
}

/// Samples for a job's model.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InferRequest {
    /// The features of each, as they were in the files: what was done to the samples that it was trained on is done to
    /// these, too.
    pub samples: Vec<Vec<f32>>,
}

/// What a model makes of samples.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct InferAnswer {
    /// A row for each sample; `null` for what is not a finite number.
    #[serde(deserialize_with = "numbers")]
    pub outputs: Vec<Vec<f32>>,
}

/// JSON has no word for what is not a number.
fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<f32>>, D::Error> {
    let rows: Vec<Vec<Option<f32>>> = Deserialize::deserialize(deserializer)?;
    Ok(rows.into_iter().map(|row| row.into_iter().map(|value| value.unwrap_or(f32::NAN)).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_flat_and_round_trips() {
        let event = JobEvent::State { state: State::Running, reason: String::new() };
        let view = JobEventView { id: 7, event };
        let text = serde_json::to_string(&view).unwrap();
        assert_eq!(text, r#"{"id":7,"event":"state","state":"running","reason":""}"#);
        assert_eq!(serde_json::from_str::<JobEventView>(&text).unwrap(), view);
    }

    #[test]
    fn outputs_that_are_no_numbers_come_through() {
        let text = serde_json::to_string(&InferAnswer { outputs: vec![vec![1.5, f32::NAN]] }).unwrap();
        assert_eq!(text, r#"{"outputs":[[1.5,null]]}"#);
        let answer: InferAnswer = serde_json::from_str(&text).unwrap();
        assert!(answer.outputs[0][0] == 1.5 && answer.outputs[0][1].is_nan());
    }
}
