//! Trainers learn: handwritten digits, a batch by heart, a pole on a cart.

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use weft::catalog::spec::DataSetSpec;
use weft::host::data::Place;
use weft::train::files::LocalDataSet;
use weft::train::run::{EpochReport, Schedule, train};
use weft::train::save;
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_tests::training::{Nobody, Training, data, waves};

fn digits() -> Result<LocalDataSet> {
    Ok(LocalDataSet::make(&DataSetSpec {
        shipped: Some("digits".to_owned()),
        resize: Some((28, 28)),
        transform: Some("standardise".to_owned()),
        ..DataSetSpec::default()
    })?)
}

async fn schedule(training: &Training, epochs: u64, batch: u32, rate: f32) -> Result<Schedule> {
    let traits = training.describe().await?.traits;
    Ok(Schedule { epochs, batch: NonZeroU32::new(batch).context("no batch")?, rate, steps: 50, traits })
}

fn metric(report: &EpochReport, name: &str) -> Result<f64> {
    report.validation.get(name).copied().with_context(|| format!("no `{name}` in {report:?}"))
}

#[tokio::test]
async fn lenet_learns_digits() -> Result<()> {
    let mut training = Training::of("functions/lenet").await?;
    training.threads = 2;
    let digits = digits()?;
    let mut worker = training.worker(&[]).await?;
    let schedule = schedule(&training, 15, 32, 0.02).await?;
    let reports = train(&mut worker, Some(&data(&digits)), &schedule, &mut Nobody).await?;
    let best = reports.iter().map(|report| metric(report, "accuracy")).collect::<Result<Vec<f64>>>()?;
    let best = best.into_iter().fold(0.0, f64::max);
    ensure!(best >= 0.97, "the best accuracy is {best}");
    // What is saved and loaded again is the same model.
    let last = metric(reports.last().context("no epoch")?, "loss")?;
    let mut file = std::io::Cursor::new(Vec::new());
    save::save(worker.declared().context("nothing was declared")?, &Default::default(), &mut file)?;
    let mut other = training.worker(&[]).await?;
    save::load(other.declared().context("nothing was declared")?, &mut weft::model::Model::open(file)?)?;
    let again = weft::train::run::evaluate(&mut other, Some(&data(&digits)), &schedule, Place::default()).await?;
    ensure!(again.get("loss") == Some(&last), "{again:?} after loading, {last} before saving");
    Ok(())
}

#[tokio::test]
async fn lenet_learns_on_a_gpu() -> Result<()> {
    let adapter = Adapter::all().into_iter().next().context("no GPU, not even a software one: run scripts/setup.sh")?;
    let training = Training::on(vec![Arc::new(Gpu::open(adapter, None)?)], "functions/lenet").await?;
    let digits = digits()?;
    let mut worker = training.worker(&[]).await?;
    let schedule = schedule(&training, 1, 32, 0.02).await?;
    let reports = train(&mut worker, Some(&data(&digits)), &schedule, &mut Nobody).await?;
    let accuracy = metric(&reports[0], "accuracy")?;
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
            let place = Place { step, rate, workers: 1, ..Place::default() };
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
        let place = Place { step, rate: 3e-3, workers: 1, ..Place::default() };
        last = worker.step(place, Some(batch.clone())).await?.loss.item()?;
        worker.descend(3e-3)?;
    }
    ensure!(last < 0.05, "the loss is {last}");
    Ok(())
}

#[tokio::test]
async fn a_pole_is_balanced() -> Result<()> {
    let training = Training::of("functions/cart-pole").await?;
    let mut worker = training.worker(&[]).await?;
    let schedule = schedule(&training, 8, 1, 0.01).await?;
    let reports = train(&mut worker, None, &schedule, &mut Nobody).await?;
    let best = reports.iter().flat_map(|report| report.validation.values().copied()).fold(0.0, f64::max);
    ensure!(best >= 195.0, "it stands for {best} moves: {reports:?}");
    Ok(())
}
