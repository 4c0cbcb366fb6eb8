//! `weft train-local`: train a function in this process, as a job of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use clap::Args;
use tokio::sync::{mpsc, watch};
use weft_core::spec::Memory;

use super::failure::{Interrupted, Reported};
use super::output::{Output, bytes};
use super::samples::DataArgs;
use super::train::TrainingOptions;
use super::train::screen::Screen;
use crate::build::{Options as BuildOptions, build};
use crate::clock::unix_ms;
use crate::job::engine::{Ending, Origin};
use crate::job::meter::Meter;
use crate::job::team::Order;
use crate::job::workshop::{InstanceRules, JobData};
use crate::job::{BadSpec, JobError, JobEvent, JobSpec, State};
use crate::local::job::LocalLines;
use crate::local::{
    FileKeeper, LocalJob, LocalTrainer, OutputFiles, Place, PreparedJob, ResumeError, Resumed, Subject,
};
use crate::logs::Whose;
use crate::model::Model;
use crate::names::Name;

mod report;

use report::{Report, Trained};

/// Steps after which one worker alone says how far it is, so that an interrupted training loses no more than these. It
/// changes no bit of the result.
const ROUND: u64 = 64;

/// For a model whose name is not known yet, in the folder that it will be in.
const ANY_NAME: &str = ".weft-model";

/// Train a function on this machine, without a node.
#[derive(Debug, Args)]
pub struct TrainLocalArgs {
    /// The function: its crate's folder, or a component in a .wasm file
    function: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Threads, where the machine's cores compute; 0 means one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Of first weights, order of samples, and everything else that is random [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// Start from this model
    #[arg(long, value_name = "FILE")]
    init_from: Option<PathBuf>,
    /// Where the model goes [default: NAME.safetensors]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Go on with a training that was interrupted or has failed, or with more epochs, from the checkpoint beside its model;
    /// what is not said is as it was
    #[arg(long, conflicts_with = "init_from")]
    resume: bool,
    /// Use a fresh instance for every call: slower, and the same result to the bit
    #[arg(long)]
    fresh_instances: bool,
    #[command(flatten)]
    options: TrainingOptions,
    #[command(flatten)]
    planned: PlannedArgs,
}

/// What only a node plans, here to be refused with the reason.
#[derive(Debug, Args)]
struct PlannedArgs {
    #[arg(long, hide = true)]
    policy: Option<String>,
    #[arg(long, hide = true)]
    cheapest: bool,
    #[arg(long, hide = true)]
    fastest: bool,
    #[arg(long, hide = true)]
    cheapest_within: Option<String>,
    #[arg(long, hide = true)]
    fastest_within: Option<String>,
    #[arg(long, hide = true)]
    deadline: Option<String>,
    #[arg(long, hide = true)]
    budget: Option<String>,
    #[arg(long, hide = true)]
    plan_only: bool,
}

impl PlannedArgs {
    fn check(&self) -> anyhow::Result<()> {
        let given = [
            ("policy", self.policy.is_some()),
            ("cheapest", self.cheapest),
            ("fastest", self.fastest),
            ("cheapest-within", self.cheapest_within.is_some()),
            ("fastest-within", self.fastest_within.is_some()),
            ("deadline", self.deadline.is_some()),
            ("budget", self.budget.is_some()),
            ("plan-only", self.plan_only),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(anyhow!(
                "`--{flag}`: nothing is planned without a node, where training costs nothing: use `weft train`, or \
                 `--max-time` to end it in time"
            )),
            None => Ok(()),
        }
    }
}

pub fn run(args: TrainLocalArgs, out: &Output) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(train_local(args, out))
}

/// What a job's words are called on the command line.
fn with_flag(error: BadSpec) -> anyhow::Error {
    let BadSpec { word, problem } = error;
    match word {
        "params" => anyhow!("{problem}"),
        "dataset" => anyhow!("`--dataset` (or `--data`): {problem}"),
        word => anyhow!("`--{}`: {problem}", word.replace('_', "-")),
    }
}

fn refused(error: JobError) -> anyhow::Error {
    match error {
        JobError::Bad(bad) => with_flag(bad),
        other => other.into(),
    }
}

impl TrainLocalArgs {
    /// What is asked for, over what an earlier run was asked for.
    fn spec(&self, base: JobSpec) -> JobSpec {
        let init_from = self.init_from.as_ref().map(|path| path.display().to_string()).or(base.init_from.clone());
        let (seed, dataset) = (self.seed.or(base.seed).or(Some(0)), self.data.dataset.clone().or(base.dataset.clone()));
        self.options.clone().over(JobSpec { seed, dataset, init_from, ..base })
    }

    /// The same, if it makes sense. What the trainer is, and what it is trained on, is not known yet.
    fn checked_spec(&self, base: JobSpec) -> anyhow::Result<JobSpec> {
        let spec = self.spec(base);
        spec.check().map_err(with_flag)?;
        if spec.plan.is_some() {
            return Err(anyhow!("`--memory`: only a node's jobs choose from a range: give one size"));
        }
        Ok(spec)
    }
}

async fn train_local(args: TrainLocalArgs, out: &Output) -> anyhow::Result<()> {
    // Whatever is wrong and can be known, is said before anything that takes long.
    args.planned.check()?;
    OutputFiles::at(args.output.as_deref().unwrap_or(Path::new(ANY_NAME)))?;
    if !args.resume {
        args.checked_spec(JobSpec::new("function", None))?;
    }
    let (component, name) = build_function(&args.function, out)?;
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.safetensors")));
    let files = OutputFiles::at(&path)?;
    let resumed = match args.resume {
        true => Some(Resumed::open(&files.checkpoint().ok_or(ResumeError::NoFile)?)?),
        false => None,
    };
    if let Some(left) = files.checkpoint().filter(|path| resumed.is_none() && path.exists()) {
        out.note(format_args!("starting anew; `--resume` would go on from `{}`, which is replaced", left.display()));
    }
    let base = resumed.as_ref().map_or_else(|| JobSpec::new(name.as_str(), None), |resumed| resumed.spec.clone());
    let asked = args.checked_spec(base)?;
    let device = asked.device.parse().map_err(|error| with_flag(BadSpec::new("device", error)))?;
    let place = Place { device, threads: args.threads };
    let says_memory = args.options.says_memory();
    let data = args.data.make(out)?;
    let trainer = LocalTrainer::open(&component, name.clone(), place, std::env::current_exe()?).await?;
    let data = data.map(|(name, made)| JobData {
        name,
        manifest: Arc::new(made.manifest),
        charge: None,
        blocks: made.blocks,
        growth: None,
    });
    let mut spec = asked.clone();
    if !says_memory {
        let samples = data.as_ref().map(|data| data.manifest.train.count);
        let shape = spec.check().map_err(with_flag)?.first_shape(samples);
        spec.memory = Memory::Bytes(trainer.memory_of_each(&shape)?);
    }
    if spec.checkpoint_every == 0 {
        spec.checkpoint_every = ROUND;
    }
    let job = LocalJob {
        host: trainer.host.clone(),
        trainer: trainer.trainer.clone(),
        tenant: trainer.tenant.clone(),
        pool: trainer.pool.clone(),
        log: trainer.log.clone(),
        name,
        data,
        spec,
        // A limit of one's own machine is the machine.
        instances: InstanceRules { linear: (!says_memory).then_some(u64::MAX), fresh: args.fresh_instances },
    };
    let init_from = args.init_from.as_deref().map(open_model).transpose()?;
    let prepared = job.prepare(init_from, resumed.is_some()).await.map_err(refused)?;
    let starts = resumed.as_ref().map_or(0, |resumed| resumed.starts) + 1;
    let subject = Subject::new(&prepared.workshop, asked, starts);
    if let Some(resumed) = &resumed {
        resumed.check(&subject)?;
    }
    let checkpoint = resumed.as_ref().map(|resumed| resumed.checkpoint);
    let origin = match (resumed, args.init_from) {
        (Some(resumed), _) => Origin::Checkpoint(Box::new(resumed.training)),
        (None, Some(path)) => {
            let mut model = open_model(&path)?;
            Origin::Model(Box::new(move |plan, shared| {
                shared.take(plan, &mut model).map_err(|error| error.to_string())
            }))
        }
        (None, None) => Origin::FirstValues,
    };
    let (events, heard) = mpsc::unbounded_channel();
    let keeper = Arc::new(FileKeeper::new(files, subject, checkpoint, events));
    let (began_ms, start, device, shape) = (unix_ms(), Instant::now(), prepared.device(), prepared.shape);
    let ended = follow(prepared, &keeper, origin, heard, out).await;
    print_log(&trainer, out);
    let Ended { ending, ready_ms } = ended?;
    let report = Report { keeper: &keeper, name: trainer.name(), shape, device, began_ms, ready_ms, start };
    finish(&report, ending, out)
}

fn open_model(path: &Path) -> anyhow::Result<Model<File>> {
    let file = File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    Model::open(file).with_context(|| format!("`{}`", path.display()))
}

/// How a training ended, and when its workers were there.
struct Ended {
    ending: Ending,
    ready_ms: Option<f64>,
}

/// Trains, and shows how far it is. Ctrl-C ends the training in order; another one ends it at once.
async fn follow(
    prepared: PreparedJob,
    keeper: &Arc<FileKeeper>,
    origin: Origin,
    mut heard: mpsc::UnboundedReceiver<JobEvent>,
    out: &Output,
) -> anyhow::Result<Ended> {
    let (order, orders) = watch::channel(Order::Run);
    let meter = Meter::new(&prepared.workshop, keeper.kept(|kept| kept.epoch));
    let lines = LocalLines { orders, news: keeper.news(meter) };
    let (name, workers, start) = (prepared.workshop.brief.job.clone(), prepared.shape.workers, Instant::now());
    let mut screen = Screen::new(&name, keeper.subject().spec.epochs, out);
    let mut ready_ms = None;
    let ready = || keeper.tell(JobEvent::Ready { workers, ms: start.elapsed().as_secs_f64() * 1e3 });
    let mut train = std::pin::pin!(prepared.train(keeper.clone(), origin, lines, ready));
    let mut show = |event: JobEvent, screen: &mut Screen<'_>| {
        if let JobEvent::Ready { ms, .. } = event {
            ready_ms = Some(ms);
        }
        screen.show(&event);
    };
    let mut interrupt = std::pin::pin!(interruption());
    let ending = loop {
        tokio::select! {
            biased;
            Some(event) = heard.recv() => show(event, &mut screen),
            ending = &mut train => break ending,
            () = &mut interrupt => {
                if *order.borrow() == Order::Stop {
                    screen.close();
                    return Err(Interrupted.into());
                }
                order.send_replace(Order::Stop);
                interrupt.set(interruption());
            }
        }
    };
    while let Ok(event) = heard.try_recv() {
        show(event, &mut screen);
    }
    screen.close();
    Ok(Ended { ending, ready_ms })
}

/// Waits for Ctrl-C. Where signals cannot be waited for, it ends the process as it would have.
async fn interruption() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Keeps or deletes the checkpoint, and says what it came to.
fn finish(report: &Report<'_>, ending: Ending, out: &Output) -> anyhow::Result<()> {
    let keeper = report.keeper;
    let is_over = matches!(ending, Ending::Done(_)) && keeper.subject().spec.checkpoint_every == 0;
    let kept = if is_over { keeper.remove_checkpoint() } else { keeper.write_checkpoint() };
    if let Err(error) = kept {
        out.diagnose(format_args!("the checkpoint: {error}"));
    }
    let trained = Trained::new(report, ending);
    out.show(&trained, || trained.summary(out))?;
    match trained.detail.job.state {
        State::Stopped => {
            out.diagnose(trained.how_to_go_on());
            Err(Interrupted.into())
        }
        State::Failed => Err(Reported.into()),
        State::Queued | State::Running | State::Waiting | State::Done => Ok(()),
    }
}

/// The component that a path names, built if it is a crate, and what it is called.
pub fn build_function(function: &Path, out: &Output) -> anyhow::Result<(PathBuf, Name)> {
    let built = build(function, &BuildOptions { quiet: true, ..BuildOptions::default() })?;
    let name: Name = built.name.parse()?;
    out.note(format_args!("{name}: {} of component", bytes(built.bytes)));
    Ok((built.path, name))
}

fn print_log(trainer: &LocalTrainer, out: &Output) {
    for line in trainer.log.tail(&Whose::Function(trainer.name().clone()), 1_000) {
        out.note(format_args!("{}", super::logs::as_text(&line, out).trim_end()));
    }
}
