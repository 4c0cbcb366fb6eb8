//! How a job is submitted: everything that can be wrong with it is found out before it is queued, as far as there is room
//! for trying it out. Where there is none, it is tried out when its turn has come.

use std::io;
use std::sync::Arc;

use weft_core::spec::{BadSpec, JobSpec};
use weft_gpu::Request;
use weft_gpu::pool::{PoolError, Spare, Wish};

use super::apart::apart;
use super::following::Following;
use super::prepare::{Found, device_and_codec};
use super::record::{Job, State};
use super::room::check_quota;
use super::trial::{AsTrial, prepare_like};
use super::workshop::{LEFT_BY_JOBS, Workshop, split_memory};
use super::{JobError, Jobs};
use crate::clock::unix_ms;
use crate::dataset::Manifest;
use crate::devices::is_busy;
use crate::digest::Digest;
use crate::locks::Lock;
use crate::names::{MAX_NAME, Name};
use crate::seed;
use crate::tenant::{Tenant, TenantId};

impl Jobs {
    /// Queues a job. The second part tells whether it is new, or was found by its key.
    pub async fn submit(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        spec: JobSpec,
        idempotency: Option<&str>,
    ) -> Result<(Arc<Job>, bool), JobError> {
        if self.is_stopping() {
            return Err(JobError::Stopping);
        }
        let asked = Digest::of(&serde_json::to_vec(&spec).unwrap_or_default());
        if let Some(found) = self.repeated(tenant.id, idempotency, &asked)? {
            return Ok((found, false));
        }
        let (jobs, tenant) = (self.clone(), tenant.clone());
        let key = idempotency.map(|key| (key.to_owned(), asked));
        // A caller that goes away does not stop it half-way.
        tokio::spawn(async move { jobs.accept(&tenant, spec, key, None).await }).await.unwrap_or_else(|error| {
            Err(JobError::Io { what: "the request was interrupted", error: io::Error::other(error) })
        })
    }

    fn repeated(&self, tenant: TenantId, key: Option<&str>, asked: &Digest) -> Result<Option<Arc<Job>>, JobError> {
        let Some(key) = key else { return Ok(None) };
        let jobs = self.roster.list(tenant);
        let same = jobs.into_iter().find(|job| job.idempotency.as_ref().is_some_and(|(known, _)| known == key));
        match same {
            Some(job) if job.idempotency.as_ref().is_some_and(|(_, digest)| digest == asked) => Ok(Some(job)),
            Some(job) => Err(JobError::OtherRequest(job.name.to_string())),
            None => Ok(None),
        }
    }

    /// Refuses words that could not be submitted now.
    pub(super) async fn try_words(self: &Arc<Self>, tenant: &Arc<Tenant>, spec: JobSpec) -> Result<(), JobError> {
        device_and_codec(&spec.check()?)?;
        let (jobs, tenant) = (self.clone(), tenant.clone());
        let tried = tokio::spawn(async move {
            let (name, seed) = (made_up_name(&spec.function)?, spec.seed.unwrap_or(0));
            let versions = jobs.versions(&tenant, &spec).await?;
            jobs.try_new(&tenant, &mut new_job(tenant.id, name, spec, seed, versions)).await.map(drop)
        });
        tried.await.unwrap_or_else(|error| {
            Err(JobError::Io { what: "the request was interrupted", error: io::Error::other(error) })
        })
    }

    pub(super) async fn accept(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        spec: JobSpec,
        idempotency: Option<(String, Digest)>,
        trial: Option<AsTrial>,
    ) -> Result<(Arc<Job>, bool), JobError> {
        device_and_codec(&spec.check()?)?;
        let name = match &spec.name {
            Some(name) => name.parse().map_err(|error| BadSpec::new("name", error))?,
            None => made_up_name(&spec.function)?,
        };
        let seed = match spec.seed {
            Some(seed) => seed,
            // Exact in JSON too.
            None => seed::random()? >> 11,
        };
        let (version, data) = match &trial {
            Some(trial) => (trial.version, trial.data),
            None => self.versions(tenant, &spec).await?,
        };
        let mut job = new_job(tenant.id, name, spec, seed, (version, data));
        job.idempotency = idempotency;
        if let Some(trial) = &trial {
            (job.until, job.trial) = (Some(trial.until), Some(trial.of.clone()));
        }
        let like = trial.as_ref().and_then(|trial| trial.like.as_deref());
        let (prepared, manifest) = match like {
            Some(like) => {
                let manifest = like.data.as_ref().map(|data| data.manifest.clone());
                (Some(prepare_like(tenant, &mut job, like)?), manifest)
            }
            None => self.try_new(tenant, &mut job).await?,
        };
        let changing = self.roster.pause().await;
        if let Some((key, asked)) = &job.idempotency
            && let Some(found) = self.repeated(tenant.id, Some(key), asked)?
        {
            return Ok((found, false));
        }
        if tenant.is_deleted() {
            return Err(JobError::TenantDeleted);
        }
        if self.roster.get(tenant.id, job.name.as_str()).is_ok() {
            return Err(JobError::Exists(job.name.to_string()));
        }
        // Who keeps the models of trials knows whose they are.
        if trial.is_none() && self.facilities.catalog.model(tenant.id, job.name.as_str()).is_ok() {
            let problem = format!("there is a model `{}` already, and the job's would have that name", job.name);
            return Err(BadSpec::new("name", problem).into());
        }
        let queued = self.roster.queue.locked().waiting(tenant.id);
        let limit = tenant.quota().queued_jobs;
        if queued >= limit as usize {
            return Err(JobError::Quota { name: "queued_jobs", limit: limit.into(), what: "another job".to_owned() });
        }
        self.check_followers(tenant, job.spec.follow.as_ref())?;
        let live = self.roster.add(job, tenant).await?;
        if let Some(trial) = trial {
            live.set_judge(trial.judge);
        }
        drop(changing);
        tenant.ledger.charge_job();
        self.roster.enqueue(&live, prepared, manifest.as_deref());
        Ok((live.job(), true))
    }

    /// Finds what a new job needs and tries it out, as far as there is room for that.
    pub(super) async fn try_new(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        job: &mut Job,
    ) -> Result<(Option<Arc<Workshop>>, Option<Arc<Manifest>>), JobError> {
        let mut found = self.find(tenant, job).await?;
        let samples = found.data.as_ref().map(|data| data.manifest.train.count);
        job.shape = Some(found.spec.first_shape(samples));
        self.check_room(tenant, job, &found)?;
        let manifest = found.data.as_ref().map(|data| data.manifest.clone());
        let prepared = loop {
            match self.try_before(tenant, job, found).await {
                // There is no room to try it out now: that is done when its turn has come.
                Err(error) if error.passes() => break None,
                Err(JobError::OutOfMemory(_)) if job.double_memory(tenant.quota().worker_memory) => {
                    found = self.find(tenant, job).await?;
                    self.check_room(tenant, job, &found)?;
                }
                tried => break Some(tried?),
            }
        };
        if let Some(prepared) = &prepared {
            job.host = prepared.brief.host;
            check_quota(tenant, &job.shape(), job.host_bytes())?;
        }
        Ok((prepared, manifest))
    }

    /// The versions of function and data set that a job is of that is asked for now.
    pub(super) async fn versions(&self, tenant: &Tenant, spec: &JobSpec) -> Result<(Digest, Option<Digest>), JobError> {
        let (function, _) = self.facilities.registry.ready(tenant, &spec.function).await?;
        let data = match &spec.dataset {
            Some(dataset) => {
                self.facilities.catalog.dataset(tenant.id, dataset)?.latest().map(|version| version.digest)
            }
            None => None,
        };
        Ok((function.active, data))
    }

    /// Tries a job out while its submission waits for the answer, on a lease and a thread that are for that alone.
    async fn try_before(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        job: &Job,
        found: Found,
    ) -> Result<Arc<Workshop>, JobError> {
        let place = self.facilities.places.trial(tenant).await?;
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
        let (jobs, owner, job, cancel) = (self.clone(), tenant.clone(), job.clone(), lease.cancel().clone());
        let trial = move || async move { jobs.try_out(&owner, &job, found, &lease).await };
        apart("trial", tenant, place, &cancel, trial).await
    }
}

/// A job that nobody has tried out yet.
pub(super) fn new_job(
    tenant: TenantId,
    name: Name,
    spec: JobSpec,
    seed: u64,
    (version, data): (Digest, Option<Digest>),
) -> Job {
    Job {
        tenant,
        name,
        seed,
        version,
        data,
        following: spec.follow.map(|_| Following::first(spec.epochs)),
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
        deaths: Default::default(),
        host: Default::default(),
        plan: None,
        spent_at_most: None,
        idempotency: None,
        until: spec.until,
        trial: None,
        spec,
    }
}

pub(crate) fn made_up_name(function: &str) -> Result<Name, JobError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)?;
    let stem: String = function.chars().take(MAX_NAME - 9).collect();
    let name = format!("{}-{:08x}", stem.trim_end_matches('-'), u32::from_le_bytes(bytes));
    Ok(name.parse().map_err(|error| BadSpec::new("function", error))?)
}
