//! `weft plan`: what training would take with more or fewer workers, larger or smaller ones, and which of them to take.
//!
//! - [`probing`]: short real jobs that find it out, and are deleted
//! - [`estimate`]: how many epochs there will be until a goal is reached
//! - [`report`]: what was found out, as a table, as JSON and as a picture
//! - [`command`]: the command that follows the recommendation
//! - [`calibrate`], [`model`]: what it would take by calculation, from constants of this machine or of others

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use weft_core::plan::aim::{Aim, Limits};
use weft_core::plan::analytic::epochs::Epochs;
use weft_core::plan::words::number;
use weft_core::spec::{FanOut, K, Memory, SyncWords, Workers};
use weft_core::sync::{ChannelKind, RuleKind, Topology};
use weft_gpu::Codec;

use super::Global;
use super::failure::UsageError;
use super::output::Output;
use super::train::{self, LearningOptions};
use crate::job::JobSpec;
use crate::names::Name;
use crate::params::StoreAddress;
use crate::units::{Size, Span};
use probing::Profiling;

pub mod calibrate;
mod command;
mod estimate;
pub mod model;
mod probing;
mod report;

/// Find out what training would take, with short tries of it on the node.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A deployed trainer's name; or, with a `/` or `.wasm` in it, its crate or component, which is deployed first
    #[arg(value_name = "FUNCTION", required_unless_present = "calibrate")]
    function: Option<String>,
    /// The data set on the node; left out for a trainer that makes its own data
    #[arg(long, value_name = "NAME")]
    dataset: Option<Name>,
    /// Be done within so long
    #[arg(long, value_name = "SPAN")]
    deadline: Option<Span>,
    /// Cost no more than this, in what the node's prices are in
    #[arg(long, value_name = "COST", value_parser = positive)]
    budget: Option<f64>,
    /// End when validation accuracy reaches this: how many epochs that needs is counted on a tenth of the data
    #[arg(long, value_name = "SHARE", value_parser = share)]
    goal_accuracy: Option<f64>,
    /// What is to be the least [default: cheapest; fastest with only a `--budget`]
    #[arg(long)]
    aim: Option<AimWord>,
    /// Write a picture of time against cost into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Try every setting of a grid, instead of the few that say most
    #[arg(long)]
    sweep: bool,
    /// With `--sweep`: how long each setting is tried at most [default: 5s]
    #[arg(long, value_name = "SPAN", requires = "sweep")]
    try_for: Option<Span>,
    /// Of tries, so that they can be repeated [default: made up]
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    choice: ChoiceArgs,
    #[command(flatten)]
    learning: LearningOptions,
}

/// By calculation.
#[derive(Debug, Args)]
#[command(next_help_heading = "By calculation")]
struct ModelArgs {
    /// Measure this machine's channels, and with a function how long its workers take to start, and keep that
    #[arg(long, conflicts_with_all = ["sweep", "model", "preset", "what_if", "svg", "deadline", "budget"])]
    calibrate: bool,
    /// With `--calibrate`: also measure this Redis, as the setting `params_store` has it
    #[arg(long, value_name = "URL", requires = "calibrate")]
    params_store: Option<StoreAddress>,
    /// Calculate what it would take from the constants of this machine and one measured epoch
    #[arg(long, conflicts_with_all = ["sweep", "svg"])]
    model: bool,
    /// Calculate with others' constants: faas-s3, faas-elasticache, iaas-t2, iaas-c5, or lambdaml for all of them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["sweep", "svg"])]
    preset: Option<String>,
    /// Calculate, and say what it would take if this were so, as in bandwidth=10GB/s; may be given again
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["sweep", "svg"])]
    what_if: Vec<String>,
}

/// What there is to choose from.
#[derive(Debug, Args)]
#[command(next_help_heading = "To choose from")]
struct ChoiceArgs {
    /// How many workers, as in 1..8 [default: 1..4]
    #[arg(long, value_name = "LEAST..MOST")]
    workers: Option<Workers>,
    /// Memory of each, as in 128MiB..1GiB [default: 512MiB]
    #[arg(long, value_name = "SIZE|LEAST..MOST", value_parser = Sizes::parse)]
    memory: Option<Sizes>,
    /// Steps from one average of the weights to the next, as in 1,4,16,epoch
    #[arg(long, value_name = "STEPS,…", value_delimiter = ',')]
    k: Vec<K>,
    /// How what is exchanged is encoded, as in plain,f16,qsgd:4
    #[arg(long, value_name = "CODEC,…", value_delimiter = ',')]
    codec: Vec<Codec>,
    /// Devices, as in cpu,gpu:0
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',')]
    device: Vec<String>,
    /// What is exchanged, for all of them
    #[arg(long)]
    rule: Option<RuleKind>,
    /// Who merges, for all of them
    #[arg(long)]
    topology: Option<Topology>,
    /// Through what it travels, for all of them
    #[arg(long)]
    channel: Option<ChannelKind>,
    /// Functions that compute a worker's step side by side, for all of them
    #[arg(long, value_name = "FUNCTIONS")]
    fan_out: Option<u32>,
}

/// What is to be the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AimWord {
    Cheapest,
    Fastest,
}

/// From so many bytes to so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    least: u64,
    most: u64,
}

impl Sizes {
    fn parse(text: &str) -> Result<Self, String> {
        // `128M` is what people write for `128MiB`.
        let size = |text: &str| {
            let text = text.trim().trim_start_matches('=');
            let is_short = text.ends_with(['K', 'M', 'G', 'T']);
            let whole = if is_short { format!("{text}iB") } else { text.to_owned() };
            whole.parse::<Size>().map(|size| size.0).map_err(|error| error.to_string())
        };
        let (least, most) = match text.split_once("..") {
            Some((least, most)) => (size(least)?, size(most)?),
            None => (size(text)?, size(text)?),
        };
        if least > most {
            return Err(format!("`{text}` is an empty range: the smaller size comes first"));
        }
        Ok(Self { least, most })
    }
}

fn positive(text: &str) -> Result<f64, String> {
    number(text).filter(|it| *it > 0.0).ok_or_else(|| "expected a number above 0, as in 0.50".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = number(text).filter(|it| *it > 0.0 && *it <= 1.0);
    share.ok_or_else(|| "expected a share above 0 and at most 1, as in 0.95".to_owned())
}

/// What is chosen apart from workers and their memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variant {
    k: Option<K>,
    codec: Option<String>,
    device: Option<String>,
}

/// What is to be planned.
pub struct Question {
    /// The job, apart from what is chosen. Its workers are the range of them.
    spec: JobSpec,
    sizes: Sizes,
    variants: Vec<Variant>,
    aim: Aim,
    limits: Limits,
    /// Once its epochs were counted; the job's own are then those that are expected.
    goal: Option<Goal>,
}

/// An accuracy that ends the job.
pub struct Goal {
    accuracy: f64,
    epochs: Epochs,
    /// Epochs that were asked for, which are the most.
    asked: u64,
}

impl PlanArgs {
    fn question(&self, function: String) -> Result<Question, UsageError> {
        let ChoiceArgs { workers, memory, k, codec, device, rule, topology, channel, fan_out } = &self.choice;
        let text = |word: &dyn std::fmt::Display| word.to_string();
        let sizes =
            memory.unwrap_or(Sizes { least: weft_core::spec::DEFAULT_MEMORY, most: weft_core::spec::DEFAULT_MEMORY });
        let base = JobSpec::new(function, self.dataset.clone().map(Into::into));
        let spec = self.learning.clone().over(JobSpec {
            workers: workers.unwrap_or(Workers { least: 1, most: 4 }),
            memory: Memory::Bytes(sizes.least),
            fan_out: fan_out.map_or(base.fan_out, FanOut::Functions),
            sync: SyncWords {
                rule: rule.map(|it| text(&it)),
                topology: topology.as_ref().map(|it| text(it)),
                channel: channel.map(|it| text(&it)),
                ..SyncWords::default()
            },
            seed: self.seed,
            ..base
        });
        let all = |words: &[String]| match words {
            [] => vec![None],
            words => words.iter().cloned().map(Some).collect(),
        };
        let codecs: Vec<String> = codec.iter().map(ToString::to_string).collect();
        let ks: Vec<Option<K>> = if k.is_empty() { vec![None] } else { k.iter().copied().map(Some).collect() };
        let mut variants = Vec::new();
        for k in &ks {
            for codec in all(&codecs) {
                variants.extend(all(device).into_iter().map(|device| Variant { k: *k, codec: codec.clone(), device }));
            }
        }
        let limits = Limits { seconds: self.deadline.map(|it| it.0.as_secs_f64()), cost: self.budget };
        if limits.seconds == Some(0.0) {
            return Err(UsageError("nothing is done within a `--deadline` of 0s".to_owned()));
        }
        let aim = match self.aim {
            Some(AimWord::Cheapest) => Aim::Cheapest,
            Some(AimWord::Fastest) => Aim::Fastest,
            // Whoever gives an amount to spend wants something for it.
            None if limits.cost.is_some() && limits.seconds.is_none() => Aim::Fastest,
            None => Aim::Cheapest,
        };
        Ok(Question { spec, sizes, variants, aim, limits, goal: None })
    }
}

impl Variant {
    /// A job that trains like this.
    fn over(&self, spec: &JobSpec) -> JobSpec {
        let sync = SyncWords {
            k: self.k.or(spec.sync.k),
            codec: self.codec.clone().or(spec.sync.codec.clone()),
            ..spec.sync.clone()
        };
        JobSpec { sync, device: self.device.clone().unwrap_or(spec.device.clone()), ..spec.clone() }
    }
}

pub fn run(args: PlanArgs, global: &Global, out: &Output) -> anyhow::Result<()> {
    let ModelArgs { calibrate, params_store, model, preset, what_if } = &args.model;
    model::check(what_if)?;
    let Some(function) = args.function.clone() else {
        return calibrate::run(None, params_store.as_ref(), None, out);
    };
    let client = global.client()?;
    let function = train::deployed(function, &client, out)?;
    let mut question = args.question(function)?;
    if *calibrate {
        return calibrate::run(Some(&question), params_store.as_ref(), Some(&client), out);
    }
    let mut counted = Profiling::default();
    if let Some(accuracy) = args.goal_accuracy {
        let (epochs, profiling) = estimate::epochs(&question, accuracy, &client, out)?;
        counted = profiling;
        out.note(&epochs.why);
        let asked = question.spec.epochs;
        question.spec.epochs = epochs.expected.ceil().max(1.0) as u64;
        question.goal = Some(Goal { accuracy, epochs, asked });
    }
    if *model || preset.is_some() || !what_if.is_empty() {
        return model::run(&question, preset.as_deref(), what_if, &client, out);
    }
    let mut found = match args.sweep {
        true => probing::sweep(&question, args.try_for, &client, out)?,
        false => probing::search(&question, &client, out)?,
    };
    found.profiling.add(counted);
    let report = report::Report::new(&question, found);
    if let Some(path) = &args.svg {
        report.draw(path)?;
        out.note(format_args!("wrote `{}`", path.display()));
    }
    out.show(&report, || report.text(out))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plan: PlanArgs,
    }

    fn question(line: &str) -> Result<Question, String> {
        let parsed = Line::try_parse_from(["plan"].into_iter().chain(line.split_whitespace()));
        let plan = parsed.map_err(|error| error.to_string())?.plan;
        plan.question(plan.function.clone().unwrap_or_default()).map_err(|error| error.to_string())
    }

    #[test]
    fn all_settings_are_combined() {
        let line = "lenet --dataset digits --workers 1..8 --memory 128M..1GiB --k 1,epoch --codec plain,f16 --batch 32";
        let question = question(line).unwrap();
        assert_eq!(question.sizes, Sizes { least: 128 << 20, most: 1 << 30 });
        assert_eq!((question.spec.workers.most, question.spec.batch), (8, 32));
        assert_eq!(question.variants.len(), 4);
        let job = question.variants[3].over(&question.spec);
        assert_eq!((job.sync.k, job.sync.codec.as_deref()), (Some(K::Epochs(1)), Some("f16")));
    }

    #[test]
    fn the_aim_follows_from_the_limits() {
        let aim = |line: &str| question(line).unwrap().aim;
        assert_eq!(aim("lenet"), Aim::Cheapest);
        assert_eq!(aim("lenet --deadline 10m"), Aim::Cheapest);
        assert_eq!(aim("lenet --budget 0.50"), Aim::Fastest);
        assert_eq!(aim("lenet --budget 0.50 --deadline 10m"), Aim::Cheapest);
        assert_eq!(aim("lenet --budget 0.50 --aim cheapest"), Aim::Cheapest);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, words) in [
            ("lenet --budget 0", "above 0"),
            ("lenet --budget nan", "above 0"),
            ("lenet --goal-accuracy 90", "at most 1"),
            ("lenet --deadline 0s", "--deadline"),
            ("lenet --memory 1GiB..128MiB", "empty range"),
            ("lenet --memory lots", "MiB"),
            ("lenet --try-for 1s", "--sweep"),
            ("lenet --calibrate --sweep", "--sweep"),
            ("--dataset digits", "FUNCTION"),
        ] {
            let error = question(line).map(|_| ()).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
