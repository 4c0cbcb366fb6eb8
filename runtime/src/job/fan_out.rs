//! Fan-out: one worker's step is computed by several functions at once, one batch each, and their gradients averaged.
//!
//! The worker computes one of the batches itself; each of the others has a thread, a lease and an instance of its own. They
//! get the worker's weights with every step and give back gradients, so that they have no state either. One that fails
//! takes the worker with it, which is then started again as a whole.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weft_core::spec::Shape;
use weft_core::sync::{Who, merge};
use weft_gpu::{Cancel, Lease};

use super::model::GlobalModel;
use super::seam::Outbox;
use super::worker::WorkerError;
use super::worker_loop::{core_time, take_a_rest};
use super::workshop::{Cursor, Workshop};
use crate::host::data::StepInfo;
use crate::train::declared::TensorRow;
use crate::train::run::{Feed, Losses, Stepper, Timing};
use crate::train::worker::Worker;

/// The functions that compute beside a worker's own.
pub struct FanOut {
    lanes: Vec<Lane>,
    /// Whether the trainer has an `update` of its own.
    updates: bool,
    /// What the lanes have used in the latest step.
    device_time: Duration,
    instances: u64,
}

/// One of these functions, on a thread of its own.
struct Lane {
    steps: mpsc::UnboundedSender<(Cursor, Arc<GlobalModel>)>,
    results: mpsc::UnboundedReceiver<Result<Computed, WorkerError>>,
    cancel: Cancel,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// What a lane computed in one step; the default if it has no samples left.
#[derive(Default)]
struct Computed {
    samples: u64,
    loss: f64,
    gradients: Vec<f32>,
    buffers: Vec<f32>,
    device_time: Duration,
    instances: u64,
}

impl FanOut {
    /// Starts the lanes. None if `fan_out` is 1.
    pub fn open(
        workshop: &Arc<Workshop>,
        shape: &Shape,
        who: Who,
        leases: impl Iterator<Item = Lease>,
        reports: &Outbox,
    ) -> Result<Option<Self>, WorkerError> {
        if shape.fan_out == 1 {
            return Ok(None);
        }
        let next = who.worker * shape.fan_out + 1;
        let lanes =
            (next..).zip(leases).map(|(lane, lease)| Lane::start(workshop, *shape, lane, lease, reports.clone()));
        let (lanes, updates) = (lanes.collect::<Result<_, _>>()?, workshop.brief.trainer.updates);
        Ok(Some(Self { lanes, updates, device_time: Duration::ZERO, instances: 0 }))
    }

    /// Device time of the lanes in the latest step.
    pub fn device_time(&self) -> Duration {
        self.device_time
    }

    /// Instances that the lanes have made.
    pub fn instances(&self) -> u64 {
        self.instances
    }

    /// Makes the lanes compute the step that the worker is about to do.
    pub fn begin(&mut self, worker: &Worker, at: &Cursor) -> Result<(), WorkerError> {
        let Some(declared) = worker.declared() else { return Ok(()) };
        let model = Arc::new(GlobalModel::read(declared)?);
        for lane in &self.lanes {
            lane.steps.send((at.clone(), model.clone())).ok();
        }
        Ok(())
    }

    /// Averages the gradients of all lanes into the worker's, and applies the optimizer if `descends`. Returns whether
    /// any lane had samples.
    pub async fn end(
        &mut self,
        worker: &mut Worker,
        stepped: bool,
        info: StepInfo,
        descends: bool,
        losses: &mut Losses,
        timing: &mut Timing,
    ) -> Result<bool, WorkerError> {
        let waiting = Instant::now();
        worker.rest();
        losses.read(info.epoch)?;
        let mut own = Computed::default();
        let declared = worker.declared().ok_or_else(|| WorkerError::Train("nothing was declared".to_owned()))?;
        declared.read(TensorRow::Gradients, &mut own.gradients)?;
        declared.read(TensorRow::Buffers, &mut own.buffers)?;
        own.samples = if stepped { u64::from(losses.last_samples) } else { 0 };
        let mut all = vec![own];
        for lane in &mut self.lanes {
            let computed = lane.results.recv().await.unwrap_or(Err(WorkerError::Panicked))?;
            losses.sum += computed.loss;
            losses.samples += computed.samples;
            all.push(computed);
        }
        (self.device_time, self.instances) = (Duration::ZERO, 0);
        for computed in &all[1..] {
            self.device_time += computed.device_time;
            self.instances += computed.instances;
        }
        timing.compute += waiting.elapsed();
        let updating = Instant::now();
        let samples: u64 = all.iter().map(|computed| computed.samples).sum();
        if samples == 0 {
            return Ok(false);
        }
        declared.write(TensorRow::Gradients, &mean(&all, |computed| &computed.gradients)?)?;
        declared.write(TensorRow::Buffers, &mean(&all, |computed| &computed.buffers)?)?;
        drop(all);
        if descends {
            worker.descend(info.rate)?;
            if self.updates {
                worker.update(info).await?;
            }
        }
        timing.update += updating.elapsed();
        Ok(true)
    }
}

/// The mean of a row of numbers that all have who have samples. At least one has. A row of another length than the
/// worker's own, which is the first, is an error: its function has declared another model.
fn mean(all: &[Computed], row: impl Fn(&Computed) -> &[f32]) -> Result<Vec<f32>, WorkerError> {
    let length = all.first().map_or(0, |own| row(own).len());
    let with_samples = all.iter().filter(|computed| computed.samples > 0);
    let parts: Vec<(&[f32], u64)> = with_samples.map(|computed| (row(computed), computed.samples)).collect();
    if let Some((other, _)) = parts.iter().find(|(part, _)| part.len() != length) {
        let other = other.len();
        return Err(WorkerError::Train(format!(
            "one of its functions computed {other} numbers for the {length} of its worker: a trainer must declare the same \
             every time"
        )));
    }
    let mut mean = vec![0.0; length];
    merge::mean(&mut mean, &parts);
    Ok(mean)
}

impl Lane {
    /// It holds `reports` until its lease is given back: whoever waits for the end of all workers waits for that too.
    fn start(
        workshop: &Arc<Workshop>,
        shape: Shape,
        lane: u32,
        lease: Lease,
        reports: Outbox,
    ) -> Result<Self, WorkerError> {
        let cancel = lease.cancel().clone();
        let (steps, inbox) = mpsc::unbounded_channel();
        let (outbox, results) = mpsc::unbounded_channel();
        let (workshop, runtime) = (workshop.clone(), tokio::runtime::Handle::current());
        let work = move || {
            let failed = outbox.clone();
            if let Err(error) = runtime.block_on(compute(workshop, shape, lane, lease, inbox, outbox)) {
                failed.send(Err(error)).ok();
            }
            drop(reports);
        };
        let spawned = std::thread::Builder::new().name(format!("lane-{lane}")).spawn(work);
        spawned.map_err(|error| WorkerError::Thread(error.to_string()))?;
        Ok(Self { steps, results, cancel })
    }
}

async fn compute(
    workshop: Arc<Workshop>,
    shape: Shape,
    lane: u32,
    lease: Lease,
    mut inbox: mpsc::UnboundedReceiver<(Cursor, Arc<GlobalModel>)>,
    outbox: mpsc::UnboundedSender<Result<Computed, WorkerError>>,
) -> Result<(), WorkerError> {
    let mut worker = Worker::start(workshop.setup(&shape, workshop.context(&shape, &lease))).await?;
    worker.rest();
    worker.declared().map_or(Ok(()), |declared| workshop.check_host_memory(declared, &shape))?;
    let mut kept: Option<(Cursor, Feed)> = None;
    let mut throttle = workshop.throttle(&shape);
    // Its lease is cancelled with its worker's.
    let dismissed = AtomicBool::new(false);
    while let Some((at, model)) = inbox.recv().await {
        if workshop.lifetime().is_some_and(|lifetime| worker.age() >= lifetime) {
            worker.renew();
        }
        if let Some(declared) = worker.declared() {
            model.write(declared)?;
        }
        let mut feed = match kept.take() {
            Some((from, feed)) if from.follows(&at) => feed,
            _ => workshop.feed(&at, lane, worker.context())?,
        };
        let (mut losses, mut timing) = (Losses::default(), Timing::default());
        let info = workshop.step_info(&at, lane);
        let mut stepper =
            Stepper { updates: false, descends: false, pull: None, losses: &mut losses, timing: &mut timing };
        let stepped = match workshop.spec().fans_out_epoch() {
            true => stepper.whole_feed(&mut worker, &mut feed, info, &dismissed).await?,
            false => stepper.step(&mut worker, &mut feed, info).await?,
        };
        losses.read(at.epoch)?;
        let mut computed = Computed { samples: losses.samples, loss: losses.sum, ..Computed::default() };
        if let Some(declared) = worker.declared().filter(|_| stepped) {
            declared.read(TensorRow::Gradients, &mut computed.gradients)?;
            declared.read(TensorRow::Buffers, &mut computed.buffers)?;
        }
        (computed.device_time, computed.instances) = (lease.time(), worker.instances());
        worker.rest();
        let used = core_time(&worker, &lease);
        if let Some(rest) = throttle.as_mut().and_then(|throttle| throttle.rest(used, Instant::now())) {
            take_a_rest(rest, || lease.cancel().check().is_err()).await?;
        }
        kept = Some((Cursor { done: at.done + 1, step: at.step + 1, ..at }, feed));
        outbox.send(Ok(computed)).ok();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed(samples: u64, gradients: &[f32]) -> Computed {
        Computed { samples, gradients: gradients.to_vec(), ..Computed::default() }
    }

    #[test]
    fn a_function_that_computed_another_model_is_an_error_and_no_panic() {
        let mean = |all: &[Computed]| mean(all, |computed| &computed.gradients);
        let own = || computed(0, &[0.0, 0.0]);
        for other in [&[1.0_f32][..], &[1.0; 3]] {
            let error = mean(&[own(), computed(2, other)]).unwrap_err();
            assert!(matches!(&error, WorkerError::Train(text) if text.contains("declare the same")), "{error}");
            assert!(mean(&[computed(1, &[1.0, 2.0]), computed(2, other)]).is_err());
        }
        // One that had no samples left has computed nothing.
        assert_eq!(mean(&[own(), computed(0, &[]), computed(2, &[1.0, 2.0])]).unwrap(), [1.0, 2.0]);
        assert_eq!(mean(&[computed(1, &[1.0, 2.0]), computed(3, &[5.0, 6.0])]).unwrap(), [4.0, 5.0]);
    }
}
