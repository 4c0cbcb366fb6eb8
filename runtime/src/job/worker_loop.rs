//! The loop of a worker's thread: takes assignments, computes with a trainer's instance, hands contributions over.
//!
//! - `receiving`: what a round starts from
//! - `computing`: steps, updates, tests
//! - `sending`: what comes of it

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weft_core::spec::Shape;
use weft_core::sync::{Handover, Who};
use weft_core::throttle::Throttle;
use weft_core::usage::{Stages, Used};
use weft_gpu::Lease;
use weft_gpu::pool::PoolError;

use super::channel::Channel;
use super::contribution::Contribution;
use super::encoding::Encoder;
use super::exchange;
use super::fan_out::FanOut;
use super::model::{GlobalModel, WorkerState};
use super::numbers::Numbers;
use super::scheme::{self, Lengths};
use super::seam::Outbox;
use super::work_order::{Assignment, MergeOrder, Task, WorkOrder};
use super::worker::{Declaration, Report, WorkerError};
use super::workshop::{Cursor, Workshop};
use crate::clock::thread_cpu;
use crate::train::declared::{Declared, TensorRow};
use crate::train::run::{Feed, Timing};
use crate::train::worker::Worker;

mod computing;
mod receiving;
mod sending;

/// How often a worker that rests looks whether it is still wanted.
const LOOK_UP: Duration = Duration::from_millis(50);
/// However much it has used at once.
const LONGEST_REST: Duration = Duration::from_secs(3_600);

/// A worker's lease, instance and batches, and what it keeps from round to round.
pub(super) struct WorkerLoop {
    workshop: Arc<Workshop>,
    shape: Shape,
    who: Who,
    worker: Worker,
    fan_out: Option<FanOut>,
    lease: Lease,
    feed: Option<(Cursor, Feed)>,
    holds: Holds,
    channel: Arc<dyn Channel>,
    /// Its side of the exchange, if workers merge.
    exchange: Option<exchange::Exchange>,
    /// The weights of the model that the latest round began with, and its version, where its numbers were here.
    base: Option<(u64, Numbers)>,
    /// The latest contribution, should it have to be handed in once more.
    latest: Option<(u64, Contribution)>,
    /// Whether the device already has this worker's own state, so that it need not be loaded.
    is_settled: bool,
    encoder: Encoder,
    seen: Seen,
    reports: Outbox,
    dismissed: Arc<AtomicBool>,
    /// What it may compute.
    throttle: Option<Throttle>,
}

/// Which weights the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// Something that nobody asked for.
    Unknown,
    /// The model of this version.
    Model(u64),
    /// What came of the worker's own latest steps.
    Own,
}

/// Counters as they were when the current work began.
#[derive(Clone, Copy)]
struct Seen {
    cpu: Duration,
    device: Duration,
    at: Instant,
    instances: u64,
}

/// Time that a function has computed on cores, in its sandbox and in kernels, on the thread that asks.
pub(super) fn core_time(worker: &Worker, lease: &Lease) -> Duration {
    match worker.context().device().info().kind.is_gpu() {
        true => thread_cpu(),
        // Its kernels run on this thread and on others.
        false => thread_cpu().max(lease.time()),
    }
}

/// Rests for so long, or until it is dismissed.
pub(super) async fn take_a_rest(rest: Duration, is_dismissed: impl Fn() -> bool) -> Result<(), WorkerError> {
    let end = Instant::now() + rest.min(LONGEST_REST);
    while Instant::now() < end {
        if is_dismissed() {
            return Err(WorkerError::Stopped);
        }
        let left = end.saturating_duration_since(Instant::now());
        tokio::time::sleep(left.min(LOOK_UP)).await;
    }
    Ok(())
}
impl WorkerLoop {
    pub async fn open(
        workshop: Arc<Workshop>,
        channel: Arc<dyn Channel>,
        shape: Shape,
        who: Who,
        leases: Vec<Lease>,
        reports: Outbox,
        dismissed: Arc<AtomicBool>,
    ) -> Result<Self, WorkerError> {
        let (at, cpu) = (Instant::now(), thread_cpu());
        let mut leases = leases.into_iter();
        let lease = leases.next().ok_or(PoolError::Empty)?;
        let context = workshop.context(&shape, &lease);
        let worker = Worker::start(workshop.setup(&shape, context)).await?;
        worker.rest();
        worker.declared().map_or(Ok(()), |declared| workshop.check_host_memory(declared, &shape))?;
        let declaration = match (who, worker.declared()) {
            (Who { worker: 0, .. }, Some(declared)) => Some(Box::new(Declaration {
                plan: declared.plan().clone(),
                model: GlobalModel::read(declared)?,
                worker_state: WorkerState::read(declared)?,
                statistics: declared.length(TensorRow::Statistics),
            })),
            _ => None,
        };
        let fan_out = FanOut::open(&workshop, &shape, who, leases, &reports)?;
        let seen = Seen { cpu, device: Duration::ZERO, at, instances: 0 };
        let encoder = Encoder::new(workshop.codec(&shape), workshop.brief.seed, who.worker);
        let throttle = workshop.throttle(&shape);
        let mut this = Self {
            throttle,
            workshop,
            shape,
            who,
            worker,
            fan_out,
            lease,
            feed: None,
            holds: Holds::Unknown,
            channel,
            exchange: None,
            base: None,
            latest: None,
            is_settled: false,
            encoder,
            seen,
            reports,
            dismissed,
        };
        let mut used = this.used(&mut Timing::default(), Stages::default());
        used.invocations = 1;
        this.reports.send(Report::Ready { who, declaration, used });
        Ok(this)
    }

    pub async fn work(mut self, mut inbox: mpsc::UnboundedReceiver<WorkOrder>) -> Result<(), WorkerError> {
        while let Some(order) = inbox.recv().await {
            if self.dismissed.load(Relaxed) {
                break;
            }
            // Whatever it has waited for is not its own time.
            self.seen.at = Instant::now();
            let report = match self.reports.seam().pass(order)? {
                WorkOrder::Work { assignment, generation } => self.hand_in(*assignment, generation).await?,
                WorkOrder::Merge(order) => self.merge(order).await?,
            };
            self.worker.rest();
            self.reports.send(report);
        }
        Ok(())
    }

    /// Does its part of a round, or hands in the same once more if it has done it already.
    async fn hand_in(&mut self, assignment: Assignment, generation: u32) -> Result<Report, WorkerError> {
        let (who, round) = (self.who, assignment.round);
        let again = self.latest.take().filter(|(of, _)| *of == round && generation > 0);
        let is_sent_again = match (&again, &mut self.exchange) {
            (Some(_), Some(exchange)) => exchange.resend().await?,
            _ => false,
        };
        let contribution = match again.filter(|_| is_sent_again) {
            Some((_, contribution)) => contribution,
            None => match self.contribution(assignment).await? {
                Some(contribution) => contribution,
                None => return Ok(Report::ModelMissing { who, round, generation }),
            },
        };
        if self.exchange.is_some() {
            self.latest = Some((round, contribution.clone()));
        }
        Ok(Report::Done { who, round, generation, contribution: Box::new(contribution) })
    }

    /// What it hands in; nothing if it does not find the model that the round begins with.
    async fn contribution(&mut self, assignment: Assignment) -> Result<Option<Contribution>, WorkerError> {
        let start = Instant::now();
        let Some(received) = self.receive(&assignment).await? else { return Ok(None) };
        let model_checksum = if assignment.tells_checksum { self.model_checksum()? } else { None };
        let receive = start.elapsed().as_secs_f64();
        let mut timing = Timing::default();
        let mut contribution = match assignment.task {
            Task::Train { steps, .. } => self.train(&assignment, steps, &mut timing).await?,
            Task::Update => self.update(&assignment, &mut timing).await?,
            Task::Evaluate | Task::EvaluateNew => self.evaluate(&assignment).await?,
            Task::ShowWeights => Contribution::default(),
        };
        contribution.model_checksum = model_checksum;
        let sending = Instant::now();
        self.send(&assignment, &mut contribution).await?;
        let send = sending.elapsed().as_secs_f64();
        let payload = contribution.payload.as_ref().map_or(0, |payload| payload.byte_count());
        let sent = payload + size_of_val(&contribution.buffers[..]) as u64;
        // Workers that merge time their transfers by themselves.
        let exchanged = self.exchange.as_mut().map(|exchange| exchange.take_times().stages()).unwrap_or_default();
        let mut stages = contribution.used.stages;
        stages.add(&exchanged);
        stages.receive += (receive - exchanged.get_results).max(0.0);
        stages.send += (send - exchanged.put_parts).max(0.0);
        let invocations = contribution.used.invocations;
        contribution.used = self.used(&mut timing, stages);
        (contribution.used.invocations, contribution.used.bytes) = (invocations, received + sent);
        Ok(Some(contribution))
    }

    /// Merges what others have put into the channel.
    async fn merge(&mut self, order: MergeOrder) -> Result<Report, WorkerError> {
        let MergeOrder { round, merge, generation, parts, total } = order;
        let who = self.who;
        // One that was started after the others had handed in knows of the round by this order.
        let exchange = self.exchange()?;
        exchange.enter(round);
        let merged = exchange.merge(merge, &parts, total).await?;
        let stages = exchange.take_times().stages();
        let used = self.used(&mut Timing::default(), stages);
        Ok(match merged {
            exchange::MergeOutcome::Done => Report::Merged { who, round, merge, generation, used },
            exchange::MergeOutcome::Missing(sources) => Report::Missing { who, round, merge, generation, sources },
        })
    }

    /// Its side of the exchange.
    fn exchange(&mut self) -> Result<&mut exchange::Exchange, WorkerError> {
        if self.exchange.is_none() {
            let context = self.worker.context().clone();
            let (workshop, channel, shape, who) = (self.workshop.clone(), self.channel.clone(), self.shape, self.who);
            let payload = if self.exchanged().is_sum() { TensorRow::Statistics } else { TensorRow::Weights };
            let declared = self.declared()?;
            let lengths = Lengths { payload: declared.length(payload), buffers: declared.length(TensorRow::Buffers) };
            let scheme = scheme::scheme(&workshop, &shape, lengths, &context);
            let scheme = scheme.map_err(|error| WorkerError::Train(error.to_string()))?;
            let scheme = scheme.ok_or_else(|| WorkerError::Train("workers of this job do not merge".to_owned()))?;
            self.exchange = Some(exchange::Exchange::new(who, scheme, channel));
        }
        self.exchange.as_mut().ok_or_else(|| WorkerError::Train("there is no exchange".to_owned()))
    }

    /// What workers hand over.
    fn exchanged(&self) -> Handover {
        self.workshop.exchange(&self.shape)
    }

    /// The number of this worker's first function, counted over all workers.
    fn lane(&self) -> u32 {
        self.who.worker * self.shape.fan_out
    }

    fn declared(&mut self) -> Result<&mut Declared, WorkerError> {
        self.worker.declared_mut().ok_or_else(|| WorkerError::Train("the trainer has declared nothing".to_owned()))
    }

    /// Rests until it has computed no more than it may.
    async fn rest(&mut self) -> Result<(), WorkerError> {
        let Some(throttle) = &mut self.throttle else { return Ok(()) };
        let rest = throttle.rest(core_time(&self.worker, &self.lease), Instant::now());
        if let Some(rest) = rest {
            self.worker.rest();
            let dismissed = &self.dismissed;
            take_a_rest(rest, || dismissed.load(Relaxed)).await?;
        }
        Ok(())
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
        let info = self.worker.context().device().info();
        let is_gpu = info.kind.is_gpu();
        Used {
            stages: Stages {
                data: timing.data.as_secs_f64(),
                compute: timing.compute.as_secs_f64(),
                update: timing.update.as_secs_f64(),
                ..stages
            },
            cpu: now.cpu.saturating_sub(before.cpu),
            device: now.device.saturating_sub(before.device),
            is_gpu,
            gpu: if is_gpu { format!("{}, {}", info.name, info.kind).into() } else { Box::default() },
            wall: now.at - before.at,
            memory: self.lease.used() as u64 + self.worker.memory(),
            invocations: 0,
            cold_starts: now.instances - before.instances,
            bytes: 0,
        }
    }
}
