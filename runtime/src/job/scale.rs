//! A job's workers are to be more or fewer, or larger or smaller: checked here, made by the engine between two rounds.

use std::sync::Arc;

use weft_core::queue::{Allowed, Ask};
use weft_core::spec::{BadSpec, Shape, ShapeChange};

use super::prepare::device_and_codec;
use super::record::{Job, State};
use super::room::{check_devices, check_quota, check_shards};
use super::roster::Roster;
use super::schedule::ask_of;
use super::{JobError, Jobs};
use crate::locks::Lock;
use crate::tenant::Tenant;

/// Changes of one job that may wait to be made.
pub const MAX_CHANGES: usize = 64;

impl Job {
    /// The shape that it has once all changes up to this one are made.
    fn shape_after(&self, change: &ShapeChange) -> Shape {
        let earlier = self.changes.iter().filter(|other| other.from_epoch <= change.from_epoch);
        change.of(&after(self.shape(), earlier.copied().collect()))
    }
}

/// A shape after changes of it, in the order of their epochs; of those of one epoch, in the order that they were asked for.
pub(super) fn after(shape: Shape, mut changes: Vec<ShapeChange>) -> Shape {
    changes.sort_by_key(|change| change.from_epoch);
    changes.iter().fold(shape, |shape, change| change.of(&shape))
}

impl Jobs {
    /// Has a job go on with other workers: at the end of its round, or from an epoch on. One that does not run has them
    /// when it does.
    pub async fn scale(&self, tenant: &Tenant, name: &str, change: ShapeChange) -> Result<Arc<Job>, JobError> {
        // Nobody deletes or resumes it meanwhile.
        let _held = self.roster.hold().await;
        if tenant.is_deleted() {
            return Err(JobError::TenantDeleted);
        }
        let live = self.roster.live(tenant.id, name)?;
        let job = live.job();
        if job.state == State::Done {
            return Err(JobError::wrong(&job, "its workers are gone for good"));
        }
        let spec = job.spec.check()?;
        spec.check_change(&change)?;
        let shape = job.shape_after(&change);
        if let Some(prepared) = live.prepared() {
            spec.check_workers(&prepared.brief.sync, shape.workers)?;
            if let Some(data) = &prepared.data {
                check_shards(&spec, &shape, data)?;
            }
        }
        let most = self.facilities.rules.max_workers;
        if shape.lanes() > most {
            let problem = format!("{} are more than the node's `max_workers` of {most}", shape.lanes());
            return Err(BadSpec::new("workers", problem).into());
        }
        if let Some(global) = change.batch.or(job.spec.global_batch).filter(|_| job.spec.global_batch.is_some())
            && global < shape.lanes()
        {
            let problem = format!("{global} samples are fewer than one for each of {} functions", shape.lanes());
            return Err(BadSpec::new("batch", problem).into());
        }
        let (device, _) = device_and_codec(&spec)?;
        check_devices(tenant, &shape, device, self.facilities.devices.open().await?)?;
        check_quota(tenant, &shape, job.host.per_worker(shape.workers))?;
        if job.changes.len() >= MAX_CHANGES {
            let problem = format!("{MAX_CHANGES} changes wait to be made already");
            return Err(BadSpec::new("from_epoch", problem).into());
        }
        let scaled = Job { shape: Some(shape), ..Job::clone(&job) };
        let does_not_run = || match job.state {
            State::Stopped | State::Failed => true,
            // One that has left the queue is about to run, and one that is tried may be.
            State::Queued => self.roster.queue.locked().ask_for(ask_of(&scaled)),
            // One that waits for data may be woken at any moment: it changes when it trains again.
            State::Running | State::Waiting | State::Done => false,
        };
        let at_once = change.from_epoch.is_none() && does_not_run();
        let changed = self.roster.change(&live, |job| match at_once {
            true => {
                (job.shape, job.scaled) = (Some(shape), true);
                job.changes.retain(|other| other.from_epoch.is_some());
            }
            false => job.changes.push(change),
        });
        let changed = changed.await;
        // What waits asks for what its record says, also if that could not be written.
        self.roster.queue.locked().ask_for(ask_of(&live.job()));
        self.roster.look_through_queue();
        Ok(changed?)
    }
}

/// What a tenant may have running.
pub(super) fn allowed(tenant: &Tenant) -> Allowed {
    let quota = tenant.quota();
    Allowed { jobs: quota.jobs, lanes: quota.workers, bytes: quota.worker_memory }
}

impl Roster {
    /// Counts a running job as one of another shape, if its tenant and the node allow that.
    pub(super) fn rebook(&self, tenant: &Tenant, job: &Job, ask: &mut Ask, shape: &Shape) -> Result<(), String> {
        let bytes = shape.all_memory(job.host.per_worker(shape.workers));
        let next = Ask { lanes: shape.lanes(), bytes, ..ask.clone() };
        self.queue.locked().rebook(ask, &next, allowed(tenant))?;
        *ask = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::job;
    use super::*;

    fn change(workers: u32, from_epoch: Option<u64>) -> ShapeChange {
        ShapeChange { workers: Some(workers), from_epoch, ..ShapeChange::default() }
    }

    #[test]
    fn what_is_asked_for_last_counts_within_an_epoch_and_later_epochs_come_later() {
        let mut job = Job { shape: Some(Shape::LEAST), ..job(State::Stopped, 0) };
        job.changes = vec![change(2, Some(5)), change(8, Some(3)), change(4, None)];
        assert_eq!(after(job.shape(), job.changes.clone()).workers, 2);
        assert_eq!(job.shape_after(&change(3, None)).workers, 3);
        let memory = ShapeChange { memory: Some(1 << 30), from_epoch: Some(4), ..ShapeChange::default() };
        assert_eq!((job.shape_after(&memory).workers, job.shape_after(&memory).memory), (8, 1 << 30));
    }
}
