//! A job on its course: a planner, and the stretch of training that its last decision led to.
//!
//! Whoever trains a job asks before each round whether something is to be decided, and how much the round may take. What is
//! to be known of it all after a crash is a [`CourseRecord`]; it belongs to one checkpoint and is kept with that. Work that
//! was done after that checkpoint is done again, but it was paid: see [`Course::lose`].

use serde::{Deserialize, Serialize};

use super::bounds::Room;
use super::points::{Point, Recommendation};
use super::policy::{
    Action, BadPlan, Decision, Event, Kept, Observation, PlanSpec, Planner, Policy, Situation, Spent, Workload, history,
};
use super::words::{money, spoken};
use crate::spec::Shape;

mod fits;
mod table;

pub use fits::{Fits, Pace, fits};

/// Events of a planner that are kept, and decisions from before those.
pub const MOST_EVENTS: usize = 512;
const MOST_EARLIER: usize = 128;
/// Settings that one may choose between, in what is kept.
const MOST_POINTS: usize = 64;

/// What a stretch has taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Used {
    pub steps: u64,
    /// Of training these.
    pub seconds: f64,
    /// All that passed, with validation, starts and checkpoints.
    pub elapsed: f64,
    pub cost: f64,
}

/// What is to be known of a course after a crash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CourseRecord {
    pub spec: PlanSpec,
    /// The shape that the job began with.
    pub start: Shape,
    /// Whether the job is only about finding out what shapes take.
    #[serde(default)]
    pub only: bool,
    pub events: Vec<Event>,
    /// What the stretch had taken that was under way.
    #[serde(default)]
    pub begun: Used,
    pub spent: Spent,
    /// Memory below which the job could not be trained.
    #[serde(default)]
    pub least_memory: u64,
    /// Steps that were left when something was last decided.
    pub left: u64,
    #[serde(default)]
    pub is_settled: bool,
    /// Decisions from before the events, and how many there are besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Kept>,
    #[serde(default)]
    pub forgotten: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<Point>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<Recommendation>,
}

impl CourseRecord {
    /// All decisions that are kept, the oldest first, with what came of them.
    pub fn decisions(&self) -> Vec<Kept> {
        let mut decisions = self.earlier.clone();
        decisions.extend(history(&self.events));
        decisions
    }

    /// What was used, with the stretch that is under way.
    pub fn spent(&self) -> Spent {
        let Used { elapsed, cost, .. } = self.begun;
        Spent { seconds: self.spent.seconds + elapsed, cost: self.spent.cost + cost, ..self.spent }
    }
}

/// What follows from a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    GoOn,
    /// With workers of this shape.
    Reshape(Shape),
    /// The job is over, for this reason.
    End(String),
}

/// How things stand when something is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    pub room: Room,
    pub workload: Workload,
    /// Steps that are left, and those of the whole job.
    pub left: u64,
    pub all: u64,
}

/// A planner, and what its last decision led to.
#[derive(Clone, Debug)]
pub struct Course {
    planner: Planner,
    start: Shape,
    only: bool,
    /// The decision that is carried out.
    pending: Option<Decision>,
    has_tried: bool,
    is_settled: bool,
    least_memory: u64,
    left: u64,
    earlier: Vec<Kept>,
    forgotten: u64,
    points: Vec<Point>,
    recommendation: Option<Recommendation>,
}

impl Course {
    pub fn new(spec: PlanSpec, only: bool) -> Result<Self, BadPlan> {
        let start = spec.start;
        let planner = Planner::new(spec)?;
        Ok(Self {
            planner,
            start,
            only,
            pending: None,
            has_tried: false,
            is_settled: false,
            least_memory: 0,
            left: 0,
            earlier: Vec::new(),
            forgotten: 0,
            points: Vec::new(),
            recommendation: None,
        })
    }

    /// The course that a record is of. A record of a version that decided otherwise is not followed: it begins anew, with
    /// what was spent.
    pub fn resume(record: CourseRecord) -> Result<Self, BadPlan> {
        let CourseRecord { spec, only, events, spent, least_memory, left, is_settled, earlier, forgotten, .. } = record;
        let mut course = Self {
            start: record.start,
            is_settled,
            least_memory,
            left,
            earlier,
            forgotten,
            points: record.points,
            recommendation: record.recommendation,
            ..Self::new(spec.clone(), only)?
        };
        match Planner::replay(spec, &events) {
            Ok(planner) => {
                course.planner = planner;
                course.has_tried =
                    events.iter().any(|event| matches!(event, Event::Asked { decision, .. } if decision.is_probe));
                course.pending = pending(&events);
            }
            Err(_) => {
                course.forget(&events);
                course.planner.lose(spent.seconds, spent.cost);
            }
        }
        Ok(course)
    }

    /// What is to be kept, with what the stretch has taken that is under way.
    pub fn record(&self, begun: Used) -> CourseRecord {
        CourseRecord {
            spec: self.planner.spec().clone(),
            start: self.start,
            only: self.only,
            events: self.planner.record().to_vec(),
            begun,
            spent: *self.planner.spent(),
            least_memory: self.least_memory,
            left: self.left,
            is_settled: self.is_settled,
            earlier: self.earlier.clone(),
            forgotten: self.forgotten,
            points: self.points.clone(),
            recommendation: self.recommendation.clone(),
        }
    }

    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Whether the job is only about finding out.
    pub fn is_only(&self) -> bool {
        self.only
    }

    /// The decision that is carried out.
    pub fn pending(&self) -> Option<&Decision> {
        self.pending.as_ref()
    }

    /// What follows from the decision that is carried out, for a job that has this shape.
    pub fn order(&self, now: &Shape) -> Order {
        if self.only && self.is_settled {
            return Order::End(self.settled());
        }
        match &self.pending {
            Some(Decision { action: Action::Stop, why, .. }) => Order::End(self.used_up(why)),
            Some(Decision { action: Action::Reshape(shape), .. }) if shape != now => Order::Reshape(*shape),
            _ => Order::GoOn,
        }
    }

    /// Whether something is to be decided after so many steps of the stretch.
    pub fn is_due(&self, done: u64) -> bool {
        self.pending.as_ref().is_none_or(|decision| decision.steps.is_some_and(|steps| done >= steps))
    }

    /// Steps of the stretch before something is to be decided.
    pub fn steps(&self) -> Option<u64> {
        self.pending.as_ref()?.steps
    }

    /// Whether the decision that is carried out is a try.
    pub fn is_trying(&self) -> bool {
        self.pending.as_ref().is_some_and(|decision| decision.is_probe)
    }

    /// What may still be paid beside what the stretch has cost.
    pub fn allowance(&self, used: &Used) -> Option<f64> {
        self.planner.rest().cost.map(|rest| rest - used.cost)
    }

    /// So much was paid for work that is done again.
    pub fn lose(&mut self, seconds: f64, cost: f64) {
        self.planner.lose(seconds, cost);
    }

    /// The job could not be trained with so much memory: from now on there is more.
    pub fn cannot_train_with(&mut self, memory: u64) {
        let step = self.planner.spec().bounds.memory_step;
        self.least_memory = self.least_memory.max(memory.saturating_add(step));
    }

    /// What someone has set by hand.
    fn pinned(&self) -> (Option<u32>, Option<u64>) {
        pinned(self.planner.record())
    }

    /// Whether this was set by hand already, or there is nothing to set.
    pub fn is_pinned(&self, workers: Option<u32>, memory: Option<u64>) -> bool {
        let (before_workers, before_memory) = self.pinned();
        workers.is_none_or(|it| before_workers == Some(it)) && memory.is_none_or(|it| before_memory == Some(it))
    }

    /// Someone has set this by hand: it stays, and what was decided before does not.
    pub fn pin(&mut self, workers: Option<u32>, memory: Option<u64>) {
        if !self.is_pinned(workers, memory) {
            let before = self.pinned();
            self.planner.pin(workers.or(before.0), memory.or(before.1));
            self.pending = None;
        }
    }

    /// The stretch is over.
    pub fn tell(&mut self, shape: Shape, workload: Workload, used: Used, ends_epoch: bool) {
        let Used { steps, seconds, elapsed, cost } = used;
        self.pending = None;
        self.planner.tell(&Observation { shape, workload, steps, seconds, elapsed, cost, ends_epoch });
    }

    /// Decides what comes next.
    pub fn ask(&mut self, standing: &Standing, now: &Shape) -> Order {
        if self.planner.record().len() >= MOST_EVENTS {
            self.begin_anew(now);
        }
        let Standing { room, workload, left, all } = *standing;
        let room = Room { least_memory: room.least_memory.max(self.least_memory), ..room };
        let decision = self.planner.ask(&Situation { room, workload, left });
        self.left = left;
        self.is_settled = !decision.is_probe && (self.has_tried || self.is_settled);
        self.has_tried |= decision.is_probe;
        self.pending = Some(decision);
        (self.points, self.recommendation) = table::of(&self.planner, &workload, all, MOST_POINTS);
        self.order(now)
    }

    /// The record is full: another one begins, with what was spent. Rules that follow from one epoch to the next go on;
    /// others have settled by then, and the shape stays.
    fn begin_anew(&mut self, now: &Shape) {
        let events = self.planner.record().to_vec();
        self.forget(&events);
        let before = self.planner.spec().clone();
        let policy = match before.policy {
            rule @ (Policy::Elastic | Policy::Best) => rule,
            _ => Policy::Manual,
        };
        let (limits, spent) = (*self.planner.limits(), *self.planner.spent());
        let (workers, memory) = pinned(&events);
        if let Ok(planner) = Planner::new(PlanSpec { policy, limits, start: *now, ..before }) {
            self.planner = planner;
            self.planner.lose(spent.seconds, spent.cost);
            if workers.is_some() || memory.is_some() {
                self.planner.pin(workers, memory);
            }
        }
    }

    /// Keeps the latest decisions of events that are no longer kept.
    fn forget(&mut self, events: &[Event]) {
        self.earlier.extend(history(events));
        let more = self.earlier.len().saturating_sub(MOST_EARLIER);
        self.earlier.drain(..more);
        self.forgotten += more as u64;
    }

    fn settled(&self) -> String {
        let tries = self.planner.spent().probes;
        let choice = self.recommendation.as_ref().map_or(String::new(), |it| format!(": {}", it.why));
        format!("planned after {tries} tries, and no model was kept{choice}")
    }

    /// Why a job is over that ends for this reason, when the stretch has taken so much: also whether its deadline was missed.
    pub fn ended(&self, reason: String, used: &Used) -> String {
        let seconds = self.planner.spent().seconds + used.elapsed;
        let missed = self.planner.limits().seconds.filter(|limit| seconds > *limit);
        let late = missed
            .map_or(String::new(), |limit| format!(", after {} instead of within {}", spoken(seconds), spoken(limit)));
        let nothing = if self.only && !self.is_settled { ", and no model was kept" } else { "" };
        format!("{reason}{late}{nothing}")
    }

    /// Why a job ends whose budget allows no more.
    pub fn used_up(&self, why: &str) -> String {
        let budget = self.planner.limits().cost.unwrap_or_default();
        format!(
            "its budget of {} allows no more, of which {} were spent: {why}",
            money(budget),
            money(self.planner.spent().cost)
        )
    }
}

/// What was set by hand last.
fn pinned(events: &[Event]) -> (Option<u32>, Option<u64>) {
    let pinned = events.iter().rev().find_map(|event| match event {
        Event::Pinned { workers, memory } => Some((*workers, *memory)),
        _ => None,
    });
    pinned.unwrap_or_default()
}

/// The decision that is carried out when these are all events.
fn pending(events: &[Event]) -> Option<Decision> {
    let last = events.iter().rev().find(|event| !matches!(event, Event::Lost { .. }))?;
    match last {
        Event::Asked { decision, .. } => Some(decision.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
