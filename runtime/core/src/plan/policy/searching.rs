//! The policies that search workers and memory, and go on looking while the job runs.

use super::{MARGIN, Observation, PlanSpec, Situation, Spent, Wish, Workload};
use crate::plan::aim::{Aim, Limits};
use crate::plan::bounds::Bounds;
use crate::plan::search::{Choice, Next, PROBES, Probe, Rate, Rest, Search, Size};
use crate::spec::Shape;

/// The part of the whole job that tries may take, in time and in cost.
const PROBING: f64 = 0.05;
/// What is planned with of that, as the job may become faster and cheaper than any try was.
const ALLOWED: f64 = 0.04;
/// Steps of one try, at least and at most. Fewer than two say nothing, as the first one may be slower than the others.
const TRY_STEPS: (f64, f64) = (3.0, 30.0);
const LEAST_STEPS: f64 = 2.0;
/// A shape that takes so many times what it took, or what it was expected to take, is looked at again.
const DRIFT: f64 = 1.2;
/// Another shape must be better by so much before a job that runs is given it.
const WORTH_MOVING: f64 = 1.1;
/// How sure it must be that the shape of a running job keeps the limits.
const SURE_ENOUGH: f64 = 0.9;
/// The part of what is left until a deadline that is planned with: starts and checkpoints are not foreseen.
const SLACK: f64 = 0.98;

#[derive(Clone, Debug)]
pub struct Searching {
    aim: Aim,
    bounds: Bounds,
    rate: Rate,
    seed: u64,
    search: Search,
    workload: Option<Workload>,
    phase: Phase,
    /// Seconds of a step that were expected of the shape that runs.
    expected: Option<f64>,
    /// What passed beside training, in stretches that were no tries, and their steps.
    beside: (f64, u64),
    /// What passed beside training in tries, and how many there were.
    beside_tries: (f64, u32),
    /// What is to be said with the next decision.
    news: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Trying,
    Running,
}

impl Searching {
    pub fn new(aim: Aim, spec: &PlanSpec) -> Self {
        let (bounds, rate, seed) = (spec.bounds, spec.rate, spec.seed);
        Self {
            aim,
            bounds,
            rate,
            seed,
            search: Search::new(&bounds, rate, spec.start.fan_out, size(&spec.start), seed),
            workload: None,
            phase: Phase::Trying,
            expected: None,
            beside: (0.0, 0),
            beside_tries: (0.0, 0),
            news: String::new(),
        }
    }

    pub fn search(&self) -> &Search {
        &self.search
    }

    pub fn tell(&mut self, observation: &Observation, was_try: bool) {
        let steps = observation.steps;
        let is_sound = observation.seconds.is_finite() && observation.seconds > 0.0 && steps > 0;
        if !is_sound || self.workload != Some(observation.workload) {
            return;
        }
        let seconds = observation.seconds / steps as f64;
        let beside = (observation.elapsed - observation.seconds).max(0.0);
        let probe =
            Probe { size: size(&observation.shape), iterations: steps, seconds, cost: observation.cost / steps as f64 };
        if was_try {
            self.beside_tries = (self.beside_tries.0 + beside, self.beside_tries.1 + 1);
            self.search.tell(probe);
            return;
        }
        self.beside = (self.beside.0 + beside, self.beside.1 + steps);
        let differs = |from: f64| !(1.0 / DRIFT..=DRIFT).contains(&(seconds / from));
        let known = self.search.known(probe.size).map(|it| it.seconds);
        if let Some(before) = known.filter(|it| differs(*it)) {
            self.search.drift(seconds / before);
            self.phase = Phase::Trying;
            self.news =
                format!("A step takes {:.2} times what it took with this shape: look again. ", seconds / before);
        } else if let Some(expected) = self.expected.filter(|it| known.is_none() && differs(*it)) {
            self.phase = Phase::Trying;
            self.news = format!("A step takes {:.2} times what was expected: look again. ", seconds / expected);
        }
        self.search.tell(probe);
    }

    pub fn wish(
        &mut self,
        current: &Shape,
        situation: &Situation,
        bounds: &Bounds,
        left: Limits,
        spent: &Spent,
    ) -> Wish {
        if self.workload != Some(situation.workload) {
            if self.workload.is_some() {
                self.seed = self.seed.wrapping_add(1);
                self.search = Search::new(&self.bounds, self.rate, current.fan_out, size(current), self.seed);
                self.news = "Batch, model or settings have changed: look again. ".to_owned();
            }
            self.workload = Some(situation.workload);
            self.phase = Phase::Trying;
            self.expected = None;
        }
        let rest = self.rest(situation, left);
        if self.phase == Phase::Trying {
            let done = match self.search.next(self.aim, &rest, bounds) {
                Next::Try { size, why } => match self.steps_to_try(size, situation.left, spent) {
                    Some(steps) => return self.try_out(size, steps, why),
                    None => format!("Another try would not fit into {} % of the job.", 100.0 * PROBING),
                },
                Next::Done { why } => why,
            };
            self.phase = Phase::Running;
            let Some(choice) = self.search.choose(self.aim, &rest, bounds) else { return self.stay(current, &done) };
            let choice = self.worth_moving(current, choice, &rest, bounds, 1.0);
            return self.run(&choice, &rest, &done);
        }
        let Some(choice) = self.search.choose(self.aim, &rest, bounds) else {
            return self.stay(current, "Nothing could be measured.");
        };
        let choice = self.worth_moving(current, choice, &rest, bounds, WORTH_MOVING);
        self.run(&choice, &rest, "")
    }

    /// What is left for training itself: validation and checkpoints take their part of the time.
    fn rest(&self, situation: &Situation, left: Limits) -> Rest {
        let (seconds, steps) = self.beside;
        let beside = if steps > 0 { seconds / steps as f64 * situation.left as f64 } else { 0.0 };
        let limits = Limits { seconds: left.seconds.map(|it| SLACK * (it - beside)), ..left };
        Rest { iterations: situation.left.max(1), limits }
    }

    /// How many steps a try may have, unless even a few are too many.
    fn steps_to_try(&self, size: Size, left: u64, spent: &Spent) -> Option<u64> {
        let steps = left as f64;
        let wished = (steps * PROBING * 0.4 / PROBES as f64).clamp(TRY_STEPS.0, TRY_STEPS.1).min(steps.max(1.0));
        let probes = self.search.probes();
        let least = |value: fn(&Probe) -> f64| probes.iter().map(value).reduce(f64::min);
        let (Some(least_seconds), Some(least_cost)) = (least(|it| it.seconds), least(|it| it.cost)) else {
            // The first try is of the shape that the job has anyway.
            return Some(wished as u64);
        };
        let (seconds, cost) = self.search.at_most(size)?;
        let beside = if self.beside_tries.1 > 0 { self.beside_tries.0 / f64::from(self.beside_tries.1) } else { 0.0 };
        // The whole job takes at least that, so no more than the part of it that is allowed is spent on tries.
        let by_time = (ALLOWED * (spent.seconds + steps * least_seconds) - spent.probing_seconds - beside) / seconds;
        let by_cost = (ALLOWED * (spent.cost + steps * least_cost) - spent.probing_cost) / cost;
        let most = wished.min(by_time).min(if spent.cost > 0.0 { by_cost } else { f64::INFINITY });
        (most >= LEAST_STEPS).then_some(most as u64)
    }

    /// The choice, or the shape that there is if the choice is not much better.
    fn worth_moving(&self, current: &Shape, choice: Choice, rest: &Rest, bounds: &Bounds, times: f64) -> Choice {
        let here = size(current);
        if choice.size == here || !bounds.hold(here.workers, here.memory) {
            return choice;
        }
        let Some(stay) = self.search.weigh(here, self.aim, rest) else { return choice };
        let value = |it: &Choice| match self.aim {
            Aim::Cheapest => it.cost.expected,
            Aim::Fastest => it.seconds.expected,
        };
        let is_kept = stay.sure >= SURE_ENOUGH && value(&stay) <= value(&choice) * times;
        // Where neither keeps the limits, one must miss them by clearly less.
        let misses_alike = !choice.is_feasible
            && stay.seconds.expected <= choice.seconds.expected * times
            && stay.cost.expected <= choice.cost.expected * times;
        if is_kept || misses_alike { stay } else { choice }
    }

    fn try_out(&mut self, size: Size, steps: u64, why: String) -> Wish {
        let why = format!("{}{why}", std::mem::take(&mut self.news));
        let step = self.search.at_most(size);
        Wish { workers: size.workers, memory: size.memory, steps: Some(steps), is_probe: true, step, why }
    }

    fn run(&mut self, choice: &Choice, rest: &Rest, before: &str) -> Wish {
        let iterations = rest.iterations as f64;
        let step = (choice.seconds.expected / iterations, choice.cost.expected / iterations);
        self.expected = Some(step.0);
        let gap = if before.is_empty() { "" } else { " " };
        let why = format!("{}{before}{gap}{}", std::mem::take(&mut self.news), choice.why);
        let Size { workers, memory } = choice.size;
        Wish { workers, memory, steps: None, is_probe: false, step: Some((step.0, step.1 * MARGIN)), why }
    }

    fn stay(&self, current: &Shape, why: &str) -> Wish {
        let why = format!("{why} The shape stays.");
        Wish { workers: current.workers, memory: current.memory, steps: None, is_probe: false, step: None, why }
    }
}

fn size(shape: &Shape) -> Size {
    Size { workers: shape.workers, memory: shape.memory }
}
