//! What becomes of a job that is there: stopped, resumed, deleted; and a worker that is killed.

use std::sync::Arc;

use weft_core::spec::BadSpec;

use super::live::Live;
use super::record::{Job, State};
use super::room::check_quota;
use super::team::Order;
use super::{JobError, Jobs};
use crate::locks::Lock;
use crate::params::Bucket;
use crate::tenant::Tenant;

impl Jobs {
    /// Has a job end soon. It answers at once; what it held is free within moments.
    pub async fn stop(&self, tenant: &Tenant, name: &str) -> Result<Arc<Job>, JobError> {
        let live = self.roster.live(tenant.id, name)?;
        let leaves = || self.roster.queue.locked().remove(tenant.id, name);
        let waited = leaves() || {
            let job = live.job();
            if job.state.is_over() {
                return Err(JobError::wrong(&job, "only a job that waits or runs can be stopped"));
            }
            live.orders.send_replace(Order::Stop);
            // It may have gone back to the queue before it heard of the order.
            leaves()
        };
        let reason = "stopped while it waited";
        Ok(match waited {
            true => self.roster.change_anyway(&live, |job| job.end(State::Stopped, reason)).await,
            // Perhaps nobody has it who would hear of the order: it waits for data.
            false => self.roster.change_anyway(&live, |job| job.end_wait(State::Stopped, reason)).await,
        })
    }

    /// Goes on with a job that is over, from its last checkpoint. None of its code runs before its turn has come.
    ///
    /// It goes on up to an epoch, at which it rests again, or to its end.
    pub async fn resume_until(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        name: &str,
        until: Option<u64>,
    ) -> Result<Arc<Job>, JobError> {
        if self.is_stopping() {
            return Err(JobError::Stopping);
        }
        let live = self.roster.live(tenant.id, name)?;
        can_go_on(&live.job())?;
        if until == Some(0) {
            return Err(BadSpec::new("until", "0 epochs are none: use at least 1").into());
        }
        self.find_needs(tenant, &live).await?;
        let resumed = self.resume_found(tenant, &live, until).await;
        if resumed.is_err() && live.job().state.is_over() {
            live.forget_needs();
        }
        resumed
    }

    /// Reads which blocks a job reads, at its tenant's expense.
    async fn find_needs(&self, tenant: &Tenant, live: &Live) -> Result<(), JobError> {
        let job = live.job();
        let Some(digest) = job.data else { return Ok(()) };
        let place = self.facilities.places.opening(tenant).await?;
        let Ok(size) = self.facilities.blobs.size(&digest).await else { return Ok(()) };
        // One that cannot be read is told when the job is about to go on.
        if let Ok(read) = self.facilities.catalog.read_manifest(tenant, &digest, size, Some(place)).await {
            live.need(job.version, Some((&read.manifest, digest)));
        }
        Ok(())
    }

    async fn resume_found(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        live: &Arc<Live>,
        until: Option<u64>,
    ) -> Result<Arc<Job>, JobError> {
        let changing = self.roster.pause().await;
        let job = live.job();
        can_go_on(&job)?;
        if live.is_leaving() {
            return Err(JobError::wrong(&job, "it is being deleted"));
        }
        if tenant.is_deleted() {
            return Err(JobError::TenantDeleted);
        }
        check_quota(tenant, &job.shape(), job.host_bytes())?;
        self.check_followers(tenant, job.spec.follow.as_ref())?;
        live.orders.send_replace(Order::Run);
        let job = self.roster.change(live, |job| {
            (job.state, job.reason, job.ended_ms) = (State::Queued, String::new(), None);
            job.until = until;
            if let Some(trial) = &mut job.trial {
                trial.held = false;
            }
            job.starts += 1;
            job.forget_deaths();
            job.forget_room();
        });
        let job = job.await?;
        drop(changing);
        self.roster.enqueue(live, None, None);
        Ok(job)
    }

    /// Forgets a job that is over. Its models stay.
    pub async fn delete(&self, tenant: &Tenant, name: &str) -> Result<(), JobError> {
        let over = || -> Result<Arc<Job>, JobError> {
            let job = self.roster.get(tenant.id, name)?;
            if job.state.is_over() { Ok(job) } else { Err(JobError::wrong(&job, "stop it first")) }
        };
        let job = over()?;
        match self.forget(tenant, &job).await? {
            true => Ok(()),
            false => Err(JobError::wrong(&*over()?, "it has come after the one that was to be deleted")),
        }
    }

    /// Forgets all jobs that are over, and says how many. Trials go with their studies.
    pub async fn prune(&self, tenant: &Tenant) -> Result<u64, JobError> {
        let mut deleted = 0;
        for job in self.roster.list(tenant.id).iter().filter(|job| job.state.is_over() && job.trial.is_none()) {
            match self.forget(tenant, job).await {
                Ok(forgotten) => deleted += u64::from(forgotten),
                // Somebody else deletes it just now.
                Err(JobError::Wrong { .. }) => {}
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
    async fn forget(&self, tenant: &Tenant, job: &Job) -> Result<bool, JobError> {
        let leaving = {
            let _changing = self.roster.pause().await;
            let same = self.roster.live(tenant.id, job.name.as_str()).ok();
            let is_same = |live: &Arc<Live>| {
                let now = live.job();
                now.state.is_over() && now.created_ms == job.created_ms
            };
            let Some(live) = same.filter(is_same) else { return Ok(false) };
            // From here on nobody resumes it: its values would be deleted under it.
            live.leave().ok_or_else(|| JobError::wrong(job, "it is being deleted already"))?
        };
        // Before it is gone, so that none of that name that comes after it finds them; and with nobody waiting for a store
        // that may be away.
        Bucket::of(self.facilities.params.clone(), tenant, Some(job.name.clone())).clear().await?;
        let _changing = self.roster.pause().await;
        // It may have gone with its tenant.
        if !self.roster.is_shown(leaving.live()) {
            return Ok(false);
        }
        let job = leaving.live().job();
        self.roster.remove(std::slice::from_ref(&job)).await?;
        leaving.has_left();
        self.facilities.logs.forget_job(tenant.id, &job.name);
        release(tenant, &job);
        Ok(true)
    }

    /// Ends a worker as if it had died; the job starts it again.
    pub async fn kill_worker(&self, tenant: &Tenant, name: &str, worker: u32) -> Result<(), JobError> {
        let live = self.roster.live(tenant.id, name)?;
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

fn can_go_on(job: &Job) -> Result<(), JobError> {
    match job.state {
        State::Stopped | State::Failed => Ok(()),
        _ => Err(JobError::wrong(job, "only a job that was stopped or has failed can go on")),
    }
}

fn release(tenant: &Tenant, job: &Job) {
    if let Some(checkpoint) = &job.checkpoint {
        tenant.storage.release(checkpoint.size);
    }
}
