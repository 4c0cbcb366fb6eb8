//! What can be asked of a job: words first, then what they mean.
//!
//! [`JobSpec`] is what a client sends and what is kept; [`JobSpec::check`] refuses what no trainer and no data set could
//! make sense of. What depends on them is checked where they are known.

use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use weft_gpu::Codec;
use weft_gpu::pool::Wish;

use crate::sync::{Every, Exchange, OnLoss, Pace, Rule};

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
    /// Samples that one worker sees in one step.
    #[serde(default = "default_batch")]
    pub batch: u32,
    /// Learning rate.
    #[serde(default = "default_rate")]
    pub lr: f32,
    #[serde(default = "one")]
    pub workers: u32,
    /// `gradient-average`, `k-average` or `statistic-sum`; chosen by `k` and the trainer if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleName>,
    /// For k-average: steps between two averages, or `epoch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<KWord>)]
    pub k: Option<K>,
    #[serde(default)]
    pub pace: Pace,
    /// How gradients are encoded on their way: `plain`, `f16`, `qsgd:4`, `top-k:0.01` or `significance:0.01`.
    #[serde(default = "default_codec", skip_serializing_if = "is_plain")]
    pub codec: String,
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
    #[serde(default = "default_memory")]
    pub memory: u64,
    /// Functions that compute one worker's step side by side, a batch each.
    #[serde(default = "one")]
    pub fan_out: u32,
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
    #[schema(value_type = KeepWord)]
    pub keep: Keep,
    /// The model to start from, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<String>,
    /// Whether every worker gets its share of each class.
    #[serde(default)]
    pub stratified: bool,
    /// Steps of an epoch, for a trainer that makes its own data.
    #[serde(default = "default_steps")]
    pub steps: u64,
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

fn default_codec() -> String {
    Codec::Plain.to_string()
}

fn is_plain(codec: &str) -> bool {
    codec == default_codec()
}

fn default_device() -> String {
    "auto".to_owned()
}

fn default_memory() -> u64 {
    DEFAULT_MEMORY
}

fn default_steps() -> u64 {
    100
}

fn one() -> u32 {
    1
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
            batch: default_batch(),
            lr: default_rate(),
            workers: 1,
            rule: None,
            k: None,
            pace: Pace::default(),
            codec: default_codec(),
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
            memory: DEFAULT_MEMORY,
            fan_out: 1,
            lifetime_ms: 0,
            max_time_ms: 0,
            checkpoint_every: 0,
            keep: Keep::default(),
            init_from: None,
            stratified: false,
            steps: default_steps(),
            params: BTreeMap::new(),
        }
    }
}

/// A rule by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RuleName {
    GradientAverage,
    KAverage,
    StatisticSum,
}

/// Steps between two averages, or `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "KWord", into = "KWord")]
pub enum K {
    Steps(u64),
    Epoch,
}

/// As it is written.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum KWord {
    Number(u64),
    Text(String),
}

impl TryFrom<KWord> for K {
    type Error = String;

    fn try_from(word: KWord) -> Result<Self, String> {
        match word {
            KWord::Number(steps) => Ok(Self::Steps(steps)),
            KWord::Text(text) => text.parse(),
        }
    }
}

impl From<K> for KWord {
    fn from(k: K) -> Self {
        match k {
            K::Steps(steps) => Self::Number(steps),
            K::Epoch => Self::Text("epoch".to_owned()),
        }
    }
}

impl FromStr for K {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "epoch" => Ok(Self::Epoch),
            other => {
                let steps = other.parse().map_err(|_| format!("`{other}` is neither a number of steps nor `epoch`"))?;
                Ok(Self::Steps(steps))
            }
        }
    }
}

/// Ends a job that no longer gets better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStop {
    /// Validations without getting better that are put up with.
    pub patience: u32,
    /// By how much the loss must fall to count.
    #[serde(default)]
    pub delta: f64,
}

/// Lowers the learning rate of a job that no longer gets better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Plateau {
    /// What the rate is multiplied with.
    pub factor: f32,
    /// Validations without getting better that are put up with.
    pub patience: u32,
    /// Never below this.
    #[serde(default)]
    pub min: f32,
}

/// Which models stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "KeepWord", into = "KeepWord")]
pub enum Keep {
    /// The one after the last epoch.
    #[default]
    Last,
    /// The one that validated best.
    Best,
    /// The last, and those of this many epochs before it.
    Latest(u32),
}

/// As it is written.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum KeepWord {
    Number(u32),
    Text(String),
}

impl TryFrom<KeepWord> for Keep {
    type Error = String;

    fn try_from(word: KeepWord) -> Result<Self, String> {
        match word {
            KeepWord::Number(count) => Ok(Self::Latest(count)),
            KeepWord::Text(text) => text.parse(),
        }
    }
}

impl From<Keep> for KeepWord {
    fn from(keep: Keep) -> Self {
        match keep {
            Keep::Latest(count) => Self::Number(count),
            Keep::Last => Self::Text("last".to_owned()),
            Keep::Best => Self::Text("best".to_owned()),
        }
    }
}

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "last" => Ok(Self::Last),
            "best" => Ok(Self::Best),
            other => other
                .parse()
                .map(Self::Latest)
                .map_err(|_| format!("`{other}` is not `best`, `last` or a number of epochs")),
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

/// What the words mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaning {
    pub batch: NonZeroU32,
    pub device: Wish,
    pub codec: Codec,
    pub straggler: Option<Duration>,
    pub lifetime: Option<Duration>,
    pub max_time: Option<Duration>,
    pub checkpoint_every: Option<NonZeroU64>,
}

impl JobSpec {
    /// Refuses what cannot be, whatever is trained on whatever.
    pub fn check(&self) -> Result<Meaning, BadSpec> {
        let within = |word: &'static str, value: u64, low: u64, high: u64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(BadSpec::new(word, format!("{value} is not between {low} and {high}"))),
        };
        for (word, low, high) in RANGES {
            let value = match word {
                "epochs" => self.epochs,
                "workers" => self.workers.into(),
                "fan_out" => self.fan_out.into(),
                "batch" => self.batch.into(),
                "steps" => self.steps,
                _ => self.memory,
            };
            within(word, value, low, high)?;
        }
        for (&epoch, &batch) in &self.batch_schedule {
            within("batch_schedule", epoch, 1, MAX_EPOCHS)?;
            within("batch_schedule", batch.into(), 1, MAX_BATCH.into())?;
        }
        let positive = |word: &'static str, value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(BadSpec::new(word, format!("{value} must be a number above 0"))),
        };
        positive("lr", self.lr.into())?;
        if let Some(goal) = self.goal_accuracy {
            positive("goal_accuracy", goal)?;
            if goal > 1.0 {
                return Err(BadSpec::new("goal_accuracy", format!("{goal} is more than 1, which is all of them")));
            }
        }
        if let Some(goal) = self.goal_loss.filter(|goal| !goal.is_finite()) {
            return Err(BadSpec::new("goal_loss", format!("{goal} must be a finite number")));
        }
        if let Some(stop) = &self.early_stop {
            within("early_stop", stop.patience.into(), 1, u32::MAX.into())?;
            if !(stop.delta >= 0.0 && stop.delta.is_finite()) {
                return Err(BadSpec::new("early_stop", format!("a delta of {} must be 0 or more", stop.delta)));
            }
        }
        if let Some(plateau) = &self.plateau {
            if !(plateau.factor > 0.0 && plateau.factor < 1.0) {
                let problem = format!("a factor of {} must be between 0 and 1", plateau.factor);
                return Err(BadSpec::new("plateau", problem));
            }
            if !(plateau.min >= 0.0 && plateau.min <= self.lr) {
                let problem = format!("a least rate of {} must be between 0 and the rate of {}", plateau.min, self.lr);
                return Err(BadSpec::new("plateau", problem));
            }
        }
        if self.validate_every == 0 && (self.goal_accuracy.is_some() || self.early_stop.is_some()) {
            let problem = "without validation, no goal accuracy and no early stop can be noticed";
            return Err(BadSpec::new("validate_every", problem));
        }
        if let Keep::Latest(count) = self.keep {
            within("keep", count.into(), 1, 1_000)?;
        }
        if let Some(K::Steps(0)) = self.k {
            return Err(BadSpec::new("k", "0 steps: use at least 1, or `epoch`"));
        }
        match (self.rule, self.k) {
            (Some(RuleName::KAverage), None) => {
                return Err(BadSpec::new("k", "k-average needs it: a number of steps, or `epoch`"));
            }
            (Some(RuleName::GradientAverage | RuleName::StatisticSum), Some(_)) => {
                return Err(BadSpec::new("k", "only k-average takes it"));
            }
            _ => {}
        }
        let device = match self.device.as_str() {
            "auto" => Wish::Auto,
            "cpu" => Wish::Cpu,
            "gpu" => Wish::Gpu,
            name => {
                let wrong = || BadSpec::new("device", format!("`{name}` is not `auto`, `cpu`, `gpu` or as in `gpu:0`"));
                Wish::Exactly(name.parse().map_err(|_| wrong())?)
            }
        };
        let span = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        Ok(Meaning {
            batch: NonZeroU32::new(self.batch).ok_or_else(|| BadSpec::new("batch", "it must be above 0"))?,
            device,
            codec: self.codec.parse().map_err(|error| BadSpec::new("codec", error))?,
            straggler: span(self.straggler_ms),
            lifetime: span(self.lifetime_ms),
            max_time: span(self.max_time_ms),
            checkpoint_every: NonZeroU64::new(self.checkpoint_every),
        })
    }

    /// The rule, for a trainer that counts statistics or does not.
    pub fn rule(&self, counts: bool) -> Result<Rule, BadSpec> {
        let every = match self.k {
            Some(K::Epoch) => Some(Every::Epoch),
            Some(K::Steps(steps)) => NonZeroU64::new(steps).map(Every::Steps),
            None => None,
        };
        let wrong = |problem: &str| Err(BadSpec::new("rule", problem));
        let rule = match (self.rule, every, counts) {
            (Some(RuleName::GradientAverage | RuleName::KAverage), _, true) => {
                wrong("the trainer counts statistics, which are added up: use statistic-sum")
            }
            (Some(RuleName::StatisticSum), _, false) => wrong("the trainer counts no statistics to add up"),
            (None, Some(_), true) => {
                Err(BadSpec::new("k", "the trainer counts statistics, which are added up once an epoch"))
            }
            (Some(RuleName::StatisticSum) | None, None, true) => Ok(Rule::StatisticSum),
            (Some(RuleName::KAverage) | None, Some(every), false) => Ok(Rule::KAverage(every)),
            (Some(RuleName::GradientAverage) | None, None, false) => Ok(Rule::GradientAverage),
            (Some(_), _, _) => Err(BadSpec::new("k", "it does not fit the rule")),
        }?;
        if !is_plain(&self.codec) && rule.exchange(self.workers) != Exchange::Gradients {
            let problem = "only gradients are encoded: use gradient-average with two workers or more";
            return Err(BadSpec::new("codec", problem));
        }
        Ok(rule)
    }

    /// Samples of a batch in an epoch, counted from 0.
    pub fn batch_of(&self, epoch: u64) -> NonZeroU32 {
        let scheduled = self.batch_schedule.range(..=epoch + 1).next_back().map(|(_, &batch)| batch);
        NonZeroU32::new(scheduled.unwrap_or(self.batch)).unwrap_or(NonZeroU32::MIN)
    }

    /// Functions that compute at once, of all workers.
    pub fn lanes(&self) -> u32 {
        self.workers.saturating_mul(self.fan_out)
    }

    /// Memory of all functions, with so many bytes of the host's for the copies that each worker needs of the model.
    pub fn all_memory(&self, host_bytes: u64) -> u64 {
        let functions = u64::from(self.lanes()).saturating_mul(self.memory);
        functions.saturating_add(u64::from(self.workers).saturating_mul(host_bytes))
    }

    /// Its share of a device's time, compared with that of others.
    pub fn weight(&self) -> NonZeroU32 {
        let weight = u32::try_from(self.memory / LEAST_MEMORY).unwrap_or(u32::MAX);
        NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN)
    }
}
