//! Same component, data, seed and device: same bits, whichever instance is called and however many threads compute.

use anyhow::{Context as _, Result, ensure};
use weft::dataset::batches::{Batch, Inputs};
use weft::host::bindings::weft::train::training::Traits;
use weft::host::data::StepInfo;
use weft::train::worker::Worker;
use weft_tests::training::{Training, waves};

struct Case {
    function: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    /// The shape of a sample; none for a trainer that makes its own.
    shape: &'static [usize],
    classes: usize,
}

/// Every function, as small as it can be and still draw, normalize and count as it does.
const CASES: [Case; 12] = [
    Case { function: "logistic-regression", parameters: &[("features", "8")], shape: &[8], classes: 2 },
    Case { function: "svm", parameters: &[("features", "8"), ("classes", "3")], shape: &[8], classes: 3 },
    Case { function: "kmeans", parameters: &[("features", "8"), ("clusters", "3")], shape: &[8], classes: 3 },
    Case { function: "mlp", parameters: &[("features", "8"), ("dropout", "0.5")], shape: &[8], classes: 2 },
    Case { function: "lenet", parameters: &[], shape: &[1, 28, 28], classes: 10 },
    Case {
        function: "cifar-cnn",
        parameters: &[("width", "16"), ("dropout", "0.5")],
        shape: &[3, 32, 32],
        classes: 10,
    },
    Case { function: "resnet", parameters: &[("depth", "32")], shape: &[3, 32, 32], classes: 10 },
    Case { function: "mobilenet-v3-small", parameters: &[], shape: &[3, 32, 32], classes: 10 },
    Case { function: "squeezenet", parameters: &[], shape: &[3, 32, 32], classes: 10 },
    Case { function: "vgg11", parameters: &[("dropout", "0.5")], shape: &[3, 32, 32], classes: 10 },
    Case {
        function: "bert",
        parameters: &[("layers", "1"), ("width", "16"), ("heads", "2"), ("words", "50"), ("tokens", "6")],
        shape: &[6],
        classes: 2,
    },
    Case { function: "cart-pole", parameters: &[("episodes", "2"), ("moves", "20")], shape: &[], classes: 0 },
];

const STEPS: u64 = 2;
const SAMPLES: usize = 4;

/// Everything that training leaves: losses, metrics, and all that was declared.
async fn trained(training: &Training, case: &Case) -> Result<Vec<u32>> {
    let mut worker = training.worker(case.parameters).await?;
    let description = training.describe().await?;
    let mut left = Vec::new();
    let place = |step| StepInfo { step, rate: 0.01, workers: 1, ..StepInfo::default() };
    for step in 0..STEPS {
        let batch = batch(&worker, case)?;
        left.push(worker.step(place(step), batch).await?.loss.item()?);
        worker.descend(0.01)?;
        if description.traits.contains(Traits::UPDATES) {
            worker.update(place(step)).await?;
        }
    }
    let batch = batch(&worker, case)?;
    for metric in worker.evaluate(place(STEPS), batch.clone()).await? {
        left.push(metric.value.item()?);
    }
    if let Some(batch) = batch {
        let inferred = worker.infer(place(STEPS), batch).await?.cast(weft_gpu::DType::F32)?;
        left.extend(inferred.to_vec::<f32>()?);
    }
    for tensor in worker.declared().context("nothing was declared")?.tensors() {
        left.extend(tensor.to_vec::<f32>()?);
    }
    ensure!(left.iter().all(|value| value.is_finite()), "{}: not all is finite", case.function);
    Ok(left.into_iter().map(f32::to_bits).collect())
}

fn batch(worker: &Worker, case: &Case) -> Result<Option<Batch>> {
    if case.shape.is_empty() {
        return Ok(None);
    }
    let mut batch = waves(worker.context(), SAMPLES, case.shape, case.classes)?;
    if let ("bert", Inputs::Dense(waves)) = (case.function, &batch.features) {
        batch.features = Inputs::Dense(waves.affine(20.0, 25.0)?.cast(weft_gpu::DType::U32)?);
    }
    Ok(Some(batch))
}

#[tokio::test]
async fn neither_instances_nor_threads_nor_repetition_change_a_bit() -> Result<()> {
    for case in &CASES {
        let mut training = Training::of(&format!("functions/{}", case.function)).await?;
        training.device_memory = 2 << 30;
        let once = trained(&training, case).await?;
        ensure!(trained(&training, case).await? == once, "{}: another run gives other bits", case.function);
        training.fresh = true;
        ensure!(trained(&training, case).await? == once, "{}: fresh instances give other bits", case.function);
        (training.fresh, training.threads) = (false, 2);
        ensure!(trained(&training, case).await? == once, "{}: two threads give other bits", case.function);
        training.seed = 1;
        ensure!(trained(&training, case).await? != once, "{}: another seed gives the same bits", case.function);
    }
    Ok(())
}
