//! What a job's words mean: read once, when it is submitted or starts, and never again.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sync_words::ReadSync;
use super::{
    BadSpec, CheckedPlan, FIRST_AUTO_MEMORY, FanOut, JobSpec, K, Keep, MAX_BATCH, MAX_EPOCHS, MAX_FAN_OUT, Memory,
    PLAIN, RANGES, Shape,
};
use crate::sync::combination::{self, Combination};
use crate::sync::topology;
use crate::sync::{Pace, Quorum, Rule, RuleKind, Sync};

/// Functions of one worker that compute the batches of a whole epoch, as far as there are batches for them.
const EPOCH_FUNCTIONS: u32 = 4;

/// A job whose words make sense, whatever is trained on whatever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckedSpec {
    pub words: JobSpec,
    pub straggler: Option<Duration>,
    pub lifetime: Option<Duration>,
    pub max_time: Option<Duration>,
    pub checkpoint_every: Option<NonZeroU64>,
    /// What is planned, if anything is.
    #[serde(default)]
    pub plan: Option<CheckedPlan>,
    sync: ReadSync,
}

/// What a trainer is like, as far as it decides how it can be trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerKind {
    /// Whether it counts statistics, from which its `update` makes the model.
    pub counts: bool,
    /// Whether it says that its loss is convex.
    pub convex: bool,
    /// Whether it has an `update`.
    pub updates: bool,
    /// Whether it makes its own data.
    pub makes_data: bool,
}

impl JobSpec {
    /// Refuses what cannot be, whatever is trained on whatever.
    pub fn check(&self) -> Result<CheckedSpec, BadSpec> {
        self.check_numbers()?;
        self.check_learning()?;
        self.check_follow()?;
        if let Some(optimizer) = &self.optimizer {
            optimizer.check()?;
        }
        let span = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        Ok(CheckedSpec {
            straggler: span(self.straggler_ms),
            lifetime: span(self.lifetime_ms),
            max_time: span(self.max_time_ms),
            checkpoint_every: NonZeroU64::new(self.checkpoint_every),
            plan: self.plan.as_ref().map(|plan| plan.check(self)).transpose()?,
            sync: ReadSync::of(self)?,
            words: self.clone(),
        })
    }

    fn check_numbers(&self) -> Result<(), BadSpec> {
        for (word, low, high) in RANGES {
            let values = match word {
                "epochs" => [Some(self.epochs), None],
                "workers" => [Some(self.workers.least.into()), Some(self.workers.most.into())],
                "batch" => [Some(self.batch.into()), self.global_batch.map(u64::from)],
                "steps" => [Some(self.steps), None],
                "memory" => match self.memory {
                    Memory::Bytes(bytes) => [Some(bytes), None],
                    Memory::Auto => [None, None],
                },
                _ => match self.fan_out {
                    FanOut::Functions(functions) => [Some(functions.into()), None],
                    FanOut::Epoch => [None, None],
                },
            };
            for value in values.into_iter().flatten() {
                within(word, value, low, high)?;
            }
        }
        for (&epoch, &batch) in &self.batch_schedule {
            within("batch_schedule", epoch, 1, MAX_EPOCHS)?;
            within("batch_schedule", batch.into(), 1, MAX_BATCH.into())?;
        }
        if self.global_batch.is_some() && !self.batch_schedule.is_empty() {
            return Err(BadSpec::new("global_batch", "a schedule says how large batches are: use one of them"));
        }
        if let Some(global) = self.global_batch.filter(|global| *global < self.workers.most) {
            let problem = format!("{global} samples are fewer than one for each of {} workers", self.workers.most);
            return Err(BadSpec::new("global_batch", problem));
        }
        if let Keep::Latest(count) = self.keep {
            within("keep", count.into(), 1, 1_000)?;
        }
        Ok(())
    }

    fn check_learning(&self) -> Result<(), BadSpec> {
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
        if let Some(until) = self.until {
            within("until", until, 1, MAX_EPOCHS)?;
        }
        if self.validate_every == 0 && (self.goal_accuracy.is_some() || self.early_stop.is_some()) {
            let problem = "without validation, no goal accuracy and no early stop can be noticed";
            return Err(BadSpec::new("validate_every", problem));
        }
        Ok(())
    }
}

fn within(word: &'static str, value: u64, low: u64, high: u64) -> Result<(), BadSpec> {
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(BadSpec::new(word, format!("{value} is not between {low} and {high}"))),
    }
}

impl CheckedSpec {
    /// The codec's name, which is not checked here.
    pub fn codec(&self) -> &str {
        &self.sync.codec
    }

    /// The shape that a job starts with at least, for so many samples to train on.
    pub fn first_shape(&self, samples: Option<u64>) -> Shape {
        let words = &self.words;
        let workers = words.workers.least;
        let fan_out = match words.fan_out {
            FanOut::Functions(functions) => functions,
            FanOut::Epoch => {
                let batches = samples.unwrap_or(0) / u64::from(workers) / u64::from(words.batch.max(1));
                u32::try_from(batches).unwrap_or(u32::MAX).clamp(1, EPOCH_FUNCTIONS.min(MAX_FAN_OUT))
            }
        };
        let memory = match words.memory {
            Memory::Bytes(bytes) => bytes,
            Memory::Auto => FIRST_AUTO_MEMORY,
        };
        Shape { workers, fan_out, memory, batch: None }
    }

    /// Samples of one function's batch in an epoch, counted from 0.
    pub fn batch_of(&self, epoch: u64, shape: &Shape) -> NonZeroU32 {
        let changed = shape.batch.map(NonZeroU32::get);
        let asked = match self.words.global_batch {
            Some(global) => changed.unwrap_or(global).div_ceil(shape.lanes().max(1)),
            None => changed.unwrap_or_else(|| self.words.batch_of(epoch)),
        };
        NonZeroU32::new(asked).unwrap_or(NonZeroU32::MIN)
    }

    /// The largest batch of any epoch.
    pub fn largest_batch(&self, shape: &Shape) -> u32 {
        let later = self.words.batch_schedule.values().copied().max().unwrap_or(0);
        self.batch_of(0, shape).get().max(later)
    }

    /// Whether a step goes through all samples of the epoch.
    pub fn fans_out_epoch(&self) -> bool {
        self.words.fan_out == FanOut::Epoch
    }

    /// How the workers of this trainer work together.
    pub fn sync(&self, trainer: TrainerKind) -> Result<Sync, BadSpec> {
        let ReadSync { topology, pace, codec, channel, tolerance, unpenalised, .. } = self.sync.clone();
        let sync = Sync { rule: self.rule(trainer)?, topology, pace, codec, channel, tolerance, unpenalised };
        let workers = self.words.workers;
        self.check_workers(&sync, workers.least)?;
        self.check_workers(&sync, workers.most)?;
        self.check_plan(&sync)?;
        Ok(sync)
    }

    /// Refuses what so many workers cannot do.
    pub fn check_workers(&self, sync: &Sync, workers: u32) -> Result<(), BadSpec> {
        if let Pace::Quorum(Quorum { peers, .. }) = sync.pace
            && peers.get() > workers
        {
            let problem = format!("a quorum of {peers} never comes together with {workers} workers");
            return Err(BadSpec::new("pace", problem));
        }
        let combination = Combination {
            rule: sync.rule.kind(),
            topology: (&sync.topology).into(),
            pace: sync.pace.into(),
            is_plain: sync.codec == PLAIN,
            channel: sync.channel,
            on_loss: self.words.on_loss,
            fans_out: self.words.fan_out != FanOut::Functions(1),
            workers,
        };
        combination::check(&combination).map_err(|refused| BadSpec::new(refused.word, refused.reason))?;
        // Whether the layers of a tree fit the number of workers, and so on.
        topology::plan(&sync.topology, workers).map_err(|error| BadSpec::new("topology", error))?;
        Ok(())
    }

    fn rule(&self, trainer: TrainerKind) -> Result<Rule, BadSpec> {
        let wrong = |problem: &str| Err(BadSpec::new("rule", problem));
        match (self.sync.rule, self.sync.k.and_then(K::every), trainer.counts) {
            (Some(RuleKind::GradientAverage | RuleKind::KAverage | RuleKind::Admm), _, true) => {
                wrong("the trainer counts statistics, which are added up: use statistic-sum")
            }
            (Some(RuleKind::StatisticSum), _, false) => wrong("the trainer counts no statistics to add up"),
            (Some(RuleKind::Admm), _, false) if !trainer.convex => {
                wrong("admm finds the minimum of a convex loss only, and the trainer does not declare its loss convex")
            }
            (Some(RuleKind::Admm), ..) => Ok(Rule::Admm(self.sync.admm)),
            (None, Some(_), true) => {
                Err(BadSpec::new("k", "the trainer counts statistics, which are added up once an epoch"))
            }
            (Some(RuleKind::StatisticSum) | None, None, true) => Ok(Rule::StatisticSum),
            (Some(RuleKind::KAverage) | None, Some(every), false) => Ok(Rule::KAverage(every)),
            (Some(RuleKind::GradientAverage) | None, None, false) => Ok(Rule::GradientAverage),
            (Some(_), _, _) => Err(BadSpec::new("k", "it does not fit the rule")),
        }
    }
}
