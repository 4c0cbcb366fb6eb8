//! The loop of a worker's thread: takes assignments, computes with a trainer's instance, hands contributions over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weft_gpu::op::Stream;
use weft_gpu::pool::PoolError;
use weft_gpu::{Codec, Feedback, Lease, Tensor};

use super::common::{Common, Cursor};
use super::fan_out::FanOut;
use super::model::{GlobalModel, WorkerState};
use super::record::Stages;
use super::worker::{Assignment, Contribution, Declaration, Message, Task, Used, WorkerError};
use crate::clock::thread_cpu;
use crate::sync::{Exchange, Who};
use crate::train::declared::{Declared, Part};
use crate::train::run::{Feed, Losses, Timing, add_measured, measure, train_step};
use crate::train::worker::Worker;

/// Makes the random numbers of codecs differ from those of the trainer.
const CODEC_SEED: u64 = 0xc0de << 48;

/// A worker's lease, instance and batches, and what it keeps from round to round.
pub(super) struct WorkerLoop {
    common: Arc<Common>,
    who: Who,
    worker: Worker,
    fan_out: Option<FanOut>,
    lease: Lease,
    feed: Option<(Cursor, Feed)>,
    /// Whether the device already holds this worker's own state, so that it need not be loaded.
    is_settled: bool,
    /// The part of the gradients that the codec has not sent yet.
    residual: Option<Tensor>,
    seen: Seen,
    messages: mpsc::UnboundedSender<Message>,
    dismissed: Arc<AtomicBool>,
}

/// Counters as they were when the current work began.
#[derive(Clone, Copy)]
struct Seen {
    cpu: Duration,
    device: Duration,
    at: Instant,
    instances: u64,
}

impl WorkerLoop {
    pub async fn open(
        common: Arc<Common>,
        who: Who,
        leases: Vec<Lease>,
        messages: mpsc::UnboundedSender<Message>,
        dismissed: Arc<AtomicBool>,
    ) -> Result<Self, WorkerError> {
        let (at, cpu) = (Instant::now(), thread_cpu());
        let mut leases = leases.into_iter();
        let lease = leases.next().ok_or(WorkerError::Device(PoolError::Empty))?;
        let context = common.context(&lease);
        let worker = Worker::start(common.setup(context)).await?;
        worker.rest();
        let declaration = match (who, worker.declared()) {
            (Who { worker: 0, .. }, Some(declared)) => Some(Box::new(Declaration {
                plan: declared.plan().clone(),
                model: GlobalModel::read(declared)?,
                worker_state: WorkerState::read(declared)?,
                statistics: declared.length(Part::Statistics),
            })),
            _ => None,
        };
        let fan_out = FanOut::open(&common, who, leases)?;
        let seen = Seen { cpu, device: Duration::ZERO, at, instances: 0 };
        let mut this = Self {
            common,
            who,
            worker,
            fan_out,
            lease,
            feed: None,
            is_settled: false,
            residual: None,
            seen,
            messages,
            dismissed,
        };
        let mut used = this.used(&mut Timing::default(), Stages::default());
        used.invocations = 1;
        this.messages.send(Message::Ready { who, declaration, used }).ok();
        Ok(this)
    }

    pub async fn work(mut self, mut inbox: mpsc::UnboundedReceiver<Assignment>) -> Result<(), WorkerError> {
        while let Some(assignment) = inbox.recv().await {
            if self.dismissed.load(Relaxed) {
                break;
            }
            let (who, round) = (self.who, assignment.round);
            // Whatever it has waited for is not its own time.
            self.seen.at = Instant::now();
            let contribution = self.contribution(assignment).await?;
            self.worker.rest();
            self.messages.send(Message::Done { who, round, contribution: Box::new(contribution) }).ok();
        }
        Ok(())
    }

    async fn contribution(&mut self, assignment: Assignment) -> Result<Contribution, WorkerError> {
        let start = Instant::now();
        let received = self.receive(&assignment)?;
        let receive = start.elapsed().as_secs_f64();
        let mut timing = Timing::default();
        let mut contribution = match assignment.task {
            Task::Train { steps } => self.train(&assignment, steps, &mut timing).await?,
            Task::Update => self.update(&assignment, &mut timing).await?,
            Task::Evaluate => self.evaluate(&assignment).await?,
        };
        let sending = Instant::now();
        self.send(&assignment, &mut contribution)?;
        let send = sending.elapsed().as_secs_f64();
        let sent = size_of_val(&contribution.payload[..])
            + contribution.encoded.len()
            + size_of_val(&contribution.buffers[..]);
        let stages = Stages { receive, send, ..contribution.used.stages };
        let invocations = contribution.used.invocations;
        contribution.used = self.used(&mut timing, stages);
        (contribution.used.invocations, contribution.used.bytes) = (invocations, received + sent as u64);
        Ok(contribution)
    }

    /// The number of this worker's first function, counted over all workers.
    fn lane(&self) -> u32 {
        self.who.worker * self.common.spec.fan_out
    }

    /// Loads the model of the assignment, unless the device already holds it. Returns how many bytes were loaded.
    fn receive(&mut self, assignment: &Assignment) -> Result<u64, WorkerError> {
        let mut bytes = 0;
        let (who, is_settled) = (self.who, std::mem::replace(&mut self.is_settled, true));
        let declared = self.declared()?;
        if assignment.model.of != Some(who) {
            assignment.model.write(declared)?;
            bytes += assignment.model.bytes();
        }
        if let Some(worker_state) = assignment.worker_state.as_ref().filter(|_| !is_settled) {
            worker_state.write(declared)?;
        }
        Ok(bytes)
    }

    fn declared(&mut self) -> Result<&mut Declared, WorkerError> {
        self.worker.declared_mut().ok_or_else(|| WorkerError::Train("the trainer has declared nothing".to_owned()))
    }

    async fn train(
        &mut self,
        assignment: &Assignment,
        steps: u64,
        timing: &mut Timing,
    ) -> Result<Contribution, WorkerError> {
        let (common, who, at) = (self.common.clone(), self.who, assignment.at);
        // What was counted in an earlier round has been handed over.
        if common.exchange == Exchange::Statistics {
            self.declared()?.clear_statistics()?;
        }
        // The job's optimizer has done the steps; the trainer's schedule goes by them.
        if common.exchange == Exchange::Gradients {
            self.declared()?.resume_optimizer(at.step);
        }
        let lane = self.lane();
        let mut feed = match self.feed.take() {
            // The next batch is the one that comes next.
            Some((from, feed)) if from.follows(&at) => feed,
            _ => common.feed(&at, lane, self.worker.context())?,
        };
        let mut losses = Losses::default();
        let mut now = at;
        let mut told = Instant::now();
        let mut calls = 0;
        let descends = common.exchange == Exchange::Weights;
        for _ in 0..steps {
            if self.dismissed.load(Relaxed) {
                return Err(WorkerError::Stopped);
            }
            if common.lifetime.is_some_and(|lifetime| self.worker.age() >= lifetime) {
                self.worker.renew();
            }
            let place = common.place(&now, lane);
            if let Some(fan) = &mut self.fan_out {
                fan.begin(&self.worker, &now)?;
            }
            // The gradients of all lanes are one's before the weights follow.
            let alone = descends && self.fan_out.is_none();
            let mut stepped =
                train_step(&mut self.worker, &mut feed, place, common.traits, alone, &mut losses, timing).await?;
            if let Some(fan) = &mut self.fan_out {
                stepped = fan.end(&mut self.worker, stepped, place, descends, &mut losses, timing).await?;
            }
            (now.step, now.done) = (now.step + 1, now.done + 1);
            if !stepped {
                break;
            }
            calls += u64::from(common.spec.fan_out);
            if told.elapsed() >= Duration::from_millis(100) {
                told = Instant::now();
                let (steps, loss, samples) = (now.done, losses.latest, losses.samples);
                self.messages.send(Message::Progress { who, steps, loss, samples }).ok();
            }
        }
        losses.read(at.epoch)?;
        // As many steps as the others, also where its shard has a batch less.
        let end = Cursor { done: at.done + steps, step: at.step + steps, ..at };
        self.feed = Some((end, feed));
        let used = Used { invocations: calls, ..Used::default() };
        let (samples, loss, latest) = (losses.samples, losses.sum, losses.latest);
        Ok(Contribution { samples, loss, latest, used, ..Contribution::default() })
    }

    async fn update(&mut self, assignment: &Assignment, timing: &mut Timing) -> Result<Contribution, WorkerError> {
        let at = assignment.at;
        let start = Instant::now();
        if !assignment.statistics.is_empty() {
            self.declared()?.write(Part::Statistics, &assignment.statistics)?;
        }
        let place = self.common.place(&at, self.lane());
        self.worker.update(place).await?;
        self.declared()?.clear_statistics()?;
        timing.update += start.elapsed();
        Ok(Contribution { used: Used { invocations: 1, ..Used::default() }, ..Contribution::default() })
    }

    async fn evaluate(&mut self, assignment: &Assignment) -> Result<Contribution, WorkerError> {
        let start = Instant::now();
        let (common, at, who) = (self.common.clone(), assignment.at, self.who);
        let mut contribution = Contribution::default();
        let place = common.place(&at, self.lane());
        let mut feed = common.tests(who.worker, at.batch, self.worker.context())?;
        let mut told = Instant::now();
        loop {
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                self.messages.send(Message::Computes).ok();
            }
            let batch = match &mut feed {
                // A trainer that makes its own data is tested once, by one.
                Feed::Nothing if common.data.is_none() && who.worker == 0 && contribution.samples == 0 => None,
                Feed::Nothing => break,
                Feed::Ahead(batches) => batches.next().transpose()?,
                Feed::Inline(assembler) => assembler.next().transpose()?,
            };
            if batch.is_none() && common.data.is_some() {
                break;
            }
            if self.dismissed.load(Relaxed) {
                return Err(WorkerError::Stopped);
            }
            let count = batch.as_ref().map_or(1, |batch| batch.count as u64);
            add_measured(&mut contribution.metrics, measure(&mut self.worker, place, batch).await?, count)?;
            contribution.samples += count;
            contribution.used.invocations += 1;
        }
        contribution.used.stages.validate = start.elapsed().as_secs_f64();
        Ok(contribution)
    }

    /// Copies what is handed over from the device into the contribution.
    fn send(&mut self, assignment: &Assignment, contribution: &mut Contribution) -> Result<(), WorkerError> {
        let (exchange, codec) = (self.common.exchange, self.common.codec);
        let declared = self.declared()?;
        match (assignment.task, exchange) {
            (Task::Evaluate, _) => return Ok(()),
            (Task::Update, _) | (Task::Train { .. }, Exchange::Weights) => {
                declared.read(Part::Weights, &mut contribution.payload)?;
            }
            // Nothing was computed, so there is nothing to hand over.
            (Task::Train { .. }, _) if contribution.samples == 0 => {}
            (Task::Train { .. }, Exchange::Gradients) if codec == Codec::Plain => {
                declared.read(Part::Gradients, &mut contribution.payload)?;
            }
            (Task::Train { .. }, Exchange::Gradients) => contribution.encoded = self.encode(assignment)?,
            (Task::Train { .. }, Exchange::Statistics) => declared.read(Part::Statistics, &mut contribution.payload)?,
        }
        let residual = match &self.residual {
            Some(residual) => residual.to_vec()?,
            None => Vec::new(),
        };
        let declared = self.declared()?;
        declared.read(Part::Buffers, &mut contribution.buffers)?;
        let worker_state = WorkerState { residual, ..WorkerState::read(declared)? };
        contribution.worker_state = match exchange {
            Exchange::Weights => Some(worker_state),
            // The optimizer is not the worker's.
            _ => Some(WorkerState { moments: Vec::new(), steps: 0, ..worker_state }),
        };
        Ok(())
    }

    /// Encodes the step's gradients. What the codec leaves out is kept, and added to the next step's.
    fn encode(&mut self, assignment: &Assignment) -> Result<Vec<u8>, WorkerError> {
        let (codec, lane) = (self.common.codec, self.lane());
        let context = self.worker.context().clone();
        if codec.takes_residual() && self.residual.is_none() {
            let before =
                assignment.worker_state.as_ref().map(|worker_state| &worker_state.residual[..]).unwrap_or_default();
            let length = self.declared()?.arena().values().shape().elements();
            self.residual = Some(match before.len() == length {
                true => context.tensor(&[length], before)?,
                false => context.zeros(&[length])?,
            });
        }
        let residual = self.residual.take();
        let stream = Stream {
            seed: self.common.seed.wrapping_add(u64::from(lane).wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ CODEC_SEED,
            offset: assignment.at.step,
        };
        let arena = self.declared()?.arena();
        let weights = codec.takes_weights().then(|| arena.values());
        let feedback = Feedback { residual: residual.as_ref(), weights };
        let wire = codec.encode(arena.gradients()?, feedback, stream)?.to_wire()?;
        self.residual = residual;
        Ok(wire)
    }

    /// The resources used since the current work began.
    fn used(&mut self, timing: &mut Timing, stages: Stages) -> Used {
        let now = Seen {
            cpu: thread_cpu(),
            device: self.lease.time() + self.fan_out.as_ref().map_or(Duration::ZERO, FanOut::device_time),
            at: Instant::now(),
            instances: self.worker.instances() + self.fan_out.as_ref().map_or(0, FanOut::instances),
        };
        let before = std::mem::replace(&mut self.seen, now);
        Used {
            stages: Stages {
                data: timing.data.as_secs_f64(),
                compute: timing.compute.as_secs_f64(),
                update: timing.update.as_secs_f64(),
                ..stages
            },
            cpu: now.cpu.saturating_sub(before.cpu),
            device: now.device.saturating_sub(before.device),
            is_gpu: self.worker.context().device().info().kind.is_gpu(),
            wall: now.at - before.at,
            memory: self.lease.used() as u64 + self.worker.memory(),
            invocations: 0,
            cold_starts: now.instances - before.instances,
            bytes: 0,
        }
    }
}
