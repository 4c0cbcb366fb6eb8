//! `weft jobs` and `weft job …`.

use clap::{Args, Subcommand};
use serde_json::json;

use super::client::{Client, ClientError};
use super::confirm::confirm;
use super::logs::{self, LinesArgs};
use super::output::{Output, bytes, harmless, moment, short_version};
use super::train::{seconds, watch, word};
use crate::api::types::{JobDetail, JobHistory, JobList, JobView};
use crate::job::{EpochRecord, Stages, State};
use crate::logs::Whose;
use crate::names::Name;
use crate::units::Size;
use weft_core::spec::ShapeChange;

mod cost;
mod plan;

#[derive(Args)]
pub struct ListArgs {
    /// Only those that are queued, running, waiting, done, stopped or failed
    #[arg(long, value_parser = word::<State>)]
    state: Option<State>,
    /// At most so many
    #[arg(long)]
    limit: Option<usize>,
}

#[derive(Subcommand)]
pub enum JobVerb {
    /// Show what was asked for, how far it is, and what it came to
    Show { name: Name },
    /// Follow a job until it is over; with `--json`, one value per event
    Watch { name: Name },
    /// Stop a job; it can be resumed
    Stop { name: Name },
    /// Go on with a job that was stopped or failed, from its last checkpoint
    Resume { name: Name },
    /// Have it go on with other workers, at the end of its round or from an epoch on
    Scale {
        name: Name,
        /// So many workers
        #[arg(long)]
        workers: Option<u32>,
        /// Memory of each
        #[arg(long, value_name = "SIZE")]
        memory: Option<Size>,
        /// Samples of one step of each function; of all together, for a job with a global batch
        #[arg(long)]
        batch: Option<u32>,
        /// From this epoch on, counted from 1 [default: from the next round on]
        #[arg(long, value_name = "EPOCH")]
        from_epoch: Option<u64>,
    },
    /// Read what its functions log
    Logs {
        name: Name,
        #[command(flatten)]
        lines: LinesArgs,
    },
    /// Show what its epochs came to
    History {
        name: Name,
        /// Also show where the time went
        #[arg(long)]
        stages: bool,
        /// Show what was decided about its workers instead: what was expected, what came, and what one may choose between
        #[arg(long, conflicts_with_all = ["stages", "versions"])]
        plan: bool,
        /// Show the versions of its data set that it has trained on, if it follows it
        #[arg(long, conflicts_with = "stages")]
        versions: bool,
    },
    /// Show what it cost, by stage and by worker, and what a rented machine would have
    Cost {
        name: Name,
        /// The machine to compare with, by its name in the price table
        #[arg(long, value_name = "TYPE")]
        rented: Option<String>,
    },
    /// Delete a job that is over; its models stay
    Delete {
        name: Name,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Delete all jobs that are over; their models stay
    Prune {
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Kill a worker, as if it had died: the job starts it again
    Kill {
        name: Name,
        /// Counted from 0
        worker: u32,
    },
}

pub fn list(args: ListArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut all = JobList { jobs: Vec::new(), next: None };
    loop {
        let left = args.limit.map(|limit| limit.saturating_sub(all.jobs.len()));
        if left == Some(0) {
            break;
        }
        let page = client.jobs(left, all.next.as_deref(), args.state)?;
        all.jobs.extend(page.jobs);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    out.show(&all, || {
        let row = |job: &JobView| {
            vec![
                job.name.clone(),
                job.state.word().to_owned(),
                job.function.clone(),
                job.dataset.clone().unwrap_or_default(),
                job.workers.to_string(),
                format!("{}/{}", job.epoch, job.epochs),
                number(job.train_loss),
                number(job.accuracy),
                seconds(job.seconds),
                moment(&job.created_at),
            ]
        };
        let rows: Vec<Vec<String>> = all.jobs.iter().map(row).collect();
        let header =
            ["NAME", "STATE", "FUNCTION", "DATASET", "WORKERS", "EPOCH", "LOSS", "ACCURACY", "TIME", "CREATED"];
        out.table(&header, &rows)
    })
}

pub fn run(verb: JobVerb, client: &Client, out: &Output) -> anyhow::Result<()> {
    match verb {
        JobVerb::Show { name } => {
            let detail = client.job(&name)?;
            out.show(&detail, || describe(&detail, out))
        }
        JobVerb::Watch { name } if out.is_json() => watch::as_json(&name, client, out),
        JobVerb::Watch { name } => watch::to_its_end(&name, client, out),
        JobVerb::Stop { name } => {
            let job = client.stop_job(&name)?;
            let sentence = match job.state {
                State::Stopped => format!("job `{name}` is stopped; `weft job resume {name}` goes on with it"),
                State::Queued | State::Running | State::Waiting => format!("job `{name}` is about to stop"),
                State::Done | State::Failed => format!("job `{name}` was over: it is {}", job.state.word()),
            };
            out.done(&job, sentence)
        }
        JobVerb::Resume { name } => {
            let job = client.resume_job(&name)?;
            out.done(&job, format_args!("job `{name}` is {}; `weft job watch {name}` follows it", job.state.word()))
        }
        JobVerb::Scale { name, workers, memory, batch, from_epoch } => {
            let change = ShapeChange { workers, memory: memory.map(|size| size.0), batch, from_epoch };
            let detail = client.scale_job(&name, &change)?;
            let sentence = match (detail.changes.is_empty(), from_epoch) {
                (true, _) => format!("job `{name}` has {} workers from now on", detail.job.workers),
                (false, None) => format!("job `{name}` changes its workers at the end of its round"),
                (false, Some(epoch)) => format!("job `{name}` changes its workers when epoch {epoch} begins"),
            };
            out.done(&detail, sentence)
        }
        JobVerb::Logs { name, lines } => logs::show(&Whose::Job(name), &lines, client, out),
        JobVerb::History { name, plan: true, .. } => plan::show(&name, client, out),
        JobVerb::History { name, stages, versions, .. } => history(&name, stages, versions, client, out),
        JobVerb::Cost { name, rented } => cost::run(&name, rented.as_deref(), client, out),
        JobVerb::Delete { name, yes } => {
            confirm(&format!("delete job `{name}` with its history?"), yes)?;
            client.delete_job(&name)?;
            out.done(&json!({"deleted": name}), format_args!("deleted job `{name}`"))
        }
        JobVerb::Prune { yes } => {
            confirm("delete all jobs that are over?", yes)?;
            let pruned = client.prune_jobs()?;
            out.done(&pruned, format_args!("deleted {} jobs", pruned.deleted))
        }
        JobVerb::Kill { name, worker } => {
            client.kill_worker(&name, worker)?;
            out.done(&json!({"job": name, "killed": worker}), format_args!("killed worker {worker} of job `{name}`"))
        }
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.4}"))
}

fn changed(change: &ShapeChange) -> String {
    let parts = [
        change.workers.map(|workers| format!("{workers} workers")),
        change.memory.map(|memory| format!("{} each", bytes(memory))),
        change.batch.map(|batch| format!("batch {batch}")),
        change.from_epoch.map(|epoch| format!("from epoch {epoch} on")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn describe(detail: &JobDetail, out: &Output) -> String {
    let JobDetail { job, spec, shape, spending, .. } = detail;
    let mut rows = vec![("name", job.name.clone()), ("state", job.state.word().to_owned())];
    if !job.reason.is_empty() {
        rows.push(("reason", harmless(&job.reason)));
    }
    rows.extend(job.queue_position.map(|before| ("queue", format!("{before} before it"))));
    rows.push(("function", format!("{}, version {}", job.function, short_version(&detail.version))));
    if let (Some(dataset), Some(version)) = (&job.dataset, &detail.data_version) {
        rows.push(("data set", format!("{dataset}, version {}", short_version(version))));
    }
    rows.push(("workers", format!("{}, {} each", job.workers, bytes(shape.memory))));
    rows.extend(detail.changes.iter().map(|change| ("to change", changed(change))));
    rows.push(("seed", detail.seed.to_string()));
    rows.push(("epochs", format!("{} of {}", job.epoch, job.epochs)));
    rows.extend(job.train_loss.map(|loss| ("loss", number(Some(loss)))));
    rows.extend(job.validation_loss.map(|loss| ("validation loss", number(Some(loss)))));
    rows.extend(job.accuracy.map(|accuracy| ("accuracy", number(Some(accuracy)))));
    rows.push(("created", moment(&job.created_at)));
    let times = if detail.starts > 1 { format!(", {} times", detail.starts) } else { String::new() };
    rows.extend(job.started_at.as_ref().map(|at| ("started", format!("{}{times}", moment(at)))));
    rows.extend(job.ended_at.as_ref().map(|at| ("ended", moment(at))));
    rows.push(("time", seconds(job.seconds)));
    rows.extend(
        detail
            .checkpoint
            .map(|at| ("checkpoint", format!("after epoch {}, step {}, {}", at.epoch, at.step, bytes(at.size)))),
    );
    rows.push(("workers lost", detail.losses.to_string()));
    rows.push(("processor", seconds(spending.cpu_seconds)));
    rows.push(("devices", format!("{}, GPUs {}", seconds(spending.device_seconds), seconds(spending.gpu_seconds))));
    rows.push(("memory", format!("{:.1} GiB-seconds", spending.memory_gib_seconds)));
    rows.push(("exchanged", bytes(spending.bytes)));
    rows.push(("calls", format!("{}, {} cold starts", spending.invocations, spending.cold_starts)));
    rows.push(("cost", format!("{:.6}", spending.cost)));
    rows.extend(cost::in_a_line(&detail.costs).map(|parts| ("of that", parts)));
    if !detail.models.is_empty() {
        rows.push(("models", detail.models.join(", ")));
    }
    // What was asked for and has no line of its own. By way of text, so that an `f32` is as short as it was.
    let asked = serde_json::to_string(spec).and_then(|text| serde_json::from_str::<serde_json::Value>(&text));
    let asked = asked.unwrap_or_default();
    let shown = ["function", "dataset", "name", "workers", "memory", "epochs", "seed"];
    let asked: Vec<String> = asked
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(word, _)| !shown.contains(&word.as_str()))
        .map(|(word, value)| format!("{word}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect();
    rows.push(("asked for", harmless(&asked.join(" "))));
    out.fields(&rows)
}

/// All epochs of a job, page by page.
pub fn all_epochs(name: &Name, client: &Client) -> Result<JobHistory, ClientError> {
    let mut all = JobHistory { epochs: Vec::new(), next: None };
    loop {
        let page = client.job_history(name, all.next)?;
        all.epochs.extend(page.epochs);
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

fn history(name: &Name, stages: bool, versions: bool, client: &Client, out: &Output) -> anyhow::Result<()> {
    let all = all_epochs(name, client)?;
    out.show(&all, || {
        if versions {
            return versions_table(&all.epochs, out);
        }
        let mut text = epochs_table(&all.epochs, out);
        for epoch in &all.epochs {
            for change in &epoch.reshaped {
                let (workers, memory, batch) = (change.workers, bytes(change.memory), change.batch);
                let when = format!("\nin epoch {}, after step {}:", epoch.epoch, change.step);
                text += &format!("{when} {workers} workers from there on, {memory} each, batch {batch}");
            }
        }
        if stages {
            text += &format!("\n{}", stages_table(&all.epochs, out));
        }
        text
    })
}

fn epochs_table(epochs: &[EpochRecord], out: &Output) -> String {
    let row = |epoch: &EpochRecord| {
        vec![
            epoch.epoch.to_string(),
            number(Some(epoch.train_loss)),
            number(epoch.validation.get("loss").copied()),
            number(epoch.validation.get("accuracy").copied()),
            epoch.workers.to_string(),
            epoch.batch.to_string(),
            format!("{}", epoch.lr),
            seconds(epoch.seconds),
            format!("{:.0}", epoch.samples_per_second),
            seconds(epoch.spending.cpu_seconds),
            bytes(epoch.memory),
            bytes(epoch.spending.bytes),
            epoch.spending.cold_starts.to_string(),
            epoch.losses.to_string(),
            format!("{:.6}", epoch.spending.cost),
        ]
    };
    let mut rows: Vec<Vec<String>> = epochs.iter().map(row).collect();
    let mut header = vec![
        "EPOCH",
        "LOSS",
        "VAL LOSS",
        "ACCURACY",
        "WORKERS",
        "BATCH",
        "LR",
        "TIME",
        "SAMPLES/S",
        "CPU",
        "MEMORY",
        "SENT",
        "COLD",
        "LOST",
        "COST",
    ];
    // Only jobs whose workers do not wait for each other.
    if epochs.iter().any(|epoch| epoch.mean_staleness.is_some()) {
        header.push("STALE");
        for (row, epoch) in rows.iter_mut().zip(epochs) {
            let stale = epoch.mean_staleness.zip(epoch.max_staleness);
            row.push(stale.map_or_else(String::new, |(mean, most)| format!("{mean:.2}, at most {most}")));
        }
    }
    // Only jobs whose workers exchange what they have through a channel.
    if epochs.iter().any(|epoch| epoch.traffic.items > 0) {
        header.extend(["MESSAGES", "THROUGH", "TRANSFERS"]);
        for (row, EpochRecord { traffic, .. }) in rows.iter_mut().zip(epochs) {
            row.extend([traffic.items.to_string(), bytes(traffic.bytes), seconds(traffic.seconds)]);
        }
    }
    out.table(&header, &rows)
}

/// What was trained on, version by version, and how the loss on what was new in each has changed.
fn versions_table(epochs: &[EpochRecord], out: &Output) -> String {
    let of = |epoch: &EpochRecord| epoch.data.map(|data| data.version);
    let row = |epochs: &[EpochRecord]| {
        let (first, last) = (epochs.first()?, epochs.last()?);
        let data = first.data?;
        let spending: f64 = epochs.iter().map(|epoch| epoch.spending.cost).sum();
        Some(vec![
            short_version(&data.version.to_string()).to_owned(),
            format!("{}-{}", first.epoch, last.epoch),
            data.new.to_string(),
            data.replayed.to_string(),
            number(data.loss_before),
            number(last.data.and_then(|data| data.loss_after)),
            number(last.validation.get("accuracy").copied()),
            format!("{spending:.6}"),
        ])
    };
    let rows: Vec<Vec<String>> = epochs.chunk_by(|a, b| of(a) == of(b)).filter_map(row).collect();
    out.table(&["VERSION", "EPOCHS", "NEW", "REPLAYED", "LOSS BEFORE", "AFTER", "ACCURACY", "COST"], &rows)
}

/// Seconds that all workers spent, by what they spent them on.
fn stages_table(epochs: &[EpochRecord], out: &Output) -> String {
    let row = |epoch: &EpochRecord| {
        let stages = epoch.stages.named().map(|(_, seconds)| format!("{seconds:.3}"));
        [epoch.epoch.to_string()].into_iter().chain(stages).collect()
    };
    let rows: Vec<Vec<String>> = epochs.iter().map(row).collect();
    let names = Stages::default().named().map(|(name, _)| name.replace('_', " ").to_uppercase());
    let header: Vec<&str> = ["EPOCH"].into_iter().chain(names.iter().map(String::as_str)).collect();
    out.table(&header, &rows)
}
