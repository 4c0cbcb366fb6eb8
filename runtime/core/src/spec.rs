//! What can be asked of a job: words first, then what they mean.
//!
//! [`JobSpec`] is what a client sends and what is kept; [`JobSpec::check`] refuses what no trainer and no data set could
//! make sense of. What depends on them is checked where they are known.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::sync::OnLoss;

mod checked;
mod follow;
mod optimizer;
mod plan_words;
mod shape;
mod sync_words;
mod words;

pub use checked::{CheckedSpec, TrainerKind};
pub use follow::Follow;
pub use optimizer::{OptimizerKind, OptimizerSpec};
pub use plan_words::{CheckedPlan, DEFAULT_MEMORY_STEP, PlanWords};
pub use shape::{Shape, ShapeChange};
pub use sync_words::{PLAIN, SyncWords};
pub use words::{EarlyStop, FanOut, K, Keep, Memory, NumberOrText, Plateau, Workers};

/// Workers of one job, whatever a quota says.
pub const MAX_WORKERS: u32 = 4_096;
/// Functions that one worker's step may be fanned out to.
pub const MAX_FAN_OUT: u32 = 64;
/// Epochs of one job.
pub const MAX_EPOCHS: u64 = 1_000_000;
/// Samples of one batch.
pub const MAX_BATCH: u32 = 1 << 20;
/// Memory of a worker that nobody asked about.
pub const DEFAULT_MEMORY: u64 = 512 << 20;
/// Memory that a worker begins with if it is to have as much as it turns out to need.
pub const FIRST_AUTO_MEMORY: u64 = 64 << 20;
/// The least that a worker can do with.
pub const LEAST_MEMORY: u64 = 8 << 20;

/// How large the whole numbers of a job may be.
pub const RANGES: [(&str, u64, u64); 6] = [
    ("epochs", 1, MAX_EPOCHS),
    ("workers", 1, MAX_WORKERS as u64),
    ("fan_out", 1, MAX_FAN_OUT as u64),
    ("batch", 1, MAX_BATCH as u64),
    ("steps", 1, u32::MAX as u64),
    ("memory", LEAST_MEMORY, 1 << 44),
];

/// A training job, as it is asked for. Only `function` must be given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// The trainer, by the name that it is deployed under.
    pub function: String,
    /// The data set; left out only for a trainer that makes its own data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// What the job and its model are called; a name is made up otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default = "default_epochs")]
    pub epochs: u64,
    /// After so many epochs the job comes to rest, stopped and with a checkpoint; resumed with a later `until`, it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Samples that one function sees in one step.
    #[serde(default = "default_batch")]
    pub batch: u32,
    /// Samples that all functions of all workers see in one step together, instead of `batch`: then the number of workers
    /// does not change what is learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u32>,
    /// Learning rate.
    #[serde(default = "default_rate")]
    pub lr: f32,
    /// Instead of the optimizer that the function declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<OptimizerSpec>,
    /// A number, or a range as in `2..8`: then it begins with as many as find room, and can be scaled within it.
    #[serde(default = "one_worker")]
    #[schema(value_type = NumberOrText)]
    pub workers: Workers,
    /// How workers work together.
    #[serde(default, skip_serializing_if = "SyncWords::is_empty")]
    pub sync: SyncWords,
    /// The same as in `sync`, which has more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The same as in `sync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NumberOrText>)]
    pub k: Option<K>,
    /// The same as in `sync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<String>,
    /// The same as in `sync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// `auto`, `cpu`, `gpu`, or one device as in `gpu:0`.
    #[serde(default = "default_device")]
    pub device: String,
    #[serde(default)]
    pub on_loss: OnLoss,
    /// Milliseconds after which a worker that has not finished a round is taken for lost; 0 for never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub straggler_ms: u64,
    /// Ends the job when validation accuracy reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_accuracy: Option<f64>,
    /// Ends the job when validation loss (or the loss, without samples to test with) falls to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_loss: Option<f64>,
    /// Epochs from one validation to the next; 0 for none but the last.
    #[serde(default = "one_u64")]
    pub validate_every: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<EarlyStop>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau: Option<Plateau>,
    /// Batch sizes from an epoch on, counted from 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub batch_schedule: BTreeMap<u64, u32>,
    /// All randomness derives from it; made up if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Bytes of memory of each worker, on its device and in its sandbox together. More of it is also more of a device's time.
    /// Or `auto`: as much as it turns out to need.
    #[serde(default = "default_memory")]
    #[schema(value_type = NumberOrText)]
    pub memory: Memory,
    /// Functions that compute one worker's step side by side, a batch each; or `epoch`: a call for every batch of the shard.
    #[serde(default = "one_function")]
    #[schema(value_type = NumberOrText)]
    pub fan_out: FanOut,
    /// Milliseconds after which a function's instance is replaced by a fresh one; 0 for never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lifetime_ms: u64,
    /// Milliseconds after which the job ends, with the model as it is by then; 0 for never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_time_ms: u64,
    /// Steps from one checkpoint to the next, besides the one after every epoch; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checkpoint_every: u64,
    #[serde(default)]
    #[schema(value_type = NumberOrText)]
    pub keep: Keep,
    /// The model to start from, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<String>,
    /// What the job does when its epochs are done: it waits for new versions of its data set, and trains on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<Follow>,
    /// Whether every worker gets its share of each class.
    #[serde(default)]
    pub stratified: bool,
    /// Steps of an epoch, for a trainer that makes its own data.
    #[serde(default = "default_steps")]
    pub steps: u64,
    /// How it is planned while it runs, and what it may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanWords>,
    /// The trainer's own parameters. Numbers and truth values stand for their text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "texts")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub params: BTreeMap<String, String>,
}

/// A parameter of a trainer, as JSON has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum ParamWord {
    Text(String),
    Truth(bool),
    Number(serde_json::Number),
}

fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let words: BTreeMap<String, ParamWord> = Deserialize::deserialize(deserializer)?;
    let text = |word| match word {
        ParamWord::Text(text) => text,
        ParamWord::Truth(truth) => truth.to_string(),
        ParamWord::Number(number) => number.to_string(),
    };
    Ok(words.into_iter().map(|(name, word)| (name, text(word))).collect())
}

fn default_epochs() -> u64 {
    10
}

fn default_batch() -> u32 {
    64
}

fn default_rate() -> f32 {
    0.01
}

fn default_device() -> String {
    "auto".to_owned()
}

fn default_memory() -> Memory {
    Memory::Bytes(DEFAULT_MEMORY)
}

fn default_steps() -> u64 {
    100
}

fn one_worker() -> Workers {
    Workers::exactly(1)
}

fn one_function() -> FanOut {
    FanOut::Functions(1)
}

fn one_u64() -> u64 {
    1
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl JobSpec {
    /// A job with every default.
    pub fn new(function: impl Into<String>, dataset: Option<String>) -> Self {
        Self {
            function: function.into(),
            dataset,
            name: None,
            epochs: default_epochs(),
            until: None,
            batch: default_batch(),
            global_batch: None,
            lr: default_rate(),
            optimizer: None,
            workers: one_worker(),
            sync: SyncWords::default(),
            rule: None,
            k: None,
            pace: None,
            codec: None,
            device: default_device(),
            on_loss: OnLoss::default(),
            straggler_ms: 0,
            goal_accuracy: None,
            goal_loss: None,
            validate_every: 1,
            early_stop: None,
            plateau: None,
            batch_schedule: BTreeMap::new(),
            seed: None,
            memory: default_memory(),
            fan_out: one_function(),
            lifetime_ms: 0,
            max_time_ms: 0,
            checkpoint_every: 0,
            keep: Keep::default(),
            init_from: None,
            follow: None,
            stratified: false,
            steps: default_steps(),
            plan: None,
            params: BTreeMap::new(),
        }
    }
}

/// A job that cannot be: what is wrong with which word.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}`: {problem}")]
pub struct BadSpec {
    pub word: &'static str,
    pub problem: String,
}

impl BadSpec {
    pub fn new(word: &'static str, problem: impl fmt::Display) -> Self {
        Self { word, problem: problem.to_string() }
    }
}

impl JobSpec {
    /// Samples of a batch in an epoch, counted from 0, by the schedule or else as given for all epochs.
    fn batch_of(&self, epoch: u64) -> u32 {
        let scheduled = self.batch_schedule.range(..=epoch + 1).next_back().map(|(_, &batch)| batch);
        scheduled.unwrap_or(self.batch)
    }
}
