//! `weft train`: submit a training job, and follow it to its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::de::DeserializeOwned;

use super::client::{Client, ClientError};
use super::output::Output;
use super::{deploy, upload};
use crate::api::types::JobView;
use crate::digest::{Digest, hex};
use crate::job::JobSpec;
use crate::job::spec::{EarlyStop, K, Keep, Plateau, RuleName};
use crate::names::{MAX_NAME, Name};
use crate::sync::{OnLoss, Pace};
use crate::units::{Size, Span};

mod screen;
pub mod watch;

pub use screen::{epoch_line, seconds};

/// Times that a submission is sent before giving up, where the connection breaks. Its key makes it one job all the same.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Train a deployed function on a node, with as many workers as you like.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// A deployed trainer's name; or, with a `/` or `.wasm` in it, its crate or component, which is deployed first
    #[arg(value_name = "FUNCTION")]
    function: String,
    /// The data set on the node; left out for a trainer that makes its own data
    #[arg(long, value_name = "NAME")]
    dataset: Option<Name>,
    /// What the job and its model are called [default: a name is made up]
    #[arg(long)]
    name: Option<Name>,
    /// A hyper-parameter of the function; may be given again. Any unknown one lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_value)]
    param: Vec<(String, String)>,
    /// The model to start from: one on the node, or a .safetensors file, which is sent first
    #[arg(long, value_name = "MODEL|FILE")]
    init_from: Option<String>,
    /// Of first weights, order of samples, and everything else that is random [default: made up]
    #[arg(long)]
    seed: Option<u64>,
    /// Do not follow the job: say its name and leave it running
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    learning: LearningArgs,
    #[command(flatten)]
    workers: WorkerArgs,
    #[command(flatten)]
    ending: EndingArgs,
}

/// How to learn.
#[derive(Debug, Args)]
#[command(next_help_heading = "Learning")]
struct LearningArgs {
    /// How often to go through the samples [default: 10]
    #[arg(long)]
    epochs: Option<u64>,
    /// Samples of one step of one worker [default: 64]
    #[arg(long)]
    batch: Option<u32>,
    /// Other batch sizes from an epoch on, as in 1:32,5:64
    #[arg(long, value_name = "EPOCH:BATCH,…", value_parser = batch_schedule)]
    batch_schedule: Option<BTreeMap<u64, u32>>,
    /// The learning rate [default: 0.01]
    #[arg(long)]
    lr: Option<f32>,
    /// Multiply the rate by a factor after more than so many validations that were no better, down to a least rate
    #[arg(long, value_name = "FACTOR,PATIENCE[,MIN]", value_parser = plateau)]
    plateau: Option<Plateau>,
    /// Epochs from one validation to the next; 0 validates only the last [default: 1]
    #[arg(long, value_name = "EPOCHS")]
    validate_every: Option<u64>,
    /// Steps of an epoch, for a function that makes its own samples [default: 100]
    #[arg(long)]
    steps: Option<u64>,
}

/// Who computes, and how they work together.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
struct WorkerArgs {
    /// Workers, each with its share of the samples [default: 1]
    #[arg(long)]
    workers: Option<u32>,
    /// gradient-average, k-average or statistic-sum [default: k-average with `--k`, else what fits the function]
    #[arg(long, value_parser = word::<RuleName>)]
    rule: Option<RuleName>,
    /// For k-average: steps from one average of the weights to the next, or `epoch`
    #[arg(long, value_name = "STEPS|epoch")]
    k: Option<K>,
    /// When workers exchange what they have; `barrier`: when all have finished the round [default: barrier]
    #[arg(long, value_parser = word::<Pace>)]
    pace: Option<Pace>,
    /// How gradients are encoded on their way: plain, f16, qsgd:BITS, top-k:FRACTION or significance:THRESHOLD
    /// [default: plain]
    #[arg(long)]
    codec: Option<String>,
    /// auto, cpu, gpu, or one by name as in gpu:1 [default: auto]
    #[arg(long)]
    device: Option<String>,
    /// Memory of each worker, in its sandbox and on its device together; more is also more of a device's time
    /// [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Functions that compute a worker's step side by side, a batch each [default: 1]
    #[arg(long, value_name = "FUNCTIONS")]
    fan_out: Option<u32>,
    /// Give every worker its share of each class
    #[arg(long)]
    stratified: bool,
    /// `wait` for a lost worker's share, done again to the same bits, or `drop` it from the round [default: wait]
    #[arg(long, value_name = "wait|drop", value_parser = word::<OnLoss>)]
    on_loss: Option<OnLoss>,
    /// Take a worker that has not finished a round by then for lost [default: never]
    #[arg(long, value_name = "SPAN")]
    straggler: Option<Span>,
    /// Replace a function's instance by a fresh one after so long [default: never]
    #[arg(long, value_name = "SPAN")]
    lifetime: Option<Span>,
}

/// When it is over, and what is left then.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ending")]
struct EndingArgs {
    /// End when validation accuracy reaches this, as in 0.99
    #[arg(long, value_name = "SHARE")]
    goal_accuracy: Option<f64>,
    /// End when validation loss falls to this
    #[arg(long, value_name = "LOSS")]
    goal_loss: Option<f64>,
    /// End after so many validations whose loss did not fall by more than a delta
    #[arg(long, value_name = "PATIENCE[,DELTA]", value_parser = early_stop)]
    early_stop: Option<EarlyStop>,
    /// End after so long, with the model as it is by then
    #[arg(long, value_name = "SPAN")]
    max_time: Option<Span>,
    /// Steps from one checkpoint to the next, besides the one after every epoch
    #[arg(long, value_name = "STEPS")]
    checkpoint_every: Option<u64>,
    /// Which models stay: the `best`, the `last`, or the last so many [default: last]
    #[arg(long, value_name = "best|last|N")]
    keep: Option<Keep>,
}

pub fn name_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// One of the words that the API takes.
pub fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

/// What stands between commas: so many parts at least and at most, each a number.
fn parts<const MOST: usize>(text: &str, least: usize, expected: &str) -> Result<[Option<f64>; MOST], String> {
    let wrong = || format!("expected {expected}");
    let given: Vec<&str> = text.split(',').map(str::trim).collect();
    if !(least..=MOST).contains(&given.len()) {
        return Err(wrong());
    }
    let mut numbers = [None; MOST];
    for (number, text) in numbers.iter_mut().zip(given) {
        *number = Some(text.parse().map_err(|_| wrong())?);
    }
    Ok(numbers)
}

/// A number of validations.
fn patience(number: Option<f64>) -> Result<u32, String> {
    let number = number.filter(|number| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number));
    number.map(|number| number as u32).ok_or_else(|| "the patience must be a whole number of validations".to_owned())
}

fn early_stop(text: &str) -> Result<EarlyStop, String> {
    let [number, delta] = parts(text, 1, "PATIENCE or PATIENCE,DELTA, as in 3,0.001")?;
    Ok(EarlyStop { patience: patience(number)?, delta: delta.unwrap_or(0.0) })
}

fn plateau(text: &str) -> Result<Plateau, String> {
    let [factor, number, min] = parts(text, 2, "FACTOR,PATIENCE or FACTOR,PATIENCE,MIN, as in 0.1,2,0.0001")?;
    let small = |number: Option<f64>| number.unwrap_or(0.0) as f32;
    Ok(Plateau { factor: small(factor), patience: patience(number)?, min: small(min) })
}

fn batch_schedule(text: &str) -> Result<BTreeMap<u64, u32>, String> {
    let mut schedule = BTreeMap::new();
    for entry in text.split(',') {
        let pair = entry
            .split_once(':')
            .and_then(|(epoch, batch)| Some((epoch.trim().parse::<u64>().ok()?, batch.trim().parse::<u32>().ok()?)));
        let (epoch, batch) = pair.ok_or_else(|| format!("`{entry}` is not EPOCH:BATCH, as in 5:64"))?;
        if schedule.insert(epoch, batch).is_some() {
            return Err(format!("epoch {epoch} is there twice"));
        }
    }
    Ok(schedule)
}

impl TrainArgs {
    /// The job that the flags ask for; the function and the model to start from are as they were given.
    fn spec(self) -> JobSpec {
        let defaults = JobSpec::new(self.function, self.dataset.map(Into::into));
        let LearningArgs { epochs, batch, batch_schedule, lr, plateau, validate_every, steps } = self.learning;
        let WorkerArgs {
            workers,
            rule,
            k,
            pace,
            codec,
            device,
            memory,
            fan_out,
            stratified,
            on_loss,
            straggler,
            lifetime,
        } = self.workers;
        let EndingArgs { goal_accuracy, goal_loss, early_stop, max_time, checkpoint_every, keep } = self.ending;
        let milliseconds =
            |span: Option<Span>| span.map_or(0, |span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX));
        JobSpec {
            name: self.name.map(Into::into),
            epochs: epochs.unwrap_or(defaults.epochs),
            batch: batch.unwrap_or(defaults.batch),
            lr: lr.unwrap_or(defaults.lr),
            workers: workers.unwrap_or(defaults.workers),
            rule,
            k,
            pace: pace.unwrap_or_default(),
            codec: codec.unwrap_or(defaults.codec),
            device: device.unwrap_or(defaults.device),
            on_loss: on_loss.unwrap_or_default(),
            straggler_ms: milliseconds(straggler),
            goal_accuracy,
            goal_loss,
            validate_every: validate_every.unwrap_or(defaults.validate_every),
            early_stop,
            plateau,
            batch_schedule: batch_schedule.unwrap_or_default(),
            seed: self.seed,
            memory: memory.map_or(defaults.memory, |size| size.0),
            fan_out: fan_out.unwrap_or(defaults.fan_out),
            lifetime_ms: milliseconds(lifetime),
            max_time_ms: milliseconds(max_time),
            checkpoint_every: checkpoint_every.unwrap_or(defaults.checkpoint_every),
            keep: keep.unwrap_or_default(),
            init_from: self.init_from,
            stratified,
            steps: steps.unwrap_or(defaults.steps),
            params: self.param.into_iter().collect(),
            function: defaults.function,
            dataset: defaults.dataset,
        }
    }
}

pub fn run(args: TrainArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let detach = args.detach;
    let mut spec = args.spec();
    if is_path(&spec.function, "wasm") {
        let (deployed, sentence) = deploy::deploy(Path::new(&spec.function), None, client, out)?;
        out.note(sentence);
        spec.function = deployed.function.name;
    }
    let mut sent = None;
    if let Some(file) = spec.init_from.take_if(|model| is_path(model, "safetensors")) {
        let model = send_model(Path::new(&file), client, out)?;
        spec.init_from = Some(model.name.to_string());
        sent = Some(model.name).filter(|_| model.is_new);
    }
    let job = submit(&spec, client, out);
    // Only what was refused for sure: of a lost connection nobody knows whether a job needs the model now.
    if let (Err(ClientError::Problem { .. }), Some(model)) = (&job, &sent) {
        match client.delete_model(model) {
            Ok(()) => out.note(format_args!("the job was refused: deleted model `{model}` again")),
            Err(error) => out.note(format_args!("the job was refused, and model `{model}` was not deleted: {error}")),
        }
    }
    let job = job.map_err(|error| match &error {
        ClientError::Problem { problem, .. } if problem.status == 404 && Path::new(&spec.function).exists() => {
            anyhow::Error::from(error).context(format!("to deploy it first, write `./{}`", spec.function))
        }
        _ => error.into(),
    })?;
    if detach {
        let JobView { name, state, .. } = &job;
        let sentence = format!(
            "job `{name}` is {}; `weft job watch {name}` follows it, `weft job stop {name}` stops it",
            state.word()
        );
        return out.done(&job, sentence);
    }
    watch::to_its_end(&job.name.parse()?, client, out)
}

/// Whether this is meant as a path, not as a name on the node.
fn is_path(text: &str, extension: &str) -> bool {
    text.contains(['/', '\\']) || text == "." || Path::new(text).extension().is_some_and(|end| end == extension)
}

/// A file on the node, as a model.
struct SentModel {
    name: Name,
    /// Whether it was not there before.
    is_new: bool,
}

/// Keeps a file as a model whose name says which bytes it has.
fn send_model(file: &Path, client: &Client, out: &Output) -> anyhow::Result<SentModel> {
    let digest = Digest::of_file(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let name = model_name(file, &digest)?;
    match client.model(&name) {
        Ok(kept) if kept.model.digest == digest.to_string() => return Ok(SentModel { name, is_new: false }),
        Ok(_) | Err(ClientError::Problem { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let model = client.create_model(&name, &upload::file(file, client, out)?)?;
    out.note(format_args!("sent `{}` as model `{}`", file.display(), model.name));
    Ok(SentModel { name, is_new: true })
}

fn model_name(file: &Path, digest: &Digest) -> anyhow::Result<Name> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let plain: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let end = digest.hex();
    let end = end.get(..12).unwrap_or(&end);
    let room = MAX_NAME - end.len() - 1;
    let plain = plain.get(..room.min(plain.len())).unwrap_or_default().trim_matches('-');
    Ok(if plain.is_empty() { format!("model-{end}") } else { format!("{plain}-{end}") }.parse()?)
}

/// Sends a job; again where the connection broke and nobody knows whether it arrived.
fn submit(spec: &JobSpec, client: &Client, out: &Output) -> Result<JobView, ClientError> {
    let mut random = [0; 16];
    let key = getrandom::fill(&mut random).ok().map(|()| hex(&random));
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        let error = match client.submit_job(spec, key.as_deref()) {
            Ok(job) => return Ok(job),
            Err(error) => error,
        };
        let broke = match &error {
            ClientError::Cut(_) | ClientError::HungUp { .. } | ClientError::Timeout { .. } => true,
            // Nobody was there at first; later it may be a node that starts again.
            ClientError::Unreachable { .. } => attempt > 1,
            _ => false,
        };
        if !broke || key.is_none() || attempt == ATTEMPTS {
            return Err(error);
        }
        out.note(format_args!("{error}; sending it again"));
        std::thread::sleep(pause);
        pause *= 2;
    }
    Err(ClientError::Cut("it was sent too often".to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::job::State;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        train: TrainArgs,
    }

    fn spec(line: &str) -> Result<JobSpec, String> {
        let parsed = Line::try_parse_from(["train"].into_iter().chain(line.split_whitespace()));
        parsed.map(|line| line.train.spec()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_the_default() {
        assert_eq!(spec("lenet"), Ok(JobSpec::new("lenet", None)));
    }

    #[test]
    fn every_flag_is_a_word_of_the_job() {
        let line = "lenet --dataset digits --name j --epochs 3 --batch 16 --lr 0.5 --workers 4 --rule k-average --k epoch \
                    --pace barrier --codec qsgd:4 --device gpu:0 --on-loss drop --straggler 2s --goal-accuracy 0.9 --goal-loss 0.1 \
                    --validate-every 2 --early-stop 3,0.01 --plateau 0.5,2,0.001 --batch-schedule 1:32,5:64 --seed 7 \
                    --memory 64MiB --fan-out 2 --lifetime 30s --max-time 1h --checkpoint-every 50 --keep 3 \
                    --init-from m --stratified --steps 9 --param a=1 --param b=x=y";
        let params = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "x=y".to_owned())];
        let expected = JobSpec {
            function: "lenet".to_owned(),
            dataset: Some("digits".to_owned()),
            name: Some("j".to_owned()),
            epochs: 3,
            batch: 16,
            lr: 0.5,
            workers: 4,
            rule: Some(RuleName::KAverage),
            k: Some(K::Epoch),
            pace: Pace::Barrier,
            codec: "qsgd:4".to_owned(),
            device: "gpu:0".to_owned(),
            on_loss: OnLoss::Drop,
            straggler_ms: 2_000,
            goal_accuracy: Some(0.9),
            goal_loss: Some(0.1),
            validate_every: 2,
            early_stop: Some(EarlyStop { patience: 3, delta: 0.01 }),
            plateau: Some(Plateau { factor: 0.5, patience: 2, min: 0.001 }),
            batch_schedule: [(1, 32), (5, 64)].into(),
            seed: Some(7),
            memory: 64 << 20,
            fan_out: 2,
            lifetime_ms: 30_000,
            max_time_ms: 3_600_000,
            checkpoint_every: 50,
            keep: Keep::Latest(3),
            init_from: Some("m".to_owned()),
            stratified: true,
            steps: 9,
            params: params.into(),
        };
        assert_eq!(spec(line), Ok(expected));
    }

    #[test]
    fn what_is_no_word_is_refused_with_those_that_are() {
        for (line, expected) in [
            ("lenet --rule mean", "gradient-average"),
            ("lenet --on-loss cry", "wait"),
            ("lenet --k often", "`epoch`"),
            ("lenet --keep some", "`best`"),
            ("lenet --early-stop soon", "3,0.001"),
            ("lenet --early-stop 1.5", "whole number"),
            ("lenet --plateau 0.1", "FACTOR,PATIENCE"),
            ("lenet --batch-schedule 5", "EPOCH:BATCH"),
            ("lenet --batch-schedule 5:1,5:2", "twice"),
            ("lenet --param a", "NAME=VALUE"),
            ("lenet --memory lots", "MiB"),
        ] {
            let error = spec(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert_eq!(word::<State>("done"), Ok(State::Done));
    }

    #[test]
    fn paths_are_told_from_names() {
        for path in ["./lenet", "functions/lenet", ".", "lenet.wasm", "/tmp/lenet"] {
            assert!(is_path(path, "wasm"), "{path}");
        }
        assert!(!is_path("lenet", "wasm"));
    }

    #[test]
    fn a_file_becomes_a_model_whose_name_says_its_bytes() {
        let digest = Digest::of(b"");
        let name = |file: &str| model_name(Path::new(file), &digest).unwrap().to_string();
        assert_eq!(name("a/My_model.v2.safetensors"), "my-model-v2-e3b0c44298fc");
        assert_eq!(name("é.safetensors"), "model-e3b0c44298fc");
        assert_eq!(name(&format!("{}.safetensors", "x".repeat(90))).len(), MAX_NAME);
    }
}
