//! What no room is made for, however long it waits: refused at once.

use weft_core::spec::{BadSpec, CheckedSpec, Shape};
use weft_gpu::Pool;
use weft_gpu::pool::{PoolError, Wish};

use super::prepare::Found;
use super::record::Job;
use super::workshop::{JobData, LEFT_BY_JOBS, Wanted, split_memory};
use super::{JobError, Jobs};
use crate::dataset::shard::Plan as ShardPlan;
use crate::devices::is_busy;
use crate::tenant::Tenant;

impl Jobs {
    /// Refuses a job that could never run.
    pub(super) fn check_room(&self, tenant: &Tenant, job: &Job, found: &Found) -> Result<(), JobError> {
        let shape = job.shape();
        let (lanes, most) = (shape.lanes(), self.facilities.rules.max_workers);
        if lanes > most {
            let problem = format!("{lanes} are more than the node's `max_workers` of {most}");
            return Err(BadSpec::new("workers", problem).into());
        }
        check_devices(tenant, &shape, found.device, &found.pool)?;
        check_quota(tenant, &shape, 0)?;
        self.check_largest(tenant, &shape, found)
    }
}

/// Refuses a job that its tenant's quota never lets run.
pub(super) fn check_quota(tenant: &Tenant, shape: &Shape, host_bytes: u64) -> Result<(), JobError> {
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

/// Refuses workers that no device has room for, even when it is empty; what is only taken now comes back.
pub(super) fn check_devices(tenant: &Tenant, shape: &Shape, device: Wish, pool: &Pool) -> Result<(), JobError> {
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
