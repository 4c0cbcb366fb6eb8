//! What one place has for the workers of one job: a sandbox, devices, samples, a log.
//!
//! A [`Brief`] says what the job is; a [`Workshop`] is where it runs. Together they set up a worker.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_core::spec::{CheckedSpec, Shape};
use weft_core::sync::{Handover, Pace, Rule};
use weft_core::throttle::Throttle;
use weft_gpu::pool::{PoolError, Spare, Wish};
use weft_gpu::{Cancel, Codec, Context, Crew, Lease, Pool, Request};

use super::brief::Brief;
use super::host_memory::host_memory;
use super::work_order::Task;
use super::worker::WorkerError;
use crate::dataset::batches::{self, Assembler, BatchError, Batches, Source};
use crate::dataset::blocks::Blocks;
use crate::dataset::picks::{NotGrown, Picked, Picks};
use crate::dataset::shard::{Cuts, Plan as ShardPlan};
use crate::dataset::{Manifest, Split};
use crate::devices::TAPE_NODES;
use crate::host::data::StepInfo;
use crate::logs::LogBook;
use crate::sandbox::{Share, TeamId};
use crate::tenant::{Charge, Tenant};
use crate::train::declared::{Declared, OptimizerChanges};
use crate::train::run::Feed;
use crate::train::settings;
use crate::train::worker::{FunctionHost, Trainer, WorkerSetup};

/// Linear memory of a worker: this part of its `memory`, and no more than [`MOST_LINEAR`].
const LINEAR_SHARE: u64 = 4;
const MOST_LINEAR: u64 = 64 << 20;

/// Workers leave one in so many bytes of each device to calls, trials and inference, however many jobs there are.
pub const LEFT_BY_JOBS: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// What a worker may use: linear memory, and memory of its device.
pub fn split_memory(memory: u64) -> (u64, usize) {
    let linear = (memory / LINEAR_SHARE).min(MOST_LINEAR);
    (linear, usize::try_from(memory - linear).unwrap_or(usize::MAX))
}

/// What a worker of a job asks of devices.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub shape: Shape,
    pub device: Wish,
    /// Bytes of the host's memory for copies of the model.
    pub host_bytes: u64,
}

impl Wanted {
    /// A part of a device for one function, and `host` bytes of the host's memory.
    fn lease(&self, pool: &Pool, tenant: &Tenant, host: u64, cancel: Cancel) -> Result<Lease, PoolError> {
        let (_, bytes) = split_memory(self.shape.memory);
        let (weight, spare) = (self.shape.weight().get(), Spare::OneIn(LEFT_BY_JOBS));
        let host = usize::try_from(host).unwrap_or(usize::MAX);
        let device = self.device;
        pool.lease(Request { weight, host, device, spare, cancel, ..Request::new(tenant.owner.clone(), bytes) })
    }

    /// A part of a device for one function, and nothing of the host's memory.
    pub fn lease_function(&self, pool: &Pool, tenant: &Tenant) -> Result<Lease, PoolError> {
        self.lease(pool, tenant, 0, Cancel::default())
    }

    /// Leases for all functions of one worker, of which one pays for the worker's copies of the model; those that were
    /// granted before one was not are left in `taken`. One order stops them all.
    pub fn lease_worker(
        &self,
        pool: &Pool,
        tenant: &Tenant,
        cancel: &Cancel,
        taken: &mut Vec<Lease>,
    ) -> Result<(), PoolError> {
        for function in 0..self.shape.fan_out {
            let host = if function == 0 { self.host_bytes } else { 0 };
            taken.push(self.lease(pool, tenant, host, cancel.clone())?);
        }
        Ok(())
    }
}

/// What is trained on.
#[derive(Clone)]
pub struct JobData {
    pub name: String,
    pub manifest: Arc<Manifest>,
    /// For the manifest, where somebody pays for it.
    pub charge: Option<Arc<Charge>>,
    pub blocks: Arc<dyn Blocks>,
    /// What is new in it, for a job that follows its data set.
    pub growth: Option<Growth>,
}

/// What a version of a data set has that the one before did not have.
#[derive(Clone)]
pub struct Growth {
    picks: Picks,
    /// The new samples, as those to test with.
    fresh: Arc<Manifest>,
    pub new: u64,
    pub replayed: u64,
}

impl Growth {
    pub fn picks(&self) -> &Picks {
        &self.picks
    }
}

impl JobData {
    /// Samples to train on: the new ones, and a share of those that were there before.
    pub fn grown(self, old: u64, share: f64, seed: u64) -> Result<Self, NotGrown> {
        let Picked { split, fresh, picks } = Picks::of(&self.manifest.train, old, share, seed)?;
        let (new, replayed) = (fresh.count, split.count - fresh.count);
        let fresh = Arc::new(Manifest { train: Split::default(), test: fresh, ..Manifest::clone(&self.manifest) });
        let manifest = Arc::new(Manifest { train: split, ..Manifest::clone(&self.manifest) });
        Ok(Self { manifest, growth: Some(Growth { picks, fresh, new, replayed }), ..self })
    }

    /// Bytes of memory that its manifests take, about.
    fn memory(&self) -> u64 {
        self.manifest.memory() + self.growth.as_ref().map_or(0, |growth| growth.fresh.memory())
    }
}

/// How instances of a function are made, where that does not follow from the job.
#[derive(Clone, Copy, Debug, Default)]
pub struct InstanceRules {
    /// The most linear memory of each, in bytes, instead of a part of the worker's `memory`.
    pub linear: Option<u64>,
    /// Whether every call meets a fresh one.
    pub fresh: bool,
}

/// Where the workers of one job run.
pub struct Workshop {
    pub brief: Brief,
    pub host: FunctionHost,
    pub pool: Pool,
    pub trainer: Trainer,
    pub tenant: Arc<Tenant>,
    pub log: Arc<LogBook>,
    pub data: Option<JobData>,
    pub device: Wish,
    /// Of what workers send to others.
    pub codec: Codec,
    pub instances: InstanceRules,
    pub team: TeamId,
    /// Cores that a function may compute on for each GiB of its memory; 0 for no cap.
    pub cores_per_gib: f64,
}

impl Workshop {
    pub fn spec(&self) -> &CheckedSpec {
        &self.brief.spec
    }

    /// Bytes of memory that it takes of its own, about.
    pub fn bytes(&self) -> u64 {
        let settings = settings::bytes(&self.brief.settings);
        let manifest = self.data.as_ref().map_or(0, JobData::memory);
        size_of::<Self>() as u64 + settings + manifest
    }

    pub fn rule(&self) -> Rule {
        self.brief.sync.rule
    }

    /// Refuses a model that takes more of the host's memory than the job's leases have for it: the trainer has declared
    /// another one than when it was tried out.
    pub fn check_host_memory(&self, declared: &Declared, shape: &Shape) -> Result<(), WorkerError> {
        let (has, takes) = (self.brief.host, host_memory(declared, &self.brief.sync, self.codec, shape.fan_out));
        if has.covers(&takes) {
            return Ok(());
        }
        Err(WorkerError::Train(format!(
            "`init` now declares a model whose copies take {} bytes for each worker and {} for all, and declared one of {} \
             and {} when the trainer was tried out: a trainer must declare the same every time",
            takes.each, takes.once, has.each, has.once
        )))
    }

    /// What workers of a shape hand over.
    pub fn exchange(&self, shape: &Shape) -> Handover {
        self.brief.sync.rule.exchange(shape.workers)
    }

    /// How workers of a shape encode what they hand over. One alone sends nothing to anybody.
    pub fn codec(&self, shape: &Shape) -> Codec {
        if shape.workers == 1 { Codec::Plain } else { self.codec }
    }

    /// Whether each worker takes steps on weights of its own with the gradients of all.
    pub fn has_own_weights(&self) -> bool {
        matches!(self.brief.sync.pace, Pace::Quorum(_))
    }

    pub fn lifetime(&self) -> Option<Duration> {
        self.brief.spec.lifetime
    }

    /// A lease for each function of one worker: all of them, or none. One order stops them all.
    pub fn leases(&self, shape: &Shape, cancel: &Cancel) -> Result<Vec<Lease>, PoolError> {
        let wanted =
            Wanted { shape: *shape, device: self.device, host_bytes: self.brief.host.per_worker(shape.workers) };
        let mut taken = Vec::new();
        wanted.lease_worker(&self.pool, &self.tenant, cancel, &mut taken)?;
        Ok(taken)
    }

    /// How a worker of a shape is set up on this context.
    pub fn setup(&self, shape: &Shape, context: Context) -> WorkerSetup {
        let without_decay = self.rule().without_decay();
        WorkerSetup {
            share: Share::of_worker(&self.tenant.owner, shape.weight(), self.team),
            log: self.log.clone(),
            job: Some(self.brief.job.clone()),
            settings: self.brief.settings.clone(),
            optimizer: OptimizerChanges { replaced: self.spec().words.optimizer, without_decay },
            memory: self.instances.linear.unwrap_or(split_memory(shape.memory).0),
            fresh: self.instances.fresh,
            ..WorkerSetup::new(&self.host, &self.trainer, &self.tenant, context, self.brief.seed)
        }
    }

    pub fn context(&self, shape: &Shape, lease: &Lease) -> Context {
        let threads = (self.core_count() / shape.lanes() as usize).max(1);
        let threads = self.throttle(shape).map_or(threads, |throttle| throttle.threads().min(threads));
        Context::leased(lease, Arc::new(Crew::new(threads)), TAPE_NODES)
    }

    /// What caps a function of a shape, if anything does.
    pub fn throttle(&self, shape: &Shape) -> Option<Throttle> {
        let throttle = Throttle::new(self.cores_per_gib, shape.memory, Instant::now())?;
        // Shapes are tried for a few steps each, which a reserve would make faster than the steps that follow.
        let tries = self.spec().plan.is_some_and(|plan| plan.tries());
        Some(if tries { throttle.from_nothing() } else { throttle })
    }

    pub fn core_count(&self) -> usize {
        self.host.sandbox.limits().cores
    }

    /// Batches of one function of a worker, from where the round starts.
    pub fn feed(&self, at: &Cursor, lane: u32, context: &Context) -> Result<Feed, BatchError> {
        let Some(data) = &self.data else { return Ok(Feed::Nothing) };
        let (shards, stratified) = (at.shape.lanes().into(), self.spec().words.stratified);
        let epoch = if self.rule().same_samples_every_epoch() { 0 } else { at.epoch };
        let (seed, cuts) = (self.brief.seed, at.cuts.clone());
        let plan = ShardPlan { seed, epoch, shards, stratified, cuts, ..ShardPlan::default() };
        let picks = data.growth.as_ref().map(|growth| growth.picks.clone());
        let options =
            batches::Options { shard: lane.into(), start: at.done, picks, ..batches::Options::new(plan, at.batch) };
        self.open(data, batches::Subset::Train, options, &at.shape, context)
    }

    /// What a call of a function is told of where it is.
    pub fn step_info(&self, at: &Cursor, lane: u32) -> StepInfo {
        StepInfo { step: at.step, epoch: at.epoch, rate: at.rate, worker: lane, workers: at.shape.lanes() }
    }

    /// A worker's part of the samples to test with, or of those that are new; nothing if there are too few for all.
    pub(super) fn tests(&self, of: Task, at: &Cursor, worker: u32, context: &Context) -> Result<Feed, BatchError> {
        let Some(mut data) = self.data.clone() else { return Ok(Feed::Nothing) };
        if of == Task::EvaluateNew {
            let Some(growth) = data.growth.take() else { return Ok(Feed::Nothing) };
            data.manifest = growth.fresh;
        }
        let shards = u64::from(at.shape.workers).min(data.manifest.test.count);
        if u64::from(worker) >= shards {
            return Ok(Feed::Nothing);
        }
        let plan = ShardPlan { shards, shuffle: false, ..ShardPlan::default() };
        let options = batches::Options { shard: worker.into(), ..batches::Options::new(plan, at.batch) };
        self.open(&data, batches::Subset::Test, options, &at.shape, context)
    }

    fn open(
        &self,
        data: &JobData,
        part: batches::Subset,
        options: batches::Options,
        shape: &Shape,
        context: &Context,
    ) -> Result<Feed, BatchError> {
        let source = Source { name: &data.name, manifest: &data.manifest, part, blocks: data.blocks.clone() };
        // Batches are made ahead where a core is left for it.
        Ok(match (shape.lanes() as usize) < self.core_count() {
            true => Feed::Ahead(Batches::start(source, options, context)?),
            false => Feed::Inline(Box::new(Assembler::new(source, options, context)?)),
        })
    }
}

/// Where in an epoch a round starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cursor {
    pub epoch: u64,
    /// How the epoch's samples were divided before the shape changed, the first first.
    #[serde(with = "cuts")]
    pub cuts: Cuts,
    /// Steps of the epoch that are done since then.
    pub done: u64,
    /// Steps of the whole job that are done.
    pub step: u64,
    pub batch: NonZeroU32,
    pub rate: f32,
    pub shape: Shape,
}

impl Cursor {
    /// Whether batches that were read up to here go on there.
    pub fn follows(&self, next: &Self) -> bool {
        let place = |cursor: &Self| (cursor.epoch, cursor.done, cursor.batch, cursor.shape);
        place(self) == place(next) && self.cuts == next.cuts
    }
}

/// For `#[serde(with = …)]`: cuts are shared in this process, and written as what they are.
mod cuts {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::dataset::shard::{Cut, Cuts};

    pub fn serialize<S: Serializer>(cuts: &Cuts, serializer: S) -> Result<S::Ok, S::Error> {
        cuts[..].serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cuts, D::Error> {
        Vec::<Cut>::deserialize(deserializer).map(Cuts::from)
    }
}
