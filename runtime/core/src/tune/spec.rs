//! What can be asked of a study: words first, then what they mean.
//!
//! [`TuneSpec`] is what a client sends and what is kept; [`TuneSpec::check`] refuses what no function could make sense of.
//! Which value goes where: a parameter that is called as a word of the job is that word (`lr`, `batch`, `workers`,
//! `optimizer.momentum`), any other is the function's own, and so is one that begins with `params.`.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use super::prune::Pruner;
use super::sampler::SamplerKind;
use super::space::{Domain, Parameter, Point, Space, Value};
use super::study::{Direction, Settings, SettingsError, Workers};
use crate::spec::{BadSpec, JobSpec, Keep};

/// Trials of one study.
pub const MAX_TRIALS: u32 = 10_000;
/// Trials of one study that run at once.
pub const MAX_PARALLEL: u32 = 256;
/// Parameters of one search.
pub const MAX_PARAMETERS: usize = 64;
/// Epochs of a trial.
pub const MAX_EPOCHS: u32 = 1_000_000;

/// How large the whole numbers of a study may be.
pub const RANGES: [(&str, u64, u64); 5] = [
    ("trials", 1, MAX_TRIALS as u64),
    ("parallel", 0, MAX_PARALLEL as u64),
    ("epochs", 1, MAX_EPOCHS as u64),
    ("least_epochs", 1, MAX_EPOCHS as u64),
    ("max_workers", 1, u32::MAX as u64),
];

/// Words of a job that can be searched.
const JOB_WORDS: [&str; 17] = [
    "lr",
    "batch",
    "global_batch",
    "epochs",
    "steps",
    "workers",
    "fan_out",
    "memory",
    "rule",
    "k",
    "pace",
    "codec",
    "stratified",
    "device",
    "seed",
    "validate_every",
    "init_from",
];

/// Words of a job that have words of their own.
const NESTED_WORDS: [&str; 4] = ["optimizer", "sync", "plateau", "early_stop"];

/// Which models of its trials a study keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeepModels {
    /// That of the best trial.
    #[default]
    Best,
    All,
    None,
}

/// A study, as it is asked for: many trials of a job, of which the best is looked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TuneSpec {
    /// What the study is called; its trials are jobs called `NAME-0000`, `NAME-0001` and so on. Made up otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The job that every trial is, but for what is searched. Left out only for a study that is driven by a loop outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobSpec>,
    /// Parameters and what each can be: `lr=log:1e-4..1e-1`, `batch=32|64`, `hidden=int:16..512:16`, with conditions as in
    /// `units3=int:16..64 if layers>=3`. Without any, those that the function declares with bounds or choices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// `auto`, `tpe`, `gp`, `cma-es`, `evolution`, `random`, `grid` or `grid:5`.
    #[serde(default = "default_sampler")]
    pub sampler: String,
    /// `none`, `median`, `asha:3` or `hyperband:3`.
    #[serde(default = "default_prune")]
    pub prune: String,
    /// What trials are compared by: a metric of the function's validation, or `train_loss`.
    #[serde(default = "default_goal")]
    pub goal: String,
    /// Whether a large value is good; for `accuracy` and losses it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// A value of the goal with which the study ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    #[serde(default = "default_trials")]
    pub trials: u32,
    /// Trials that run at once; 0 for a study that is driven by a loop outside, with `ask` and `tell`.
    #[serde(default = "default_parallel")]
    pub parallel: u32,
    /// Epochs of a trial that nothing stops; those of `job` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// Epochs after which a trial can be paused or stopped at the earliest.
    #[serde(default = "one")]
    pub least_epochs: u32,
    /// Workers of all running trials together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_workers: Option<u32>,
    /// What all trials may cost together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Milliseconds from when it was asked for after which the study ends; 0 for never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deadline_ms: u64,
    /// What is tried follows from it; made up if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether each trial has a seed of its own. Otherwise all have the job's seed, and so the same order of samples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vary_seed: bool,
    /// Which models of its trials stay: `best`, `all` or `none`.
    #[serde(default)]
    pub keep: KeepModels,
    /// Points, or parts of points, that are tried first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub enqueue: Vec<Point>,
}

fn default_sampler() -> String {
    "auto".to_owned()
}

fn default_prune() -> String {
    "none".to_owned()
}

fn default_goal() -> String {
    "accuracy".to_owned()
}

fn default_trials() -> u32 {
    20
}

fn default_parallel() -> u32 {
    2
}

fn one() -> u32 {
    1
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl TuneSpec {
    /// What its words mean. `declared` is what the function declares, for a search that says nothing; `seed` is for one that
    /// was given none.
    pub fn check(&self, declared: &[Parameter], seed: u64) -> Result<Settings, BadSpec> {
        for (word, low, high) in RANGES {
            let value = match word {
                "trials" => Some(self.trials),
                "parallel" => Some(self.parallel),
                "epochs" => self.epochs,
                "least_epochs" => Some(self.least_epochs),
                _ => self.max_workers,
            };
            if let Some(value) = value.filter(|value| !(low..=high).contains(&u64::from(*value))) {
                return Err(BadSpec::new(word, format!("{value} is not between {low} and {high}")));
            }
        }
        let space = self.space(declared)?;
        let epochs = self.epochs_of(&space)?;
        let settings = Settings {
            sampler: self.sampler.parse::<SamplerKind>().map_err(|error| BadSpec::new("sampler", error))?,
            pruner: self.prune.parse::<Pruner>().map_err(|error| BadSpec::new("prune", error))?,
            goal: self.goal.clone(),
            direction: self.direction()?,
            target: self.target,
            trials: self.trials,
            parallel: self.parallel,
            epochs,
            least_epochs: self.least_epochs.min(epochs),
            workers: self.workers(&space),
            max_workers: self.max_workers,
            budget: self.budget,
            deadline: (self.deadline_ms > 0).then(|| self.deadline_ms as f64 / 1e3),
            seed: self.seed.unwrap_or(seed),
            enqueued: self.enqueue.clone(),
            space,
        };
        if let Some(budget) = self.budget.filter(|budget| budget.is_nan() || *budget < 0.0) {
            return Err(BadSpec::new("budget", format!("{budget} must be 0 or more")));
        }
        settings.check().map_err(|error| BadSpec::new(word_of(&error), error))?;
        if let Some(job) = &self.job {
            self.check_job(job, &settings)?;
        } else if self.parallel > 0 {
            return Err(BadSpec::new(
                "job",
                "a study that starts trials by itself needs the job that each is; with `parallel` 0 a loop outside asks",
            ));
        }
        Ok(settings)
    }

    fn space(&self, declared: &[Parameter]) -> Result<Space, BadSpec> {
        let bad = |error| BadSpec::new("search", error);
        if self.search.len().max(declared.len()) > MAX_PARAMETERS {
            return Err(BadSpec::new("search", format!("more than {MAX_PARAMETERS} parameters cannot be searched")));
        }
        match self.search.is_empty() {
            true => Space::new(declared.to_vec()).map_err(bad),
            false => Space::parse(&self.search).map_err(bad),
        }
    }

    /// The most epochs that a trial can have.
    fn epochs_of(&self, space: &Space) -> Result<u32, BadSpec> {
        let searched = space.parameters().iter().find(|parameter| parameter.name == "epochs");
        let most = match searched.map(|parameter| &parameter.domain) {
            None => self.job.as_ref().map_or(1, |job| job.epochs),
            Some(Domain::Integer { high, .. }) => u64::try_from(*high).unwrap_or(0),
            Some(Domain::Choice(values)) => {
                let counts = values.iter().map(|value| match value {
                    Value::Integer(count) => u64::try_from(*count).unwrap_or(0),
                    _ => 0,
                });
                counts.max().unwrap_or(0)
            }
            Some(Domain::Constant(Value::Integer(count))) => u64::try_from(*count).unwrap_or(0),
            Some(_) => return Err(BadSpec::new("search", "`epochs` are whole numbers, as in `epochs=int:1..20`")),
        };
        let epochs = self.epochs.map_or(most, u64::from);
        let fits = u32::try_from(epochs).ok().filter(|epochs| (1..=MAX_EPOCHS).contains(epochs));
        fits.ok_or_else(|| BadSpec::new("epochs", format!("{epochs} is not between 1 and {MAX_EPOCHS}")))
    }

    fn direction(&self) -> Result<Direction, BadSpec> {
        if self.goal.is_empty() || self.goal.len() > 128 {
            return Err(BadSpec::new("goal", "it is the name of a metric, such as `accuracy` or `loss`"));
        }
        match (self.direction, self.goal.as_str()) {
            (Some(direction), _) => Ok(direction),
            (None, "accuracy") => Ok(Direction::Maximise),
            (None, "loss" | "train_loss") => Ok(Direction::Minimise),
            (None, goal) => {
                Err(BadSpec::new("direction", format!("say whether `{goal}` is to `maximise` or to `minimise`")))
            }
        }
    }

    fn workers(&self, space: &Space) -> Workers {
        match space.parameters().iter().any(|parameter| parameter.name == "workers") {
            true => Workers::Parameter("workers".to_owned()),
            false => Workers::Fixed(self.job.as_ref().map_or(1, |job| job.workers.most)),
        }
    }

    fn check_job(&self, job: &JobSpec, settings: &Settings) -> Result<(), BadSpec> {
        if job.name.is_some() {
            return Err(BadSpec::new("job", "trials are called after the study: leave out its `name`"));
        }
        if job.follow.is_some() {
            return Err(BadSpec::new("job", "a trial that waits for data is never done: leave out its `follow`"));
        }
        if job.until.is_some() {
            return Err(BadSpec::new("job", "when trials rest is for the study to say: leave out its `until`"));
        }
        if matches!(job.keep, Keep::Latest(_)) {
            return Err(BadSpec::new("job", "a trial leaves one model: its `keep` is `last` or `best`"));
        }
        // What does not fit anywhere is found out here, not by the first trial.
        self.trial(&settings.space.decode(&[]), 0, None).and_then(|spec| spec.check().map(drop))
    }

    /// The job of a trial: that of the study, with the values of a point.
    pub fn trial(&self, point: &Point, number: u32, name: Option<String>) -> Result<JobSpec, BadSpec> {
        let Some(job) = &self.job else { return Err(BadSpec::new("job", "there is none, so trials are no jobs")) };
        let mut json = serde_json::to_value(job).map_err(|error| BadSpec::new("job", error))?;
        for (name, value) in point {
            let (at, value) = placed(name, value)?;
            put(&mut json, &at, value)?;
        }
        let mut spec: JobSpec = serde_json::from_value(json)
            .map_err(|error| BadSpec::new("search", format!("what is searched makes no job: {error}")))?;
        spec.epochs = match (point.contains_key("epochs"), self.epochs) {
            (false, Some(epochs)) => epochs.into(),
            _ => spec.epochs,
        };
        spec.name = name;
        if self.vary_seed {
            spec.seed = spec.seed.map(|seed| seed.wrapping_add(number.into()));
        }
        Ok(spec)
    }
}

/// Where a value goes in the job, as names from the outside in.
fn placed(name: &str, value: &Value) -> Result<(Vec<String>, Json), BadSpec> {
    let json = match value {
        Value::Integer(integer) => Json::from(*integer),
        Value::Number(number) => Json::from(*number),
        Value::Text(text) => match text.as_str() {
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            _ => Json::from(text.as_str()),
        },
    };
    if let Some(own) = name.strip_prefix("params.") {
        return Ok((vec!["params".to_owned(), own.to_owned()], value.to_string().into()));
    }
    match name.split_once('.') {
        Some((outer, inner)) if NESTED_WORDS.contains(&outer) => Ok((vec![outer.to_owned(), inner.to_owned()], json)),
        Some((outer, _)) => {
            let words = NESTED_WORDS.join("`, `");
            let problem = format!(
                "`{name}`: `{outer}` has no words of its own; those of `{words}` can be searched, and the function's own \
                 as in `params.{name}`"
            );
            Err(BadSpec::new("search", problem))
        }
        None if name == "optimizer" => Ok((vec![name.to_owned(), "kind".to_owned()], json)),
        None if JOB_WORDS.contains(&name) => Ok((vec![name.to_owned()], json)),
        // As it is written, so that the function reads what was searched.
        None => Ok((vec!["params".to_owned(), name.to_owned()], value.to_string().into())),
    }
}

fn put(json: &mut Json, at: &[String], value: Json) -> Result<(), BadSpec> {
    let [outer, inner @ ..] = at else { return Ok(()) };
    let Some(words) = json.as_object_mut() else { return Err(BadSpec::new("search", "it cannot be put into the job")) };
    match inner {
        [] => {
            words.insert(outer.clone(), value);
            Ok(())
        }
        more => put(words.entry(outer.clone()).or_insert_with(|| Json::Object(Default::default())), more, value),
    }
}

/// The word that settings are wrong by.
fn word_of(error: &SettingsError) -> &'static str {
    match error {
        SettingsError::NoTrials => "trials",
        SettingsError::NoEpochs => "epochs",
        SettingsError::NoWorkers | SettingsError::TooManyWorkers { .. } => "max_workers",
        SettingsError::WorkersParameter(_) => "search",
        SettingsError::NotFinite { name, .. } => name,
        SettingsError::Enqueued { .. } => "enqueue",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(search: &[&str]) -> TuneSpec {
        let json = serde_json::json!({ "job": { "function": "f", "dataset": "d" }, "search": search });
        serde_json::from_value(json).unwrap()
    }

    fn word(spec: &TuneSpec) -> (&'static str, String) {
        let error = spec.check(&[], 1).unwrap_err();
        (error.word, error.problem)
    }

    #[test]
    fn values_go_where_their_names_say() {
        let spec = spec(&["lr=0..1", "hidden=int:1..9", "params.k=2|3", "optimizer=sgd|adam", "sync.codec=plain|f16"]);
        let point = Point::from([
            ("lr".to_owned(), Value::Number(0.5)),
            ("hidden".to_owned(), Value::Integer(4)),
            ("params.k".to_owned(), Value::Integer(3)),
            ("optimizer".to_owned(), Value::Text("adam".to_owned())),
            ("sync.codec".to_owned(), Value::Text("f16".to_owned())),
        ]);
        let job = spec.trial(&point, 0, Some("s-0000".to_owned())).unwrap();
        assert_eq!((job.lr, job.params["hidden"].as_str(), job.params["k"].as_str()), (0.5, "4", "3"));
        assert_eq!(job.optimizer.unwrap().kind.to_string(), "adam");
        assert_eq!((job.sync.codec.as_deref(), job.name.as_deref()), (Some("f16"), Some("s-0000")));
        assert!(spec.check(&[], 1).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_word() {
        assert!(matches!(word(&spec(&[])), ("search", text) if text.contains("nothing to search")));
        assert!(matches!(word(&spec(&["lr=5"])), ("search", text) if text.contains("constant")));
        assert!(matches!(word(&spec(&["lr=1..0"])), ("search", text) if text.contains("wrong way round")));
        assert!(matches!(word(&spec(&["job.lr=0..1"])), ("search", text) if text.contains("no words of its own")));
        assert!(matches!(word(&spec(&["batch=0..1"])), ("search", text) if text.contains("makes no job")));
        let one = spec(&["lr=0..1"]);
        assert_eq!(word(&TuneSpec { sampler: "best".to_owned(), ..one.clone() }).0, "sampler");
        assert_eq!(word(&TuneSpec { prune: "asha:1".to_owned(), ..one.clone() }).0, "prune");
        assert_eq!(word(&TuneSpec { goal: "f1".to_owned(), ..one.clone() }).0, "direction");
        assert_eq!(word(&TuneSpec { trials: 0, ..one.clone() }).0, "trials");
        assert_eq!(word(&TuneSpec { trials: MAX_TRIALS + 1, ..one.clone() }).0, "trials");
        assert_eq!(word(&TuneSpec { budget: Some(f64::NAN), ..one.clone() }).0, "budget");
        assert_eq!(word(&TuneSpec { job: None, ..one.clone() }).0, "job");
        let enqueue = vec![Point::from([("rate".to_owned(), Value::Number(1.0))])];
        assert_eq!(word(&TuneSpec { enqueue, ..one.clone() }).0, "enqueue");
        assert!(TuneSpec { job: None, parallel: 0, ..one }.check(&[], 1).is_ok());
    }

    #[test]
    fn epochs_are_the_jobs_unless_they_are_searched_or_said() {
        let one = spec(&["lr=0..1"]);
        assert_eq!(one.check(&[], 1).unwrap().epochs, 10);
        let more = TuneSpec { epochs: Some(27), ..one };
        assert_eq!(more.check(&[], 1).unwrap().epochs, 27);
        assert_eq!(more.trial(&Point::new(), 0, None).unwrap().epochs, 27);
        let searched = spec(&["epochs=int:2..5"]);
        assert_eq!(searched.check(&[], 1).unwrap().epochs, 5);
        let point = Point::from([("epochs".to_owned(), Value::Integer(3))]);
        assert_eq!(searched.trial(&point, 0, None).unwrap().epochs, 3);
    }

    #[test]
    fn the_declared_space_is_for_a_search_that_says_nothing() {
        let declared = ["hidden=int:16..64".parse().unwrap()];
        let settings = spec(&[]).check(&declared, 1).unwrap();
        assert_eq!(settings.space.parameters()[0].name, "hidden");
        assert_eq!(spec(&["lr=0..1"]).check(&declared, 1).unwrap().space.parameters()[0].name, "lr");
    }
}
