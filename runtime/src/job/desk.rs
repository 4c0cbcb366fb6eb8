//! What a worker works with: a lease, a trainer's instance, batches; and its share of each round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weft_gpu::op::Stream;
use weft_gpu::pool::PoolError;
use weft_gpu::{Codec, Feedback, Lease, Tensor};

use super::common::{Common, Cursor};
use super::fan::Fan;
use super::model::{Private, Shared};
use super::record::Stages;
use super::worker::{Assignment, Born, Message, Share, Task, Used, WorkerError};
use crate::clock::thread_cpu;
use crate::sync::{Exchange, Who};
use crate::train::declared::{Declared, Part};
use crate::train::run::{Feed, Losses, Timing, add_measured, measure, train_step};
use crate::train::worker::Worker;

/// Sets what codecs draw apart from what a trainer draws.
const CODEC_SEED: u64 = 0xc0de << 48;

/// Everything that a worker works with.
pub(super) struct Desk {
    common: Arc<Common>,
    who: Who,
    worker: Worker,
    fan: Option<Fan>,
    lease: Lease,
    feed: Option<(Cursor, Feed)>,
    /// Whether what only it has is on its device already.
    is_settled: bool,
    /// What its codec has not sent yet.
    residual: Option<Tensor>,
    seen: Seen,
    messages: mpsc::UnboundedSender<Message>,
    dismissed: Arc<AtomicBool>,
}

/// Counters as they were when the last share was handed over, and when its present work began.
#[derive(Clone, Copy)]
struct Seen {
    cpu: Duration,
    device: Duration,
    at: Instant,
    instances: u64,
}

impl Desk {
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
        let born = match (who, worker.declared()) {
            (Who { worker: 0, .. }, Some(declared)) => Some(Box::new(Born {
                plan: declared.plan().clone(),
                model: Shared::read(declared)?,
                private: Private::read(declared)?,
                statistics: declared.length(Part::Statistics),
            })),
            _ => None,
        };
        let fan = Fan::open(&common, who, leases)?;
        let seen = Seen { cpu, device: Duration::ZERO, at, instances: 0 };
        let mut desk = Self {
            common,
            who,
            worker,
            fan,
            lease,
            feed: None,
            is_settled: false,
            residual: None,
            seen,
            messages,
            dismissed,
        };
        let mut used = desk.used(&mut Timing::default(), Stages::default());
        used.invocations = 1;
        desk.messages.send(Message::Ready { who, born, used }).ok();
        Ok(desk)
    }

    pub async fn work(mut self, mut inbox: mpsc::UnboundedReceiver<Assignment>) -> Result<(), WorkerError> {
        while let Some(assignment) = inbox.recv().await {
            if self.dismissed.load(Relaxed) {
                break;
            }
            let (who, round) = (self.who, assignment.round);
            // Whatever it has waited for is not its own time.
            self.seen.at = Instant::now();
            let share = self.share(assignment).await?;
            self.worker.rest();
            self.messages.send(Message::Done { who, round, share: Box::new(share) }).ok();
        }
        Ok(())
    }

    async fn share(&mut self, assignment: Assignment) -> Result<Share, WorkerError> {
        let start = Instant::now();
        let received = self.receive(&assignment)?;
        let receive = start.elapsed().as_secs_f64();
        let mut timing = Timing::default();
        let mut share = match assignment.task {
            Task::Train { steps } => self.train(&assignment, steps, &mut timing).await?,
            Task::Update => self.update(&assignment, &mut timing).await?,
            Task::Evaluate => self.evaluate(&assignment).await?,
        };
        let sending = Instant::now();
        self.send(&assignment, &mut share)?;
        let send = sending.elapsed().as_secs_f64();
        let sent = size_of_val(&share.payload[..]) + share.encoded.len() + size_of_val(&share.buffers[..]);
        let stages = Stages { receive, send, ..share.used.stages };
        let invocations = share.used.invocations;
        share.used = self.used(&mut timing, stages);
        (share.used.invocations, share.used.bytes) = (invocations, received + sent as u64);
        Ok(share)
    }

    /// Its first function, counted over all workers.
    fn lane(&self) -> u32 {
        self.who.worker * self.common.spec.fan_out
    }

    /// Takes the model over, unless it is its own as it stands. How many bytes came.
    fn receive(&mut self, assignment: &Assignment) -> Result<u64, WorkerError> {
        let mut bytes = 0;
        let (who, is_settled) = (self.who, std::mem::replace(&mut self.is_settled, true));
        let declared = self.declared()?;
        if assignment.model.of != Some(who) {
            assignment.model.write(declared)?;
            bytes += assignment.model.bytes();
        }
        if let Some(private) = assignment.private.as_ref().filter(|_| !is_settled) {
            private.write(declared)?;
        }
        Ok(bytes)
    }

    fn declared(&mut self) -> Result<&mut Declared, WorkerError> {
        self.worker.declared_mut().ok_or_else(|| WorkerError::Train("the trainer has declared nothing".to_owned()))
    }

    async fn train(&mut self, assignment: &Assignment, steps: u64, timing: &mut Timing) -> Result<Share, WorkerError> {
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
            if let Some(fan) = &mut self.fan {
                fan.begin(&self.worker, &now)?;
            }
            // The gradients of all lanes are one's before the weights follow.
            let alone = descends && self.fan.is_none();
            let mut stepped =
                train_step(&mut self.worker, &mut feed, place, common.traits, alone, &mut losses, timing).await?;
            if let Some(fan) = &mut self.fan {
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
        Ok(Share { samples, loss, latest, used, ..Share::default() })
    }

    async fn update(&mut self, assignment: &Assignment, timing: &mut Timing) -> Result<Share, WorkerError> {
        let at = assignment.at;
        let start = Instant::now();
        if !assignment.statistics.is_empty() {
            self.declared()?.write(Part::Statistics, &assignment.statistics)?;
        }
        let place = self.common.place(&at, self.lane());
        self.worker.update(place).await?;
        self.declared()?.clear_statistics()?;
        timing.update += start.elapsed();
        Ok(Share { used: Used { invocations: 1, ..Used::default() }, ..Share::default() })
    }

    async fn evaluate(&mut self, assignment: &Assignment) -> Result<Share, WorkerError> {
        let start = Instant::now();
        let (common, at, who) = (self.common.clone(), assignment.at, self.who);
        let mut share = Share::default();
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
                Feed::Nothing if common.data.is_none() && who.worker == 0 && share.samples == 0 => None,
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
            add_measured(&mut share.metrics, measure(&mut self.worker, place, batch).await?, count)?;
            share.samples += count;
            share.used.invocations += 1;
        }
        share.used.stages.validate = start.elapsed().as_secs_f64();
        Ok(share)
    }

    /// Copies out what is handed over.
    fn send(&mut self, assignment: &Assignment, share: &mut Share) -> Result<(), WorkerError> {
        let (exchange, codec) = (self.common.exchange, self.common.codec);
        let declared = self.declared()?;
        match (assignment.task, exchange) {
            (Task::Evaluate, _) => return Ok(()),
            (Task::Update, _) | (Task::Train { .. }, Exchange::Weights) => {
                declared.read(Part::Weights, &mut share.payload)?;
            }
            // Nothing was computed, so there is nothing to hand over.
            (Task::Train { .. }, _) if share.samples == 0 => {}
            (Task::Train { .. }, Exchange::Gradients) if codec == Codec::Plain => {
                declared.read(Part::Gradients, &mut share.payload)?;
            }
            (Task::Train { .. }, Exchange::Gradients) => share.encoded = self.encode(assignment)?,
            (Task::Train { .. }, Exchange::Statistics) => declared.read(Part::Statistics, &mut share.payload)?,
        }
        let residual = match &self.residual {
            Some(residual) => residual.to_vec()?,
            None => Vec::new(),
        };
        let declared = self.declared()?;
        declared.read(Part::Buffers, &mut share.buffers)?;
        let private = Private { residual, ..Private::read(declared)? };
        share.private = match exchange {
            Exchange::Weights => Some(private),
            // The optimizer is not the worker's.
            _ => Some(Private { moments: Vec::new(), steps: 0, ..private }),
        };
        Ok(())
    }

    /// The step's gradients as their codec sends them. What it does not send stays with the worker's place.
    fn encode(&mut self, assignment: &Assignment) -> Result<Vec<u8>, WorkerError> {
        let (codec, lane) = (self.common.codec, self.lane());
        let context = self.worker.context().clone();
        if codec.takes_residual() && self.residual.is_none() {
            let before = assignment.private.as_ref().map(|private| &private.residual[..]).unwrap_or_default();
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

    /// What was used since its present work began.
    fn used(&mut self, timing: &mut Timing, stages: Stages) -> Used {
        let now = Seen {
            cpu: thread_cpu(),
            device: self.lease.time() + self.fan.as_ref().map_or(Duration::ZERO, Fan::device_time),
            at: Instant::now(),
            instances: self.worker.instances() + self.fan.as_ref().map_or(0, Fan::instances),
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
