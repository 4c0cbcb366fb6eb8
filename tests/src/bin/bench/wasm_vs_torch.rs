//! How fast trainers, sandboxed, train the models of the papers: beside PyTorch, and beside the native step.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use tokio::runtime::Runtime;
use weft::dataset::batches::{Batch, Inputs};
use weft::host::data::StepInfo as Moment;
use weft::local::{LocalTrainer, Place};
use weft::train::settings;
use weft::train::worker::Worker;
use weft_gpu::models::ModelKind;
use weft_gpu::pool::Wish;
use weft_tests::components;

use crate::native_vs_torch::Ours;
use crate::torch::{LEAST_STEPS, RATE, THREADS, Theirs, Torch, Trainer, compare};
use crate::{Measurement, is_wanted};

const BENCH: &str = "wasm_vs_torch";
const CASES: [(&str, &str, ModelKind, usize); 9] = [
    ("lenet.16", "lenet", ModelKind::LeNet, 16),
    ("lenet.64", "lenet", ModelKind::LeNet, 64),
    ("lenet.256", "lenet", ModelKind::LeNet, 256),
    ("mlp.32", "mlp", ModelKind::Mlp, 32),
    ("logreg.128", "logistic-regression", ModelKind::LogReg, 128),
    ("mobilenetv3s.32", "mobilenet-v3-small", ModelKind::MobileNetV3Small, 32),
    ("resnet18.32", "resnet", ModelKind::ResNet18, 32),
    ("vgg11.32", "vgg11", ModelKind::Vgg11, 32),
    ("bert-small.8", "bert", ModelKind::BertSmall, 8),
];
/// Against the native step, not PyTorch.
const NATIVE: (&str, &str, ModelKind, usize) = ("lenet.64.native", "lenet", ModelKind::LeNet, 64);

pub fn run() -> Result<()> {
    let runtime = Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
    let cases: Vec<_> = CASES.into_iter().filter(|(metric, ..)| is_wanted(metric)).collect();
    if !cases.is_empty() {
        let mut torch = Torch::start()?;
        for (metric, function, kind, batch) in cases {
            eprintln!("{metric} …");
            let mut ours = Sandboxed::new(&runtime, function, kind, batch)?;
            let (value, baseline) = compare(&mut ours, &mut Theirs::new(&mut torch, kind, batch))?;
            ours.check(metric)?;
            Measurement::beside(BENCH, metric, "per_s", value, baseline).print()?;
        }
    }
    let (metric, function, kind, batch) = NATIVE;
    if is_wanted(metric) {
        eprintln!("{metric} …");
        let mut ours = Sandboxed::new(&runtime, function, kind, batch)?;
        let (value, baseline) = compare(&mut ours, &mut Ours::new(kind, batch)?)?;
        Measurement::beside(BENCH, metric, "per_s", value, baseline).print()?;
    }
    Ok(())
}

/// A trainer in the sandbox.
struct Sandboxed {
    runtime: Arc<Runtime>,
    worker: Worker,
    batch: Batch,
    step: u64,
}

impl Sandboxed {
    fn new(runtime: &Arc<Runtime>, function: &str, kind: ModelKind, samples: usize) -> Result<Self> {
        let component = tempfile::Builder::new().suffix(".wasm").tempfile()?;
        std::fs::write(&component, &*components::component(&format!("functions/{function}"))?)?;
        let threads = THREADS.into_iter().max().unwrap_or(1);
        let worker = runtime.block_on(async {
            let place = Place { device: Wish::Cpu, threads };
            let trainer = LocalTrainer::open(component.path(), function.parse()?, place, components::weft()?).await?;
            let mut setup = trainer.setup(0)?;
            setup.settings = settings::read(&Worker::describe(&setup).await?, &[])?;
            anyhow::Ok(Worker::start(setup).await?)
        })?;
        let made = kind.batch(worker.context(), samples, 0)?;
        let batch = Batch { features: Inputs::Dense(made.x), labels: Some(made.y), count: samples };
        Ok(Self { runtime: runtime.clone(), worker, batch, step: 0 })
    }

    /// As the loop of a job does it: the step, the loss, the optimizer.
    fn train(&mut self) -> Result<f32> {
        let place = Moment { step: self.step, rate: RATE, workers: 1, ..Moment::default() };
        let stepped = self.runtime.block_on(self.worker.step(place, Some(self.batch.clone())));
        let loss = stepped.map_err(|error| anyhow!("{error}"))?.loss.item()?;
        self.worker.descend(RATE)?;
        self.step += 1;
        Ok(loss)
    }

    fn check(&mut self, metric: &str) -> Result<()> {
        let loss = self.train()?;
        ensure!(loss.is_finite(), "{metric}: training went astray, the loss is {loss}");
        Ok(())
    }
}

impl Trainer for Sandboxed {
    fn set_threads(&mut self, threads: usize) {
        self.worker.context().set_threads(threads);
    }

    fn measure(&mut self, seconds: f64) -> Result<f64> {
        self.train()?;
        let (start, mut steps) = (Instant::now(), 0);
        while steps < LEAST_STEPS || start.elapsed().as_secs_f64() < seconds {
            self.train()?;
            steps += 1;
        }
        Ok((steps * self.batch.count) as f64 / start.elapsed().as_secs_f64())
    }
}
