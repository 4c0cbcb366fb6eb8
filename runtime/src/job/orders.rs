//! What becomes of a job that is there: stopped, resumed, deleted; and a worker that is killed.

use std::sync::Arc;

use weft_core::spec::BadSpec;

use super::JobError;
use super::record::{Job, State};
use super::team::Order;
use crate::locks::Lock;
use crate::node::Node;
use crate::tenant::Tenant;

impl Node {
    /// Has a job end soon. It answers at once; what it held is free within moments.
    pub async fn stop_job(&self, tenant: &Tenant, name: &str) -> Result<Arc<Job>, JobError> {
        let live = self.jobs.live(tenant.id, name)?;
        let leaves = || self.jobs.queue.locked().remove(tenant.id, name);
        let waited = leaves() || {
            let job = live.job();
            if job.state.is_over() {
                return Err(JobError::wrong(&job, "only a job that waits or runs can be stopped"));
            }
            live.orders.send_replace(Order::Stop);
            // It may have gone back to the queue before it heard of the order.
            leaves()
        };
        match waited {
            true => {
                // What was found for it takes memory.
                *live.prepared.locked() = None;
                Ok(self.jobs.change_anyway(&live, |job| job.end(State::Stopped, "stopped while it waited")).await)
            }
            false => Ok(live.job()),
        }
    }

    /// Goes on with a job that is over, from its last checkpoint. None of its code runs before its turn has come.
    pub async fn resume_job(self: &Arc<Self>, tenant: &Arc<Tenant>, name: &str) -> Result<Arc<Job>, JobError> {
        if self.is_draining() {
            return Err(JobError::Stopping);
        }
        let live = self.jobs.live(tenant.id, name)?;
        live.find_needs(&self.blobs).await;
        let changing = self.jobs.pause().await;
        let job = live.job();
        if !matches!(job.state, State::Stopped | State::Failed) {
            return Err(JobError::wrong(&job, "only a job that was stopped or has failed can go on"));
        }
        if tenant.is_deleted() {
            return Err(JobError::TenantDeleted);
        }
        self.check_quota(tenant, &job.shape(), job.host_bytes())?;
        live.orders.send_replace(Order::Run);
        let job = self.jobs.change(&live, |job| {
            (job.state, job.reason, job.ended_ms) = (State::Queued, String::new(), None);
            job.starts += 1;
            job.forget_deaths();
            job.forget_room();
        });
        let job = job.await?;
        drop(changing);
        self.enqueue(&live, None, None);
        Ok(job)
    }

    /// Forgets a job that is over. Its models stay.
    pub async fn delete_job(&self, tenant: &Tenant, name: &str) -> Result<(), JobError> {
        let over = || -> Result<Arc<Job>, JobError> {
            let job = self.jobs.get(tenant.id, name)?;
            if job.state.is_over() { Ok(job) } else { Err(JobError::wrong(&job, "stop it first")) }
        };
        let job = over()?;
        match self.forget_job(tenant, &job).await? {
            true => Ok(()),
            false => Err(JobError::wrong(&*over()?, "it has come after the one that was to be deleted")),
        }
    }

    /// Forgets all jobs that are over, and says how many.
    pub async fn prune_jobs(&self, tenant: &Tenant) -> Result<u64, JobError> {
        let mut deleted = 0;
        for job in self.jobs.list(tenant.id).iter().filter(|job| job.state.is_over()) {
            match self.forget_job(tenant, job).await {
                Ok(forgotten) => deleted += u64::from(forgotten),
                Err(JobError::Params(error)) => {
                    // A store that is away would be waited for again and again: the rest stays, to be pruned later.
                    tracing::error!(%error, job = %job.name, "its parameters could not be deleted, and it stays");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    /// Forgets a job, unless it goes on meanwhile or a later one has its name: then it says `false`.
    async fn forget_job(&self, tenant: &Tenant, job: &Job) -> Result<bool, JobError> {
        // Before it is gone, so that none of that name that comes after it finds them; and with nobody waiting for a store
        // that may be away.
        self.bucket(tenant, Some(job.name.clone())).clear().await?;
        let _changing = self.jobs.pause().await;
        let same = self.jobs.get(tenant.id, job.name.as_str()).ok();
        let Some(job) = same.filter(|now| now.state.is_over() && now.created_ms == job.created_ms) else {
            return Ok(false);
        };
        self.jobs.remove(std::slice::from_ref(&job)).await?;
        self.logs.forget_job(tenant.id, &job.name);
        release(tenant, &job);
        Ok(true)
    }

    /// Ends a worker as if it had died; the job starts it again.
    pub async fn kill_worker(&self, tenant: &Tenant, name: &str, worker: u32) -> Result<(), JobError> {
        let live = self.jobs.live(tenant.id, name)?;
        let job = live.job();
        let workers = job.shape().workers;
        if worker >= workers {
            return Err(BadSpec::new("worker", format!("there are {workers}, counted from 0")).into());
        }
        let kills = live.kills.locked().clone();
        match kills.filter(|_| job.state == State::Running).map(|kills| kills.send(worker)) {
            Some(Ok(())) => Ok(()),
            _ => Err(JobError::wrong(&job, "only a worker of a running job can be killed")),
        }
    }
}

fn release(tenant: &Tenant, job: &Job) {
    if let Some(checkpoint) = &job.checkpoint {
        tenant.storage.release(checkpoint.size);
    }
}
