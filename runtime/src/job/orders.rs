//! What becomes of a job that is there: stopped, resumed, deleted; and a worker that is killed.

use std::sync::Arc;

use super::JobError;
use super::record::{Job, State};
use super::spec::BadSpec;
use super::team::Order;
use crate::locks::Lock;
use crate::node::Node;
use crate::tenant::Tenant;

impl Node {
    /// Has a job end soon. It answers at once; what it held is free within moments.
    pub async fn stop_job(&self, tenant: &Tenant, name: &str) -> Result<Arc<Job>, JobError> {
        let live = self.jobs.live(tenant.id, name)?;
        let waited = self.jobs.queue.locked().remove(tenant.id, name);
        if waited {
            return Ok(self.jobs.change(&live, |job| job.end(State::Stopped, "stopped while it waited")).await?);
        }
        let job = live.job();
        if job.state.is_over() {
            return Err(JobError::wrong(&job, "only a job that waits or runs can be stopped"));
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
            return Err(JobError::wrong(&job, "only a job that was stopped or has failed can go on"));
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
            return Err(JobError::wrong(&job, "stop it first"));
        }
        self.jobs.remove(std::slice::from_ref(&job)).await?;
        self.logs.forget_job(tenant.id, &job.name);
        self.forget_job_params(tenant, &job.name).await;
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
            self.forget_job_params(tenant, &job.name).await;
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
            _ => Err(JobError::wrong(&job, "only a worker of a running job can be killed")),
        }
    }
}

fn release(tenant: &Tenant, job: &Job) {
    if let Some(checkpoint) = &job.checkpoint {
        tenant.storage.release(checkpoint.size);
    }
}
