//! What all workers of a job have in common.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use weft_gpu::pool::{PoolError, Spare, Wish};
use weft_gpu::{Cancel, Codec, Context, Crew, Lease, Pool, Request};

use super::spec::JobSpec;
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
use crate::sandbox::{Loaded, Sandbox, Share, TeamId};
use crate::sync::Exchange;
use crate::tenant::Tenant;
use crate::train::run::Feed;
use crate::train::worker::WorkerSetup;

/// Linear memory of a worker: this part of its `memory`, and no more than [`MOST_LINEAR`].
const LINEAR_SHARE: u64 = 4;
const MOST_LINEAR: u64 = 64 << 20;

/// Workers leave one in so many bytes of each device to calls, trials and inference, however many jobs there are.
pub const LEFT_BY_JOBS: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// A part of a device for one function of a job's worker, and `host` bytes of the host's memory.
pub fn lease(
    pool: &Pool,
    tenant: &Tenant,
    spec: &JobSpec,
    device: Wish,
    host: u64,
    cancel: Cancel,
) -> Result<Lease, PoolError> {
    let (_, bytes) = split_memory(spec.memory);
    let (weight, spare) = (spec.weight().get(), Spare::OneIn(LEFT_BY_JOBS));
    let host = usize::try_from(host).unwrap_or(usize::MAX);
    pool.lease(Request { weight, host, device, spare, cancel, ..Request::new(tenant.name.as_str(), bytes) })
}

/// Leases for all functions of one worker, of which one pays for the worker's copies of the model; those that were granted
/// before one was not are left in `taken`. One order stops them all.
pub fn lease_worker(
    pool: &Pool,
    tenant: &Tenant,
    spec: &JobSpec,
    device: Wish,
    host: u64,
    cancel: &Cancel,
    taken: &mut Vec<Lease>,
) -> Result<(), PoolError> {
    for function in 0..spec.fan_out {
        let host = if function == 0 { host } else { 0 };
        taken.push(lease(pool, tenant, spec, device, host, cancel.clone())?);
    }
    Ok(())
}

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
    /// For gradients on their way.
    pub codec: Codec,
    pub data: Option<JobData>,
    pub lifetime: Option<Duration>,
    /// The host's memory that one worker takes for copies of the model.
    pub host_bytes: u64,
    pub invocations: Arc<AtomicU64>,
    pub stopping: Arc<AtomicBool>,
    pub team: TeamId,
    /// Threads of one worker, where cores compute.
    pub threads: usize,
    /// Whether batches are made ahead: a core is left for it.
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
    /// A lease for each function of one worker: all of them, or none. One order stops them all.
    pub fn leases(&self, cancel: &Cancel) -> Result<Vec<Lease>, PoolError> {
        let mut taken = Vec::new();
        lease_worker(&self.pool, &self.tenant, &self.spec, self.device, self.host_bytes, cancel, &mut taken)?;
        Ok(taken)
    }

    /// How a worker on this lease is set up.
    pub fn setup(&self, context: Context) -> WorkerSetup {
        WorkerSetup {
            sandbox: self.sandbox.clone(),
            function: self.function.clone(),
            name: self.name.clone(),
            version: self.version,
            tenant: self.tenant.clone(),
            share: Share::of_worker(self.tenant.name.as_str(), self.spec.weight(), self.team),
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
    pub(super) fn tests(&self, worker: u32, batch: NonZeroU32, context: &Context) -> Result<Feed, BatchError> {
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
