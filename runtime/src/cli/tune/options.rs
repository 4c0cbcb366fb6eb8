//! What to search and how: the flags of `weft tune`, with what a search file says where they say nothing.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use weft_core::tune::prune::Pruner;
use weft_core::tune::sampler::SamplerKind;
use weft_core::tune::space::words::value;
use weft_core::tune::space::{Parameter, Point};
use weft_core::tune::spec::{KeepModels, TuneSpec};
use weft_core::tune::study::Direction;
use weft_core::tune::sweep::Sweep;

use crate::cli::failure::UsageError;
use crate::cli::output::Output;
use crate::cli::train::{TrainingOptions, finite, word};
use crate::job::JobSpec;
use crate::names::Name;
use crate::units::Span;

/// A study, and the job that each of its trials is.
#[derive(Debug, Args)]
pub struct StudyArgs {
    /// A deployed trainer's name; or, with a `/` or `.wasm` in it, its crate or component, which is deployed first
    #[arg(value_name = "FUNCTION", required = true)]
    function: Option<String>,
    /// The data set on the node; left out for a trainer that makes its own data
    #[arg(long, value_name = "NAME")]
    dataset: Option<Name>,
    /// What the study is called; its trials are jobs called NAME-0000 and so on [default: a name is made up]
    #[arg(long)]
    name: Option<Name>,
    /// The model that every trial starts from: one on the node, or a .safetensors file, which is sent first
    #[arg(long, value_name = "MODEL|FILE")]
    init_from: Option<String>,
    /// Of what is tried, and of all trials alike: first weights, order of samples, and everything else that is random
    /// [default: made up]
    #[arg(long)]
    seed: Option<u64>,
    /// Do not follow the study: say its name and leave it running
    #[arg(short, long)]
    pub detach: bool,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    options: TrainingOptions,
}

/// What to search, and how.
#[derive(Debug, Args)]
#[command(next_help_heading = "Search")]
struct SearchArgs {
    /// A parameter and what it can be: `lr=log:1e-4..1e-1`, `batch=32|64`, `hidden=int:16..512:16`, and with a condition
    /// `units3=int:16..64 if layers>=3`; may be given again [default: what the function declares]
    #[arg(long, value_name = "NAME=DOMAIN")]
    search: Vec<Parameter>,
    /// A sweep as YAML, in the form of Weights & Biases; flags go before what it says
    #[arg(long, value_name = "FILE")]
    search_file: Option<PathBuf>,
    /// What trials are compared by: a metric of the function's validation, or train_loss [default: accuracy]
    #[arg(long, value_name = "METRIC")]
    goal: Option<String>,
    /// Whether a large value of the goal is good [default: known of accuracy and losses]
    #[arg(long)]
    direction: Option<Aim>,
    /// End with a trial whose goal comes to this
    #[arg(long, value_parser = finite::<f64>, value_name = "VALUE", allow_hyphen_values = true)]
    target: Option<f64>,
    /// How many trials [default: 20]
    #[arg(long, value_name = "N")]
    trials: Option<u32>,
    /// How many of them at once [default: 2]
    #[arg(long, value_name = "N")]
    parallel: Option<u32>,
    /// The workers of all trials that run, together [default: no limit but the quota's]
    #[arg(long, value_name = "N")]
    max_workers: Option<u32>,
    /// Who says what to try next: auto, tpe, gp, cma-es, evolution, random, grid or grid:VALUES [default: auto]
    #[arg(long, value_name = "NAME")]
    sampler: Option<SamplerKind>,
    /// Which trials are paused or stopped early: none, median, asha:3 or hyperband:3 [default: none]
    #[arg(long, value_name = "NAME")]
    prune: Option<Pruner>,
    /// Epochs after which a trial may be paused or stopped, at the earliest [default: 1]
    #[arg(long, value_name = "EPOCHS")]
    least_epochs: Option<u32>,
    /// End after so long; trials that run then are stopped
    #[arg(long, value_name = "SPAN")]
    deadline: Option<Span>,
    /// What all trials may cost together
    #[arg(long, value_parser = finite::<f64>, value_name = "COST")]
    budget: Option<f64>,
    /// Values to try first, as in lr=0.1,batch=64; what is left out is drawn. May be given again
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = point)]
    enqueue: Vec<Point>,
    /// Give each trial a seed of its own
    #[arg(long)]
    vary_seed: bool,
    /// Whose models stay: the best trial's, all, or none [default: best]
    #[arg(long, value_name = "best|all|none", value_parser = word::<KeepModels>)]
    keep_models: Option<KeepModels>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Aim {
    #[value(alias = "maximize", alias = "max")]
    Maximise,
    #[value(alias = "minimize", alias = "min")]
    Minimise,
}

/// `lr=0.1,batch=64`.
fn point(text: &str) -> Result<Point, String> {
    let mut point = Point::new();
    for part in text.split(',') {
        let (name, given) = part.split_once('=').ok_or_else(|| format!("`{part}` is not NAME=VALUE, as in lr=0.1"))?;
        let given = value(given.trim()).map_err(|why| format!("`{part}`: {why}"))?;
        if point.insert(name.trim().to_owned(), given).is_some() {
            return Err(format!("`{}` is there twice", name.trim()));
        }
    }
    Ok(point)
}

impl StudyArgs {
    /// The study that the flags and the search file ask for; the function and the model are as they were given.
    pub fn spec(self, out: &Output) -> anyhow::Result<TuneSpec> {
        let file = self.search.search_file.as_ref();
        let sweep = file.map(|path| read(path, out)).transpose()?.unwrap_or_default();
        self.with(sweep)
    }

    fn with(self, sweep: Sweep) -> anyhow::Result<TuneSpec> {
        let function = self.function.ok_or_else(|| UsageError("name the function to tune".to_owned()))?;
        let epochs = sweep.epochs.filter(|_| !self.options.says_epochs());
        let base = JobSpec::new(function, self.dataset.map(Into::into));
        let job = self.options.over(JobSpec { seed: self.seed, init_from: self.init_from, ..base });
        let flags = self.search;
        // Whoever names a parameter here wants it otherwise than the file has it.
        let mut search = sweep.parameters;
        search.retain(|known| flags.search.iter().all(|other| other.name != known.name));
        search.extend(flags.search);
        let direction = flags.direction.map(|aim| match aim {
            Aim::Maximise => Direction::Maximise,
            Aim::Minimise => Direction::Minimise,
        });
        // A direction that the file has is that of its own goal.
        let direction = direction.or(if flags.goal.is_none() { sweep.direction } else { None });
        let spec: TuneSpec = serde_json::from_value(serde_json::json!({ "job": job }))?;
        Ok(TuneSpec {
            name: self.name.map(Into::into),
            search: search.iter().map(Parameter::to_string).collect(),
            sampler: flags.sampler.or(sweep.sampler).map_or(spec.sampler, |sampler| sampler.to_string()),
            prune: flags.prune.or(sweep.pruner).map_or(spec.prune, |pruner| pruner.to_string()),
            goal: flags.goal.or(sweep.goal).unwrap_or(spec.goal),
            direction,
            target: flags.target.or(sweep.target),
            trials: flags.trials.or(sweep.trials).unwrap_or(spec.trials),
            parallel: flags.parallel.unwrap_or(spec.parallel),
            epochs,
            least_epochs: flags.least_epochs.or(sweep.least_epochs).unwrap_or(spec.least_epochs),
            max_workers: flags.max_workers,
            budget: flags.budget,
            deadline_ms: flags.deadline.map_or(0, |span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)),
            seed: self.seed,
            vary_seed: flags.vary_seed,
            keep: flags.keep_models.unwrap_or_default(),
            enqueue: flags.enqueue,
            job: spec.job,
        })
    }
}

fn read(path: &PathBuf, out: &Output) -> anyhow::Result<Sweep> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let sweep = Sweep::read(&text).with_context(|| format!("`{}`", path.display()))?;
    if !sweep.ignored.is_empty() {
        let keys = sweep.ignored.join("`, `");
        out.note(format_args!("`{}`: left out `{keys}`, which say nothing of the search", path.display()));
    }
    Ok(sweep)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        study: StudyArgs,
    }

    fn spec(line: &[&str], file: &str) -> Result<TuneSpec, String> {
        let sweep = if file.is_empty() { Sweep::default() } else { Sweep::read(file).unwrap() };
        let parsed = Line::try_parse_from(["tune"].iter().chain(line));
        parsed.map_err(|error| error.to_string())?.study.with(sweep).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_the_default() {
        let asked = spec(&["mlp"], "").unwrap();
        let expected: TuneSpec =
            serde_json::from_value(serde_json::json!({ "job": JobSpec::new("mlp", None) })).unwrap();
        assert_eq!(asked, expected);
    }

    #[test]
    fn every_flag_is_a_word_of_the_study() {
        let line = [
            "mlp",
            "--dataset",
            "digits",
            "--name",
            "s",
            "--search",
            "lr=log:1e-4..1e-1",
            "--search",
            "units3=int:16..64 if layers>=3",
            "--goal",
            "f1",
            "--direction",
            "maximize",
            "--target",
            "0.9",
            "--trials",
            "40",
            "--parallel",
            "4",
            "--max-workers",
            "8",
            "--sampler",
            "tpe",
            "--prune",
            "asha:3",
            "--least-epochs",
            "2",
            "--deadline",
            "10m",
            "--budget",
            "0.5",
            "--enqueue",
            "lr=0.1,layers=2",
            "--vary-seed",
            "--keep-models",
            "all",
            "--seed",
            "7",
            "--epochs",
            "9",
            "--workers",
            "2",
            "--param",
            "layers=3",
        ];
        let asked = spec(&line, "").unwrap();
        let job = asked.job.clone().unwrap();
        assert_eq!((job.epochs, job.workers.most, job.seed, job.params["layers"].as_str()), (9, 2, Some(7), "3"));
        assert_eq!((job.dataset.as_deref(), job.name.as_deref()), (Some("digits"), None));
        let asked = serde_json::to_value(TuneSpec { job: None, ..asked }).unwrap();
        let expected = serde_json::json!({
            "name": "s", "search": ["lr=log:0.0001..0.1", "units3=int:16..64 if layers>=3"], "sampler": "tpe",
            "prune": "asha:3", "goal": "f1", "direction": "maximise", "target": 0.9, "trials": 40, "parallel": 4,
            "least_epochs": 2, "max_workers": 8, "budget": 0.5, "deadline_ms": 600_000, "seed": 7, "vary_seed": true,
            "keep": "all", "enqueue": [{"layers": 2, "lr": 0.1}],
        });
        assert_eq!(asked, expected);
    }

    #[test]
    fn flags_go_before_what_the_file_says() {
        let file = "method: random\nmetric: {name: loss, goal: minimize}\nparameters:\n  lr: {min: 0.1, max: 0.5}\n  \
                    batch: {values: [8, 16]}\nearly_terminate: {type: hyperband, max_iter: 27}\nrun_cap: 9\n";
        let asked = spec(&["mlp"], file).unwrap();
        assert_eq!(asked.search, ["lr=0.1..0.5", "batch=8|16"]);
        assert_eq!((asked.sampler.as_str(), asked.prune.as_str(), asked.trials), ("random", "hyperband:3", 9));
        assert_eq!((asked.goal.as_str(), asked.direction, asked.epochs), ("loss", Some(Direction::Minimise), Some(27)));
        let line = ["mlp", "--search", "lr=0.2..0.3", "--trials", "5", "--goal", "accuracy", "--epochs", "3"];
        let asked = spec(&line, file).unwrap();
        assert_eq!(asked.search, ["batch=8|16", "lr=0.2..0.3"]);
        assert_eq!((asked.trials, asked.goal.as_str(), asked.direction, asked.epochs), (5, "accuracy", None, None));
    }

    #[test]
    fn what_is_no_word_is_refused_with_those_that_are() {
        for (flag, given, expected) in [
            ("--search", "lr", "write a name, `=`"),
            ("--search", "lr=1..0", "wrong way round"),
            ("--sampler", "best", "`cma-es`"),
            ("--prune", "asha:1", "`hyperband:3`"),
            ("--direction", "up", "maximise"),
            ("--enqueue", "lr", "NAME=VALUE"),
            ("--enqueue", "lr=1,lr=2", "twice"),
            ("--enqueue", "lr=nan", "finite"),
            ("--budget", "inf", "finite number"),
            ("--keep-models", "some", "`best`"),
        ] {
            let error = spec(&["mlp", flag, given], "").unwrap_err();
            assert!(error.contains(expected), "{flag} {given}: {error}");
        }
    }
}
