//! `weft pipeline FILE`: steps that are done once, in their order, and again only when something has changed.
//!
//! A client like any other: every step is some calls to a node. A run that was interrupted, here or there, goes on where it
//! was when it is started again: what is done is in the state beside the file, and what was begun is found on the node.
//!
//! - [`file`]: what a pipeline's file says
//! - [`reference`]: words that stand for what another step came to
//! - [`graph`]: the order of the steps
//! - [`cache`]: what steps came to before
//! - [`samples`]: samples that a step names
//! - [`steps`]: what each kind of step does

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::client::Client;
use super::failure::{Interrupted, UsageError};
use super::output::{Output, harmless};
use super::train::seconds;
use crate::names::is_name;
use cache::{State, StateFile};
use file::{BadFile, Pipeline, Step};
use reference::Outputs;
use steps::{Doing, Place};

mod cache;
mod file;
mod graph;
mod reference;
mod samples;
mod steps;

/// Run the steps of a file, those that are not done yet or whose inputs have changed
#[derive(Args)]
pub struct PipelineArgs {
    /// The pipeline, as TOML
    file: PathBuf,
    /// Only say in which order steps would run
    #[arg(long)]
    check: bool,
    /// Do a step again, although nothing has changed; may be given again
    #[arg(long, value_name = "STEP")]
    again: Vec<String>,
}

/// What became of a pipeline.
#[derive(Serialize)]
struct Report {
    pipeline: String,
    steps: Vec<Done>,
}

/// What became of a step.
#[derive(Serialize)]
struct Done {
    name: String,
    kind: &'static str,
    /// Whether it was done before.
    cached: bool,
    seconds: f64,
    outputs: Map<String, Value>,
}

pub fn run(args: PipelineArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let shown = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("cannot read `{shown}`"))?;
    let read = || -> Result<(Pipeline, Vec<usize>), BadFile> {
        let pipeline = file::read(&text)?;
        let order = graph::order(&pipeline.steps)?;
        Ok((pipeline, order))
    };
    let (pipeline, order) = read().with_context(|| format!("`{shown}` is no pipeline"))?;
    let name = match &pipeline.name {
        Some(name) => name.clone(),
        None => name_of(&args.file)?,
    };
    if let Some(unknown) = args.again.iter().find(|again| pipeline.steps.iter().all(|step| step.name != **again)) {
        return Err(UsageError(format!("`--again {}`: there is no such step", unknown.escape_debug())).into());
    }
    if args.check {
        let steps: Vec<&Step> = order.iter().map(|&step| &pipeline.steps[step]).collect();
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        return out.show(&names, || {
            let rows: Vec<Vec<String>> = steps
                .iter()
                .map(|step| vec![step.name.clone(), step.kind.word().to_owned(), step.needs.join(", ")])
                .collect();
            out.table(&["STEP", "KIND", "NEEDS"], &rows)
        });
    }
    let folder = match args.file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let (state_file, mut state) = StateFile::open(&folder, &name)?;
    state.retain(|kept| pipeline.steps.iter().any(|step| step.name == kept));
    for step in &args.again {
        state.run_again(step);
    }
    let place = Place { client, out, folder, pipeline: name.clone() };
    let (mut outputs, mut done) = (Outputs::new(), Vec::new());
    for step in order.iter().map(|&step| &pipeline.steps[step]) {
        let one = do_step(step, &place, &outputs, &mut state, &state_file).map_err(|error| {
            // What that means was said where it was noticed; the exit code follows from what it was.
            if error.is::<Interrupted>() { error } else { error.context(failed(step)) }
        })?;
        outputs.insert(step.name.clone(), one.outputs.clone());
        done.push(one);
    }
    let report = Report { pipeline: name, steps: done };
    out.show(&report, || table(&report, out))?;
    if report.steps.iter().all(|step| step.cached) {
        out.note(format_args!("nothing has changed: all {} steps were done before", report.steps.len()));
    }
    Ok(())
}

fn failed(step: &Step) -> String {
    format!("line {}: step `{}` ({})", step.line, step.name, step.kind.word())
}

fn do_step(
    step: &Step,
    place: &Place<'_>,
    outputs: &Outputs,
    state: &mut State,
    file: &StateFile,
) -> anyhow::Result<Done> {
    let start = Instant::now();
    let words = reference::resolved(&Value::Object(step.words.clone()), outputs).map_err(anyhow::Error::msg)?;
    let words = words.as_object().cloned().unwrap_or_default();
    let mut doing = Doing { name: &step.name, kind: step.kind, words, place };
    let reads = doing.reads()?;
    let key = cache::key(step.kind, &doing.key_words(), &reads, state.again(&step.name));
    let before = state.get(&step.name, &key).cloned();
    let (outputs, cached) = match before {
        Some(outputs) if doing.holds(&outputs)? => (outputs, true),
        _ => {
            place.out.note(format_args!("step `{}` ({}) …", step.name, step.kind.word()));
            // Before anything is begun: a step that was asked for again is that again if this is interrupted.
            file.write(state)?;
            let outputs = doing.run(&key)?;
            state.put(&step.name, key, outputs.clone());
            file.write(state)?;
            (outputs, false)
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    Ok(Done { name: step.name.clone(), kind: step.kind.word(), cached, seconds, outputs })
}

fn name_of(file: &Path) -> anyhow::Result<String> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let name = name.trim_matches('-');
    anyhow::ensure!(is_name(name), "`{}` makes no name for a pipeline: give one with `name = \"…\"`", file.display());
    Ok(name.to_owned())
}

fn table(report: &Report, out: &Output) -> String {
    let row = |step: &Done| {
        let output = |(name, value): (&String, &Value)| match value {
            Value::String(text) if text.starts_with("sha256:") => None,
            Value::Null => None,
            Value::String(text) => Some(format!("{name} {text}")),
            Value::Number(number) if number.is_f64() => {
                Some(format!("{name} {:.4}", number.as_f64().unwrap_or_default()))
            }
            other => Some(format!("{name} {other}")),
        };
        let outputs: Vec<String> = step.outputs.iter().filter_map(output).collect();
        vec![
            step.name.clone(),
            step.kind.to_owned(),
            if step.cached { "cached" } else { "done" }.to_owned(),
            seconds(step.seconds),
            harmless(&outputs.join(", ")),
        ]
    };
    let rows: Vec<Vec<String>> = report.steps.iter().map(row).collect();
    out.table(&["STEP", "KIND", "", "TIME", "CAME TO"], &rows)
}
