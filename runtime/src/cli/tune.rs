//! `weft tune …` and `weft tunes`: many jobs of one function, and the best of them.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use weft_core::tune::chart::{self, chart};
use weft_core::tune::export;
use weft_core::tune::space::Value;
use weft_core::tune::table::Table;

use super::client::Client;
use super::confirm::confirm;
use super::failure::UsageError;
use super::output::{Output, harmless, moment};
use super::train::{Prepared, seconds, word};
use crate::api::types::{BestTrial, TrialList, TrialView, TuneDetail, TuneList, TuneView};
use crate::job::JobSpec;
use crate::names::Name;
use crate::study::TuneState;

mod options;
mod screen;
mod trials;
mod watch;

use options::StudyArgs;
use screen::{short, shown};

/// Train a function many times with other settings, and find the best. Each trial is a job.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct TuneArgs {
    #[command(subcommand)]
    verb: Option<TuneVerb>,
    #[command(flatten)]
    study: StudyArgs,
}

#[derive(Debug, Subcommand)]
enum TuneVerb {
    /// Show what was asked for, how far it is, and what it came to
    Show { name: Name },
    /// Follow a study until it is over; with `--json`, one value per event
    Watch { name: Name },
    /// Stop a study and its trials; it can be resumed
    Stop { name: Name },
    /// Go on with a study that was stopped
    Resume { name: Name },
    /// Show the best trial, and how to train with its values
    Best { name: Name },
    /// List the trials
    Trials {
        name: Name,
        /// By their numbers, or the best first
        #[arg(long, value_enum, default_value_t = Order::Number)]
        sort: Order,
        /// At most so many
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Write the trials for other programs
    Export {
        name: Name,
        /// `csv` or `json`: a table; `optuna`: a journal that Optuna opens; `tensorboard`: event files in a folder
        #[arg(long, value_enum)]
        format: Format,
        /// The file, or for tensorboard the folder [default: standard output]
        #[arg(short, long, value_name = "PATH")]
        output: Option<PathBuf>,
    },
    /// Draw what it came to, as an SVG
    Plot {
        name: Name,
        /// `curve`: the best so far; `parallel`: a line for each trial across its values; `importance`: what mattered
        #[arg(long, default_value = "curve")]
        kind: chart::Kind,
        /// The file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Delete a study that is over or stopped, with its trials; models that it kept stay
    Delete {
        name: Name,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    Number,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Csv,
    Json,
    Optuna,
    Tensorboard,
}

#[derive(Args)]
pub struct ListArgs {
    /// Only those that are running, stopped, done or failed
    #[arg(long, value_parser = word::<TuneState>)]
    state: Option<TuneState>,
    /// At most so many
    #[arg(long)]
    limit: Option<usize>,
}

pub fn run(args: TuneArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let Some(verb) = args.verb else { return start(args.study, client, out) };
    match verb {
        TuneVerb::Show { name } => {
            let detail = client.tune(&name)?;
            out.show(&detail, || describe(&detail, out))
        }
        TuneVerb::Watch { name } if out.is_json() => watch::as_json(&name, client, out),
        TuneVerb::Watch { name } => watch::to_its_end(&name, client, out),
        TuneVerb::Stop { name } => {
            let tune = client.stop_tune(&name)?;
            let sentence = match tune.state {
                TuneState::Stopped => format!("study `{name}` is stopped; `weft tune resume {name}` goes on with it"),
                TuneState::Running => format!("study `{name}` is about to stop"),
                TuneState::Done | TuneState::Failed => format!("study `{name}` was over: it is {}", tune.state.word()),
            };
            out.done(&tune, sentence)
        }
        TuneVerb::Resume { name } => {
            let tune = client.resume_tune(&name)?;
            out.done(
                &tune,
                format_args!("study `{name}` is {}; `weft tune watch {name}` follows it", tune.state.word()),
            )
        }
        TuneVerb::Best { name } => {
            let detail = client.tune(&name)?;
            let best = best(&detail)?;
            out.show(best, || describe_best(&detail, best, out))
        }
        TuneVerb::Trials { name, sort, limit } => list_trials(&name, sort, limit, client, out),
        TuneVerb::Export { name, format, output } => {
            let table = table(&name, client)?;
            export(&table, format, output.as_deref(), out)
        }
        TuneVerb::Plot { name, kind, output } => {
            let svg = chart(kind, &table(&name, client)?);
            match output {
                None => Ok(out.bytes(svg.as_bytes())?),
                Some(path) => {
                    write(&path, svg.as_bytes())?;
                    out.done(&json!({"study": name, "path": path}), format_args!("drew `{}`", path.display()))
                }
            }
        }
        TuneVerb::Delete { name, yes } => {
            confirm(&format!("delete study `{name}` with its trials?"), yes)?;
            client.delete_tune(&name)?;
            out.done(&json!({"deleted": name}), format_args!("deleted study `{name}`"))
        }
    }
}

fn start(args: StudyArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let detach = args.detach;
    let mut spec = args.spec(out)?;
    let Some(mut job) = spec.job.take() else { return Err(UsageError("name the function to tune".to_owned()).into()) };
    let prepared = Prepared::new(&mut job, client, out)?;
    spec.job = Some(job.clone());
    let tune = prepared.submit(&job, client, out, |key| client.create_tune(&spec, key))?;
    if detach {
        let TuneView { name, state, .. } = &tune;
        let sentence = format!(
            "study `{name}` is {}; `weft tune watch {name}` follows it, `weft tune stop {name}` stops it",
            state.word()
        );
        return out.done(&tune, sentence);
    }
    watch::to_its_end(&tune.name.parse()?, client, out)
}

pub fn list(args: ListArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut all = TuneList { tunes: Vec::new(), next: None };
    loop {
        let left = args.limit.map(|limit| limit.saturating_sub(all.tunes.len()));
        if left == Some(0) {
            break;
        }
        let page = client.tunes(left, all.next.as_deref(), args.state)?;
        all.tunes.extend(page.tunes);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    out.show(&all, || {
        let row = |tune: &TuneView| {
            let counts = tune.counts;
            // Once the study is over, what is paused does not go on.
            let paused = if tune.state.is_over() { counts.paused } else { 0 };
            let ended = counts.done + counts.pruned + counts.stopped + counts.failed + paused;
            vec![
                tune.name.clone(),
                tune.state.word().to_owned(),
                tune.function.clone().unwrap_or_default(),
                tune.dataset.clone().unwrap_or_default(),
                format!("{ended}/{}", tune.trials),
                harmless(&tune.goal),
                tune.best.as_ref().map_or_else(String::new, |best| format!("{:.4}", best.value)),
                seconds(tune.seconds),
                moment(&tune.created_at),
            ]
        };
        let rows: Vec<Vec<String>> = all.tunes.iter().map(row).collect();
        out.table(&["NAME", "STATE", "FUNCTION", "DATASET", "TRIALS", "GOAL", "BEST", "TIME", "CREATED"], &rows)
    })
}

fn describe(detail: &TuneDetail, out: &Output) -> String {
    let tune = &detail.tune;
    let mut rows = watch::rows(detail, out);
    rows.extend(tune.function.as_ref().map(|function| ("function", function.clone())));
    rows.extend(tune.dataset.as_ref().map(|dataset| ("data set", dataset.clone())));
    let direction = json!(tune.direction);
    rows.push(("goal", format!("{} {}", direction.as_str().unwrap_or_default(), harmless(&tune.goal))));
    rows.push(("sampler", tune.sampler.clone()));
    rows.push(("prune", tune.prune.clone()));
    rows.push(("epochs", format!("{} of each trial that nothing stops", tune.epochs)));
    rows.push(("parallel", tune.parallel.to_string()));
    rows.extend(detail.spec.max_workers.map(|most| ("workers", format!("{most} of all trials that run"))));
    rows.push(("seed", detail.seed.to_string()));
    rows.extend(detail.search.iter().map(|parameter| ("search", harmless(parameter))));
    rows.push(("created", moment(&tune.created_at)));
    rows.extend(tune.ended_at.as_ref().map(|at| ("ended", moment(at))));
    out.fields(&rows)
}

fn best(detail: &TuneDetail) -> anyhow::Result<&BestTrial> {
    let name = &detail.tune.name;
    detail.tune.best.as_ref().with_context(|| {
        format!("no trial of study `{name}` has come to a value yet; `weft tune trials {name}` lists them")
    })
}

fn describe_best(detail: &TuneDetail, best: &BestTrial, out: &Output) -> String {
    let mut rows = vec![
        ("trial", best.trial.to_string()),
        ("value", format!("{} {}", harmless(&detail.tune.goal), best.value)),
        ("with", shown(&best.point)),
    ];
    rows.extend(best.job.as_ref().map(|job| ("job", format!("weft job show {job}"))));
    rows.extend(best.model.as_ref().map(|model| ("model", format!("weft model pull {model}"))));
    rows.extend(detail.spec.job.as_ref().map(|job| ("again", again(job, best))));
    out.fields(&rows)
}

/// The command that trains with the values of a trial.
fn again(job: &JobSpec, best: &BestTrial) -> String {
    let dataset = job.dataset.as_ref().map(|dataset| format!(" --dataset {dataset}")).unwrap_or_default();
    let flags = best.point.iter().map(|(name, value)| format!(" {}", watch::as_flag(name, value)));
    // What the trial had beside what was searched, as far as it changes the model.
    let is_searched = |name: &str| best.point.keys().any(|key| key.strip_prefix("params.").unwrap_or(key) == name);
    let params = job.params.iter().filter(|(name, _)| !is_searched(name));
    let params = params
        .map(|(name, value)| format!(" {}", watch::as_flag(&format!("params.{name}"), &Value::Text(value.clone()))));
    let epochs = if best.point.contains_key("epochs") { String::new() } else { format!(" --epochs {}", job.epochs) };
    let all: String = flags.chain(params).collect();
    harmless(&format!("weft train {}{dataset}{all}{epochs}", job.function))
}

fn list_trials(name: &Name, order: Order, limit: Option<usize>, client: &Client, out: &Output) -> anyhow::Result<()> {
    let detail = client.tune(name)?;
    let mut trials = trials::all(name, client)?;
    if order == Order::Value {
        // What has no value comes last.
        let turned = |trial: &TrialView| trial.value.map_or(f64::INFINITY, |value| detail.tune.direction.turned(value));
        trials.sort_by(|a, b| turned(a).total_cmp(&turned(b)).then(a.trial.cmp(&b.trial)));
    }
    trials.truncate(limit.unwrap_or(usize::MAX));
    let all = TrialList { trials, next: None };
    out.show(&all, || {
        let names = table_of(&detail, &[]).map(|table| table.space.into_parameters()).unwrap_or_default();
        let row = |trial: &TrialView| {
            let mut cells = vec![
                trial.trial.to_string(),
                screen::word(trial.state).to_owned(),
                format!("{}/{}", trial.epoch, trial.until),
                trial.value.map_or_else(String::new, |value| format!("{value:.4}")),
                seconds(trial.seconds),
                short(&Value::Number(trial.cost)),
            ];
            cells.extend(names.iter().map(|parameter| trial.point.get(&parameter.name).map(short).unwrap_or_default()));
            cells.push(harmless(&trial.reason));
            cells
        };
        let rows: Vec<Vec<String>> = all.trials.iter().map(row).collect();
        let goal = harmless(&detail.tune.goal).to_uppercase();
        let mut header = vec!["TRIAL", "STATE", "EPOCH", &goal, "TIME", "COST"];
        header.extend(names.iter().map(|parameter| parameter.name.as_str()));
        header.push("REASON");
        out.table(&header, &rows)
    })
}

fn table(name: &Name, client: &Client) -> anyhow::Result<Table> {
    table_of(&client.tune(name)?, &trials::all(name, client)?)
}

fn table_of(detail: &TuneDetail, trials: &[TrialView]) -> anyhow::Result<Table> {
    trials::table(detail, trials).context("the node's search cannot be read")
}

fn export(table: &Table, format: Format, output: Option<&Path>, out: &Output) -> anyhow::Result<()> {
    let text = match format {
        Format::Csv => export::csv(table),
        Format::Json => format!("{}\n", export::json(table)),
        Format::Optuna => export::optuna::journal(table),
        Format::Tensorboard => {
            let folder =
                output.ok_or_else(|| UsageError("event files need a folder: give `--output FOLDER`".to_owned()))?;
            for (name, bytes) in export::tensorboard::files(table) {
                let path = folder.join(name);
                std::fs::create_dir_all(path.parent().unwrap_or(folder))
                    .with_context(|| format!("cannot make the folder of `{}`", path.display()))?;
                write(&path, &bytes)?;
            }
            return exported(table, folder, out);
        }
    };
    match output {
        None => Ok(out.bytes(text.as_bytes())?),
        Some(path) => {
            write(path, text.as_bytes())?;
            exported(table, path, out)
        }
    }
}

fn exported(table: &Table, path: &Path, out: &Output) -> anyhow::Result<()> {
    let value = json!({"study": table.name, "trials": table.rows.len(), "path": path});
    out.done(&value, format_args!("wrote {} trials to `{}`", table.rows.len(), path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))
}
