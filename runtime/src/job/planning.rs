//! What a node knows when a job is planned: prices, what was decided before, how much room there is; and what can never be
//! planned, as there is no room for it.

use weft_core::cost::Prices;
use weft_core::plan::bounds::Room;
use weft_core::plan::course::Course;
use weft_core::plan::policy::PlanSpec;
use weft_core::plan::search::Rate;
use weft_core::spec::{BadSpec, CheckedSpec, Shape};
use weft_gpu::pool::DeviceId;

use super::engine::Planning;
use super::live::Live;
use super::prepare::Found;
use super::record::Job;
use super::room::{check_devices, check_quota};
use super::scale::allowed;
use super::workshop::{LEFT_BY_JOBS, Workshop, split_memory};
use super::{JobError, Jobs};
use crate::locks::Lock;
use crate::tenant::Tenant;

/// The part of a budget that is kept for what ends a job.
const RESERVE: f64 = 0.02;

/// What a second of a function costs here, as far as that follows from its size.
fn rate(prices: &Prices, workshop: &Workshop, device: DeviceId) -> Rate {
    let device_second = match device {
        DeviceId::Gpu(_) => prices.dearest_gpu(),
        DeviceId::Cpu(_) => prices.cpu_second,
    };
    match workshop.cores_per_gib {
        // Cores are given by memory, so memory is what costs.
        cap if cap > 0.0 => {
            Rate { function_second: 0.0, gib_second: prices.gib_second + device_second * cap, fixed_second: 0.0 }
        }
        _ => Rate { function_second: device_second, gib_second: prices.gib_second, fixed_second: 0.0 },
    }
}

/// What plans a job from where it is, whose workers begin on this device. `before` is the shape that its checkpoint is of, if there is one.
pub(super) fn planning(
    job: &Job,
    workshop: &Workshop,
    prices: &Prices,
    device: DeviceId,
    before: Option<Shape>,
) -> Result<Option<Planning>, String> {
    let Some(plan) = workshop.spec().plan else { return Ok(None) };
    let shape = job.shape();
    let mut planning = match &job.plan {
        Some(record) => Planning::resume(record.as_ref().clone(), job.spent_at_most.unwrap_or_default())?,
        None => {
            let spec = PlanSpec {
                policy: plan.policy,
                bounds: plan.bounds,
                start: shape,
                rate: rate(prices, workshop, device),
                limits: plan.limits,
                reserve: RESERVE,
                seed: job.seed,
            };
            let course = Course::new(spec, plan.only).map_err(|error| error.to_string())?;
            Planning::new(course, job.spent_at_most.unwrap_or_default())
        }
    };
    // It was scaled while it did not run.
    let first = workshop.spec().first_shape(workshop.data.as_ref().map(|data| data.manifest.train.count));
    let before = before.unwrap_or(first);
    if job.scaled && before != shape {
        let workers = (before.workers != shape.workers).then_some(shape.workers);
        let memory = (before.memory != shape.memory).then_some(shape.memory);
        planning.pin(workers, memory);
    }
    Ok(Some(planning))
}

impl Jobs {
    /// Workers that a running job may have, with those that it has.
    pub(super) fn room(&self, workshop: &Workshop, live: &Live, now: &Shape) -> Room {
        let fan_out = now.fan_out.max(1);
        let booked = live.booked.locked().clone();
        let Some(ask) = booked else { return Room::ENDLESS };
        let quota = workshop.tenant.quota();
        let (own, all) = self.roster.queue.locked().may_have(&ask, allowed(&workshop.tenant));
        let by_memory = quota.worker_memory / now.memory.saturating_mul(fan_out.into()).max(1);
        let by_memory = u32::try_from(by_memory).unwrap_or(u32::MAX);
        let (_, bytes) = split_memory(now.memory);
        let room = |capacity: usize, reserved: usize| {
            let left = capacity - capacity / LEFT_BY_JOBS.get() as usize;
            left.saturating_sub(reserved) / bytes.max(1)
        };
        let free: usize = workshop.pool.ledger().devices.iter().map(|it| room(it.capacity, it.reserved)).sum();
        let free = u32::try_from(free).unwrap_or(u32::MAX) / fan_out;
        let room = (all / fan_out).min(now.workers.saturating_add(free));
        Room { quota: (own / fan_out).min(by_memory).max(1), workers: room.max(1), ..Room::ENDLESS }
    }

    /// Refuses a job whose largest workers could never run, or whose budget does not let it start.
    pub(super) fn check_largest(&self, tenant: &Tenant, shape: &Shape, found: &Found) -> Result<(), JobError> {
        let start = self.facilities.rules.prices.start * f64::from(shape.lanes());
        if let Some(budget) = found.spec.plan.and_then(|plan| plan.policy.limits(&plan.limits).cost)
            && budget <= start
        {
            let problem =
                format!("a budget of {budget} is no more than the start of its workers costs, which is {start}");
            return Err(BadSpec::new("plan", problem).into());
        }
        let Some(largest) = largest(&found.spec, shape) else { return Ok(()) };
        check_devices(tenant, &largest, found.device, &found.pool)?;
        check_quota(tenant, &largest, 0)
    }
}

/// The largest workers that a policy may choose.
fn largest(spec: &CheckedSpec, shape: &Shape) -> Option<Shape> {
    let plan = spec.plan.filter(|plan| plan.decides())?;
    Some(Shape { workers: plan.bounds.most_workers, memory: plan.bounds.most_memory, ..*shape })
}
