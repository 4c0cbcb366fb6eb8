//! How a job is submitted: everything that can be wrong with it is found out before it is queued, as far as there is room
//! for trying it out. Where there is none, it is tried out when its turn has come.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weft_core::spec::{BadSpec, CheckedSpec, JobSpec, Shape};
use weft_core::sync::Channel as ChannelKind;
use weft_gpu::pool::{PoolError, Spare, Wish};
use weft_gpu::{Codec, Lease, Pool, Request};

use super::apart::apart;
use super::brief::{Brief, DataRef};
use super::channel::{BlobsChannel, Channel, MemoryChannel, StoreChannel};
use super::live::Live;
use super::probe::Probe;
use super::record::{Job, State};
use super::workshop::{InstanceRules, JobData, LEFT_BY_JOBS, Wanted, Workshop, split_memory};
use super::{JobError, is_busy};
use crate::catalog::{BlobFile, ReadManifest};
use crate::clock::unix_ms;
use crate::dataset::shard::Plan as ShardPlan;
use crate::digest::Digest;
use crate::locks::Lock;
use crate::model::Model;
use crate::names::{MAX_NAME, Name};
use crate::node::Node;
use crate::sandbox::TeamId;
use crate::tenant::{Tenant, TenantId};
use crate::train::worker::{FunctionHost, Trainer};

/// All that a job needs, found, and not tried out yet.
pub(super) struct Found {
    trainer: Trainer,
    data: Option<JobData>,
    init_from: Option<Model<BlobFile>>,
    pool: Pool,
    spec: CheckedSpec,
    device: Wish,
    codec: Codec,
}

/// Where a job wants to compute, and how what its workers send is encoded.
pub(crate) fn device_and_codec(spec: &CheckedSpec) -> Result<(Wish, Codec), BadSpec> {
    let device = spec.words.device.parse().map_err(|error| BadSpec::new("device", error))?;
    let codec = spec.codec().parse().map_err(|error| BadSpec::new("codec", error))?;
    Ok((device, codec))
}

impl Node {
    /// What runs functions here.
    pub(crate) fn function_host(&self) -> FunctionHost {
        FunctionHost {
            sandbox: self.sandbox.clone(),
            invocations: self.invocations.clone(),
            stopping: self.stopping.clone(),
        }
    }

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
        device_and_codec(&spec.check()?)?;
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
        let mut job = Job {
            tenant: tenant.id,
            name,
            seed,
            version: function.active,
            data,
            shape: None,
            changes: Vec::new(),
            scaled: false,
            state: State::Queued,
            reason: String::new(),
            created_ms: unix_ms(),
            started_ms: None,
            ended_ms: None,
            ready_ms: None,
            history: Default::default(),
            checkpoint: None,
            models: Vec::new(),
            model_files: Default::default(),
            spending: Default::default(),
            losses: 0,
            starts: 0,
            deaths: 0,
            died_at: None,
            host: Default::default(),
            blamed: 0,
            idempotency,
            spec,
        };
        let mut found = self.find(tenant, &job).await?;
        let samples = found.data.as_ref().map(|data| data.manifest.train.count);
        job.shape = Some(found.spec.first_shape(samples));
        self.check_room(tenant, &job, &found)?;
        let manifest = found.data.as_ref().map(|data| data.manifest.clone());
        let prepared = loop {
            match self.try_before(tenant, &job, found).await {
                // There is no room to try it out now: that is done when its turn has come.
                Err(error) if error.passes() => break None,
                Err(JobError::OutOfMemory(_)) if job.double_memory(tenant.quota().worker_memory) => {
                    found = self.find(tenant, &job).await?;
                    self.check_room(tenant, &job, &found)?;
                }
                tried => break Some(tried?),
            }
        };
        if let Some(prepared) = &prepared {
            job.host = prepared.brief.host;
            self.check_quota(tenant, &job.shape(), job.host_bytes())?;
        }
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
        let live = self.jobs.add(job, tenant).await?;
        drop(changing);
        tenant.ledger.charge_job();
        self.enqueue(&live, prepared, manifest.as_deref());
        Ok((live.job(), true))
    }

    /// Finds everything that a job needs. None of its code runs.
    pub(super) async fn find(&self, tenant: &Tenant, job: &Job) -> Result<Found, JobError> {
        let (words, spec) = (&job.spec, job.spec.check()?);
        let (device, codec) = device_and_codec(&spec)?;
        let function = self.registry.ready_version(tenant.id, &job.version).await?;
        if !function.is_trainer() {
            return Err(BadSpec::new("function", "it answers requests and does not train; see `weft invoke`").into());
        }
        let name: Name = words.function.parse().map_err(|error| BadSpec::new("function", error))?;
        let data = match (&words.dataset, job.data) {
            (Some(dataset), Some(version)) => Some(self.job_data(tenant, dataset, &version).await?),
            _ => None,
        };
        if let Some(data) = &data {
            let first = || spec.first_shape(Some(data.manifest.train.count));
            let shape = job.shape.unwrap_or_else(first);
            check_shards(&spec, &shape, data)?;
            if words.workers.is_range() {
                check_shards(&spec, &Shape { workers: words.workers.most, ..shape }, data)?;
            }
        }
        let init_from = match &words.init_from {
            Some(model) if job.checkpoint.is_none() => {
                let model = self.catalog.model(tenant.id, model)?;
                let place = self.place_for_opening(tenant).await?;
                Some(self.catalog.open_model(tenant, &model, place).await?)
            }
            _ => None,
        };
        let pool = self.devices.open().await?.clone();
        let trainer = Trainer { code: function, name, version: job.version };
        Ok(Found { trainer, data, init_from, pool, spec, device, codec })
    }

    /// Tries a job out while its submission waits for the answer, on a lease and a thread that are for that alone.
    async fn try_before(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        job: &Job,
        found: Found,
    ) -> Result<Arc<Workshop>, JobError> {
        let place = self.place_for_trial(tenant).await?;
        let (_, bytes) = split_memory(job.shape().memory);
        // Trials leave to calls what workers leave to them.
        let spare = Spare::OneIn(LEFT_BY_JOBS);
        let lease =
            |device: Wish| found.pool.lease(Request { device, spare, ..Request::new(tenant.owner.clone(), bytes) });
        let lease = match lease(Wish::Cpu) {
            Err(PoolError::NoSuchDevice { .. }) => lease(Wish::Auto),
            leased => leased,
        };
        let lease = lease.map_err(|error| match is_busy(&error) {
            true => JobError::from(error),
            false => BadSpec::new("memory", error).into(),
        })?;
        let (node, owner, job, cancel) = (self.clone(), tenant.clone(), job.clone(), lease.cancel().clone());
        let trial = move || async move { node.try_out(&owner, &job, found, &lease).await };
        apart("trial", tenant, place, &cancel, trial).await
    }

    /// Tries a job out on a lease. For a thread that nobody else needs.
    pub(super) async fn try_out(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        job: &Job,
        found: Found,
        lease: &Lease,
    ) -> Result<Arc<Workshop>, JobError> {
        let Found { trainer, data, init_from, pool, spec, device, codec } = found;
        let host = self.function_host();
        let probe = Probe {
            host: host.clone(),
            trainer: trainer.clone(),
            tenant: tenant.clone(),
            seed: job.seed,
            spec: spec.clone(),
            codec,
            shape: job.shape(),
            instances: InstanceRules::default(),
            data: data.clone(),
            init_from,
            has_trained: job.checkpoint.is_some(),
        };
        let probed = probe.run(lease).await?;
        let brief = Brief {
            tenant: tenant.id,
            job: job.name.clone(),
            run: job.starts,
            function: trainer.name.clone(),
            version: job.version,
            data: job.data.zip(job.spec.dataset.clone()).map(|(version, name)| DataRef { name, version }),
            settings: probed.settings,
            trainer: probed.trainer,
            spec,
            sync: probed.sync,
            seed: job.seed,
            host: probed.host,
        };
        Ok(Arc::new(Workshop {
            brief,
            host,
            pool,
            trainer,
            tenant: tenant.clone(),
            log: self.logs.book(tenant.id),
            data,
            device,
            codec,
            instances: InstanceRules::default(),
            team: TeamId::next(),
            cores_per_gib: self.settings.cores_per_gib,
        }))
    }

    /// Through what the workers of a job exchange what they have, in one run of it. What an earlier run has left is
    /// deleted.
    pub(super) async fn open_channel(&self, live: &Live, workshop: &Workshop) -> Result<Arc<dyn Channel>, JobError> {
        let (brief, tenant) = (&workshop.brief, &workshop.tenant);
        // A job may run several times between two starts of its node.
        let run = (brief.run << 32) + live.runs.fetch_add(1, Relaxed);
        let channel: Arc<dyn Channel> = match brief.sync.channel {
            ChannelKind::Memory => return Ok(Arc::new(MemoryChannel::default())),
            ChannelKind::Store => Arc::new(StoreChannel::new(self.bucket(tenant, Some(brief.job.clone())), run)),
            ChannelKind::Blobs => {
                let scratch = self.blobs.scratch(&format!("{}/{}", tenant.id.key(), brief.job));
                Arc::new(BlobsChannel::new(scratch, tenant.storage.clone(), run, brief.host.per_worker(1)))
            }
        };
        channel.clear().await?;
        Ok(channel)
    }

    async fn job_data(&self, tenant: &Tenant, dataset: &str, version: &Digest) -> Result<JobData, JobError> {
        let place = self.place_for_opening(tenant).await?;
        let size = self.blobs.size(version).await?;
        let ReadManifest { manifest, charge } = self.catalog.read_manifest(tenant, version, size, Some(place)).await?;
        Ok(JobData {
            name: dataset.to_owned(),
            manifest: Arc::new(manifest),
            charge: Some(Arc::new(charge)),
            blocks: self.blocks.clone(),
        })
    }

    /// Refuses a job that its tenant's quota never lets run.
    pub(super) fn check_quota(&self, tenant: &Tenant, shape: &Shape, host_bytes: u64) -> Result<(), JobError> {
        let quota = tenant.quota();
        let lanes = shape.lanes();
        let bytes = shape.all_memory(host_bytes);
        let over = |name, limit, what: String| Err(JobError::Quota { name, limit, what });
        if lanes > quota.workers {
            return over("workers", quota.workers.into(), format!("{lanes} workers"));
        }
        if bytes > quota.worker_memory {
            let copies = match host_bytes {
                0 => String::new(),
                each => format!(" and {each} bytes each for copies of the model"),
            };
            let what = format!("{lanes} workers of {}{copies}", shape.memory);
            return over("worker_memory", quota.worker_memory, what);
        }
        if tenant.ledger.usage().device_seconds() >= quota.device_seconds as f64 {
            return over("device_seconds", quota.device_seconds, "any more training".to_owned());
        }
        Ok(())
    }

    /// Refuses a job that could never run.
    fn check_room(&self, tenant: &Tenant, job: &Job, found: &Found) -> Result<(), JobError> {
        let shape = job.shape();
        let lanes = shape.lanes();
        if lanes > self.settings.max_workers {
            let problem = format!("{lanes} are more than the node's `max_workers` of {}", self.settings.max_workers);
            return Err(BadSpec::new("workers", problem).into());
        }
        self.check_devices(tenant, &shape, found.device, &found.pool)?;
        self.check_quota(tenant, &shape, 0)
    }

    /// Refuses workers that no device has room for, even when it is empty; what is only taken now comes back.
    pub(super) fn check_devices(
        &self,
        tenant: &Tenant,
        shape: &Shape,
        device: Wish,
        pool: &Pool,
    ) -> Result<(), JobError> {
        let wanted = Wanted { shape: *shape, device, host_bytes: 0 };
        match wanted.lease_function(pool, tenant) {
            Ok(_) => {}
            Err(error) if is_busy(&error) => {}
            Err(error @ PoolError::NothingFits { .. }) => return Err(BadSpec::new("memory", error).into()),
            Err(error) => return Err(BadSpec::new("device", error).into()),
        }
        let left = |memory: usize| (memory - memory / LEFT_BY_JOBS.get() as usize) as u64;
        let (lanes, capacity): (u32, u64) = (shape.lanes(), pool.devices().map(|(_, info)| left(info.memory)).sum());
        let (_, each) = split_memory(shape.memory);
        if (each as u64).saturating_mul(lanes.into()) > capacity {
            let problem = format!("{lanes} workers of {} bytes are more than all devices have for jobs", shape.memory);
            return Err(BadSpec::new("memory", problem).into());
        }
        Ok(())
    }
}

fn made_up_name(function: &str) -> Result<Name, JobError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)?;
    let stem: String = function.chars().take(MAX_NAME - 9).collect();
    let name = format!("{}-{:08x}", stem.trim_end_matches('-'), u32::from_le_bytes(bytes));
    Ok(name.parse().map_err(|error| BadSpec::new("function", error))?)
}

/// Every worker needs a whole batch, at least once an epoch.
pub(crate) fn check_shards(spec: &CheckedSpec, shape: &Shape, data: &JobData) -> Result<(), JobError> {
    let shards = u64::from(shape.lanes());
    let plan = ShardPlan { shards, stratified: spec.words.stratified, ..ShardPlan::default() };
    let least = plan.count(&data.manifest.train, shards - 1).map_err(|error| BadSpec::new("workers", error))?;
    let batch = spec.largest_batch(shape);
    if u64::from(batch) > least {
        let problem = format!(
            "{batch} is more than the {least} samples of a worker's shard; use fewer workers, or a batch of at most {least}"
        );
        return Err(BadSpec::new("batch", problem).into());
    }
    Ok(())
}
