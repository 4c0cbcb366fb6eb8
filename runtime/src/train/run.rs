//! What one worker does with batches: a step, the optimizer, an update; an evaluation; inference.
//!
//! In which order, and for how long, is decided by a [`job`](crate::job).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use weft_gpu::op::Reducer;
use weft_gpu::{DType, Shape, Tensor};

use super::declared::{Pull, Role};
use super::worker::Worker;
use crate::dataset::Manifest;
use crate::dataset::batches::{Assembler, Batch, BatchError, Batches, Options, Source, Subset};
use crate::dataset::blocks::Blocks;
use crate::dataset::shard::Plan;
use crate::host::data::StepInfo;
use crate::sandbox::InvokeError;
use crate::sandbox::trainer::MAX_METRICS;

/// Losses that wait on the device until they are read together.
const UNREAD: usize = 32;

/// What a model is used on.
pub struct Data<'a> {
    pub name: &'a str,
    pub manifest: &'a Manifest,
    pub blocks: Arc<dyn Blocks>,
}

/// Means over samples, by name.
pub type Metrics = BTreeMap<String, f64>;

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Trainer(#[from] InvokeError),
    #[error(transparent)]
    Data(#[from] BatchError),
    #[error(transparent)]
    Device(#[from] weft_gpu::Error),
    #[error(
        "the loss of step {step} (epoch {epoch}) is {loss}: lower the learning rate, clip gradients, or look for \
         what divides by zero"
    )]
    NotFinite { epoch: u64, step: u64, loss: f32 },
    #[error(
        "step {step} (epoch {epoch}) wrote a number that is not finite into the weight `{name}`: a trainer that assigns \
         weights itself must keep them finite"
    )]
    WeightNotFinite { epoch: u64, step: u64, name: String },
    #[error("step {step} says it saw {said} samples, and was given {given}")]
    Samples { step: u64, said: u32, given: usize },
    #[error("a metric is called twice: `{0}`")]
    MetricTwice(String),
    #[error("an evaluation has more than {MAX_METRICS} metrics in all (`max_metrics`)")]
    TooManyMetrics,
    #[error("inference of {samples} samples gave {shape:?}: it must be a row of numbers for each")]
    Rows { samples: usize, shape: Shape },
    #[error("stopped")]
    Stopped,
}

/// Where a worker's batches come from.
pub enum Feed {
    /// It makes its own data.
    Nothing,
    /// Made ahead, on a thread of their own.
    Ahead(Batches),
    /// Made when they are asked for.
    Inline(Box<Assembler>),
}

impl Feed {
    /// The next batch, `None` after the last.
    fn next(&mut self) -> Result<Option<Option<Batch>>, BatchError> {
        let batch = match self {
            Self::Nothing => return Ok(Some(None)),
            Self::Ahead(batches) => batches.next(),
            Self::Inline(assembler) => assembler.next(),
        };
        Ok(batch.transpose()?.map(Some))
    }
}

/// What a worker's time went to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Waiting for samples.
    pub data: Duration,
    /// In `step`.
    pub compute: Duration,
    /// The optimizer, and the trainer's own `update`.
    pub update: Duration,
}

/// How one worker takes steps, and what comes of them.
pub struct Stepper<'a> {
    /// Whether the trainer has an `update` of its own.
    pub updates: bool,
    /// Whether the weights follow the gradients.
    pub descends: bool,
    /// What else pulls them.
    pub pull: Option<&'a Pull>,
    pub losses: &'a mut Losses,
    pub timing: &'a mut Timing,
}

impl Stepper<'_> {
    /// One step on the next batch. Whether there was one.
    pub async fn step(&mut self, worker: &mut Worker, feed: &mut Feed, info: StepInfo) -> Result<bool, TrainError> {
        if !self.compute(worker, feed, info).await? {
            return Ok(false);
        }
        self.follow(worker, info).await?;
        Ok(true)
    }

    /// One step on all batches that are left: the gradients are those of all their samples at the same weights. Whether
    /// there were any.
    pub async fn whole_feed(
        &mut self,
        worker: &mut Worker,
        feed: &mut Feed,
        info: StepInfo,
        dismissed: &AtomicBool,
    ) -> Result<bool, TrainError> {
        let mut sum: Option<Tensor> = None;
        let before = self.losses.samples;
        while self.compute(worker, feed, info).await? {
            if dismissed.load(Relaxed) {
                return Err(TrainError::Stopped);
            }
            let Some(declared) = worker.declared() else { return Ok(true) };
            let gradients = declared.arena().gradients()?;
            let sum = match &sum {
                Some(sum) => sum,
                None => sum.insert(gradients.context().zeros(&gradients.shape())?),
            };
            sum.accumulate(gradients, self.losses.last_samples as f32)?;
            // A trainer that makes its own data never runs out of it.
            if matches!(feed, Feed::Nothing) {
                break;
            }
        }
        let (Some(sum), Some(declared)) = (sum, worker.declared()) else { return Ok(false) };
        let samples = (self.losses.samples - before).max(1);
        declared.arena().gradients()?.assign(&sum.affine(1.0 / samples as f32, 0.0)?)?;
        self.losses.last_samples = u32::try_from(samples).unwrap_or(u32::MAX);
        self.follow(worker, info).await?;
        Ok(true)
    }

    /// Gradients of the next batch. Whether there was one.
    async fn compute(&mut self, worker: &mut Worker, feed: &mut Feed, info: StepInfo) -> Result<bool, TrainError> {
        let start = Instant::now();
        let Some(batch) = feed.next()? else { return Ok(false) };
        let fed = Instant::now();
        let given = batch.as_ref().map(|batch| batch.count);
        let written = weights_version(worker);
        let stepped = worker.step(info, batch).await?;
        // A trainer may assign weights in a step. Where gradients are exchanged, what it assigned is lost with the step, so
        // nobody would notice it later.
        if weights_version(worker) != written
            && let Some(name) = odd_weight(worker)?
        {
            return Err(TrainError::WeightNotFinite { epoch: info.epoch, step: info.step, name });
        }
        if let Some(given) = given.filter(|&given| given != stepped.samples as usize) {
            return Err(TrainError::Samples { step: info.step, said: stepped.samples, given });
        }
        self.losses.add(info.epoch, info.step, stepped.loss, stepped.samples)?;
        self.timing.data += fed - start;
        self.timing.compute += fed.elapsed();
        Ok(true)
    }

    /// The weights follow the gradients, if they are to.
    async fn follow(&mut self, worker: &mut Worker, info: StepInfo) -> Result<(), TrainError> {
        if !self.descends {
            return Ok(());
        }
        let start = Instant::now();
        worker.descend_towards(info.rate, self.pull)?;
        if self.updates && !worker_counts(worker) {
            worker.update(info).await?;
        }
        self.timing.update += start.elapsed();
        Ok(())
    }
}

/// How often the weights were written in place.
fn weights_version(worker: &Worker) -> u64 {
    worker.declared().map_or(0, |declared| declared.arena().values().version())
}

/// The first weight with a number that is not finite.
fn odd_weight(worker: &Worker) -> Result<Option<String>, TrainError> {
    let Some(declared) = worker.declared() else { return Ok(None) };
    for (declaration, tensor) in declared.named().filter(|(declaration, _)| declaration.role == Role::Weight) {
        let tensor = tensor.detach();
        let extremes = [tensor.reduce_all(Reducer::Min)?.item()?, tensor.reduce_all(Reducer::Max)?.item()?];
        if !extremes.into_iter().all(f32::is_finite) {
            return Ok(Some(declaration.name.clone()));
        }
    }
    Ok(None)
}

fn worker_counts(worker: &Worker) -> bool {
    worker.declared().is_some_and(|declared| declared.plan().has_statistics())
}

/// The samples to test with, in their order.
fn tests(worker: &Worker, data: &Data<'_>, batch: NonZeroU32) -> Result<Batches, BatchError> {
    let plan = Plan { seed: worker.seed(), shuffle: false, ..Plan::default() };
    let source = Source { name: data.name, manifest: data.manifest, part: Subset::Test, blocks: data.blocks.clone() };
    Batches::start(source, Options::new(plan, batch), worker.context())
}

/// How good the model is on the samples to test with.
pub async fn evaluate(
    worker: &mut Worker,
    data: &Data<'_>,
    batch: NonZeroU32,
    place: StepInfo,
) -> Result<Metrics, TrainError> {
    if data.manifest.test.count == 0 {
        return Ok(Metrics::new());
    }
    let (mut sums, mut samples) = (Metrics::new(), 0);
    for batch in tests(worker, data, batch)? {
        let batch: Batch = batch?;
        let count = batch.count;
        add_measured(&mut sums, measure(worker, place, Some(batch)).await?, count as u64)?;
        samples += count;
    }
    Ok(sums.into_iter().map(|(name, sum)| (name, sum / samples as f64)).collect())
}

/// What a metric's mean over a batch adds to the sum over all samples.
///
/// An accuracy counts samples, and its mean is that count divided by theirs, rounded to an `f32`. The count is the whole
/// number that such a division can have come from; sums of counts are exact, so 8966 of 10000 are 0.8966 however they were
/// batched and whoever measured them. What is further from a whole number than rounding can be is taken as it is.
fn sum_of(metric: &str, mean: f64, samples: u64) -> f64 {
    let sum = mean * samples as f64;
    let count = sum.round();
    let rounding = count.abs() * 2.0 * f64::from(f32::EPSILON);
    if metric == "accuracy" && (sum - count).abs() <= rounding { count } else { sum }
}

/// Adds what was measured on a batch of so many samples to sums over all samples.
pub fn add_measured(sums: &mut Metrics, measured: Metrics, samples: u64) -> Result<(), TrainError> {
    for (name, mean) in measured {
        let sum = sum_of(&name, mean, samples);
        *sums.entry(name).or_default() += sum;
    }
    // One call is held to the limit by the sandbox; another batch may come with other names.
    if sums.len() > MAX_METRICS { Err(TrainError::TooManyMetrics) } else { Ok(()) }
}

/// How good it is on one batch.
pub async fn measure(worker: &mut Worker, place: StepInfo, batch: Option<Batch>) -> Result<Metrics, TrainError> {
    let mut metrics = Metrics::new();
    for metric in worker.evaluate(place, batch).await? {
        if metrics.insert(metric.name.clone(), f64::from(metric.value.item()?)).is_some() {
            return Err(TrainError::MetricTwice(metric.name));
        }
    }
    Ok(metrics)
}

/// What the model makes of the samples to test with: a row of numbers for each.
pub async fn infer(worker: &mut Worker, data: &Data<'_>, batch: NonZeroU32) -> Result<Vec<Vec<f32>>, TrainError> {
    let mut rows = Vec::new();
    for batch in tests(worker, data, batch)? {
        let batch: Batch = batch?;
        rows.extend(infer_batch(worker, batch).await?);
    }
    Ok(rows)
}

/// What it makes of one batch.
async fn infer_batch(worker: &mut Worker, batch: Batch) -> Result<Vec<Vec<f32>>, TrainError> {
    let count = batch.count;
    let outputs = infer_rows(worker, batch).await?;
    Ok(outputs.to_vec::<f32>()?.chunks(outputs.shape().elements() / count).map(<[f32]>::to_vec).collect())
}

/// What it makes of one batch, still on the device: numbers of `f32`, as many for each sample.
pub async fn infer_rows(worker: &mut Worker, batch: Batch) -> Result<Tensor, TrainError> {
    let count = batch.count;
    let outputs = worker.infer(StepInfo::default(), batch).await?;
    let outputs = if outputs.dtype() == DType::F32 { outputs } else { outputs.cast(DType::F32)? };
    if outputs.shape().first() != Some(&count) || outputs.shape().elements() == 0 {
        return Err(TrainError::Rows { samples: count, shape: outputs.shape() });
    }
    Ok(outputs)
}

/// Losses, read from the device a few at a time: each read waits for all that was computed before.
#[derive(Default)]
pub struct Losses {
    unread: Vec<(u64, Tensor, u32)>,
    /// Over the samples that were read.
    pub sum: f64,
    pub samples: u64,
    pub latest: f64,
    /// Of the latest step.
    pub last_samples: u32,
}

impl Losses {
    fn add(&mut self, epoch: u64, step: u64, loss: Tensor, samples: u32) -> Result<(), TrainError> {
        let waits = loss.context().device().info().kind.is_gpu();
        self.unread.push((step, loss, samples));
        self.samples += u64::from(samples);
        self.last_samples = samples;
        if !waits || self.unread.len() >= UNREAD { self.read(epoch) } else { Ok(()) }
    }

    /// Waits for all of them.
    pub fn read(&mut self, epoch: u64) -> Result<(), TrainError> {
        for (step, loss, samples) in self.unread.drain(..) {
            let loss = loss.item()?;
            if !loss.is_finite() {
                return Err(TrainError::NotFinite { epoch, step, loss });
            }
            self.sum += f64::from(loss) * f64::from(samples);
            self.latest = f64::from(loss);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accuracy_adds_up_to_an_exact_count() {
        for samples in 1..=600_u32 {
            for right in 0..=samples {
                let count = f64::from(right);
                let divided = right as f32 / samples as f32;
                let multiplied = right as f32 * (1.0 / samples as f32);
                for mean in [divided, multiplied] {
                    assert_eq!(sum_of("accuracy", f64::from(mean), u64::from(samples)), count, "{right} of {samples}");
                }
            }
        }
        let large = f64::from(8_388_607.0_f32 / 8_388_608.0);
        assert_eq!(sum_of("accuracy", large, 8_388_608), 8_388_607.0);
    }

    #[test]
    fn what_does_not_count_samples_is_not_rounded() {
        assert_eq!(sum_of("accuracy", 0.3, 4), 1.2);
        assert_eq!(sum_of("accuracy", f64::from(f32::MAX), 4), f64::from(f32::MAX) * 4.0);
        assert!(sum_of("accuracy", f64::NAN, 4).is_nan());
        let loss = f64::from(1.0_f32 / 3.0);
        assert_eq!(sum_of("loss", loss, 3), loss * 3.0);
    }
}
