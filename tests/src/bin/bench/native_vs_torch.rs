//! How fast the native device trains models, beside PyTorch.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use weft_gpu::device::cpu::Cpu;
use weft_gpu::models::{Batch, Model, ModelKind};
use weft_gpu::{Context, Crew, Limits};

use crate::torch::{LEAST_STEPS, RATE, THREADS, Theirs, Torch, Trainer, compare};
use crate::{Measurement, is_wanted};

const BENCH: &str = "native_vs_torch";
const CASES: [(&str, ModelKind, usize); 9] = [
    ("lenet.16", ModelKind::LeNet, 16),
    ("lenet.128", ModelKind::LeNet, 128),
    ("mlp.32", ModelKind::Mlp, 32),
    ("logreg.128", ModelKind::LogReg, 128),
    ("mobilenetv3s.32", ModelKind::MobileNetV3Small, 32),
    ("squeezenet.32", ModelKind::SqueezeNet, 32),
    ("resnet18.32", ModelKind::ResNet18, 32),
    ("vgg11.32", ModelKind::Vgg11, 32),
    ("bert-small.8", ModelKind::BertSmall, 8),
];

pub fn run() -> Result<()> {
    let cases: Vec<_> = CASES.into_iter().filter(|(metric, ..)| is_wanted(metric)).collect();
    if cases.is_empty() {
        return Ok(());
    }
    let mut torch = Torch::start()?;
    for (metric, kind, batch) in cases {
        eprintln!("{metric} …");
        let mut ours = Ours::new(kind, batch)?;
        let (value, baseline) = compare(&mut ours, &mut Theirs::new(&mut torch, kind, batch))?;
        let loss = ours.model.step(&ours.batch, RATE)?.item()?;
        ensure!(loss.is_finite(), "{metric}: training went astray, the loss is {loss}");
        Measurement::beside(BENCH, metric, "per_s", value, baseline).print()?;
    }
    Ok(())
}

/// A model on the native device.
pub struct Ours {
    context: Context,
    model: Model,
    batch: Batch,
    samples: usize,
}

impl Ours {
    pub fn new(kind: ModelKind, samples: usize) -> Result<Self> {
        let threads = THREADS.into_iter().max().unwrap_or(1);
        let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(threads)), Limits::default());
        Ok(Self { model: Model::new(&context, kind, 0)?, batch: kind.batch(&context, samples, 0)?, context, samples })
    }
}

impl Trainer for Ours {
    fn set_threads(&mut self, threads: usize) {
        self.context.set_threads(threads);
    }

    fn measure(&mut self, seconds: f64) -> Result<f64> {
        // Whatever PyTorch's threads still do after its round is over by the end of this step.
        self.model.step(&self.batch, RATE)?;
        let (start, mut steps) = (Instant::now(), 0);
        while steps < LEAST_STEPS || start.elapsed().as_secs_f64() < seconds {
            self.model.step(&self.batch, RATE)?;
            steps += 1;
        }
        Ok((steps * self.samples) as f64 / start.elapsed().as_secs_f64())
    }
}
