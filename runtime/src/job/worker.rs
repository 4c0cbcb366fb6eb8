//! One worker: a thread that holds a lease and a trainer's instance, and does its share of each round.
//!
//! It has no state that matters: whatever a round starts from comes with the assignment, and what it leaves is handed over
//! at the end. So a worker can be replaced at any time, by one on another device too. Kernels are synchronous, hence a
//! thread for each; who computes when is decided by the sandbox's turns and the device's shares.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use weft_gpu::pool::{PoolError, Wish};
use weft_gpu::{Cancel, Context, Crew, Lease, Pool, Request};

use super::fan::Fan;
use super::model::{Private, Shared};
use super::record::Stages;
use super::spec::JobSpec;
use crate::clock::thread_cpu;
use crate::dataset::Manifest;
use crate::dataset::batches::{self, Assembler, BatchError, Batches, Source};
use crate::dataset::blocks::Blocks;
use crate::dataset::shard::Plan as ShardPlan;
use crate::devices::TAPE_NODES;
use crate::digest::Digest;
use crate::host::bindings::weft::train::training::{Setting, Traits};
use crate::host::data::Place;
use crate::logs::LogBook;
use crate::names::Name;
use crate::sandbox::{InvokeError, Loaded, Sandbox};
use crate::sync::{Exchange, Who};
use crate::tenant::Tenant;
use crate::train::declared::{Declared, Part, Plan};
use crate::train::run::{Feed, Losses, Metrics, Timing, TrainError, measure, train_step};
use crate::train::worker::{Worker, WorkerSetup};

/// Linear memory of a worker: this part of its `memory`, and no more than [`MOST_LINEAR`].
const LINEAR_SHARE: u64 = 4;
const MOST_LINEAR: u64 = 64 << 20;
/// How often a worker that finds no room on a device looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What all workers of a job have in common.
pub struct Common {
    pub sandbox: Arc<Sandbox>,
    pub pool: Pool,
    pub function: Arc<Loaded>,
    pub name: Name,
    pub version: Digest,
    pub tenant: Arc<Tenant>,
    pub log: Arc<LogBook>,
    pub job: Name,
    pub seed: u64,
    pub settings: Vec<Setting>,
    pub traits: Traits,
    pub spec: JobSpec,
    pub device: Wish,
    pub exchange: Exchange,
    pub data: Option<JobData>,
    pub lifetime: Option<Duration>,
    pub invocations: Arc<AtomicU64>,
    pub stopping: Arc<AtomicBool>,
    /// Threads of one worker, where cores compute.
    pub threads: usize,
    /// Whether batches are made ahead: there are cores to spare.
    pub ahead: bool,
}

/// What is trained on.
#[derive(Clone)]
pub struct JobData {
    pub name: String,
    pub manifest: Arc<Manifest>,
    pub blocks: Arc<dyn Blocks>,
}

/// What a worker may use: linear memory, and memory of its device.
pub fn split_memory(memory: u64) -> (u64, usize) {
    let linear = (memory / LINEAR_SHARE).min(MOST_LINEAR);
    (linear, usize::try_from(memory - linear).unwrap_or(usize::MAX))
}

impl Common {
    /// A part of a device for one worker.
    pub fn lease(&self, cancel: Cancel) -> Result<Lease, PoolError> {
        let (_, bytes) = split_memory(self.spec.memory);
        let request = Request::new(self.tenant.name.as_str(), bytes);
        self.pool.lease(Request { weight: self.spec.weight(), device: self.device, cancel, ..request })
    }

    /// How a worker on this lease is set up.
    pub fn setup(&self, context: Context) -> WorkerSetup {
        WorkerSetup {
            sandbox: self.sandbox.clone(),
            function: self.function.clone(),
            name: self.name.clone(),
            version: self.version,
            tenant: self.tenant.clone(),
            log: self.log.clone(),
            job: Some(self.job.clone()),
            context,
            seed: self.seed,
            settings: self.settings.clone(),
            memory: split_memory(self.spec.memory).0,
            invocations: self.invocations.clone(),
            stopping: self.stopping.clone(),
            fresh: false,
        }
    }

    pub fn context(&self, lease: &Lease) -> Context {
        Context::leased(lease, Arc::new(Crew::new(self.threads)), TAPE_NODES)
    }

    /// Batches of one lane of a worker, from where the round starts.
    pub fn feed(&self, at: &Cursor, lane: u32, context: &Context) -> Result<Feed, BatchError> {
        let Some(data) = &self.data else { return Ok(Feed::Nothing) };
        let (shards, stratified) = (self.lanes().into(), self.spec.stratified);
        let plan = ShardPlan { seed: self.seed, epoch: at.epoch, shards, stratified, ..ShardPlan::default() };
        let options = batches::Options { shard: lane.into(), start: at.done, ..batches::Options::new(plan, at.batch) };
        self.open(data, batches::Part::Train, options, context)
    }

    /// Functions that compute at once, of all workers.
    pub fn lanes(&self) -> u32 {
        self.spec.workers * self.spec.fan_out
    }

    /// What a call of a lane is told of where it is.
    pub fn place(&self, at: &Cursor, lane: u32) -> Place {
        Place { step: at.step, epoch: at.epoch, rate: at.rate, worker: lane, workers: self.lanes() }
    }

    /// A worker's part of the samples to test with; nothing if there are too few for all.
    fn tests(&self, worker: u32, batch: NonZeroU32, context: &Context) -> Result<Feed, BatchError> {
        let Some(data) = self.data.as_ref() else { return Ok(Feed::Nothing) };
        let shards = u64::from(self.spec.workers).min(data.manifest.test.count);
        if u64::from(worker) >= shards {
            return Ok(Feed::Nothing);
        }
        let plan = ShardPlan { shards, shuffle: false, ..ShardPlan::default() };
        let options = batches::Options { shard: worker.into(), ..batches::Options::new(plan, batch) };
        self.open(data, batches::Part::Test, options, context)
    }

    fn open(
        &self,
        data: &JobData,
        part: batches::Part,
        options: batches::Options,
        context: &Context,
    ) -> Result<Feed, BatchError> {
        let source = Source { name: &data.name, manifest: &data.manifest, part, blocks: data.blocks.clone() };
        Ok(match self.ahead {
            true => Feed::Ahead(Batches::start(source, options, context)?),
            false => Feed::Inline(Box::new(Assembler::new(source, options, context)?)),
        })
    }
}

/// Where in an epoch a round starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cursor {
    pub epoch: u64,
    /// Steps of the epoch that are done.
    pub done: u64,
    /// Steps of the whole job that are done.
    pub step: u64,
    pub batch: NonZeroU32,
    pub rate: f32,
}

impl Cursor {
    /// Whether batches that were read up to here go on there.
    pub fn follows(&self, next: &Self) -> bool {
        (self.epoch, self.done, self.batch) == (next.epoch, next.done, next.batch)
    }
}

/// What is to be done in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Task {
    Train {
        steps: u64,
    },
    /// Statistics become weights; one worker does it for all.
    Update,
    Evaluate,
}

/// One worker's share of a round.
#[derive(Clone)]
pub struct Assignment {
    pub round: u64,
    pub task: Task,
    pub at: Cursor,
    pub model: Arc<Shared>,
    pub private: Option<Arc<Private>>,
    /// For [`Task::Update`]: of all workers.
    pub statistics: Arc<Vec<f32>>,
}

/// What a worker hands over.
#[derive(Debug, Default)]
pub struct Share {
    pub samples: u64,
    pub loss: f64,
    /// Of the latest step.
    pub latest: f64,
    /// Gradients, weights or statistics.
    pub payload: Vec<f32>,
    pub buffers: Vec<f32>,
    pub private: Option<Private>,
    /// Sums over samples, by name.
    pub metrics: Metrics,
    pub used: Used,
}

/// What a share took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub stages: Stages,
    pub cpu: Duration,
    pub device: Duration,
    pub is_gpu: bool,
    pub wall: Duration,
    /// The most device memory that is held.
    pub memory: u64,
    pub invocations: u64,
    pub cold_starts: u64,
    pub bytes: u64,
}

/// What a worker tells.
pub enum Message {
    /// It waits for work. The first one brings what its trainer declared, with the first values.
    Ready {
        who: Who,
        born: Option<Box<Born>>,
        used: Used,
    },
    Done {
        who: Who,
        round: u64,
        share: Box<Share>,
    },
    Lost {
        who: Who,
        error: WorkerError,
    },
    Progress {
        who: Who,
        steps: u64,
        loss: f64,
        samples: u64,
    },
}

/// What a trainer declared.
pub struct Born {
    pub plan: Plan,
    pub model: Shared,
    pub private: Private,
    pub statistics: usize,
}

/// Why a worker is of no use any more.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("{0}")]
    Train(String),
    #[error("no device: {0}")]
    Device(#[from] PoolError),
    #[error("it was killed")]
    Killed,
    #[error("it was stopped")]
    Stopped,
    #[error("it did not finish its round within `straggler` = {0} ms")]
    Straggler(u64),
    #[error("it panicked; the node's log says where")]
    Panicked,
    #[error("no thread could be started: {0}")]
    Thread(String),
}

impl From<TrainError> for WorkerError {
    fn from(error: TrainError) -> Self {
        Self::Train(error.to_string())
    }
}

impl From<InvokeError> for WorkerError {
    fn from(error: InvokeError) -> Self {
        Self::Train(error.to_string())
    }
}

impl From<weft_gpu::Error> for WorkerError {
    fn from(error: weft_gpu::Error) -> Self {
        Self::Train(error.to_string())
    }
}

impl From<BatchError> for WorkerError {
    fn from(error: BatchError) -> Self {
        Self::Train(error.to_string())
    }
}

/// A worker as its job sees it. It ends when this is dropped.
pub struct Hired {
    pub who: Who,
    assignments: mpsc::UnboundedSender<Assignment>,
    cancel: Cancel,
    dismissed: Arc<AtomicBool>,
}

impl Hired {
    pub fn assign(&self, assignment: Assignment) {
        // One that has gone has said so, or is about to.
        self.assignments.send(assignment).ok();
    }

    /// Stops whatever it does.
    pub fn dismiss(&self) {
        self.dismissed.store(true, Relaxed);
        self.cancel.cancel();
    }
}

impl Drop for Hired {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// Starts a worker's thread. Leases are taken before where they must all be there; a worker that is started again takes
/// its own.
pub fn hire(
    common: Arc<Common>,
    who: Who,
    lease: Option<Lease>,
    messages: mpsc::UnboundedSender<Message>,
    runtime: Handle,
) -> Hired {
    let (assignments, inbox) = mpsc::unbounded_channel();
    let cancel = lease.as_ref().map_or_else(Cancel::default, |lease| lease.cancel().clone());
    let dismissed = Arc::new(AtomicBool::new(false));
    let hired = Hired { who, assignments, cancel: cancel.clone(), dismissed: dismissed.clone() };
    let report = messages.clone();
    let work = move || {
        // However it ends, somebody hears of it.
        let mut obituary = Obituary { who, messages: messages.clone(), error: WorkerError::Panicked };
        let run = async {
            let lease = match lease {
                Some(taken) => taken,
                None => find_room(&common, &cancel, &dismissed).await?,
            };
            Desk::open(common, who, lease, messages, dismissed).await?.work(inbox).await
        };
        obituary.error = match runtime.block_on(run) {
            Ok(()) => WorkerError::Stopped,
            Err(error) => error,
        };
    };
    let name = format!("worker-{}", who.worker);
    if let Err(error) = std::thread::Builder::new().name(name).spawn(work) {
        report.send(Message::Lost { who, error: WorkerError::Thread(error.to_string()) }).ok();
    }
    hired
}

struct Obituary {
    who: Who,
    messages: mpsc::UnboundedSender<Message>,
    error: WorkerError,
}

impl Drop for Obituary {
    fn drop(&mut self) {
        self.messages.send(Message::Lost { who: self.who, error: self.error.clone() }).ok();
    }
}

/// Waits for a part of a device; what the one before had is about to come back.
async fn find_room(common: &Common, cancel: &Cancel, dismissed: &AtomicBool) -> Result<Lease, WorkerError> {
    loop {
        if dismissed.load(Relaxed) {
            return Err(WorkerError::Stopped);
        }
        match common.lease(cancel.clone()) {
            Ok(lease) => return Ok(lease),
            Err(PoolError::NothingFits { wanted, largest, .. }) if wanted <= largest => {}
            // A device that is lost is there again in a moment.
            Err(PoolError::Device(_)) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Everything that a worker works with.
struct Desk {
    common: Arc<Common>,
    who: Who,
    worker: Worker,
    fan: Option<Fan>,
    lease: Lease,
    feed: Option<(Cursor, Feed)>,
    /// Whether what only it has is on its device already.
    is_settled: bool,
    seen: Seen,
    messages: mpsc::UnboundedSender<Message>,
    dismissed: Arc<AtomicBool>,
}

/// Counters as they were when the last share was handed over.
#[derive(Clone, Copy)]
struct Seen {
    cpu: Duration,
    device: Duration,
    at: Instant,
    instances: u64,
}

impl Desk {
    async fn open(
        common: Arc<Common>,
        who: Who,
        lease: Lease,
        messages: mpsc::UnboundedSender<Message>,
        dismissed: Arc<AtomicBool>,
    ) -> Result<Self, WorkerError> {
        let (at, cpu) = (Instant::now(), thread_cpu());
        let context = common.context(&lease);
        let worker = Worker::start(common.setup(context)).await?;
        let born = match (who, worker.declared()) {
            (Who { worker: 0, .. }, Some(declared)) => Some(Box::new(Born {
                plan: declared.plan().clone(),
                model: Shared::read(declared)?,
                private: Private::read(declared)?,
                statistics: declared.length(Part::Statistics),
            })),
            _ => None,
        };
        let fan = Fan::open(&common, who)?;
        let seen = Seen { cpu, device: Duration::ZERO, at, instances: 0 };
        let mut desk =
            Self { common, who, worker, fan, lease, feed: None, is_settled: false, seen, messages, dismissed };
        let mut used = desk.used(&mut Timing::default(), Stages::default());
        used.invocations = 1;
        desk.messages.send(Message::Ready { who, born, used }).ok();
        Ok(desk)
    }

    async fn work(mut self, mut inbox: mpsc::UnboundedReceiver<Assignment>) -> Result<(), WorkerError> {
        while let Some(assignment) = inbox.recv().await {
            if self.dismissed.load(Relaxed) {
                break;
            }
            let (who, round) = (self.who, assignment.round);
            let share = self.share(assignment).await?;
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
        let sent = size_of_val(&share.payload[..]) + size_of_val(&share.buffers[..]);
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
        loop {
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
            for (name, value) in measure(&mut self.worker, place, batch).await? {
                *share.metrics.entry(name).or_default() += value * count as f64;
            }
            share.samples += count;
            share.used.invocations += 1;
        }
        share.used.stages.validate = start.elapsed().as_secs_f64();
        Ok(share)
    }

    /// Copies out what is handed over.
    fn send(&mut self, assignment: &Assignment, share: &mut Share) -> Result<(), WorkerError> {
        let exchange = self.common.exchange;
        let declared = self.declared()?;
        match (assignment.task, exchange) {
            (Task::Evaluate, _) => return Ok(()),
            (Task::Update, _) | (Task::Train { .. }, Exchange::Weights) => {
                declared.read(Part::Weights, &mut share.payload)?;
            }
            // Nothing was computed, so there is nothing to hand over.
            (Task::Train { .. }, _) if share.samples == 0 => {}
            (Task::Train { .. }, Exchange::Gradients) => declared.read(Part::Gradients, &mut share.payload)?,
            (Task::Train { .. }, Exchange::Statistics) => declared.read(Part::Statistics, &mut share.payload)?,
        }
        declared.read(Part::Buffers, &mut share.buffers)?;
        let private = Private::read(declared)?;
        share.private = match exchange {
            Exchange::Weights => Some(private),
            // The optimizer is not the worker's.
            _ => Some(Private { moments: Vec::new(), steps: 0, ..private }),
        };
        Ok(())
    }

    /// What was used since it was last asked.
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

/// Adds up what workers measured.
pub fn means<'a>(shares: impl Iterator<Item = &'a Share>) -> BTreeMap<String, f64> {
    let (mut sums, mut samples) = (BTreeMap::<String, f64>::new(), 0);
    for share in shares {
        for (name, sum) in &share.metrics {
            *sums.entry(name.clone()).or_default() += sum;
        }
        samples += share.samples;
    }
    sums.into_iter().map(|(name, sum)| (name, sum / samples.max(1) as f64)).collect()
}
