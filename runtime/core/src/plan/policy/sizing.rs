//! The policies that tune memory alone.

use super::{Observation, PlanSpec, Situation, Wish, Workload};
use crate::plan::bounds::Bounds;
use crate::plan::memory::{MemoryTuner, Next, Objective, Tried};
use crate::spec::Shape;

/// Tunes memory, and begins anew when the work changes.
#[derive(Clone, Debug)]
pub struct Sizing {
    objective: Objective,
    bounds: Bounds,
    seed: u64,
    tuner: MemoryTuner,
    workload: Option<Workload>,
    /// The size that is being tried.
    trying: Option<u64>,
}

impl Sizing {
    pub fn new(objective: Objective, spec: &PlanSpec) -> Self {
        let tuner = MemoryTuner::new(objective, &spec.bounds, spec.seed);
        Self { objective, bounds: spec.bounds, seed: spec.seed, tuner, workload: None, trying: None }
    }

    pub fn tell(&mut self, observation: &Observation) {
        // Only a try of the size that was asked for is a measure, and only of the work that there is now.
        let is_tried = self.trying.take() == Some(observation.shape.memory) && observation.steps > 0;
        if is_tried && self.workload == Some(observation.workload) {
            let steps = observation.steps as f64;
            let (seconds, cost) = (observation.seconds / steps, observation.cost / steps);
            self.tuner.tell(Tried { memory: observation.shape.memory, seconds, cost });
        }
    }

    pub fn wish(&mut self, current: &Shape, situation: &Situation, bounds: &Bounds) -> Wish {
        let workers = current.workers;
        let mut changed = "";
        if self.workload != Some(situation.workload) {
            if self.workload.is_some() {
                self.seed = self.seed.wrapping_add(1);
                self.tuner = MemoryTuner::new(self.objective, &self.bounds, self.seed);
                changed = "The work has changed, so memory is tuned anew. ";
            }
            self.workload = Some(situation.workload);
        }
        let wish = |memory: u64, steps: Option<u64>, why: String| {
            let is_probe = steps.is_some();
            Wish { workers, memory, steps, is_probe, step: None, why: format!("{changed}{why}") }
        };
        match self.tuner.ask() {
            // Memory that was set by hand, or that there is no room for, is not tuned.
            Next::Try { memory, .. } if !bounds.hold(bounds.least_workers, memory) => {
                wish(current.memory, None, "Memory was set by hand: it is not tuned.".to_owned())
            }
            Next::Try { memory, iterations, why } => {
                self.trying = Some(memory);
                wish(memory, Some(iterations), why)
            }
            Next::Settled { memory, why } => wish(memory, None, why),
        }
    }
}
