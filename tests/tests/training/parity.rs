//! Trainers in the sandbox train as others do: PyTorch's stored losses, scikit-learn's weights and centroids.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use weft::dataset::batches::{Batch, Inputs};
use weft::host::data::StepInfo;
use weft::train::declared::Role;
use weft::train::worker::Worker;
use weft_gpu::device::Shared;
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_gpu::models::{ModelKind, initial};
use weft_tests::training::Training;
use weft_tests::{components, python};

/// What `scripts/torch_values.py` stored of five steps of PyTorch.
#[derive(Deserialize)]
struct Stored {
    batch: usize,
    rate: f32,
    losses: Vec<f64>,
}

/// How far off each of five losses may be, as a share of itself.
type Tolerance = [f64; 5];
const SMOOTH: Tolerance = [1e-3; 5];
/// Batch normalization over few samples magnifies every rounding.
const NORMALIZED: Tolerance = [1e-3, 1e-3, 1e-2, 1e-2, 1e-2];

struct Case {
    /// What its stored losses are called.
    name: &'static str,
    /// Whose samples it is given.
    samples: ModelKind,
    function: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    /// How many numbers are trained.
    size: usize,
    tolerance: Tolerance,
}

const NO_DROPOUT: &[(&str, &str)] = &[("dropout", "0")];

const CASES: [Case; 12] = [
    Case::new("logreg", ModelKind::LogReg, "logistic-regression", &[], 29, SMOOTH),
    Case::new("mlp", ModelKind::Mlp, "mlp", NO_DROPOUT, 42_601, SMOOTH),
    Case::new("lenet", ModelKind::LeNet, "lenet", &[], 44_426, SMOOTH),
    Case::new("resnet18", ModelKind::ResNet18, "resnet", &[], 11_173_962, NORMALIZED),
    Case::new("resnet34", ModelKind::ResNet34, "resnet", &[("depth", "34")], 21_282_122, NORMALIZED),
    Case::new("resnet32", ModelKind::ResNet18, "resnet", &[("depth", "32")], 466_906, NORMALIZED),
    Case::new("resnet50", ModelKind::ResNet18, "resnet", &[("depth", "50")], 23_520_842, NORMALIZED),
    Case::new("cifar-cnn", ModelKind::ResNet18, "cifar-cnn", &[], 1_684_426, SMOOTH),
    Case::new("mobilenetv3s", ModelKind::MobileNetV3Small, "mobilenet-v3-small", NO_DROPOUT, 1_528_106, NORMALIZED),
    Case::new("squeezenet", ModelKind::SqueezeNet, "squeezenet", NO_DROPOUT, 727_626, SMOOTH),
    Case::new("vgg11", ModelKind::Vgg11, "vgg11", NO_DROPOUT, 9_225_610, SMOOTH),
    Case::new("bert-small", ModelKind::BertSmall, "bert", NO_DROPOUT, 28_303_362, SMOOTH),
];

impl Case {
    const fn new(
        name: &'static str,
        samples: ModelKind,
        function: &'static str,
        parameters: &'static [(&'static str, &'static str)],
        size: usize,
        tolerance: Tolerance,
    ) -> Self {
        Self { name, samples, function, parameters, size, tolerance }
    }

    fn stored(&self) -> Result<Stored> {
        let path = components::repository().join("gpu-bridge/tests/stored").join(format!("{}.json", self.name));
        Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
    }

    /// A worker whose weights follow the formula that PyTorch was given too.
    async fn worker(&self, training: &Training) -> Result<Worker> {
        let worker = training.worker(self.parameters).await?;
        let declared = worker.declared().context("nothing was declared")?;
        ensure!(declared.parameters() == self.size, "{}: {} parameters", self.name, declared.parameters());
        let weights = declared.named().filter(|(tensor, _)| tensor.role == Role::Weight);
        for (number, (declaration, tensor)) in weights.enumerate() {
            let values = initial::parameter(0, number as u32, &declaration.name, &declaration.shape);
            tensor.detach().write(0, bytemuck::cast_slice(&values))?;
        }
        Ok(worker)
    }

    async fn losses(&self, training: &Training, steps: usize) -> Result<Vec<f64>> {
        let stored = self.stored()?;
        let mut worker = self.worker(training).await?;
        let made = self.samples.batch(worker.context(), stored.batch, 0)?;
        let batch = Batch { features: Inputs::Dense(made.x), labels: Some(made.y), count: stored.batch };
        let mut losses = Vec::new();
        for step in 0..steps as u64 {
            let place = StepInfo { step, rate: stored.rate, workers: 1, ..StepInfo::default() };
            losses.push(f64::from(worker.step(place, Some(batch.clone())).await?.loss.item()?));
            worker.descend(stored.rate)?;
        }
        Ok(losses)
    }
}

fn agree(what: &str, ours: &[f64], theirs: &[f64], tolerance: &Tolerance) -> Result<()> {
    for (step, ((ours, theirs), allowed)) in ours.iter().zip(theirs).zip(tolerance).enumerate() {
        ensure!((ours - theirs).abs() <= allowed * theirs, "{what}, step {step}: loss {ours}, not {theirs}");
    }
    Ok(())
}

#[tokio::test]
async fn the_first_losses_are_those_of_pytorch() -> Result<()> {
    for case in &CASES {
        let mut training = Training::of(&format!("functions/{}", case.function)).await?;
        (training.threads, training.device_memory) = (2, 4 << 30);
        let stored = case.stored()?;
        ensure!(stored.losses.len() == 5, "{} has {} losses", case.name, stored.losses.len());
        let losses = case.losses(&training, stored.losses.len()).await?;
        agree(case.name, &losses, &stored.losses, &case.tolerance)?;
    }
    Ok(())
}

/// Models with more parameters than this take seconds for a step on a software GPU.
const LARGE: usize = 2_000_000;

#[tokio::test]
async fn a_gpu_gives_the_same_losses_as_the_cores() -> Result<()> {
    let adapter = Adapter::all().into_iter().next().context("no GPU, not even a software one: run scripts/setup.sh")?;
    let gpu: Arc<dyn Shared> = Arc::new(Gpu::open(adapter, None)?);
    for case in &CASES {
        let mut training = Training::on(vec![gpu.clone()], &format!("functions/{}", case.function)).await?;
        training.device_memory = 1 << 30;
        let losses = case.losses(&training, if case.size < LARGE { 5 } else { 2 }).await?;
        agree(&format!("{} on a GPU", case.name), &losses, &case.stored()?.losses, &case.tolerance)?;
    }
    Ok(())
}

/// Rows of a formula, a third of them zero, as scikit-learn is given them too.
const ROWS: usize = 60;
const COLUMNS: usize = 8;
const SAMPLES: &str = "
import json, numpy as np
rows, columns = 60, 8
i = np.arange(rows * columns, dtype=np.float64).reshape(rows, columns)
x = np.where(i % 3 == 0, 0.0, np.sin(i * 0.7 + 1) * 2)
y = (x.sum(axis=1) > 0).astype(np.int64)
";

fn rows() -> (Vec<f32>, Vec<i32>) {
    let element = |i: usize| if i.is_multiple_of(3) { 0.0 } else { (i as f64 * 0.7 + 1.0).sin() * 2.0 };
    let x: Vec<f64> = (0..ROWS * COLUMNS).map(element).collect();
    let y = x.chunks(COLUMNS).map(|row| i32::from(row.iter().sum::<f64>() > 0.0)).collect();
    (x.into_iter().map(|value| value as f32).collect(), y)
}

fn close(what: &str, ours: &[f32], theirs: &[f64]) -> Result<()> {
    ensure!(ours.len() == theirs.len(), "{what}: {} numbers, not {}", ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        ensure!((f64::from(*ours) - theirs).abs() < 1e-3 * theirs.abs().max(1.0), "{what}: {ours}, not {theirs}");
    }
    Ok(())
}

/// scikit-learn goes through the samples one by one, so here a batch is one sample. It is given them dense: of sparse ones
/// it learns the intercept more slowly, on purpose.
async fn one_by_one(function: &str, loss: &str) -> Result<()> {
    let script = format!(
        "{SAMPLES}
from sklearn.linear_model import SGDClassifier
it = SGDClassifier(loss='{loss}', alpha=0.0, penalty=None, learning_rate='constant', eta0=0.05, shuffle=False,
                   max_iter=1, tol=None)
it.partial_fit(x, y, classes=[0, 1])
print(json.dumps([list(it.coef_[0]), list(it.intercept_)]))
"
    );
    let theirs: [Vec<f64>; 2] = serde_json::from_str(&python::run(&script, Path::new("."))?)?;
    let training = Training::of(&format!("functions/{function}")).await?;
    let parameters = [("features", "8"), ("momentum", "0"), ("weight-decay", "0")];
    for sparse in [false, true] {
        let mut worker = training.worker(&parameters).await?;
        for (_, tensor) in worker.declared().context("nothing was declared")?.named() {
            tensor.detach().assign(&tensor.context().zeros(&tensor.shape())?)?;
        }
        let (x, y) = rows();
        for (step, (x, y)) in x.chunks(COLUMNS).zip(&y).enumerate() {
            let context = worker.context();
            let features = inputs(context, x, 1, sparse)?;
            let batch = Batch { features, labels: Some(context.tensor(&[1], &[*y])?), count: 1 };
            worker.step(StepInfo { step: step as u64, workers: 1, ..StepInfo::default() }, Some(batch)).await?;
            worker.descend(0.05)?;
        }
        let declared = worker.declared().context("nothing was declared")?;
        for ((declaration, tensor), theirs) in declared.named().zip(&theirs) {
            let what = format!("{function} {}, sparse: {sparse}", declaration.name);
            close(&what, &tensor.to_vec::<f32>()?, theirs)?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn logistic_regression_is_that_of_scikit_learn() -> Result<()> {
    one_by_one("logistic-regression", "log_loss").await
}

#[tokio::test]
async fn a_support_vector_machine_is_that_of_scikit_learn() -> Result<()> {
    one_by_one("svm", "hinge").await
}

#[tokio::test]
async fn clusters_are_those_of_scikit_learn() -> Result<()> {
    let script = format!(
        "{SAMPLES}
from sklearn.cluster import KMeans
it = KMeans(n_clusters=4, init=x[:4].copy(), n_init=1, max_iter=5, tol=0.0, algorithm='lloyd').fit(x)
print(json.dumps(it.cluster_centers_.ravel().tolist()))
"
    );
    let theirs: Vec<f64> = serde_json::from_str(&python::run(&script, Path::new("."))?)?;
    let (x, _) = rows();
    for sparse in [false, true] {
        let training = Training::of("functions/kmeans").await?;
        let mut worker = training.worker(&[("features", "8"), ("clusters", "4")]).await?;
        let centroids = |worker: &Worker| -> Result<weft_gpu::Tensor> {
            let declared = worker.declared().context("nothing was declared")?;
            let found = declared.named().find(|(declaration, _)| declaration.name == "centroids");
            Ok(found.context("there are no centroids")?.1.clone())
        };
        centroids(&worker)?.write(0, bytemuck::cast_slice(&x[..4 * COLUMNS]))?;
        for epoch in 0..5 {
            let place = StepInfo { step: epoch, epoch, workers: 1, ..StepInfo::default() };
            for part in x.chunks(20 * COLUMNS) {
                let count = part.len() / COLUMNS;
                let features = inputs(worker.context(), part, count, sparse)?;
                worker.step(place, Some(Batch { features, labels: None, count })).await?;
            }
            worker.update(place).await?;
            worker.declared().context("nothing was declared")?.clear_statistics()?;
        }
        close(&format!("centroids, sparse: {sparse}"), &centroids(&worker)?.to_vec::<f32>()?, &theirs)?;
    }
    Ok(())
}

fn inputs(context: &weft_gpu::Context, rows: &[f32], count: usize, sparse: bool) -> Result<Inputs> {
    if !sparse {
        return Ok(Inputs::Dense(context.tensor(&[count, COLUMNS], rows)?));
    }
    let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in rows.chunks(COLUMNS) {
        let present = row.iter().enumerate().filter(|(_, value)| **value != 0.0);
        for (column, value) in present {
            columns.push(column as u32);
            values.push(*value);
        }
        offsets.push(columns.len() as u32);
    }
    Ok(Inputs::Sparse(Box::new(weft::dataset::batches::Csr {
        offsets: context.tensor(&[count + 1], &offsets)?,
        columns: context.tensor(&[columns.len()], &columns)?,
        values: context.tensor(&[values.len()], &values)?,
        width: COLUMNS,
    })))
}
