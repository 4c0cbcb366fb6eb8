//! What one may choose between, of all that a planner was told.

use std::collections::BTreeMap;

use crate::plan::aim::Aim;
use crate::plan::points::{Point, Recommendation, pareto, recommend};
use crate::plan::policy::{Event, Planner, Policy, Workload};
use crate::plan::search::{Probe, Rest, Search, Size};

/// Shapes of which it is reckoned with what they took.
const MOST_SHAPES: usize = 32;

/// The settings of which no other is better, for a whole job of so many steps, and which of them to take.
pub fn of(planner: &Planner, workload: &Workload, steps: u64, most: usize) -> (Vec<Point>, Option<Recommendation>) {
    let aim = match planner.spec().policy {
        Policy::Manual => return (Vec::new(), None),
        Policy::Cheapest | Policy::CheapestWithin(_) | Policy::FengCost | Policy::FengRatio => Aim::Cheapest,
        Policy::Fastest | Policy::FastestWithin(_) | Policy::Elastic | Policy::Best => Aim::Fastest,
    };
    let rest = Rest { iterations: steps.max(1), limits: *planner.limits() };
    let points = match planner.search() {
        Some(search) => search.points(&rest),
        None => seen(planner, workload).points(&rest),
    };
    let mut points = pareto(&points);
    points.truncate(most);
    let recommendation = recommend(&points, aim, planner.limits());
    (points, recommendation)
}

/// What a policy has seen that does not search.
fn seen(planner: &Planner, workload: &Workload) -> Search {
    let spec = planner.spec();
    let size = |workers: u32, memory: u64| Size { workers, memory };
    let mut sums: BTreeMap<Size, (u64, f64, f64)> = BTreeMap::new();
    for event in planner.record() {
        let Event::Told(told) = event else { continue };
        if told.workload != *workload || told.steps == 0 {
            continue;
        }
        let at = size(told.shape.workers, told.shape.memory);
        if sums.len() >= MOST_SHAPES && !sums.contains_key(&at) {
            continue;
        }
        let sum = sums.entry(at).or_default();
        *sum = (sum.0 + told.steps, sum.1 + told.seconds, sum.2 + told.cost);
    }
    let start = size(spec.start.workers, spec.start.memory);
    let mut search = Search::new(&spec.bounds, spec.rate, spec.start.fan_out, start, spec.seed);
    for (size, (iterations, seconds, cost)) in sums {
        let steps = iterations as f64;
        search.tell(Probe { size, iterations, seconds: seconds / steps, cost: cost / steps });
    }
    search
}
