//! One planner for every policy: it is told what training took, and asked what to do next.
//!
//! - Whoever trains asks, trains a stretch as the [`Decision`] says, tells what that took, and asks again.
//! - What was asked and told is the [`record`](Planner::record). Told again in the same order, it brings a planner back
//!   that died, and its next decisions are those that the first one would have made.
//! - A budget is hard. A stretch is begun only if it is expected to fit, and [`Decision::allowance`] is what it may cost at
//!   most: whoever trains ends it there, at the last step before. Part of the budget is kept for the checkpoint that follows.
//! - What people set by hand stays: see [`Planner::pin`].
//! - Tries are real training. They are counted apart, and there are none beyond a twentieth of the whole job.

use serde::{Deserialize, Serialize};

use super::aim::{Aim, Limits};
use super::bounds::{BadBounds, Bounds, Room};
use super::elastic::{Climb, Elastic};
use super::memory::Objective;
use super::search::Rate;
use super::words::money;
use crate::spec::Shape;

mod decision;
mod searching;
mod sizing;
mod word;

pub use decision::{Action, Decision, Event, Expected, Kept, Observation, Situation, Spent, Workload, history};
pub use word::{BadPolicy, Policy};

use searching::Searching;
use sizing::Sizing;

/// Steps of the first stretch if there is a budget: what they cost is not known before.
const FIRST_STEPS: u64 = 10;
/// A stretch must fit into what is left even if it costs so many times what is expected.
const MARGIN: f64 = 1.1;

/// What a planner is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    pub policy: Policy,
    pub bounds: Bounds,
    /// The shape that the job begins with.
    pub start: Shape,
    /// What a second costs.
    pub rate: Rate,
    /// Limits of the whole job, with those that the policy has in its name. The one on cost is hard.
    #[serde(default)]
    pub limits: Limits,
    /// The part of the budget that is kept for the last checkpoint.
    #[serde(default = "reserve")]
    pub reserve: f64,
    pub seed: u64,
}

fn reserve() -> f64 {
    0.02
}

/// Why there can be no planner.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadPlan {
    #[error(transparent)]
    Bounds(#[from] BadBounds),
    #[error("a limit of {0} cannot be kept: it is to be a number above 0")]
    Limit(f64),
    #[error("{0} of the budget cannot be kept back: it is to be a number from 0 to 0.5")]
    Reserve(f64),
    #[error("the price of a second cannot be {0}: it is to be a number that is not negative")]
    Rate(f64),
    #[error(
        "decision {at} of the record was `{was}`, but would be `{is}` now: it was made by another version, or for another job"
    )]
    Differs { at: usize, was: String, is: String },
}

/// Decides about one job.
#[derive(Clone, Debug)]
pub struct Planner {
    spec: PlanSpec,
    limits: Limits,
    mind: Mind,
    /// The shape that the job has, as far as is known.
    current: Shape,
    pinned_workers: Option<u32>,
    pinned_memory: Option<u64>,
    last: Option<Observation>,
    /// The training time of the epoch so far.
    epoch: f64,
    /// An epoch that ended and was not decided about: its workers and its time.
    ended: Option<(u32, f64)>,
    is_probing: bool,
    spent: Spent,
    record: Vec<Event>,
}

/// What a policy thinks with.
#[derive(Clone, Debug)]
enum Mind {
    Manual,
    Elastic(Elastic),
    Climb(Climb),
    Sizing(Box<Sizing>),
    Searching(Box<Searching>),
}

/// What a policy would like to do, before bounds and budget are looked at.
struct Wish {
    workers: u32,
    memory: u64,
    steps: Option<u64>,
    is_probe: bool,
    /// Seconds and cost of one step.
    step: Option<(f64, f64)>,
    why: String,
}

impl Planner {
    pub fn new(spec: PlanSpec) -> Result<Self, BadPlan> {
        spec.bounds.check()?;
        let limits = spec.policy.limits(&spec.limits);
        for limit in [limits.seconds, limits.cost].into_iter().flatten() {
            if !(limit.is_finite() && limit > 0.0) {
                return Err(BadPlan::Limit(limit));
            }
        }
        if !(0.0..=0.5).contains(&spec.reserve) {
            return Err(BadPlan::Reserve(spec.reserve));
        }
        let rates = [spec.rate.function_second, spec.rate.gib_second, spec.rate.fixed_second];
        if let Some(wrong) = rates.into_iter().find(|it| !(it.is_finite() && *it >= 0.0)) {
            return Err(BadPlan::Rate(wrong));
        }
        let mind = match spec.policy {
            Policy::Manual => Mind::Manual,
            Policy::Elastic => Mind::Elastic(Elastic::default()),
            Policy::Best => Mind::Climb(Climb::default()),
            Policy::FengCost => Mind::Sizing(Box::new(Sizing::new(Objective::Cost, &spec))),
            Policy::FengRatio => Mind::Sizing(Box::new(Sizing::new(Objective::Ratio, &spec))),
            Policy::Cheapest | Policy::CheapestWithin(_) => {
                Mind::Searching(Box::new(Searching::new(Aim::Cheapest, &spec)))
            }
            Policy::Fastest | Policy::FastestWithin(_) => {
                Mind::Searching(Box::new(Searching::new(Aim::Fastest, &spec)))
            }
        };
        Ok(Self {
            current: spec.start,
            limits,
            mind,
            pinned_workers: None,
            pinned_memory: None,
            last: None,
            epoch: 0.0,
            ended: None,
            is_probing: false,
            spent: Spent::default(),
            record: Vec::new(),
            spec,
        })
    }

    /// The planner that wrote a record.
    pub fn replay(spec: PlanSpec, record: &[Event]) -> Result<Self, BadPlan> {
        let mut planner = Self::new(spec)?;
        for (at, event) in record.iter().enumerate() {
            match event {
                Event::Told(observation) => planner.tell(observation),
                Event::Lost { seconds, cost } => planner.lose(*seconds, *cost),
                Event::Pinned { workers, memory } => planner.pin(*workers, *memory),
                Event::Asked { situation, decision } => {
                    let again = planner.ask(situation);
                    if again != *decision {
                        let (was, is) = (decision.why.clone(), again.why);
                        return Err(BadPlan::Differs { at, was, is });
                    }
                }
            }
        }
        Ok(planner)
    }

    /// What was told, set by hand and asked, with the answers.
    pub fn record(&self) -> &[Event] {
        &self.record
    }

    /// What all of it took so far, with that of tries.
    pub fn spent(&self) -> &Spent {
        &self.spent
    }

    /// What it is to do.
    pub fn spec(&self) -> &PlanSpec {
        &self.spec
    }

    /// The limits of the whole job, with those of the policy.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What is known about shapes, if this policy searches: for a table of what one may choose between.
    pub fn search(&self) -> Option<&super::search::Search> {
        match &self.mind {
            Mind::Searching(searching) => Some(searching.search()),
            _ => None,
        }
    }

    /// From now on this is set by hand, and no decision changes it; None leaves it to the policy again.
    pub fn pin(&mut self, workers: Option<u32>, memory: Option<u64>) {
        self.pinned_workers = workers;
        self.pinned_memory = memory;
        self.record.push(Event::Pinned { workers, memory });
    }

    /// So much was used for work that is done again. It is gone, and says nothing about any shape.
    pub fn lose(&mut self, seconds: f64, cost: f64) {
        self.spent.seconds += sound(seconds);
        self.spent.cost += sound(cost);
        self.record.push(Event::Lost { seconds, cost });
    }

    /// What the stretch took that the last decision led to.
    pub fn tell(&mut self, observation: &Observation) {
        let (elapsed, cost) = (sound(observation.elapsed).max(sound(observation.seconds)), sound(observation.cost));
        self.spent.seconds += elapsed;
        self.spent.cost += cost;
        if self.is_probing {
            self.spent.probing_seconds += elapsed;
            self.spent.probing_cost += cost;
            self.spent.probes += 1;
        }
        self.current = observation.shape;
        self.epoch += sound(observation.seconds);
        if observation.ends_epoch {
            self.ended = Some((observation.shape.workers, std::mem::take(&mut self.epoch)));
        }
        match &mut self.mind {
            Mind::Sizing(sizing) => sizing.tell(observation),
            Mind::Searching(searching) => searching.tell(observation, self.is_probing),
            Mind::Manual | Mind::Elastic(_) | Mind::Climb(_) => {}
        }
        self.is_probing = false;
        if observation.steps > 0 && sound(observation.seconds) > 0.0 && observation.cost.is_finite() {
            self.last = Some(*observation);
        }
        self.record.push(Event::Told(*observation));
    }

    /// What to do next.
    pub fn ask(&mut self, situation: &Situation) -> Decision {
        let decision = self.decide(situation);
        self.is_probing = decision.is_probe;
        if let Action::Reshape(shape) = decision.action {
            self.current = shape;
        }
        self.record.push(Event::Asked { situation: *situation, decision: decision.clone() });
        decision
    }

    fn decide(&mut self, situation: &Situation) -> Decision {
        let bounds = self.bounds(situation.room);
        let rest = self.rest();
        if rest.cost.is_some_and(|it| it <= 0.0) {
            return Decision::stop(format!(
                "The budget is used up: {} of it were spent, and {} are kept for the checkpoint.",
                money(self.spent.cost),
                money(self.reserve())
            ));
        }
        let wish = self.wish(situation, &bounds, rest);
        let shape = Shape {
            workers: bounds.workers(wish.workers),
            memory: wish.memory.clamp(bounds.least_memory, bounds.most_memory),
            ..self.current
        };
        let step = if (shape.workers, shape.memory) == (wish.workers, wish.memory) { wish.step } else { None };
        let step = step.or_else(|| self.step_at_most(&shape));
        let Some((steps, limited)) = fitting(wish.steps, step, rest.cost) else {
            let (_, cost) = step.unwrap_or_default();
            let (left, of) = (money(rest.cost.unwrap_or_default()), money(self.limits.cost.unwrap_or_default()));
            return Decision::stop(format!(
                "One more step is expected to cost {}, and of the budget of {of} only {left} are left.",
                money(cost)
            ));
        };
        let left = situation.left as f64;
        let expected = step.map(|(seconds, cost)| Expected {
            step_seconds: seconds,
            step_cost: cost,
            seconds: seconds * left,
            cost: cost * left,
        });
        let is_same = (shape.workers, shape.memory) == (self.current.workers, self.current.memory);
        let mut why = wish.why;
        if limited {
            why.push_str(&format!(
                " What is left of the budget is enough for at most {} steps.",
                steps.unwrap_or_default()
            ));
        }
        Decision {
            action: if is_same { Action::Keep } else { Action::Reshape(shape) },
            steps,
            allowance: rest.cost,
            expected,
            is_probe: wish.is_probe,
            why,
        }
    }

    /// What the policy would like.
    fn wish(&mut self, situation: &Situation, bounds: &Bounds, rest: Limits) -> Wish {
        let Shape { workers, memory, .. } = self.current;
        let stay = |why: &str| Wish { workers, memory, steps: None, is_probe: false, step: None, why: why.to_owned() };
        match &mut self.mind {
            Mind::Manual => match (self.pinned_workers, self.pinned_memory) {
                (None, None) => stay("The policy is manual: the shape stays until someone changes it."),
                _ => stay("The shape was set by hand."),
            },
            Mind::Elastic(rule) => match self.ended.take() {
                Some((workers, seconds)) => {
                    let step = rule.step(workers, seconds, bounds);
                    Wish { workers: step.workers, ..stay(&step.why) }
                }
                None => stay("The number of workers is decided when an epoch has ended."),
            },
            Mind::Climb(climb) => match self.ended.take() {
                Some((workers, seconds)) => {
                    let step = climb.step(workers, seconds, bounds);
                    Wish { workers: step.workers, ..stay(&step.why) }
                }
                None => stay("The number of workers is decided when an epoch has ended."),
            },
            Mind::Sizing(sizing) => sizing.wish(&self.current, situation, bounds),
            Mind::Searching(searching) => searching.wish(&self.current, situation, bounds, rest, &self.spent),
        }
    }

    /// What no decision may leave now. What was set by hand is stronger than the policy's own bounds, but not than the room.
    fn bounds(&self, room: Room) -> Bounds {
        let within = self.spec.bounds.within(room);
        let mut bounds = within;
        if let Some(workers) = self.pinned_workers {
            let most = room.quota.min(room.workers).max(1);
            let workers = workers.clamp(1, most);
            (bounds.least_workers, bounds.most_workers) = (workers, workers);
        }
        if let Some(memory) = self.pinned_memory {
            (bounds.least_memory, bounds.most_memory) = (memory, memory);
        }
        bounds
    }

    fn reserve(&self) -> f64 {
        self.limits.cost.map_or(0.0, |it| it * self.spec.reserve)
    }

    /// What may still be used: of the budget, without what is kept for the checkpoint.
    pub fn rest(&self) -> Limits {
        Limits {
            seconds: self.limits.seconds.map(|it| it - self.spent.seconds),
            cost: self.limits.cost.map(|it| it - self.reserve() - self.spent.cost),
        }
    }

    /// Seconds and cost of a step with a shape, as if nothing were gained by more of it.
    fn step_at_most(&self, shape: &Shape) -> Option<(f64, f64)> {
        let last = self.last?;
        let steps = last.steps as f64;
        let second = |it: &Shape| self.spec.rate.second(f64::from(it.lanes()), it.memory);
        let cheaper = (second(shape) / second(&last.shape)).max(1.0);
        let fewer = (f64::from(last.shape.workers) / f64::from(shape.workers)).max(1.0);
        let smaller = (last.shape.memory as f64 / shape.memory as f64).max(1.0);
        let slower = fewer * smaller;
        Some((
            last.seconds / steps * slower,
            last.cost / steps * cheaper.max(slower * second(shape) / second(&last.shape)),
        ))
    }
}

/// What is no amount is none.
fn sound(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 { value } else { 0.0 }
}

/// How many steps are sure to fit into what may be spent, and whether that is fewer than was wished; None if not even one.
fn fitting(wished: Option<u64>, step: Option<(f64, f64)>, left: Option<f64>) -> Option<(Option<u64>, bool)> {
    let Some(left) = left else { return Some((wished, false)) };
    let Some((_, cost)) = step.filter(|(_, cost)| *cost > 0.0) else {
        return Some((Some(wished.unwrap_or(u64::MAX).min(FIRST_STEPS)), false));
    };
    let most = (left / (cost * MARGIN)).floor();
    match wished {
        _ if most < 1.0 => None,
        Some(wished) if wished as f64 <= most => Some((Some(wished), false)),
        // Whether an epoch is longer than that is not known here; more steps than a job can have are no limit.
        None if most >= f64::from(u32::MAX) => Some((None, false)),
        _ => Some((Some(most as u64), true)),
    }
}

#[cfg(test)]
mod tests;
