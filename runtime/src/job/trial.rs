//! What a study asks of the jobs that are its trials. Jobs know nothing of studies but what their records say.

use std::sync::Arc;

use weft_core::spec::{BadSpec, JobSpec, Memory};
use weft_gpu::pool::{Spare, Wish};
use weft_gpu::{Context, Crew, Request};

use super::apart::apart;
use super::brief::Brief;
use super::live::Judge;
use super::prepare::device_and_codec;
use super::record::{Job, TrialOf};
use super::room::{check_quota, check_shards};
use super::submit::new_job;
use super::team::Order;
use super::workshop::{LEFT_BY_JOBS, Workshop, split_memory};
use super::{JobError, Jobs};
use crate::catalog::CatalogError;
use crate::devices::TAPE_NODES;
use crate::digest::Digest;
use crate::host::bindings::weft::train::training::Description;
use crate::names::Name;
use crate::sandbox::TeamId;
use crate::tenant::{Tenant, TenantId};
use crate::train::worker::{Trainer, Worker, WorkerSetup};

/// What makes a job a trial.
pub(crate) struct AsTrial {
    pub of: TrialOf,
    /// The epoch after which it comes to rest.
    pub until: u64,
    /// All trials of a study train the same versions.
    pub version: Digest,
    pub data: Option<Digest>,
    pub judge: Arc<dyn Judge>,
    /// Where a trial runs that was tried out, and differs in nothing that this would show again.
    pub like: Option<Arc<Workshop>>,
}

/// What a job's being tried out depends on: two jobs of one function and data set of which this is the same need not both
/// be. Rates and sizes of batches are not in it. None for one that has to be tried out each time.
pub(crate) fn tried_by(spec: &JobSpec) -> Option<JobSpec> {
    let base = JobSpec::new("", None);
    let is_known = !matches!(spec.memory, Memory::Auto) && spec.init_from.is_none() && !spec.workers.is_range();
    is_known.then(|| JobSpec {
        name: None,
        epochs: base.epochs,
        until: None,
        batch: base.batch,
        global_batch: None,
        lr: base.lr,
        seed: None,
        goal_accuracy: None,
        goal_loss: None,
        validate_every: base.validate_every,
        early_stop: None,
        plateau: None,
        batch_schedule: base.batch_schedule,
        ..spec.clone()
    })
}

/// Where a job runs that is like one that was tried out.
pub(super) fn prepare_like(tenant: &Tenant, job: &mut Job, like: &Workshop) -> Result<Arc<Workshop>, JobError> {
    let spec = job.spec.check()?;
    let samples = like.data.as_ref().map(|data| data.manifest.train.count);
    let shape = spec.first_shape(samples);
    (job.shape, job.host) = (Some(shape), like.brief.host);
    if let Some(data) = &like.data {
        check_shards(&spec, &shape, data)?;
    }
    check_quota(tenant, &shape, job.host_bytes())?;
    Ok(Arc::new(Workshop {
        brief: Brief { job: job.name.clone(), run: job.starts, spec, seed: job.seed, ..like.brief.clone() },
        host: like.host.clone(),
        pool: like.pool.clone(),
        trainer: like.trainer.clone(),
        tenant: like.tenant.clone(),
        log: like.log.clone(),
        data: like.data.clone(),
        device: like.device,
        codec: like.codec,
        instances: like.instances,
        team: TeamId::next(),
        cores_per_gib: like.cores_per_gib,
    }))
}

impl Jobs {
    /// Where a trial runs that was submitted just now, if it was tried out.
    pub(crate) fn prepared_trial(&self, tenant: TenantId, name: &str) -> Option<Arc<Workshop>> {
        self.roster.live(tenant, name).ok()?.prepared()
    }

    /// The versions that a study's trials are of.
    pub(crate) async fn trial_versions(
        &self,
        tenant: &Tenant,
        spec: &JobSpec,
    ) -> Result<(Digest, Option<Digest>), JobError> {
        self.versions(tenant, spec).await
    }

    /// Refuses a job that no trial could be: its words, what it needs, and whether the function takes them, are tried out.
    pub(crate) async fn check_trial(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        spec: JobSpec,
        versions: (Digest, Option<Digest>),
    ) -> Result<(), JobError> {
        device_and_codec(&spec.check()?)?;
        let seed = spec.seed.unwrap_or(0);
        let name: Name = spec.function.parse().map_err(|error| BadSpec::new("function", error))?;
        let mut job = new_job(tenant.id, name, spec, seed, versions);
        self.try_new(tenant, &mut job).await.map(drop)
    }

    /// Queues a trial.
    pub(crate) async fn submit_trial(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        spec: JobSpec,
        trial: AsTrial,
    ) -> Result<Arc<Job>, JobError> {
        if self.is_stopping() {
            return Err(JobError::Stopping);
        }
        Ok(self.accept(tenant, spec, None, Some(trial)).await?.0)
    }

    /// The job that is this trial, if there is one. Somebody else's of that name is an error.
    pub(crate) fn trial(&self, tenant: TenantId, name: &str, id: u64) -> Result<Option<Arc<Job>>, JobError> {
        match self.roster.get(tenant, name) {
            Ok(job) if job.trial.as_ref().is_some_and(|trial| trial.id == id) => Ok(Some(job)),
            Ok(_) => Err(JobError::Exists(name.to_owned())),
            Err(_) => Ok(None),
        }
    }

    /// Says who decides on the model of a trial that a node has found.
    pub(crate) fn judge_trial(&self, tenant: TenantId, name: &str, judge: Arc<dyn Judge>) {
        if let Ok(live) = self.roster.live(tenant, name) {
            live.set_judge(judge);
        }
    }

    /// Stops a trial because its study is stopped: it goes on with it.
    pub(crate) async fn hold_trial(&self, tenant: &Tenant, name: &str) -> Result<(), JobError> {
        let live = self.roster.live(tenant.id, name)?;
        let held = self.roster.change(&live, |job| {
            if let Some(trial) = &mut job.trial {
                trial.held = true;
            }
        });
        held.await?;
        self.stop(tenant, name).await.map(drop)
    }

    /// Deletes the models that a trial has left. It is over.
    pub(crate) async fn forget_models(&self, tenant: &Tenant, name: &str) -> Result<(), JobError> {
        let live = self.roster.live(tenant.id, name)?;
        let job = live.job();
        for model in &job.models {
            let files = job.model_files.get(model).cloned().unwrap_or_default();
            match self.facilities.catalog.delete_model_of(tenant, model.as_str(), &files).await {
                // Somebody has deleted it before, or has one of his own there now.
                Ok(()) | Err(CatalogError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !job.models.is_empty() {
            let forget = |job: &mut Job| {
                job.models.clear();
                job.model_files.clear();
            };
            self.roster.change(&live, forget).await?;
        }
        Ok(())
    }

    /// What a trainer says of itself. It runs, for a moment, on a thread and a lease that are for that alone.
    pub(crate) async fn describe(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        function: &str,
    ) -> Result<Description, JobError> {
        let (found, code) = self.facilities.registry.ready(tenant, function).await?;
        if !code.is_trainer() {
            return Err(BadSpec::new("function", "it answers requests and does not train; see `weft invoke`").into());
        }
        let name: Name = function.parse().map_err(|error| BadSpec::new("function", error))?;
        let trainer = Trainer { code, name, version: found.active };
        let place = self.facilities.places.trial(tenant).await?;
        let pool = self.facilities.devices.open().await?;
        let (linear, bytes) = split_memory(weft_core::spec::LEAST_MEMORY.max(DESCRIBED_IN));
        let spare = Spare::OneIn(LEFT_BY_JOBS);
        let request = |device| Request { device, spare, ..Request::new(tenant.owner.clone(), bytes) };
        let lease = pool.lease(request(Wish::Cpu)).or_else(|_| pool.lease(request(Wish::Auto)))?;
        let (host, owner, cancel) = (self.facilities.host.clone(), tenant.clone(), lease.cancel().clone());
        let describe = move || async move {
            let context = Context::leased(&lease, Arc::new(Crew::new(1)), TAPE_NODES);
            let setup = WorkerSetup { memory: linear, ..WorkerSetup::new(&host, &trainer, &owner, context, 0) };
            let described = Worker::describe(&setup).await;
            described.map_err(|error| JobError::Refused(format!("the trainer's `describe` failed: {error}")))
        };
        apart("describe", tenant, place, &cancel, describe).await
    }
}

/// Bytes of memory in which a trainer describes itself.
const DESCRIBED_IN: u64 = 64 << 20;

impl Jobs {
    /// Whether a job that is alive was told to end already.
    pub(crate) fn is_told_to_end(&self, job: &Job) -> bool {
        let live = self.roster.live(job.tenant, job.name.as_str());
        live.is_ok_and(|live| *live.orders.borrow() != Order::Run)
    }
}
