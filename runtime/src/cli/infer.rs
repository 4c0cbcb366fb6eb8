//! `weft infer`: what a trained model makes of samples, a job's on its node or a file's on this machine.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use clap::Args;
use serde::{Deserialize, Serialize};
use weft_gpu::device::cpu::Cpu;
use weft_gpu::pool::Wish;
use weft_gpu::{Context, Crew, Limits};

use super::Global;
use super::client::{Client, ClientError};
use super::dataset::Shape;
use super::failure::UsageError;
use super::output::Output;
use super::samples::DataArgs;
use super::train::name_value;
use super::train_local::build_function;
use crate::api::types::InferRequest;
use crate::dataset::batches::{Batches, Csr, Inputs, Options, Source, Subset};
use crate::dataset::rows::Labels;
use crate::dataset::shard::Plan;
use crate::dataset::{Manifest, Split, Transform};
use crate::digest::Digest;
use crate::host::data::StepInfo;
use crate::local::{LocalTrainer, Place};
use crate::model::{Input, Model};
use crate::names::Name;
use crate::train::files::LocalDataSet;
use crate::train::run::{self, Data};
use crate::train::worker::Worker;
use crate::train::{load, settings};

/// Numbers of one request to a node: some hundred kilobytes of text.
const NUMBERS: usize = 1 << 16;
/// Samples of one request, however small they are.
const SAMPLES: usize = 1_024;

/// Numbers of one sample after the other.
type Rows = Vec<Vec<f32>>;

/// Use a trained model on samples.
#[derive(Debug, Args)]
pub struct InferArgs {
    /// The function: its crate's folder, or a component in a .wasm file
    #[arg(required_unless_present = "job", conflicts_with = "job")]
    function: Option<PathBuf>,
    /// The model, as `weft train-local` and `weft model pull` leave it
    #[arg(long, value_name = "FILE", required_unless_present = "job", conflicts_with = "job")]
    model: Option<PathBuf>,
    /// Use the model of a job, on its node
    #[arg(long, value_name = "NAME")]
    job: Option<Name>,
    /// Samples for a job's model as JSON, `[[…], …]`; `-` for stdin
    #[arg(long, value_name = "FILE|-", requires = "job", conflicts_with_all = ["dataset", "data"])]
    samples: Option<String>,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Samples of one call
    #[arg(long, default_value = "64")]
    batch: NonZeroU32,
    /// A hyper-parameter of the function, as it was trained with
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_value, conflicts_with = "job")]
    param: Vec<(String, String)>,
}

/// Where to compute.
#[derive(Debug, Args)]
struct PlaceArgs {
    /// auto, cpu, gpu, or one by name as in gpu:1; see `weft devices`
    #[arg(long, default_value = "auto")]
    device: Wish,
    /// Threads, where the machine's cores compute; 0 means one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// What a model makes of samples.
#[derive(Serialize)]
struct Inferred {
    samples: usize,
    /// One row for each sample.
    outputs: Rows,
    /// Where a row is largest.
    classes: Vec<usize>,
    /// Where there are labels.
    metrics: BTreeMap<String, f64>,
}

impl Inferred {
    fn new(outputs: Rows, metrics: BTreeMap<String, f64>) -> Self {
        let classes = outputs.iter().map(|row| largest(row)).collect();
        Self { samples: outputs.len(), outputs, classes, metrics }
    }

    fn lines(&self) -> String {
        let lines = self.classes.iter().zip(&self.outputs).map(|(class, row)| {
            let numbers: Vec<String> = row.iter().map(|value| format!("{value:.4}")).collect();
            if row.len() > 1 { format!("{class}\t{}\n", numbers.join(" ")) } else { format!("{}\n", numbers.join(" ")) }
        });
        let metrics = self.metrics.iter().map(|(name, value)| format!("{name} {value:.4}\n"));
        lines.chain(metrics).collect()
    }
}

fn largest(row: &[f32]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0)
}

pub fn run(args: InferArgs, global: &Global, out: &Output) -> anyhow::Result<()> {
    let inferred = match args.job.clone() {
        Some(job) => {
            if args.samples.as_deref() == Some("-") && global.key.as_deref() == Some("-") {
                return Err(UsageError("the samples and the key cannot both come from stdin".to_owned()).into());
            }
            infer_job(&job, args, &global.client()?, out)?
        }
        None => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            runtime.block_on(infer_local(args, out))?
        }
    };
    out.show(&inferred, || inferred.lines())
}

/// Sends samples as they are: what was done to those that the model was trained on, its node does to these.
fn infer_job(job: &Name, args: InferArgs, client: &Client, out: &Output) -> anyhow::Result<Inferred> {
    let (samples, labels) = match &args.samples {
        Some(from) => (read_samples(from)?, None),
        None => {
            if args.data.transform.is_some() {
                let text = "a job's samples are transformed as those that it was trained on: leave `--transform` out";
                return Err(UsageError(text.to_owned()).into());
            }
            let of_node = match &args.data.dataset {
                Some(name) if !args.data.changes_samples() => samples_of_node(name, client)?,
                _ => None,
            };
            let (name, data) = match of_node {
                Some(found) => found,
                None => args.data.make(out)?.context("give samples with `--dataset`, `--data` or `--samples`")?,
            };
            rows(&name, data)?
        }
    };
    let (outputs, metrics) = infer_rows(job, samples, labels, client)?;
    Ok(Inferred::new(outputs, metrics))
}

/// What a job's model makes of samples to test with, if there are any, else of all: how many there are, and by how much it
/// is right.
pub(super) fn measure(
    job: &Name,
    name: &str,
    data: LocalDataSet,
    client: &Client,
) -> anyhow::Result<(usize, BTreeMap<String, f64>)> {
    let (samples, labels) = rows(name, data)?;
    let (outputs, metrics) = infer_rows(job, samples, labels, client)?;
    Ok((outputs.len(), metrics))
}

fn infer_rows(
    job: &Name,
    samples: Rows,
    labels: Option<Vec<usize>>,
    client: &Client,
) -> anyhow::Result<(Rows, BTreeMap<String, f64>)> {
    let mut outputs = Vec::with_capacity(samples.len());
    for piece in pieces(samples) {
        outputs.extend(client.infer_job(job, &InferRequest { samples: piece })?.outputs);
    }
    let mut metrics = BTreeMap::new();
    // A row of one number has no largest: which class it means is not known here.
    let tells = |labels: &Vec<usize>| labels.len() == outputs.len() && outputs.iter().all(|row| row.len() > 1);
    if let Some(labels) = labels.filter(|labels| !labels.is_empty() && tells(labels)) {
        let right = outputs.iter().zip(&labels).filter(|(row, label)| largest(row) == **label).count();
        metrics.insert("accuracy".to_owned(), right as f64 / labels.len() as f64);
    }
    Ok((outputs, metrics))
}

/// The samples of a data set that the node has, those to test with if there are any. Nothing where it has none of that name.
fn samples_of_node(name: &str, client: &Client) -> anyhow::Result<Option<(String, LocalDataSet)>> {
    let Ok(asked) = name.parse::<Name>() else { return Ok(None) };
    let version = match client.dataset(&asked, None) {
        Ok(found) => found.shown,
        Err(ClientError::Problem { problem, .. }) if problem.status == 404 => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let manifest = Manifest::parse(&client.dataset_manifest(&asked, &version)?)?;
    let mut blocks = HashMap::new();
    for block in &tested(&manifest).1.blocks {
        let bytes = client.dataset_block(&asked, &version, &block.digest)?;
        ensure!(Digest::of(&bytes) == block.digest, "a block of `{name}` was damaged on its way; try again");
        blocks.insert(block.digest, Bytes::from(bytes));
    }
    Ok(Some((name.to_owned(), LocalDataSet { manifest, blocks: Arc::new(blocks) })))
}

/// What is tested with: all samples, where none are apart.
fn tested(manifest: &Manifest) -> (Subset, &Split) {
    if manifest.test.count == 0 { (Subset::Train, &manifest.train) } else { (Subset::Test, &manifest.test) }
}

/// `[[…], …]`, or what the API takes.
fn read_samples(from: &str) -> anyhow::Result<Rows> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Rows(Rows),
        Request(InferRequest),
    }
    let mut text = Vec::new();
    match from {
        "-" => std::io::stdin().read_to_end(&mut text).map(drop),
        path => File::open(path).and_then(|mut file| file.read_to_end(&mut text).map(drop)),
    }
    .with_context(|| format!("cannot read `{from}`"))?;
    let given = serde_json::from_slice(&text);
    match given
        .with_context(|| format!("`{from}` has no samples: expected rows of numbers, as in [[0.5, 1], [2, 3]]"))?
    {
        Given::Rows(samples) | Given::Request(InferRequest { samples }) => Ok(samples),
    }
}

/// So many samples at a time that a request stays small; at least one.
fn pieces(samples: Rows) -> Vec<Rows> {
    let mut pieces: Vec<Rows> = Vec::new();
    let mut numbers = 0;
    for sample in samples {
        numbers += sample.len();
        match pieces.last_mut().filter(|piece| numbers <= NUMBERS && piece.len() < SAMPLES) {
            Some(piece) => piece.push(sample),
            None => {
                numbers = sample.len();
                pieces.push(vec![sample]);
            }
        }
    }
    pieces
}

/// The samples to test with, if there are any, else all: untransformed, and their classes if they have some.
fn rows(name: &str, mut data: LocalDataSet) -> anyhow::Result<(Rows, Option<Vec<usize>>)> {
    const AT_ONCE: NonZeroU32 = NonZeroU32::new(256).unwrap();
    data.manifest.transform = Transform::None;
    let (part, _) = tested(&data.manifest);
    let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
    let plan = Plan { shuffle: false, ..Plan::default() };
    let source = Source { name, manifest: &data.manifest, part, blocks: data.blocks.clone() };
    let mut samples = Vec::new();
    let mut classes = (data.manifest.labels == Some(Labels::Class)).then(Vec::new);
    for batch in Batches::start(source, Options::new(plan, AT_ONCE), &context)? {
        let batch = batch?;
        match batch.features {
            Inputs::Dense(tensor) => {
                let numbers = tensor.to_vec::<f32>()?;
                let width = numbers.len() / batch.count.max(1);
                ensure!(width > 0, "the samples are empty");
                samples.extend(numbers.chunks(width).map(<[f32]>::to_vec));
            }
            Inputs::Sparse(csr) => samples.extend(spread(&csr)?),
        }
        if let (Some(classes), Some(labels)) = (&mut classes, &batch.labels) {
            classes
                .extend(labels.to_vec::<i32>()?.into_iter().map(|class| usize::try_from(class).unwrap_or(usize::MAX)));
        }
    }
    Ok((samples, classes))
}

/// Sparse rows with their zeros.
fn spread(csr: &Csr) -> anyhow::Result<Rows> {
    let (offsets, columns) = (csr.offsets.to_vec::<u32>()?, csr.columns.to_vec::<u32>()?);
    let values = csr.values.to_vec::<f32>()?;
    let row = |bounds: &[u32]| {
        let mut row = vec![0.0; csr.width];
        for at in bounds[0] as usize..bounds[1] as usize {
            row[columns[at] as usize] = values[at];
        }
        row
    };
    Ok(offsets.windows(2).map(row).collect())
}

async fn infer_local(args: InferArgs, out: &Output) -> anyhow::Result<Inferred> {
    let (Some(function), Some(path)) = (args.function, args.model) else {
        return Err(UsageError("give a function and its `--model`, or a `--job`".to_owned()).into());
    };
    let file = File::open(&path).with_context(|| format!("cannot open `{}`", path.display()))?;
    let mut model = Model::open(file).with_context(|| format!("`{}`", path.display()))?;
    let (asked, mut given) = (args.data.transform.is_some(), args.data);
    if let Some(input) = &model.meta.input
        && given.dataset.is_none()
    {
        given.shape = given.shape.or_else(|| (input.shape.len() > 1).then(|| Shape(input.shape.clone())));
    }
    let (data_name, mut data) = given.make(out)?.context("give samples with `--dataset` or `--data`")?;
    // What was done to the samples that it was trained on, with their statistics, not with those of these.
    if let Some(input) = model.meta.input.clone().filter(|_| !asked) {
        let found = Input::of(&data.manifest).shape;
        if input.shape != found {
            bail!(
                "the model takes samples of {:?}, and these are {found:?}; see `--shape` and `--resize`",
                input.shape
            );
        }
        (data.manifest.transform, data.manifest.statistics) = (input.transform, input.statistics);
    }
    let place = Place { device: args.place.device, threads: args.place.threads };
    let (component, name) = build_function(&function, out)?;
    let trainer = LocalTrainer::open(&component, name, place, std::env::current_exe()?).await?;
    let mut setup = trainer.setup(0)?;
    let description = Worker::describe(&setup).await?;
    let mut given = args.param;
    // What it was trained with is known, unless told otherwise.
    for (name, value) in &model.meta.hyper_parameters {
        if !given.iter().any(|(given, _)| given == name) {
            given.push((name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
        }
    }
    setup.settings = settings::read(&description, &given)?;
    let mut worker = Worker::start(setup).await?;
    load::load(worker.declared().context("the trainer declared nothing")?, &mut model)?;
    // Samples to test with, if there are any, else all.
    if data.manifest.test.count == 0 {
        data.manifest.test = data.manifest.train.clone();
    }
    let source = Data { name: &data_name, manifest: &data.manifest, blocks: data.blocks.clone() };
    let outputs = run::infer(&mut worker, &source, args.batch).await?;
    let metrics = match data.manifest.labels {
        Some(_) => run::evaluate(&mut worker, &source, args.batch, StepInfo::default()).await?,
        None => Default::default(),
    };
    Ok(Inferred::new(outputs, metrics))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_stay_small_and_nothing_is_lost() {
        let samples: Vec<Vec<f32>> = (0..5).map(|index| vec![index as f32; NUMBERS / 2]).collect();
        let sizes: Vec<usize> = pieces(samples.clone()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2, 1]);
        assert_eq!(pieces(samples.clone()).concat(), samples);
        assert_eq!(pieces(vec![vec![0.0; 2 * NUMBERS]]).len(), 1);
        assert_eq!(pieces(vec![vec![0.0]; SAMPLES + 1]).len(), 2);
        assert!(pieces(Vec::new()).is_empty());
    }

    #[test]
    fn samples_are_rows_or_a_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.json");
        for text in ["[[1, 2.5]]", r#"{"samples": [[1, 2.5]]}"#] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_samples(path.to_str().unwrap()).unwrap(), [[1.0, 2.5]]);
        }
        std::fs::write(&path, "{}").unwrap();
        assert!(read_samples(path.to_str().unwrap()).unwrap_err().to_string().contains("rows of numbers"));
    }
}
