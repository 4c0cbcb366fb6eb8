//! Whole courses on a simulated machine: they end, are kept within bounds, and come back as they were.

use super::*;
use crate::plan::aim::Limits;
use crate::plan::bounds::Bounds;
use crate::plan::search::Rate;

const MIB: u64 = 1 << 20;
const WORKLOAD: Workload = Workload { batch: 64, parameters: 1_000, settings: 0 };
const STEPS: u64 = 40_000;

fn spec(policy: Policy, budget: Option<f64>) -> PlanSpec {
    PlanSpec {
        policy,
        bounds: Bounds {
            least_workers: 1,
            most_workers: 8,
            least_memory: 128 * MIB,
            most_memory: 1024 * MIB,
            memory_step: 128 * MIB,
        },
        start: Shape { workers: 1, fan_out: 1, memory: 512 * MIB, batch: None },
        rate: Rate { function_second: 0.0, gib_second: 1e-5, fixed_second: 0.0 },
        limits: Limits { seconds: None, cost: budget },
        reserve: 0.02,
        seed: 7,
    }
}

fn standing(left: u64) -> Standing {
    Standing { room: Room::ENDLESS, workload: WORKLOAD, left, all: STEPS }
}

/// A job that trains as its course says.
struct Job {
    course: Course,
    shape: Shape,
    done: u64,
    ended: Option<String>,
}

impl Job {
    fn new(policy: Policy, budget: Option<f64>, only: bool) -> Self {
        let spec = spec(policy, budget);
        Self { shape: spec.start, course: Course::new(spec, only).unwrap(), done: 0, ended: None }
    }

    fn used(&self, steps: u64) -> Used {
        let cores = (self.shape.memory as f64 / (1024 * MIB) as f64).min(1.0);
        let step = 0.002 + 0.05 / (f64::from(self.shape.workers) * cores);
        let seconds = step * steps as f64;
        let second = 1e-5 * f64::from(self.shape.workers) * self.shape.memory as f64 / (1024 * MIB) as f64;
        Used { steps, seconds, elapsed: seconds, cost: seconds * second }
    }

    /// Decides, and trains a stretch of at most so many steps.
    fn turn(&mut self, epoch: u64) {
        if self.course.pending().is_none() {
            match self.course.ask(&standing(STEPS - self.done), &self.shape) {
                Order::End(reason) => self.ended = Some(reason),
                Order::Reshape(shape) => self.shape = shape,
                Order::GoOn => {}
            }
        }
        let steps = self.course.steps().unwrap_or(u64::MAX).min(epoch).min(STEPS - self.done);
        if self.ended.is_none() {
            self.done += steps;
            self.course.tell(self.shape, WORKLOAD, self.used(steps), steps == epoch);
        }
    }

    fn is_over(&self) -> bool {
        self.ended.is_some() || self.done >= STEPS
    }
}

#[test]
fn a_course_that_is_only_about_finding_out_ends_once_nothing_more_is_tried() {
    let mut job = Job::new(Policy::Cheapest, None, true);
    while !job.is_over() {
        job.turn(1_000);
    }
    let reason = job.ended.expect("it was trained to its end");
    assert!(reason.contains("no model was kept"), "{reason}");
    assert!(job.done < STEPS / 10, "{} steps", job.done);
    let record = job.course.record(Used::default());
    assert!(record.is_settled && record.points.len() > 1 && record.recommendation.is_some());
    // After a crash it ends all the same.
    let again = Course::resume(record).unwrap();
    assert!(matches!(again.order(&job.shape), Order::End(_)));
}

#[test]
fn a_course_comes_back_at_every_moment_as_it_was() {
    for policy in [Policy::Fastest, Policy::Elastic, Policy::FengCost, Policy::FastestWithin(0.01)] {
        let mut job = Job::new(policy, None, false);
        while !job.is_over() {
            job.turn(1_000);
            let text = serde_json::to_string(&job.course.record(Used::default())).unwrap();
            let mut again = Course::resume(serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!(again.pending(), job.course.pending());
            let mut here = job.course.clone();
            let next = standing(STEPS - job.done);
            assert_eq!(again.ask(&next, &job.shape), here.ask(&next, &job.shape), "{policy}");
        }
    }
}

#[test]
fn what_was_lost_is_spent_and_the_decision_before_it_is_carried_out() {
    let mut job = Job::new(Policy::Manual, Some(1.0), false);
    job.course.ask(&standing(STEPS), &job.shape);
    let record = job.course.record(Used { cost: 0.125, ..Used::default() });
    let mut again = Course::resume(record).unwrap();
    again.lose(3.0, 0.5);
    assert_eq!(again.pending(), job.course.pending());
    assert_eq!(again.planner().spent().cost, 0.5);
    assert_eq!(again.allowance(&Used { cost: 0.125, ..Used::default() }), Some(0.98 - 0.5 - 0.125));
    assert_eq!(again.planner().spent().probes, 0);
}

#[test]
fn a_record_is_bounded_and_keeps_what_was_spent() {
    let mut job = Job::new(Policy::Elastic, Some(1e9), false);
    let mut epochs = 0;
    while epochs < 2 * MOST_EVENTS {
        job.done = 0;
        job.turn(10);
        epochs += 1;
        let record = job.course.record(Used::default());
        assert!(record.events.len() <= MOST_EVENTS + 2 && record.earlier.len() <= MOST_EARLIER);
    }
    let record = job.course.record(Used::default());
    assert!(record.forgotten > 0 && record.decisions().len() > MOST_EARLIER);
    let decided = record.forgotten + record.decisions().len() as u64;
    assert_eq!(decided, epochs as u64);
    let spent = job.course.planner().spent();
    assert!(spent.seconds > 0.0 && spent.cost > 0.0);
    assert!(serde_json::to_vec(&record).unwrap().len() < 1 << 20);
}

#[test]
fn a_budget_ends_a_course_and_says_what_was_spent() {
    let mut job = Job::new(Policy::Manual, Some(1e-4), false);
    while !job.is_over() {
        job.turn(1_000);
    }
    let reason = job.ended.expect("the budget was enough for all of it");
    assert!(reason.contains("its budget of") && reason.contains("were spent"), "{reason}");
    assert!(job.course.planner().spent().cost <= 1e-4);
    assert!(job.done > 0);
}

#[test]
fn what_was_set_by_hand_once_is_not_forgotten_by_what_is_set_later() {
    let mut job = Job::new(Policy::Fastest, None, false);
    job.course.pin(Some(2), None);
    job.course.pin(None, Some(256 * MIB));
    let Order::Reshape(shape) = job.course.ask(&standing(STEPS), &job.shape) else { panic!("it stays") };
    assert_eq!((shape.workers, shape.memory), (2, 256 * MIB));
}

#[test]
fn memory_that_was_not_enough_is_not_tried_again() {
    let mut job = Job::new(Policy::Cheapest, None, false);
    job.course.cannot_train_with(384 * MIB);
    while !job.is_over() {
        job.turn(1_000);
        assert!(job.shape.memory >= 512 * MIB, "{:?}", job.shape);
    }
}

#[test]
fn a_deadline_that_was_missed_is_said_at_the_end() {
    let limits = Limits { seconds: Some(10.0), cost: None };
    let course = Course::new(PlanSpec { limits, ..spec(Policy::Cheapest, None) }, false).unwrap();
    let ended = |elapsed: f64| course.ended("all is done".to_owned(), &Used { elapsed, ..Used::default() });
    assert_eq!(ended(9.0), "all is done");
    assert_eq!(ended(12.0), "all is done, after 12.0 s instead of within 10.0 s");
}
