//! What a job cost by stage and by worker.
//!
//! Devices and memory are paid for by the second, and a worker's seconds are known by stage, so what it is charged is shared
//! out by them: memory over all its stages, a device over those in which it computes. The parts add up to the whole.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Charges, Prices};
use crate::usage::{Stages, Used};

/// Workers whose cost is told one by one. What further ones cost is told as one sum.
pub const MOST_WORKERS_TOLD: usize = 64;

/// What each stage of training cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct StageCosts {
    /// Starting workers, until they had declared their model.
    pub start: f64,
    /// Waiting for samples.
    pub data: f64,
    pub compute: f64,
    /// With putting parts and results, where workers merge.
    pub send: f64,
    /// With getting them.
    pub receive: f64,
    pub merge: f64,
    pub update: f64,
    pub validate: f64,
    /// While workers were at work, and at none of these.
    pub other: f64,
}

impl StageCosts {
    /// By name, in the order of a round.
    pub fn named(&self) -> [(&'static str, f64); 9] {
        [
            ("start", self.start),
            ("data", self.data),
            ("compute", self.compute),
            ("send", self.send),
            ("receive", self.receive),
            ("merge", self.merge),
            ("update", self.update),
            ("validate", self.validate),
            ("other", self.other),
        ]
    }

    pub fn total(&self) -> f64 {
        self.named().iter().map(|(_, cost)| cost).sum()
    }

    pub fn add(&mut self, other: &Self) {
        self.start += other.start;
        self.data += other.data;
        self.compute += other.compute;
        self.send += other.send;
        self.receive += other.receive;
        self.merge += other.merge;
        self.update += other.update;
        self.validate += other.validate;
        self.other += other.other;
    }

    /// Shares out what a worker is charged.
    fn of(used: &Used, charges: &Charges) -> Self {
        let Stages { data, compute, merge, update, validate, .. } = used.stages;
        let Stages { send, put_parts, put_results, receive, get_parts, get_results, .. } = used.stages;
        let (send, receive) = (send + put_parts + put_results, receive + get_parts + get_results);
        let computing = compute + update + validate;
        let known = computing + data + send + receive + merge;
        // Stages of functions that computed side by side may be longer than the time that passed.
        let all = used.wall.as_secs_f64().max(known);
        let part = |seconds: f64, of: f64| if of > 0.0 { seconds / of } else { 0.0 };
        let of_memory = |seconds: f64| charges.memory * part(seconds, all);
        let of_both = |seconds: f64| of_memory(seconds) + charges.device * part(seconds, computing);
        let mut costs = Self {
            start: charges.starts,
            data: of_memory(data),
            compute: of_both(compute),
            send: of_memory(send) + charges.traffic / 2.0,
            receive: of_memory(receive) + charges.traffic / 2.0,
            merge: of_memory(merge),
            update: of_both(update),
            validate: of_both(validate),
            other: 0.0,
        };
        // What is left is the rest of the memory's time, and all of a device that no stage has used. One that has only been
        // started has no stages yet.
        let left = charges.total() - costs.total();
        let rest = if used.cold_starts > 0 && known == 0.0 { &mut costs.start } else { &mut costs.other };
        *rest += left.max(0.0);
        costs
    }
}

/// What a worker cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerCost {
    /// Counted from 0; absent for all further ones together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// Seconds that it was at work.
    pub seconds: f64,
    pub device_seconds: f64,
    pub cost: f64,
}

/// What a stretch of training cost, by stage and by worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Breakdown {
    pub stages: StageCosts,
    /// By their numbers; the last may be all further ones together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerCost>,
}

impl Breakdown {
    /// Whether nothing is known of it: versions that did not write it down left it out.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Adds what a worker with so much memory used.
    pub fn spend(&mut self, worker: u32, used: &Used, memory: u64, prices: &Prices) {
        let charges = prices.charges(used, memory);
        self.stages.add(&StageCosts::of(used, &charges));
        let (seconds, device_seconds) = (used.wall.as_secs_f64(), used.device.as_secs_f64());
        self.add_worker(WorkerCost { worker: Some(worker), seconds, device_seconds, cost: charges.total() });
    }

    pub fn add(&mut self, other: &Self) {
        self.stages.add(&other.stages);
        other.workers.iter().for_each(|it| self.add_worker(*it));
    }

    fn add_worker(&mut self, more: WorkerCost) {
        let more = match more.worker {
            Some(worker) if worker as usize >= MOST_WORKERS_TOLD => WorkerCost { worker: None, ..more },
            _ => more,
        };
        // None comes last.
        let place = |it: &WorkerCost| it.worker.unwrap_or(u32::MAX);
        match self.workers.binary_search_by_key(&place(&more), place) {
            Ok(at) => {
                let known = &mut self.workers[at];
                known.seconds += more.seconds;
                known.device_seconds += more.device_seconds;
                known.cost += more.cost;
            }
            Err(at) => self.workers.insert(at, more),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn prices() -> Prices {
        Prices { cpu_second: 2.0, gib_second: 1.0, start: 0.5, gib_moved: 0.25, ..Prices::default() }
    }

    fn used(wall: u64, stages: Stages) -> Used {
        let seconds = Duration::from_secs;
        Used { stages, wall: seconds(wall), device: seconds(3), cold_starts: 1, bytes: 1 << 30, ..Used::default() }
    }

    #[test]
    fn the_parts_add_up_to_the_whole() {
        let stages = Stages { merge: 1.0, update: 1.0, validate: 1.0, ..Stages::default() };
        let stages =
            Stages { data: 1.0, compute: 4.0, send: 0.25, put_parts: 0.25, receive: 0.25, get_results: 0.25, ..stages };
        for (wall, stages) in [(10, stages), (2, stages), (0, stages), (10, Stages::default()), (0, Stages::default())]
        {
            let (used, prices) = (used(wall, stages), prices());
            let mut breakdown = Breakdown::default();
            breakdown.spend(0, &used, 1 << 30, &prices);
            let whole = prices.spending(&used, 1 << 30).cost;
            assert!((breakdown.stages.total() - whole).abs() < 1e-12, "{breakdown:?} is not {whole}");
            assert!((breakdown.workers[0].cost - whole).abs() < 1e-12);
            assert!(breakdown.stages.named().iter().all(|(_, cost)| *cost >= 0.0), "{breakdown:?}");
        }
    }

    #[test]
    fn memory_is_paid_in_every_stage_and_a_device_where_it_computes() {
        let stages = Stages { data: 2.0, compute: 4.0, update: 2.0, ..Stages::default() };
        let mut breakdown = Breakdown::default();
        breakdown.spend(0, &Used { cold_starts: 0, bytes: 0, ..used(10, stages) }, 1 << 30, &prices());
        let StageCosts { data, compute, update, other, start, .. } = breakdown.stages;
        assert_eq!((data, compute, update, other, start), (2.0, 8.0, 4.0, 2.0, 0.0));
    }

    #[test]
    fn what_a_worker_takes_before_its_first_work_is_its_start() {
        let mut breakdown = Breakdown::default();
        breakdown.spend(0, &used(10, Stages::default()), 1 << 30, &prices());
        let StageCosts { start, other, .. } = breakdown.stages;
        assert_eq!((start, other), (16.5, 0.0));
    }

    #[test]
    fn workers_are_told_one_by_one_up_to_a_limit() {
        let mut breakdown = Breakdown::default();
        for worker in [200, 3, 1, 100, 3] {
            breakdown.spend(worker, &used(1, Stages::default()), 0, &prices());
        }
        let workers: Vec<_> = breakdown.workers.iter().map(|it| (it.worker, it.seconds)).collect();
        assert_eq!(workers, [(Some(1), 1.0), (Some(3), 2.0), (None, 2.0)]);
        let mut twice = breakdown.clone();
        twice.add(&breakdown);
        assert_eq!(twice.workers.len(), 3);
        assert!((twice.stages.total() - 2.0 * breakdown.stages.total()).abs() < 1e-12);
    }
}
