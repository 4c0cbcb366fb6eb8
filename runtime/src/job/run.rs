//! What can be asked of a node about jobs, and what starts and ends them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weft_gpu::pool::PoolError;
use weft_gpu::{Context, Crew, Lease, Request};

use super::checkpoint::Training;
use super::cost::Prices;
use super::engine::{Ending, Engine, From, Keeper, ModelFacts};
use super::live::{Live, Prepared};
use super::model::Shared;
use super::probe::Probe;
use super::queue::{Allowed, Ask};
use super::record::{CheckpointRef, EpochRecord, Job, JobEvent, Progress, State};
use super::spec::{BadSpec, JobSpec, Meaning};
use super::team::{Halt, Lines, News, Order, Team};
use super::worker::{Common, JobData, split_memory};
use super::{JobError, Jobs};
use crate::catalog::to_the_end;
use crate::clock::unix_ms;
use crate::dataset::Manifest;
use crate::dataset::batches::{Batch, Inputs};
use crate::dataset::manifest::{FORMAT, Split};
use crate::dataset::rows::{Element, Features};
use crate::dataset::shard::Plan as ShardPlan;
use crate::dataset::transform;
use crate::devices::TAPE_NODES;
use crate::digest::Digest;
use crate::locks::Lock;
use crate::model::{Input, Meta};
use crate::names::{MAX_NAME, Name};
use crate::node::Node;
use crate::tenant::{Tenant, TenantId, TrainingUse};
use crate::train::declared::Plan;
use crate::train::run::infer_batch;
use crate::train::worker::Worker;
use crate::train::{save, settings};

/// How soon it is looked again whether a device has come back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Samples of one request for inference.
const MAX_SAMPLES: usize = 4_096;
/// Samples that are inferred at once.
const INFER_BATCH: usize = 64;

impl Node {
    /// Queues a job. The second part tells whether it is new, or was found by its key.
    pub async fn submit_job(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        spec: JobSpec,
        idempotency: Option<&str>,
    ) -> Result<(Arc<Job>, bool), JobError> {
        if self.is_draining() {
            return Err(JobError::Stopping);
        }
        let asked = Digest::of(&serde_json::to_vec(&spec).unwrap_or_default());
        if let Some(found) = self.repeated(tenant.id, idempotency, &asked)? {
            return Ok((found, false));
        }
        let (node, tenant) = (self.clone(), tenant.clone());
        let key = idempotency.map(|key| (key.to_owned(), asked));
        // A caller that goes away does not stop it half-way.
        tokio::spawn(async move { node.submit(&tenant, spec, key).await }).await.unwrap_or_else(|error| {
            Err(JobError::Io { what: "the request was interrupted", error: io::Error::other(error) })
        })
    }

    fn repeated(&self, tenant: TenantId, key: Option<&str>, asked: &Digest) -> Result<Option<Arc<Job>>, JobError> {
        let Some(key) = key else { return Ok(None) };
        let jobs = self.jobs.list(tenant);
        let same = jobs.into_iter().find(|job| job.idempotency.as_ref().is_some_and(|(known, _)| known == key));
        match same {
            Some(job) if job.idempotency.as_ref().is_some_and(|(_, digest)| digest == asked) => Ok(Some(job)),
            Some(job) => Err(JobError::OtherRequest(job.name.to_string())),
            None => Ok(None),
        }
    }

    async fn submit(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        spec: JobSpec,
        idempotency: Option<(String, Digest)>,
    ) -> Result<(Arc<Job>, bool), JobError> {
        spec.check()?;
        let name = match &spec.name {
            Some(name) => name.parse().map_err(|error| BadSpec::new("name", error))?,
            None => made_up_name(&spec.function)?,
        };
        let seed = match spec.seed {
            Some(seed) => seed,
            // Exact in JSON too.
            None => crate::node::random_seed()? >> 11,
        };
        let (function, _) = self.registry.ready(tenant, &spec.function).await?;
        let data = match &spec.dataset {
            Some(dataset) => self.catalog.dataset(tenant.id, dataset)?.latest().map(|version| version.digest),
            None => None,
        };
        let job = Job {
            tenant: tenant.id,
            name,
            seed,
            version: function.active,
            data,
            state: State::Queued,
            reason: String::new(),
            created_ms: unix_ms(),
            started_ms: None,
            ended_ms: None,
            ready_ms: None,
            history: Vec::new(),
            checkpoint: None,
            models: Vec::new(),
            spending: Default::default(),
            losses: 0,
            starts: 0,
            idempotency,
            spec,
        };
        let (prepared, manifest) = self.prepare(tenant, &job).await?;
        self.check_room(tenant, &prepared.common)?;
        let changing = self.jobs.pause().await;
        if let Some((key, asked)) = &job.idempotency
            && let Some(found) = self.repeated(tenant.id, Some(key), asked)?
        {
            return Ok((found, false));
        }
        if tenant.is_deleted() {
            return Err(JobError::TenantDeleted);
        }
        if self.jobs.get(tenant.id, job.name.as_str()).is_ok() {
            return Err(JobError::Exists(job.name.to_string()));
        }
        if self.catalog.model(tenant.id, job.name.as_str()).is_ok() {
            let problem = format!("there is a model `{}` already, and the job's would have that name", job.name);
            return Err(BadSpec::new("name", problem).into());
        }
        let queued = self.jobs.queue.locked().waiting(tenant.id);
        let limit = tenant.quota().queued_jobs;
        if queued >= limit as usize {
            return Err(JobError::Quota { name: "queued_jobs", limit: limit.into(), what: "another job".to_owned() });
        }
        let live = self.jobs.add(job).await?;
        drop(changing);
        tenant.ledger.charge_job();
        self.enqueue(&live, prepared, manifest.as_deref());
        Ok((live.job(), true))
    }

    /// Finds everything that a job needs, and tries it out.
    async fn prepare(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        job: &Job,
    ) -> Result<(Prepared, Option<Arc<Manifest>>), JobError> {
        let spec = &job.spec;
        let meaning = spec.check()?;
        let function = self.registry.ready_version(tenant.id, &job.version).await?;
        let name: Name = spec.function.parse().map_err(|error| BadSpec::new("function", error))?;
        let data = match (&spec.dataset, job.data) {
            (Some(dataset), Some(version)) => Some(self.job_data(dataset, &version).await?),
            _ => None,
        };
        if let Some(data) = &data {
            check_shards(spec, data)?;
        }
        let init_from = match &spec.init_from {
            Some(model) if job.checkpoint.is_none() => {
                let model = self.catalog.model(tenant.id, model)?;
                Some(self.catalog.open_model(&model).await?)
            }
            _ => None,
        };
        let pool = self.devices.open().await?.clone();
        let probe = Probe {
            sandbox: self.sandbox.clone(),
            pool: pool.clone(),
            function: function.clone(),
            name: name.clone(),
            version: job.version,
            tenant: tenant.clone(),
            invocations: self.invocations.clone(),
            seed: job.seed,
            spec: spec.clone(),
            data: data.clone(),
            init_from,
        };
        let probed = probe.run().await?;
        let rule = spec.rule(probed.counts)?;
        let cores = self.sandbox.limits().cores;
        let lanes = (spec.workers * spec.fan_out) as usize;
        let manifest = data.as_ref().map(|data| data.manifest.clone());
        let Meaning { device, lifetime, .. } = meaning;
        let common = Common {
            sandbox: self.sandbox.clone(),
            pool,
            function,
            name,
            version: job.version,
            tenant: tenant.clone(),
            log: self.logs.book(tenant.id),
            job: job.name.clone(),
            seed: job.seed,
            settings: probed.settings,
            traits: probed.traits,
            exchange: rule.exchange(spec.workers),
            device,
            data,
            lifetime,
            invocations: self.invocations.clone(),
            stopping: self.stopping.clone(),
            threads: (cores / lanes).max(1),
            ahead: lanes <= cores,
            spec: spec.clone(),
        };
        Ok((Prepared { common: Arc::new(common), rule }, manifest))
    }

    async fn job_data(&self, dataset: &str, version: &Digest) -> Result<JobData, JobError> {
        let size = self.blobs.size(version).await?;
        let bytes = self.blobs.read(version, 0..size).await?;
        let manifest = Manifest::parse(&bytes).map_err(crate::catalog::CatalogError::from)?;
        Ok(JobData { name: dataset.to_owned(), manifest: Arc::new(manifest), blocks: self.blocks.clone() })
    }

    /// Refuses a job that could never run.
    fn check_room(&self, tenant: &Tenant, common: &Common) -> Result<(), JobError> {
        let quota = tenant.quota();
        let lanes = common.lanes();
        let bytes = u64::from(lanes).saturating_mul(common.spec.memory);
        let over = |name, limit, what: String| Err(JobError::Quota { name, limit, what });
        if lanes > quota.workers {
            return over("workers", quota.workers.into(), format!("{lanes} workers"));
        }
        if bytes > quota.worker_memory {
            return over("worker_memory", quota.worker_memory, format!("{lanes} workers of {}", common.spec.memory));
        }
        if tenant.ledger.usage().device_seconds() >= quota.device_seconds as f64 {
            return over("device_seconds", quota.device_seconds, "any more training".to_owned());
        }
        if lanes > self.settings.max_workers {
            let problem = format!("{lanes} are more than the node's `max_workers` of {}", self.settings.max_workers);
            return Err(BadSpec::new("workers", problem).into());
        }
        // What no device has even when it is empty; what is only taken now comes back.
        match common.lease(Default::default()) {
            Ok(_) | Err(PoolError::Device(_)) => {}
            Err(PoolError::NothingFits { wanted, largest, .. }) if wanted <= largest => {}
            Err(error @ PoolError::NothingFits { .. }) => return Err(BadSpec::new("memory", error).into()),
            Err(error) => return Err(BadSpec::new("device", error).into()),
        }
        let capacity: u64 = common.pool.devices().map(|(_, info)| info.memory as u64).sum();
        let (_, each) = split_memory(common.spec.memory);
        if (each as u64).saturating_mul(lanes.into()) > capacity {
            let problem = format!("{lanes} workers of {} bytes are more than all devices have", common.spec.memory);
            return Err(BadSpec::new("memory", problem).into());
        }
        Ok(())
    }

    fn enqueue(self: &Arc<Self>, live: &Arc<Live>, prepared: Prepared, manifest: Option<&Manifest>) {
        let job = live.job();
        live.need(job.version, manifest.zip(job.data));
        let lanes = prepared.common.lanes();
        let bytes = u64::from(lanes).saturating_mul(job.spec.memory);
        *live.prepared.locked() = Some(prepared);
        self.jobs.queue.locked().push(Ask { tenant: job.tenant, name: job.name.to_string(), lanes, bytes });
        self.schedule();
    }

    /// Goes on with jobs that a node that stopped, or was killed, left unfinished.
    pub async fn resume_unfinished(self: &Arc<Self>) {
        for live in self.jobs.unfinished() {
            self.requeue(live).await;
        }
    }

    async fn requeue(self: &Arc<Self>, live: Arc<Live>) {
        let job = live.job();
        let Some(tenant) = self.tenants.by_id(job.tenant) else { return };
        let prepared = self.prepare(&tenant, &job).await;
        let changed = self.jobs.change(&live, |job| {
            job.starts += 1;
            match &prepared {
                Ok(_) => (job.state, job.reason) = (State::Queued, String::new()),
                Err(error) => (job.state, job.reason) = (State::Failed, error.to_string()),
            }
        });
        if let Err(error) = changed.await {
            tracing::error!(%error, job = %job.name, "a job's record could not be written");
        }
        if let Ok((prepared, manifest)) = prepared {
            self.enqueue(&live, prepared, manifest.as_deref());
        }
    }

    /// Starts every job that may run now.
    pub fn schedule(self: &Arc<Self>) {
        while !self.is_draining() {
            let allowed = |tenant| {
                let quota = self.tenants.by_id(tenant)?.quota();
                Some(Allowed { jobs: quota.jobs, lanes: quota.workers, bytes: quota.worker_memory })
            };
            let Some(ask) = self.jobs.queue.locked().next(allowed) else { return };
            let Ok(live) = self.jobs.live(ask.tenant, &ask.name) else {
                self.jobs.queue.locked().end(&ask);
                continue;
            };
            let Some(prepared) = live.prepared.locked().clone() else {
                self.jobs.queue.locked().end(&ask);
                continue;
            };
            let common = &prepared.common;
            let leases = (0..common.spec.workers).map(|_| common.lease(Default::default()));
            match leases.collect::<Result<Vec<Lease>, PoolError>>() {
                Ok(leases) => self.start_job(live, prepared, ask, leases),
                Err(error) => {
                    let comes_back = matches!(error, PoolError::Device(_));
                    self.jobs.queue.locked().put_back(ask);
                    // With nothing running, nobody would look again.
                    if comes_back || *self.jobs.running.borrow() == 0 {
                        let node = self.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(LOOK_AGAIN).await;
                            node.schedule();
                        });
                    }
                    return;
                }
            }
        }
    }

    fn start_job(self: &Arc<Self>, live: Arc<Live>, prepared: Prepared, ask: Ask, leases: Vec<Lease>) {
        let (node, runtime) = (self.clone(), tokio::runtime::Handle::current());
        self.jobs.running.send_modify(|running| *running += 1);
        let (kills, killed) = mpsc::unbounded_channel();
        *live.kills.locked() = Some(kills);
        let running = Running { node: node.clone(), live: live.clone(), ask };
        let work = move || {
            let done = running;
            runtime.block_on(run(&node, &live, prepared, leases, killed));
            // What it held is free now: perhaps another can start.
            drop(done);
            let _entered = runtime.enter();
            node.schedule();
        };
        // A merge of large models takes its time: not on a thread that others need.
        if let Err(error) = std::thread::Builder::new().name("job".to_owned()).spawn(work) {
            tracing::error!(%error, "no thread for a job could be started");
        }
    }

    /// Has a job end soon. It answers at once; what it held is free within moments.
    pub async fn stop_job(&self, tenant: &Tenant, name: &str) -> Result<Arc<Job>, JobError> {
        let live = self.jobs.live(tenant.id, name)?;
        let waited = self.jobs.queue.locked().remove(tenant.id, name);
        if waited {
            return Ok(self.jobs.change(&live, |job| over(job, State::Stopped, "stopped while it waited")).await?);
        }
        let job = live.job();
        if job.state.is_over() {
            return Err(wrong(&job, "only a job that waits or runs can be stopped"));
        }
        live.orders.send_replace(Order::Stop);
        Ok(live.job())
    }

    /// Goes on with a job that is over, from its last checkpoint.
    pub async fn resume_job(self: &Arc<Self>, tenant: &Arc<Tenant>, name: &str) -> Result<Arc<Job>, JobError> {
        if self.is_draining() {
            return Err(JobError::Stopping);
        }
        let live = self.jobs.live(tenant.id, name)?;
        let changing = self.jobs.pause().await;
        let job = live.job();
        if !matches!(job.state, State::Stopped | State::Failed) {
            return Err(wrong(&job, "only a job that was stopped or has failed can go on"));
        }
        let (prepared, manifest) = self.prepare(tenant, &job).await?;
        self.check_room(tenant, &prepared.common)?;
        live.orders.send_replace(Order::Run);
        let job = self.jobs.change(&live, |job| {
            (job.state, job.reason, job.ended_ms) = (State::Queued, String::new(), None);
            job.starts += 1;
        });
        let job = job.await?;
        drop(changing);
        self.enqueue(&live, prepared, manifest.as_deref());
        Ok(job)
    }

    /// Forgets a job that is over. Its models stay.
    pub async fn delete_job(&self, tenant: &Tenant, name: &str) -> Result<(), JobError> {
        let _changing = self.jobs.pause().await;
        let job = self.jobs.get(tenant.id, name)?;
        if !job.state.is_over() {
            return Err(wrong(&job, "stop it first"));
        }
        self.jobs.remove(std::slice::from_ref(&job)).await?;
        self.logs.forget_job(tenant.id, &job.name);
        release(tenant, &job);
        Ok(())
    }

    /// Forgets all jobs that are over, and says how many.
    pub async fn prune_jobs(&self, tenant: &Tenant) -> Result<u64, JobError> {
        let _changing = self.jobs.pause().await;
        let mut over = self.jobs.list(tenant.id);
        over.retain(|job| job.state.is_over());
        self.jobs.remove(&over).await?;
        for job in &over {
            self.logs.forget_job(tenant.id, &job.name);
            release(tenant, job);
        }
        Ok(over.len() as u64)
    }

    /// Ends a worker as if it had died; the job starts it again.
    pub async fn kill_worker(&self, tenant: &Tenant, name: &str, worker: u32) -> Result<(), JobError> {
        let live = self.jobs.live(tenant.id, name)?;
        let job = live.job();
        if worker >= job.spec.workers {
            return Err(BadSpec::new("worker", format!("there are {}, counted from 0", job.spec.workers)).into());
        }
        let kills = live.kills.locked().clone();
        match kills.filter(|_| job.state == State::Running).map(|kills| kills.send(worker)) {
            Some(Ok(())) => Ok(()),
            _ => Err(wrong(&job, "only a worker of a running job can be killed")),
        }
    }

    /// What a job's model makes of samples as they come, before any transform.
    pub async fn infer_job(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        name: &str,
        samples: Vec<Vec<f32>>,
    ) -> Result<Vec<Vec<f32>>, JobError> {
        let job = self.jobs.get(tenant.id, name)?;
        if samples.is_empty() || samples.len() > MAX_SAMPLES {
            let problem = format!("{} of them: send 1 to {MAX_SAMPLES} at once", samples.len());
            return Err(BadSpec::new("samples", problem).into());
        }
        let Some(model) = job.models.last() else { return Err(wrong(&job, "it has left no model yet")) };
        let model = self.catalog.model(tenant.id, model.as_str())?;
        let mut model = self.catalog.open_model(&model).await?;
        let Some(input) = model.meta.input.clone() else {
            return Err(wrong(&job, "its model does not say what samples it takes"));
        };
        let rows = prepare_samples(&input, &samples)?;
        let function = self.registry.ready_version(tenant.id, &job.version).await?;
        let pool = self.devices.open().await?.clone();
        let (linear, bytes) = split_memory(job.spec.memory);
        let lease = pool.lease(Request::new(tenant.name.as_str(), bytes))?;
        let context = Context::leased(&lease, Arc::new(Crew::new(self.sandbox.limits().cores)), TAPE_NODES);
        let mut setup = crate::train::worker::WorkerSetup {
            sandbox: self.sandbox.clone(),
            function,
            name: job.spec.function.parse().map_err(|error| BadSpec::new("function", error))?,
            version: job.version,
            tenant: tenant.clone(),
            log: self.logs.book(tenant.id),
            job: Some(job.name.clone()),
            context: context.clone(),
            seed: job.seed,
            settings: Vec::new(),
            memory: linear,
            invocations: self.invocations.clone(),
            stopping: self.stopping.clone(),
            fresh: false,
        };
        let params: Vec<(String, String)> = job.spec.params.clone().into_iter().collect();
        let runtime = tokio::runtime::Handle::current();
        let infer = async move {
            let failed = |error: &dyn std::fmt::Display| JobError::Refused(error.to_string());
            let description = Worker::describe(&setup).await.map_err(|error| failed(&error))?;
            setup.settings = settings::read(&description, &params).map_err(|error| BadSpec::new("params", error))?;
            let mut worker = Worker::start(setup).await.map_err(|error| failed(&error))?;
            if let Some(declared) = worker.declared() {
                save::load(declared, &mut model).map_err(|error| failed(&error))?;
            }
            let mut outputs = Vec::new();
            for rows in rows.chunks(INFER_BATCH) {
                let shape: Vec<usize> = std::iter::once(rows.len()).chain(input.shape.iter().copied()).collect();
                let numbers: Vec<f32> = rows.iter().flatten().copied().collect();
                let features = context.tensor(&shape, &numbers).map_err(|error| failed(&error))?;
                let batch = Batch { features: Inputs::Dense(features), labels: None, count: rows.len() };
                outputs.extend(infer_batch(&mut worker, batch).await.map_err(|error| failed(&error))?);
            }
            Ok(outputs)
        };
        let inferred = tokio::task::spawn_blocking(move || runtime.block_on(infer)).await;
        let inferred = inferred.map_err(|error| JobError::Io { what: "inference", error: io::Error::other(error) })?;
        tenant.ledger.charge_device(lease.time());
        inferred
    }
}

/// Transforms samples as those that the model was trained on.
fn prepare_samples(input: &Input, samples: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, JobError> {
    let features = Features::Dense { element: Element::F32, shape: input.shape.clone() };
    let width = features.width();
    let manifest = Manifest {
        format: FORMAT,
        features,
        labels: None,
        class_names: Vec::new(),
        transform: input.transform,
        statistics: input.statistics.clone(),
        train: Split::default(),
        test: Split::default(),
        synthetic: None,
    };
    let prepared = transform::Prepared::new(&manifest).map_err(|error| BadSpec::new("samples", error))?;
    let transform = |(number, sample): (usize, &Vec<f32>)| {
        if sample.len() != width {
            let problem =
                format!("sample {number} has {} numbers, and the model takes {:?}", sample.len(), input.shape);
            return Err(BadSpec::new("samples", problem).into());
        }
        let mut row = vec![0.0; width];
        prepared.row(bytemuck::cast_slice(sample), &mut row);
        Ok(row)
    };
    samples.iter().enumerate().map(transform).collect()
}

fn made_up_name(function: &str) -> Result<Name, JobError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)?;
    let stem: String = function.chars().take(MAX_NAME - 9).collect();
    let name = format!("{}-{:08x}", stem.trim_end_matches('-'), u32::from_le_bytes(bytes));
    Ok(name.parse().map_err(|error| BadSpec::new("function", error))?)
}

/// Every worker needs a whole batch, at least once an epoch.
fn check_shards(spec: &JobSpec, data: &JobData) -> Result<(), JobError> {
    let shards = u64::from(spec.workers) * u64::from(spec.fan_out);
    let plan = ShardPlan { shards, stratified: spec.stratified, ..ShardPlan::default() };
    let least = plan.count(&data.manifest.train, shards - 1).map_err(|error| BadSpec::new("workers", error))?;
    for batch in std::iter::once(&spec.batch).chain(spec.batch_schedule.values()) {
        if u64::from(*batch) > least {
            let problem =
                format!("{batch} is more than the {least} samples of a worker's shard; use fewer workers, or less");
            return Err(BadSpec::new("batch", problem).into());
        }
    }
    Ok(())
}

fn over(job: &mut Job, state: State, reason: impl Into<String>) {
    (job.state, job.reason, job.ended_ms) = (state, reason.into(), Some(unix_ms()));
}

fn wrong(job: &Job, problem: &'static str) -> JobError {
    JobError::Wrong { name: job.name.to_string(), state: job.state.word(), problem }
}

fn release(tenant: &Tenant, job: &Job) {
    if let Some(checkpoint) = &job.checkpoint {
        tenant.storage.release(checkpoint.size);
    }
}

/// A job that runs: when this is dropped, another may.
struct Running {
    node: Arc<Node>,
    live: Arc<Live>,
    ask: Ask,
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.live.kills.locked() = None;
        self.node.jobs.queue.locked().end(&self.ask);
        self.node.jobs.running.send_modify(|running| *running -= 1);
    }
}

/// Runs a job to its end, and notes that.
async fn run(
    node: &Arc<Node>,
    live: &Arc<Live>,
    prepared: Prepared,
    leases: Vec<Lease>,
    kills: mpsc::UnboundedReceiver<u32>,
) {
    let ending = match train(node, live, prepared, leases, kills).await {
        Ok(ending) => ending,
        Err(error) => Ending::Halted(Halt::Failed(error)),
    };
    let noted = node.jobs.change(live, |job| match ending {
        Ending::Done(reason) => over(job, State::Done, reason),
        Ending::Halted(Halt::OutOfTime) => over(job, State::Done, "`max_time` is over"),
        Ending::Halted(Halt::Stopped) => over(job, State::Stopped, "stopped"),
        Ending::Halted(Halt::Failed(error)) => over(job, State::Failed, error),
        // It goes on where it was.
        Ending::Halted(Halt::Paused) => (job.state, job.reason) = (State::Queued, "the node stopped".to_owned()),
    });
    if let Err(error) = noted.await {
        tracing::error!(%error, "the end of a job could not be written");
    }
}

async fn train(
    node: &Arc<Node>,
    live: &Arc<Live>,
    Prepared { common, rule }: Prepared,
    leases: Vec<Lease>,
    kills: mpsc::UnboundedReceiver<u32>,
) -> Result<Ending, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let job = node.jobs.change(live, |job| {
        (job.state, job.reason) = (State::Running, String::new());
        job.started_ms.get_or_insert(unix_ms());
    });
    let job = job.await.map_err(|error| text(&error))?;
    let from = match (&job.checkpoint, &job.spec.init_from) {
        (Some(checkpoint), _) => {
            let bytes = node.blobs.read(&checkpoint.digest, 0..checkpoint.size).await.map_err(|error| text(&error))?;
            From::Checkpoint(Box::new(Training::from_file(io::Cursor::new(bytes)).map_err(|error| text(&error))?))
        }
        (None, Some(model)) => {
            let model = node.catalog.model(job.tenant, model).map_err(|error| text(&error))?;
            let mut file = node.catalog.open_model(&model).await.map_err(|error| text(&error))?;
            From::Model(Box::new(move |plan, shared| shared.take(plan, &mut file).map_err(|error| error.to_string())))
        }
        (None, None) => From::Birth,
    };
    let deadline = Some(job.spec.max_time_ms).filter(|ms| *ms > 0).map(|ms| {
        let spent: f64 = job.history.iter().map(|epoch| epoch.seconds).sum();
        Instant::now() + Duration::from_millis(ms).saturating_sub(Duration::from_secs_f64(spent))
    });
    let lines = Lines { orders: live.orders.subscribe(), kills, news: news(live.clone(), &common) };
    let (team, born) = match Team::start(common.clone(), leases, lines, deadline).await {
        Ok(started) => started,
        Err(halt) => return Ok(Ending::Halted(halt)),
    };
    let ms = live.asked.elapsed().as_secs_f64() * 1e3;
    live.events.tell(JobEvent::Ready { workers: job.spec.workers, ms });
    node.jobs.note_ready(live, ms);
    let keeper = Arc::new(Kept { node: node.clone(), live: live.clone(), common: common.clone() });
    let prices = Prices::of(&node.settings);
    let engine = Engine::new(common, team, *born, rule, keeper, prices, from)?;
    Ok(engine.run().await)
}

/// What a running job's followers are told.
fn news(live: Arc<Live>, common: &Common) -> Box<dyn Fn(News) + Send> {
    let job = common.job.clone();
    let shards = u64::from(common.lanes());
    let data = common.data.as_ref().map(|data| data.manifest.train.count);
    let (spec, began) = (common.spec.clone(), Instant::now());
    Box::new(move |news| match news {
        News::Lost { worker, reason } => {
            tracing::info!(%job, worker, %reason, "a worker was lost");
            live.events.tell(JobEvent::Worker { worker, reason });
        }
        // One speaks for all.
        News::Progress { worker: 0, steps, loss, .. } if live.events.wants_progress() => {
            let epoch = live.job().history.last().map_or(0, |epoch| epoch.epoch);
            let batch = u64::from(spec.batch_of(epoch).get());
            let all = data.map_or(spec.steps, |samples| samples.div_ceil(shards).div_ceil(batch));
            let done = epoch as f64 + steps as f64 / all.max(1) as f64;
            let samples = data.map_or(0.0, |samples| samples as f64 * done);
            let samples_per_second = samples / began.elapsed().as_secs_f64().max(1e-9);
            let progress = Progress { epoch: epoch + 1, step: steps.min(all), steps: all, loss, samples_per_second };
            live.events.tell(JobEvent::Progress(progress));
        }
        News::Progress { .. } => {}
    })
}

/// Keeps what a job comes to.
struct Kept {
    node: Arc<Node>,
    live: Arc<Live>,
    common: Arc<Common>,
}

impl Kept {
    fn name(&self, suffix: &str) -> Result<Name, String> {
        let stem: String = self.common.job.as_str().chars().take(MAX_NAME - suffix.len()).collect();
        format!("{stem}{suffix}").parse().map_err(|error: crate::names::BadName| error.to_string())
    }
}

impl Keeper for Kept {
    async fn epoch(&self, record: EpochRecord) -> Result<(), String> {
        self.node.jobs.add_epoch(&self.live, record).await.map_err(|error| error.to_string())
    }

    async fn checkpoint(&self, training: &Training) -> Result<(), String> {
        let file = training.to_file().map_err(|error| error.to_string())?;
        let kept = keep_checkpoint(&self.node, &self.live, &self.common.tenant, file, training).await;
        kept.map_err(|error| format!("a checkpoint could not be kept: {error}"))
    }

    async fn model(&self, suffix: &str, shared: &Shared, plan: &Plan, facts: ModelFacts) -> Result<(), String> {
        let name = self.name(suffix)?;
        let meta = Meta {
            function: Some(self.common.version),
            step: Some(facts.step),
            hyper_parameters: settings::to_json(&self.common.settings),
            metrics: facts.metrics,
            data_set: self.live.job().data,
            created_ms: Some(unix_ms()),
            input: self.common.data.as_ref().map(|data| Input::of(&data.manifest)),
            other: BTreeMap::from([("weft.job".to_owned(), self.common.job.to_string())]),
        };
        let file = shared.to_file(plan, &meta).map_err(|error| error.to_string())?;
        let (node, live, tenant, kept) =
            (self.node.clone(), self.live.clone(), self.common.tenant.clone(), name.clone());
        let put = to_the_end(async move {
            let replaces = live.job().models.contains(&kept);
            node.catalog.put_model(&tenant, kept, file, replaces).await
        });
        put.await.map_err(|error| format!("the model could not be kept: {error}"))?;
        let noted = self.node.jobs.change(&self.live, |job| {
            job.models.retain(|other| *other != name);
            job.models.push(name);
        });
        noted.await.map_err(|error| error.to_string())?;
        Ok(())
    }

    async fn forget_model(&self, suffix: &str) {
        let Ok(name) = self.name(suffix) else { return };
        let forgotten = self.node.catalog.delete_model(&self.common.tenant, name.as_str()).await;
        let noted = self.node.jobs.change(&self.live, |job| job.models.retain(|other| *other != name)).await;
        if forgotten.is_err() || noted.is_err() {
            tracing::warn!(job = %self.common.job, model = %name, "an old model of a job could not be deleted");
        }
    }

    fn charge(&self, spent: &TrainingUse) -> Result<(), String> {
        let tenant = &self.common.tenant;
        tenant.ledger.charge_training(spent);
        let limit = tenant.quota().device_seconds;
        if tenant.ledger.usage().device_seconds() > limit as f64 {
            return Err(format!("the tenant's `device_seconds` of {limit} are used up"));
        }
        Ok(())
    }
}

async fn keep_checkpoint(
    node: &Arc<Node>,
    live: &Live,
    tenant: &Tenant,
    file: Vec<u8>,
    training: &Training,
) -> Result<(), JobError> {
    let size = file.len() as u64;
    let reserved = tenant.storage.reserve(size)?;
    let pin = node.blobs.publish_bytes(file.into()).await?;
    let (epoch, step) = (training.progress.epoch, training.progress.step);
    let next = CheckpointRef { digest: pin.digest(), size, epoch, step };
    let before = live.job().checkpoint;
    match node.jobs.change(live, |job| job.checkpoint = Some(next)).await {
        Ok(_) => {}
        Err(error) => {
            pin.until_restart();
            return Err(error.into());
        }
    }
    reserved.keep();
    drop(pin);
    if let Some(before) = before {
        tenant.storage.release(before.size);
        if before.digest != next.digest {
            node.blobs.collect(&[before.digest]).await?;
        }
    }
    live.events.tell(JobEvent::Checkpoint { epoch, step, bytes: size });
    Ok(())
}

impl Jobs {
    /// For whoever looks: it is written with the next change.
    fn note_ready(&self, live: &Live, ms: f64) {
        live.note(|job| {
            job.ready_ms.get_or_insert(ms);
        });
    }
}
