//! Trainers learn: handwritten digits, a batch by heart, a pole on a cart.

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use weft::catalog::spec::DataSetSpec;
use weft::host::data::StepInfo;
use weft::job::{EpochRecord, JobSpec};
use weft::model::Model;
use weft::train::files::LocalDataSet;
use weft::train::{load, run};
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_tests::training::{Training, data, waves};

fn digits() -> Result<LocalDataSet> {
    Ok(LocalDataSet::make(&DataSetSpec {
        shipped: Some("digits".to_owned()),
        resize: Some((28, 28)),
        transform: Some("standardise".to_owned()),
        ..DataSetSpec::default()
    })?)
}

const BATCH: NonZeroU32 = NonZeroU32::new(32).unwrap();

fn metric(record: &EpochRecord, name: &str) -> Result<f64> {
    record.validation.get(name).copied().with_context(|| format!("no `{name}` in {record:?}"))
}

#[tokio::test]
async fn lenet_learns_digits() -> Result<()> {
    let training = Training::of("functions/lenet").await?;
    let digits = digits()?;
    let spec = JobSpec { epochs: 15, batch: BATCH.get(), lr: 0.02, ..training.spec() };
    let trained = training.train(spec, Some(&digits), None).await?;
    let best = trained.epochs.iter().map(|epoch| metric(epoch, "accuracy")).collect::<Result<Vec<f64>>>()?;
    let best = best.into_iter().fold(0.0, f64::max);
    ensure!(best >= 0.97, "the best accuracy is {best}");
    // What is saved and loaded again is the same model.
    let last = metric(trained.epochs.last().context("no epoch")?, "loss")?;
    let mut other = training.worker(&[]).await?;
    let mut model = Model::open(std::io::Cursor::new(trained.model))?;
    load::load(other.declared().context("nothing was declared")?, &mut model)?;
    let again = run::evaluate(&mut other, &data(&digits), BATCH, StepInfo::default()).await?;
    ensure!(again.get("loss") == Some(&last), "{again:?} after loading, {last} before saving");
    Ok(())
}

#[tokio::test]
async fn lenet_learns_on_a_gpu() -> Result<()> {
    let adapter = Adapter::all().into_iter().next().context("no GPU, not even a software one: run scripts/setup.sh")?;
    let training = Training::on(vec![Arc::new(Gpu::open(adapter, None)?)], "functions/lenet").await?;
    let digits = digits()?;
    let spec = JobSpec { epochs: 1, batch: BATCH.get(), lr: 0.02, ..training.spec() };
    let trained = training.train(spec, Some(&digits), None).await?;
    let accuracy = metric(trained.epochs.first().context("no epoch")?, "accuracy")?;
    ensure!(accuracy > 0.5, "after an epoch on a GPU the accuracy is {accuracy}");
    Ok(())
}

struct ByHeart {
    function: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    steps: u64,
    rate: f32,
}

const BY_HEART: [ByHeart; 5] = [
    ByHeart { function: "cifar-cnn", parameters: &[("width", "32")], steps: 80, rate: 0.02 },
    ByHeart { function: "resnet", parameters: &[], steps: 12, rate: 0.02 },
    ByHeart { function: "mobilenet-v3-small", parameters: &[("dropout", "0")], steps: 40, rate: 0.05 },
    ByHeart { function: "squeezenet", parameters: &[("dropout", "0")], steps: 150, rate: 0.005 },
    ByHeart { function: "vgg11", parameters: &[], steps: 60, rate: 0.005 },
];

/// What is learnt by heart has less.
const BY_HEART_LOSS: f32 = 0.05;

#[tokio::test]
async fn a_small_batch_is_learnt_by_heart() -> Result<()> {
    for ByHeart { function, parameters, steps, rate } in BY_HEART {
        let mut training = Training::of(&format!("functions/{function}")).await?;
        (training.threads, training.device_memory) = (2, 2 << 30);
        let mut worker = training.worker(parameters).await?;
        let batch = waves(worker.context(), 8, &[3, 32, 32], 4)?;
        let mut losses = Vec::new();
        for step in 0..steps {
            let place = StepInfo { step, rate, workers: 1, ..StepInfo::default() };
            losses.push(worker.step(place, Some(batch.clone())).await?.loss.item()?);
            // What knows it all and goes on at this rate may well forget it again.
            if losses.last().is_some_and(|loss| *loss < BY_HEART_LOSS) {
                break;
            }
            worker.descend(rate)?;
        }
        ensure!(losses.last().is_some_and(|loss| *loss < BY_HEART_LOSS), "{function}: {losses:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_transformer_learns_a_small_batch_by_heart() -> Result<()> {
    let mut training = Training::of("functions/bert").await?;
    training.threads = 2;
    let parameters = [
        ("layers", "2"),
        ("width", "32"),
        ("heads", "2"),
        ("words", "64"),
        ("tokens", "8"),
        ("dropout", "0"),
        ("optimizer", "adamw"),
    ];
    let mut worker = training.worker(&parameters).await?;
    let context = worker.context().clone();
    let words: Vec<u32> = (0..8 * 8).map(|index| (index * 37 + index / 8 * 5) % 64).collect();
    let labels: Vec<i32> = (0..8).map(|index| index % 2).collect();
    let features = weft::dataset::batches::Inputs::Dense(context.tensor(&[8, 8], &words)?);
    let batch = weft::dataset::batches::Batch { features, labels: Some(context.tensor(&[8], &labels)?), count: 8 };
    let mut last = f32::INFINITY;
    for step in 0..150 {
        let place = StepInfo { step, rate: 3e-3, workers: 1, ..StepInfo::default() };
        last = worker.step(place, Some(batch.clone())).await?.loss.item()?;
        worker.descend(3e-3)?;
    }
    ensure!(last < 0.05, "the loss is {last}");
    Ok(())
}

#[tokio::test]
async fn a_pole_is_balanced() -> Result<()> {
    let training = Training::of("functions/cart-pole").await?;
    let spec = JobSpec { epochs: 8, batch: 1, steps: 50, ..training.spec() };
    let epochs = training.train(spec, None, None).await?.epochs;
    let best = epochs.iter().flat_map(|epoch| epoch.validation.values().copied()).fold(0.0, f64::max);
    ensure!(best >= 195.0, "it stands for {best} moves: {epochs:?}");
    Ok(())
}
