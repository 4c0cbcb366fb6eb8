//! `weft train-local`: train a function in this process, with one worker.

use std::fs::File;
use std::io::IsTerminal;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use serde::Serialize;
use weft_gpu::pool::Wish;

use super::dataset::{Pair, Reading, Shape, image_size, leave, pull};
use super::output::{Output, bytes};
use super::train::{epoch_line, name_value};
use crate::build::{Options as BuildOptions, build};
use crate::catalog::spec::{DataSetSpec, SyntheticSpec};
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::host::bindings::weft::train::training::Traits;
use crate::logs::Whose;
use crate::model::{Input, Meta, Model};
use crate::names::Name;
use crate::train::files::LocalDataSet;
use crate::train::local::{LocalTrainer, Place};
use crate::train::run::{Data, EpochReport, Listener, Progress, Schedule, train};
use crate::train::worker::Worker;
use crate::train::{save, settings};

/// Samples of a synthetic data set that is named where an example could be.
const SYNTHETIC: (u64, u64) = (10_000, 1_000);

/// Train a function on this machine, without a node.
#[derive(Debug, Args)]
pub struct TrainLocalArgs {
    /// The function: its crate's folder, or a component in a .wasm file
    function: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// How often to go through the samples
    #[arg(long, default_value_t = 5)]
    epochs: u64,
    /// Samples of one step
    #[arg(long, default_value = "64")]
    batch: NonZeroU32,
    /// The learning rate
    #[arg(long, default_value_t = 0.01)]
    lr: f32,
    /// Of first weights, order of samples, and everything else that is random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Steps of an epoch, for a function that makes its own samples
    #[arg(long, default_value_t = 100)]
    steps: u64,
    /// A hyper-parameter of the function; may be given again. Any unknown one lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_value)]
    param: Vec<(String, String)>,
    /// Start from this model
    #[arg(long, value_name = "FILE")]
    init_from: Option<PathBuf>,
    /// Where the model goes [default: NAME.safetensors]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Use a fresh instance for every call: slower, and the same result to the bit
    #[arg(long)]
    fresh_instances: bool,
}

/// What to train on.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// An example (digits, mnist, fashion-mnist) or a synthetic data set (binary20, higgs, rcv1)
    #[arg(long, value_name = "NAME", conflicts_with = "data")]
    pub dataset: Option<String>,
    /// A file with samples, and one with their labels if they are apart; may be given again
    #[arg(long, value_name = "X[,Y]")]
    pub data: Vec<Pair>,
    /// The same with samples to test with
    #[arg(long, value_name = "X[,Y]")]
    test: Vec<Pair>,
    #[command(flatten)]
    reading: Reading,
    /// The share of the samples to train on, where there are none to test with, as in 0.9
    #[arg(long, value_name = "SHARE")]
    split: Option<f64>,
    /// The shape of one sample, as in 1x8x8
    #[arg(long, value_name = "SHAPE")]
    pub shape: Option<Shape>,
    /// Height and width that images are resized to, as in 28x28
    #[arg(long, value_name = "HxW")]
    resize: Option<Shape>,
    /// Done to features: `standardise`, `minmax:lo,hi` or `normalise` [default: standardise for examples]
    #[arg(long)]
    pub transform: Option<String>,
}

/// Where to compute.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// auto, cpu, gpu, or one by name as in gpu:1; see `weft devices`
    #[arg(long, default_value = "auto", value_parser = wish)]
    device: Wish,
    /// Threads, where the machine's cores compute; 0 means one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

fn wish(text: &str) -> Result<Wish, String> {
    match text {
        "auto" => Ok(Wish::Auto),
        "cpu" => Ok(Wish::Cpu),
        "gpu" => Ok(Wish::Gpu),
        name => name.parse().map(Wish::Exactly).map_err(|error| format!("{error}, nor `auto` or `gpu`")),
    }
}

impl DataArgs {
    /// The name and the samples of what was asked for, if anything was.
    pub fn make(self, out: &Output) -> anyhow::Result<Option<(String, LocalDataSet)>> {
        let folder = tempfile::tempdir()?;
        let mut spec = self.reading.spec();
        let name = match &self.dataset {
            Some(name) => {
                let given = example(name, folder.path(), out)?;
                spec = DataSetSpec { format: spec.format, ..given };
                name.clone()
            }
            None if self.data.is_empty() && self.test.is_empty() => return Ok(None),
            None => {
                (spec.train, spec.test) = (Pair::all(&self.data, &leave)?, Pair::all(&self.test, &leave)?);
                "files".to_owned()
            }
        };
        spec.split = self.split.or(spec.split);
        spec.shape = self.shape.map(|shape| shape.0).or(spec.shape);
        spec.resize = self.resize.map(image_size).transpose()?.or(spec.resize);
        spec.transform = self.transform.or(spec.transform);
        Ok(Some((name, LocalDataSet::make(&spec)?)))
    }
}

fn example(name: &str, folder: &std::path::Path, out: &Output) -> anyhow::Result<DataSetSpec> {
    if let Ok(example) = pull::Example::from_str(name, false) {
        return pull::spec(example, folder, &leave, out);
    }
    if name.parse::<crate::dataset::synth::Kind>().is_ok() {
        let (train, test) = SYNTHETIC;
        let synthetic = Some(SyntheticSpec { kind: name.to_owned(), train, test, seed: 0 });
        return Ok(DataSetSpec { synthetic, ..DataSetSpec::default() });
    }
    bail!(
        "there is no data set `{}` here: there are digits, mnist, fashion-mnist, binary20, higgs and rcv1; \
         give files with `--data`",
        name.escape_debug()
    )
}

/// What a training came to.
#[derive(Serialize)]
struct Trained {
    function: String,
    version: Digest,
    device: String,
    parameters: usize,
    epochs: Vec<EpochReport>,
    seconds: f64,
    model: PathBuf,
    bytes: u64,
}

pub fn run(args: TrainLocalArgs, out: &Output) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(train_local(args, out))
}

async fn train_local(args: TrainLocalArgs, out: &Output) -> anyhow::Result<()> {
    let data = args.data.make(out)?;
    let (trainer, name) = open(&args.function, &args.place, out).await?;
    let mut setup = trainer.setup(args.seed);
    let description = Worker::describe(&setup).await?;
    if data.is_none() && !description.traits.contains(Traits::MAKES_DATA) {
        bail!("`{name}` needs samples: give `--dataset` or `--data`");
    }
    setup.settings = settings::read(&description, &args.param)?;
    setup.fresh = args.fresh_instances;
    let hyper_parameters = settings::to_json(&setup.settings);
    let mut worker = Worker::start(setup).await?;
    if let Some(path) = &args.init_from {
        let file = File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
        let declared = worker.declared().context("the trainer declared nothing")?;
        save::load(declared, &mut Model::open(file)?).with_context(|| format!("`{}`", path.display()))?;
    }
    let schedule = Schedule {
        epochs: args.epochs,
        batch: args.batch,
        rate: args.lr,
        steps: args.steps,
        traits: description.traits,
    };
    let samples =
        data.as_ref().map(|(name, made)| Data { name, manifest: &made.manifest, blocks: made.blocks.clone() });
    let start = Instant::now();
    let mut shown = Shown::new(args.epochs, out);
    tokio::spawn({
        let (stop, cancel) = (shown.stop.clone(), trainer.context().cancel().clone());
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.store(true, Ordering::Relaxed);
                cancel.cancel();
            }
        }
    });
    let trained = train(&mut worker, samples.as_ref(), &schedule, &mut shown).await;
    print_log(&trainer, out);
    let epochs = trained?;
    let declared = worker.declared().context("the trainer declared nothing")?;
    let last = epochs.last();
    let meta = Meta {
        function: Some(trainer.version()),
        step: Some(epochs.iter().map(|epoch| epoch.steps).sum()),
        hyper_parameters,
        metrics: last.map(|epoch| epoch.validation.clone()).unwrap_or_default(),
        data_set: data.as_ref().map(|(_, made)| Digest::of(&made.manifest.to_bytes())),
        created_ms: Some(unix_ms()),
        input: data.as_ref().map(|(_, made)| Input::of(&made.manifest)),
        ..Meta::default()
    };
    let path = args.output.unwrap_or_else(|| PathBuf::from(format!("{name}.safetensors")));
    let file = File::create(&path).with_context(|| format!("cannot write `{}`", path.display()))?;
    let written = save::save(declared, &meta, std::io::BufWriter::new(file))?;
    let trained = Trained {
        function: name.to_string(),
        version: trainer.version(),
        device: trainer.lease().device().to_string(),
        parameters: declared.parameters(),
        seconds: start.elapsed().as_secs_f64(),
        epochs,
        model: path.clone(),
        bytes: written,
    };
    out.show(&trained, || {
        format!(
            "trained {} parameters on {} in {:.1} s; the model is `{}`, {}\n",
            trained.parameters,
            trained.device,
            trained.seconds,
            path.display(),
            bytes(written)
        )
    })
}

/// The component that a path names, built if it is a crate, and made ready.
pub async fn open(function: &std::path::Path, place: &PlaceArgs, out: &Output) -> anyhow::Result<(LocalTrainer, Name)> {
    let built = build(function, &BuildOptions { quiet: true, ..BuildOptions::default() })?;
    let name: Name = built.name.parse()?;
    out.note(format_args!("{name}: {} of component", bytes(built.bytes)));
    let place = Place { device: place.device, threads: place.threads };
    let trainer = LocalTrainer::open(&built.path, name.clone(), place, std::env::current_exe()?).await?;
    Ok((trainer, name))
}

fn print_log(trainer: &LocalTrainer, out: &Output) {
    for line in trainer.log().tail(&Whose::Function(trainer.name().clone()), 1_000) {
        out.note(format_args!("{}", super::logs::as_text(&line, out).trim_end()));
    }
}

/// A bar in a terminal, a line for each epoch elsewhere.
struct Shown {
    bar: Option<ProgressBar>,
    epochs: u64,
    quiet: bool,
    stop: Arc<AtomicBool>,
    since: Instant,
    /// What was validated last, for the bar.
    validated: String,
}

impl Shown {
    fn new(epochs: u64, out: &Output) -> Self {
        let bar = (!out.is_quiet() && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            let style = "{prefix} [{bar:30}] {pos}/{len} {msg}";
            bar.with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let (stop, since, validated) = (Arc::default(), Instant::now(), String::new());
        Self { bar, epochs, quiet: out.is_quiet(), stop, since, validated }
    }
}

impl Listener for Shown {
    fn progress(&mut self, progress: &Progress) {
        let Some(bar) = &self.bar else { return };
        if progress.step == 1 {
            bar.reset();
            bar.set_length(progress.steps);
            bar.set_prefix(format!("epoch {}/{}", progress.epoch + 1, self.epochs));
        }
        bar.set_position(progress.step);
        let rate = progress.samples as f64 / progress.elapsed.as_secs_f64();
        // Of the whole run, validation so far included.
        let done = (progress.epoch as f64 + progress.step as f64 / progress.steps as f64) / self.epochs as f64;
        let left = self.since.elapsed().mul_f64(1.0 / done - 1.0);
        let left = HumanDuration(Duration::from_secs(left.as_secs()));
        bar.set_message(format!("loss {:.4}{}, {rate:.0} samples/s, {left:#} left", progress.loss, self.validated));
    }

    fn epoch(&mut self, report: &EpochReport) {
        if self.quiet {
            return;
        }
        self.validated = report.validation.get("accuracy").map_or_else(String::new, |it| format!(", accuracy {it:.4}"));
        let line = epoch_line(
            (report.epoch, self.epochs),
            report.train_loss,
            &report.validation,
            report.samples_per_second,
            report.seconds,
        );
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
