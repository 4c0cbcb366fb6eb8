//! Whole jobs on capped compute: workers get a share of a core by their memory, and times have noise.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::super::*;
use crate::plan::bounds::Room;

const MIB: u64 = 1 << 20;

/// What a job takes on a machine whose cores are capped by memory.
#[derive(Clone, Copy)]
pub struct Job {
    /// Seconds of a step that are not divided.
    pub serial: f64,
    /// Core-seconds of a step of all workers.
    pub work: f64,
    /// Seconds that each worker adds to an exchange.
    pub exchange: f64,
    pub steps_per_epoch: u64,
    pub epochs: u64,
}

pub const LENET: Job = Job { serial: 0.004, work: 0.12, exchange: 0.0006, steps_per_epoch: 1_875, epochs: 4 };
pub const MLP: Job = Job { serial: 0.001, work: 0.02, exchange: 0.0008, steps_per_epoch: 938, epochs: 10 };

pub const BOUNDS: Bounds = Bounds {
    least_workers: 1,
    most_workers: 16,
    least_memory: 128 * MIB,
    most_memory: 3072 * MIB,
    memory_step: 64 * MIB,
};

pub const RATE: Rate = Rate { function_second: 0.0, gib_second: 1.666_67e-5, fixed_second: 0.0 };

/// Seconds that pass for each start of a shape and each validation.
const RESHAPE: f64 = 0.05;
const VALIDATE: f64 = 0.2;

impl Job {
    pub fn step(&self, workers: u32, memory: u64) -> f64 {
        // A whole core from 1769 MiB on, and at most one, as a worker computes on one thread.
        let cores = (memory as f64 / (1769 * MIB) as f64).min(1.0);
        self.serial + self.work / (f64::from(workers) * cores) + self.exchange * f64::from(workers)
    }

    pub fn steps(&self) -> u64 {
        self.steps_per_epoch * self.epochs
    }

    /// Seconds and cost of the whole job with one shape, without noise.
    pub fn whole(&self, workers: u32, memory: u64) -> (f64, f64) {
        let seconds = self.step(workers, memory) * self.steps() as f64 + VALIDATE * self.epochs as f64;
        (seconds, seconds * RATE.second(f64::from(workers), memory))
    }

    pub fn grid(&self) -> Vec<(f64, f64)> {
        let sizes = (128..=3072).step_by(64).flat_map(|mib| (1..=16).map(move |workers| (workers, mib * MIB)));
        sizes.map(|(workers, memory)| self.whole(workers, memory)).collect()
    }
}

pub struct Outcome {
    pub spent: Spent,
    pub done: u64,
    pub planner: Planner,
}

pub fn spec(policy: Policy, seed: u64) -> PlanSpec {
    let start = Shape { workers: 2, fan_out: 1, memory: 512 * MIB, batch: None };
    PlanSpec { policy, bounds: BOUNDS, start, rate: RATE, limits: Limits::default(), reserve: 0.02, seed }
}

/// Trains a job as its planner says. `slower` is how many times as long a step takes, by the number of the step.
pub fn run(job: Job, spec: PlanSpec, slower: impl Fn(u64) -> f64) -> Outcome {
    let mut random = ChaCha12Rng::seed_from_u64(spec.seed ^ 0x5eed);
    // Steps of one stretch have 10 % of noise each, and 1 % all together, as machines are not the same from time to time.
    let mut normal = || (0..12).map(|_| (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64).sum::<f64>() - 6.0;
    let mut shape = spec.start;
    let mut planner = Planner::new(spec).unwrap();
    let (mut done, mut stretches) = (0, 0);
    while done < job.steps() {
        let situation = Situation { room: Room::ENDLESS, workload: Workload::default(), left: job.steps() - done };
        let decision = planner.ask(&situation);
        let mut beside = 0.0;
        match decision.action {
            Action::Stop => break,
            Action::Keep => {}
            Action::Reshape(other) => {
                shape = other;
                beside += RESHAPE;
            }
        }
        let to_epoch = job.steps_per_epoch - done % job.steps_per_epoch;
        let steps = decision.steps.unwrap_or(u64::MAX).min(to_epoch);
        let noise = (0.1 / (steps as f64).sqrt() * normal() + 0.01 * normal()).exp();
        let step = job.step(shape.workers, shape.memory) * slower(done);
        let seconds = step * steps as f64 * noise;
        let ends_epoch = steps == to_epoch;
        beside += if ends_epoch { VALIDATE } else { 0.0 };
        let elapsed = seconds + beside;
        let cost = elapsed * RATE.second(f64::from(shape.workers), shape.memory);
        let workload = Workload::default();
        planner.tell(&Observation { shape, workload, steps, seconds, elapsed, cost, ends_epoch });
        done += steps;
        stretches += 1;
        assert!(stretches < 10_000, "it goes on for ever");
    }
    Outcome { spent: *planner.spent(), done, planner }
}

/// For each of 20 seeds and both jobs: a deadline between 1.2 and 3 times the least possible time.
#[test]
fn deadlines_are_kept_near_the_least_cost_with_few_tries() {
    for (name, job) in [("lenet", LENET), ("mlp", MLP)] {
        let fastest = job.grid().into_iter().map(|it| it.0).fold(f64::INFINITY, f64::min);
        let (mut kept, mut report) = (0, Vec::new());
        let (mut sum, mut near, mut probing) = (0.0, 0, 0.0_f64);
        for seed in 0..20 {
            let deadline = fastest * (1.2 + 1.8 * seed as f64 / 19.0);
            let outcome = run(job, spec(Policy::CheapestWithin(deadline), seed), |_| 1.0);
            let within = job.grid().into_iter().filter(|it| it.0 <= deadline);
            let least = within.map(|it| it.1).fold(f64::INFINITY, f64::min);
            let Spent { seconds, cost, probing_seconds, probing_cost, .. } = outcome.spent;
            kept += u32::from(seconds <= deadline);
            let share = (probing_seconds / seconds).max(probing_cost / cost);
            (sum, probing) = (sum + cost / least, probing.max(share));
            near += u32::from(cost <= 1.15 * least);
            report.push(format!(
                "{name} {seed}: {:.3} of the deadline, {:.3} of the least cost, {share:.3} tries ({})",
                seconds / deadline,
                cost / least,
                outcome.spent.probes
            ));
            assert_eq!(outcome.done, job.steps());
        }
        let report = report.join("\n");
        println!("{report}");
        assert!(kept >= 19, "{kept} of 20 deadlines were kept:\n{report}");
        // The tightest deadlines, below 1.4 times the least possible time, may cost more than that: few shapes keep them.
        assert!(near >= 17, "{near} of 20 cost at most 1.15 times the least:\n{report}");
        assert!(sum / 20.0 <= 1.1, "{} times the least cost on average:\n{report}", sum / 20.0);
        assert!(probing <= 0.05, "{probing} of the job were tries:\n{report}");
    }
}

#[test]
fn the_fastest_within_a_budget_spends_no_more_and_is_near_the_optimum() {
    let least = LENET.grid().into_iter().map(|it| it.1).fold(f64::INFINITY, f64::min);
    for seed in 0..20 {
        let budget = least * (1.4 + seed as f64 / 10.0);
        let outcome = run(LENET, spec(Policy::FastestWithin(budget), seed), |_| 1.0);
        assert!(outcome.spent.cost <= budget, "{} of {budget}", outcome.spent.cost);
        assert_eq!(outcome.done, LENET.steps(), "seed {seed} stopped at {} of {budget}", outcome.spent.cost);
        let within = LENET.grid().into_iter().filter(|it| it.1 <= budget);
        let fastest = within.map(|it| it.0).fold(f64::INFINITY, f64::min);
        let times = outcome.spent.seconds / fastest;
        assert!(times <= 1.5, "seed {seed}: {times} times the least time");
    }
}

#[test]
fn a_machine_that_becomes_slower_is_planned_for_anew() {
    let fastest = LENET.grid().into_iter().map(|it| it.0).fold(f64::INFINITY, f64::min);
    let half = LENET.steps() / 2;
    let slower = move |step: u64| if step < half { 1.0 } else { 1.5 };
    for seed in 0..10 {
        let deadline = 2.5 * fastest;
        let outcome = run(LENET, spec(Policy::CheapestWithin(deadline), seed), slower);
        assert!(outcome.spent.seconds <= deadline * 1.02, "seed {seed}: {} of {deadline}", outcome.spent.seconds);
        let told = history(outcome.planner.record()).into_iter().any(|it| it.decision.why.contains("look again"));
        assert!(told, "seed {seed}: no decision says that the machine has become slower");
    }
}

#[test]
fn what_cannot_be_kept_is_said_and_the_job_is_trained_to_its_end() {
    let outcome = run(MLP, spec(Policy::CheapestWithin(0.5), 1), |_| 1.0);
    assert_eq!(outcome.done, MLP.steps());
    let said = history(outcome.planner.record()).into_iter().any(|it| it.decision.why.contains("No shape is expected"));
    assert!(said);
}

#[test]
fn memory_is_tuned_within_a_run() {
    for (policy, seed) in [(Policy::FengCost, 1), (Policy::FengRatio, 2)] {
        let outcome = run(MLP, spec(policy, seed), |_| 1.0);
        let kept = history(outcome.planner.record());
        let tries = kept.iter().filter(|it| it.decision.is_probe).count();
        assert!((2..=7).contains(&tries), "{tries} tries");
        assert!(kept.last().is_some_and(|it| it.decision.why.contains("sizes that were tried")));
    }
}
