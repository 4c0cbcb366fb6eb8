//! What is known of a job: what is kept on disk, and what a client is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::engine::SpentAtMost;
use super::following::Following;
use super::host_memory::HostMemory;
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::meta::Record;
use crate::names::Name;
use crate::tenant::TenantId;
use crate::text;
use weft_core::cost::Breakdown;
use weft_core::plan::course::CourseRecord;
use weft_core::plan::policy::{Decision, Spent};
use weft_core::spec::{JobSpec, Memory, Shape, ShapeChange};
use weft_core::suspects::Deaths;
use weft_core::usage::{Replicas, Spending, Stages, Traffic};

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Waits for room.
    Queued,
    Running,
    /// Has trained on all that there was, and waits for its data set to grow: without workers, and at no cost.
    Waiting,
    /// Ended by itself: after its epochs, at its goal, or at its time.
    Done,
    /// Ended by somebody.
    Stopped,
    /// Ended by an error.
    Failed,
}

impl State {
    /// Whether nothing more will happen by itself.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Stopped | Self::Failed)
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// What happened in an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EpochRecord {
    /// Counted from 1.
    pub epoch: u64,
    pub train_loss: f64,
    /// Means over the samples to test with, by name; empty where it was not validated.
    #[serde(default)]
    pub validation: BTreeMap<String, f64>,
    pub workers: u32,
    pub batch: u32,
    pub lr: f32,
    pub samples: u64,
    /// Steps of the model.
    pub steps: u64,
    /// From the epoch's start to its end, validation included.
    pub seconds: f64,
    /// Without the time of the validation.
    pub samples_per_second: f64,
    /// The most device memory that a worker held, in bytes.
    pub memory: u64,
    pub stages: Stages,
    pub spending: Spending,
    /// What that cost by stage and by worker.
    #[serde(default, skip_serializing_if = "Breakdown::is_empty")]
    pub costs: Breakdown,
    /// Workers that were lost, and started again.
    pub losses: u64,
    /// What went through the channel; nothing where numbers stay where they are.
    #[serde(default)]
    pub traffic: Traffic,
    /// How old the model was that contributions were computed from, where workers do not wait for each other: in versions,
    /// or for the gradients that peers average in rounds of whoever averages. The mean, and the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_staleness: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_staleness: Option<u64>,
    /// How far the workers of ADMM are from agreeing: the distance of their weights from the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primal_residual: Option<f64>,
    /// How far the model of ADMM has moved, times rho.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dual_residual: Option<f64>,
    /// After each checkpoint, where workers take the optimizer's steps themselves, the first one's model is compared with the
    /// job's own; one that differs is replaced.
    #[serde(default)]
    pub replicas: Replicas,
    /// Changes of the workers in this epoch, the first first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reshaped: Vec<Reshaped>,
    /// What a job that follows its data set was trained on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<TrainedOn>,
}

/// What one epoch of a job that follows its data set was trained on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrainedOn {
    /// Of the data set.
    #[schema(value_type = String)]
    pub version: Digest,
    /// Samples that the version before did not have.
    pub new: u64,
    /// Samples of earlier versions that were trained on again.
    pub replayed: u64,
    /// The loss on the new samples before any of them was trained on, in the first epoch of a version; and what it is when
    /// the version is done, in its last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_before: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_after: Option<f64>,
}

/// A change of a job's workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reshaped {
    /// Steps of the whole job that were done by then.
    pub step: u64,
    /// How many there are from then on, and how large.
    pub workers: u32,
    /// Bytes of memory of each function.
    pub memory: u64,
    /// Samples of one function's batch.
    pub batch: u32,
}

impl EpochRecord {
    /// Bytes of memory that it takes, about.
    pub(crate) fn bytes(&self) -> u64 {
        let metrics: usize = self.validation.keys().map(|name| name.len() + METRIC_BYTES).sum();
        (size_of::<Self>() + metrics + size_of_val(&self.reshaped[..]) + size_of_val(&self.costs.workers[..])) as u64
    }
}

/// The epochs of a job, in their order. Whoever looks at a job shares them.
pub type History = Arc<Vec<Arc<EpochRecord>>>;

/// What a metric of an epoch takes beside its name.
const METRIC_BYTES: usize = 64;

/// What a job takes beside what its record says: its place among all, its queue, those who follow it.
const JOB_OVERHEAD: u64 = 4 << 10;

/// Where a job goes on after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointRef {
    /// Of the blob.
    #[schema(value_type = String)]
    pub digest: Digest,
    pub size: u64,
    /// Epochs that are done.
    pub epoch: u64,
    /// Steps that are done, of the whole job.
    pub step: u64,
}

/// A job, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub tenant: TenantId,
    pub name: Name,
    /// With the seed that was made up, if none was given.
    pub spec: JobSpec,
    pub seed: u64,
    /// The function's version that is trained, whatever is deployed meanwhile.
    pub version: Digest,
    /// The data set's version.
    pub data: Option<Digest>,
    /// How far it is, if it follows its data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub following: Option<Following>,
    /// How many workers it has now, and how large each is; none in records of versions that could not change it.
    #[serde(default)]
    pub shape: Option<Shape>,
    /// Whether somebody has said how many workers it is to have.
    #[serde(default)]
    pub scaled: bool,
    /// Changes of that which were asked for and are not made yet, the first first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ShapeChange>,
    pub state: State,
    /// Why it is over, or what it waits for.
    #[serde(default)]
    pub reason: String,
    pub created_ms: u64,
    #[serde(default)]
    pub started_ms: Option<u64>,
    #[serde(default)]
    pub ended_ms: Option<u64>,
    /// Milliseconds from the accepted request until all workers had declared their model.
    #[serde(default)]
    pub ready_ms: Option<f64>,
    /// Stored in a table of its own, an epoch a record.
    #[serde(skip)]
    pub history: History,
    #[serde(default)]
    pub checkpoint: Option<CheckpointRef>,
    /// Models that it has left, the latest last.
    #[serde(default)]
    pub models: Vec<Name>,
    /// The latest files of its models, by name: only those are replaced or deleted, never somebody else's of that name.
    #[serde(default)]
    pub model_files: BTreeMap<Name, Vec<Digest>>,
    /// Of all epochs.
    #[serde(default)]
    pub spending: Spending,
    /// Workers that were lost, in all.
    #[serde(default)]
    pub losses: u64,
    /// How often it was started: once, and once after each stop or crash.
    #[serde(default)]
    pub starts: u64,
    /// How often nodes have died while it ran.
    #[serde(flatten)]
    pub deaths: Deaths,
    /// The host's memory for copies of the model; nothing until it was tried out.
    #[serde(default)]
    pub host: HostMemory,
    /// What is planned about it, as of the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared")]
    pub plan: Option<Arc<CourseRecord>>,
    /// What it has spent at most, where that must be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_at_most: Option<SpentAtMost>,
    /// The key that the client gave with its request, and the digest of that.
    #[serde(default)]
    pub idempotency: Option<(String, Digest)>,
    /// The epoch after which it comes to rest, if it is to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// What it is to a study, if it is a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialOf>,
}

/// What a job is to a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialOf {
    pub study: Name,
    /// Of the study, told from every other of that name.
    pub id: u64,
    pub number: u32,
    /// What the trial cost as a job that was deleted.
    #[serde(default)]
    pub spent_before: f64,
    /// Whether it was stopped because its study was.
    #[serde(default)]
    pub held: bool,
}

/// For `#[serde(with = …)]`: what is shared in memory is written as what it is.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(value: &Option<Arc<T>>, to: S) -> Result<S::Ok, S::Error> {
        value.as_deref().serialize(to)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<T>>, D::Error> {
        Ok(Option::<T>::deserialize(from)?.map(Arc::new))
    }
}

impl Record for Job {
    const TABLE: &'static str = "jobs";

    fn key(&self) -> String {
        format!("{}/{}", self.tenant.key(), self.name)
    }
}

/// Something that a job's followers are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum JobEvent {
    /// It is queued, runs, or is over.
    State {
        state: State,
        reason: String,
    },
    /// How far it is; told a few times a second at most.
    Progress(Progress),
    Epoch(Box<EpochRecord>),
    /// All workers are there, so many milliseconds after the job was asked for.
    Ready {
        workers: u32,
        ms: f64,
    },
    /// A worker was lost, and is started again.
    Worker {
        worker: u32,
        reason: String,
    },
    Checkpoint {
        epoch: u64,
        step: u64,
        bytes: u64,
    },
    /// Its workers are others from now on, in number or in size.
    Reshaped(Reshaped),
    /// Something was decided about its workers.
    Plan(Box<PlanStep>),
}

impl Job {
    /// Bytes of memory that it takes without its history, about: as many as its record has on disk, and some.
    pub(super) fn bytes(&self) -> u64 {
        let record = serde_json::to_vec(self).map_or(0, |record| record.len() as u64);
        record.saturating_add(JOB_OVERHEAD)
    }

    /// How many workers it has now, and how large each is.
    pub fn shape(&self) -> Shape {
        // A job that is kept has words that make sense, unless a version before took others.
        self.shape.or_else(|| Some(self.spec.check().ok()?.first_shape(None))).unwrap_or(Shape::LEAST)
    }

    /// Bytes of the host's memory that each of its workers takes for copies of the model.
    pub fn host_bytes(&self) -> u64 {
        self.host.per_worker(self.shape().workers)
    }

    /// Gives each worker twice the memory, if it may have as much as it needs and `most` bytes are enough for all.
    /// Whether they are.
    pub(super) fn double_memory(&mut self, most: u64) -> bool {
        let before = self.shape();
        let next = Shape { memory: before.memory.saturating_mul(2), ..before };
        let may = self.spec.memory == Memory::Auto && next.all_memory(self.host_bytes()) <= most;
        if may {
            self.shape = Some(next);
        }
        may
    }

    /// A job that may have from so many to so many workers, and has not trained yet, asks for the fewest again: it had more
    /// because there was room then.
    pub(super) fn forget_room(&mut self) {
        if self.checkpoint.is_none() && self.spec.workers.is_range() && !self.scaled {
            self.shape = Some(Shape { workers: self.spec.workers.least, ..self.shape() });
        }
    }

    /// Whether it has come to the epoch at which it was to rest.
    pub fn has_rested(&self) -> bool {
        let done = self.history.last().map_or(0, |epoch| epoch.epoch);
        self.state == State::Stopped && self.until.is_some_and(|until| done >= until)
    }

    /// Steps that are kept.
    fn kept(&self) -> u64 {
        self.checkpoint.map_or(0, |checkpoint| checkpoint.step)
    }

    /// Whether a node has died while it ran, and it has made no progress since.
    pub(super) fn is_suspect(&self) -> bool {
        self.deaths.is_suspect(self.kept())
    }

    /// Notes that a node has found it unfinished, and whether it is to blame if the node has died. Whether it may go on by
    /// itself: one that seems to take its node with it is held back, or the node would die again and again.
    pub(super) fn found_unfinished(&mut self, is_blamed: bool) -> bool {
        // Nothing of it runs.
        if self.state == State::Waiting {
            return false;
        }
        self.starts += 1;
        // One that a node has stopped in order is queued by then.
        if self.state == State::Running {
            self.deaths.add(self.kept(), is_blamed);
        }
        if self.deaths.are_too_many() {
            let deaths = self.deaths.blamed;
            self.forget_deaths();
            let reason =
                format!("held back: the node died {deaths} times in a row while this job ran; resume it to try again");
            self.end(State::Stopped, reason);
            return false;
        }
        (self.state, self.reason) = (State::Queued, String::new());
        self.forget_room();
        true
    }

    /// It was stopped in order, or somebody wants it to be tried again.
    pub(super) fn forget_deaths(&mut self) {
        self.deaths = Deaths::default();
    }

    /// Notes that it is over.
    pub(super) fn end(&mut self, state: State, reason: impl Into<String>) {
        (self.state, self.reason, self.ended_ms) = (state, reason.into(), Some(unix_ms()));
        self.cut_reason();
    }

    /// Keeps as much of its reason as a record may have: guests and stores have their words in it.
    pub(super) fn cut_reason(&mut self) {
        self.reason = text::cut(std::mem::take(&mut self.reason), text::MOST_ERROR);
    }
}

impl JobEvent {
    /// Bytes of memory that it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        let beside = match self {
            Self::State { reason, .. } | Self::Worker { reason, .. } => reason.len() as u64,
            Self::Epoch(epoch) => epoch.bytes(),
            Self::Plan(step) => (size_of::<PlanStep>() + step.decision.why.len()) as u64,
            Self::Progress(_) | Self::Ready { .. } | Self::Checkpoint { .. } | Self::Reshaped(_) => 0,
        };
        size_of::<(u64, Self)>() as u64 + beside
    }

    /// The event's name on the wire.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::State { .. } => "state",
            Self::Progress(_) => "progress",
            Self::Epoch(_) => "epoch",
            Self::Ready { .. } => "ready",
            Self::Worker { .. } => "worker",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Reshaped(_) => "reshaped",
            Self::Plan(_) => "plan",
        }
    }
}

/// What was decided about a job's workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanStep {
    /// Steps of the whole job that were done by then.
    pub step: u64,
    /// How many workers there are to be from then on, and how large.
    pub workers: u32,
    /// Bytes of memory of each function.
    pub memory: u64,
    /// What was used by then.
    pub spent: Spent,
    pub decision: Decision,
}

/// How far an epoch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Counted from 1.
    pub epoch: u64,
    /// Steps of this epoch that are done, and all of them.
    pub step: u64,
    pub steps: u64,
    /// Of the latest steps.
    pub loss: f64,
    pub samples_per_second: f64,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::job) fn job(state: State, step: u64) -> Job {
        let digest = Digest::of(b"weft");
        Job {
            tenant: TenantId(1),
            name: "job".parse().unwrap(),
            spec: JobSpec::new("function", None),
            seed: 1,
            version: digest,
            data: None,
            following: None,
            shape: None,
            state,
            reason: String::new(),
            created_ms: 0,
            started_ms: None,
            ended_ms: None,
            ready_ms: None,
            history: History::default(),
            checkpoint: Some(CheckpointRef { digest, size: 1, epoch: 0, step }),
            models: Vec::new(),
            model_files: BTreeMap::new(),
            spending: Spending::default(),
            losses: 0,
            starts: 0,
            deaths: Deaths::default(),
            host: HostMemory::default(),
            changes: Vec::new(),
            scaled: false,
            plan: None,
            spent_at_most: None,
            idempotency: None,
            until: None,
            trial: None,
        }
    }

    #[test]
    fn a_job_that_is_over_has_a_short_reason() {
        let mut job = job(State::Running, 7);
        job.end(State::Failed, format!("it failed{}for good", "ä".repeat(8 << 20)));
        assert!(job.reason.len() <= 4 << 10, "{} bytes", job.reason.len());
        assert!(job.reason.starts_with("it failed") && job.reason.ends_with("for good"), "{}", job.reason);
    }

    #[test]
    fn a_job_under_which_nodes_die_in_a_row_is_held_back_and_can_be_tried_again() {
        let mut job = job(State::Running, 7);
        assert!(job.found_unfinished(true));
        job.state = State::Running;
        assert!(job.found_unfinished(true));
        job.state = State::Running;
        assert!(!job.found_unfinished(true));
        assert_eq!(job.state, State::Stopped);
        assert!(job.reason.contains("died 3 times"), "{}", job.reason);
        job.state = State::Running;
        assert!(job.found_unfinished(true), "resumed by hand it has all its chances again");
    }

    #[test]
    fn a_job_that_makes_progress_between_deaths_goes_on() {
        let mut job = job(State::Running, 0);
        for step in 1..20 {
            assert!(job.found_unfinished(true));
            job.state = State::Running;
            job.checkpoint.as_mut().unwrap().step = step;
        }
    }

    #[test]
    fn a_job_that_only_waited_when_its_node_died_is_not_to_blame() {
        let mut job = job(State::Queued, 7);
        for _ in 0..20 {
            assert!(job.found_unfinished(false));
        }
        assert!(!job.is_suspect());
    }

    #[test]
    fn a_record_says_of_deaths_what_it_always_said() {
        let mut job = job(State::Running, 7);
        job.found_unfinished(true);
        let record = serde_json::to_value(&job).unwrap();
        let words = ["deaths", "died_at", "blamed"].map(|word| record[word].clone());
        assert_eq!(words, [1.into(), 7.into(), 1.into()] as [serde_json::Value; 3]);
        assert_eq!(serde_json::from_value::<Job>(record).unwrap(), job);
    }
}
