//! One worker more, or one fewer, by the time that the last epoch took.
//!
//! [`Elastic`] is the rule that KubeML ships: after the first epoch one worker more; then one more while an epoch takes at
//! most 1.05 times the time that it took when the number last changed, one fewer from 1.2 times on, and nothing in
//! between, where that time stays the one to compare with. It goes on climbing while every epoch is up to 5 % slower than
//! the one before. [`Climb`] does not: it climbs until an epoch is no faster, and goes back to the fastest.

use serde::{Deserialize, Serialize};

use super::bounds::Bounds;

/// An epoch that takes at most so many times the reference leads to one worker more.
const GROW: f64 = 1.05;
/// One that takes at least so many times the reference leads to one worker fewer.
const SHRINK: f64 = 1.2;
/// An epoch must take at most so many times the best one's time to be faster.
const FASTER: f64 = 0.98;
/// Times that differ more than that from the best one's mean that the job, or the machine, has changed.
const DRIFT: f64 = 1.2;

/// How many workers there are to be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub workers: u32,
    pub why: String,
}

/// KubeML's rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Elastic {
    /// The time of the epoch after which the number of workers was last decided.
    reference: Option<f64>,
}

impl Elastic {
    /// What follows from an epoch with so many workers that took so many seconds, without validation.
    pub fn step(&mut self, workers: u32, seconds: f64, bounds: &Bounds) -> Step {
        if !(seconds.is_finite() && seconds > 0.0) {
            let workers = bounds.workers(workers);
            return Step { workers, why: format!("An epoch of {seconds} s says nothing: the workers stay.") };
        }
        let Some(reference) = self.reference else {
            self.reference = Some(seconds);
            let why = format!("The first epoch took {seconds:.3} s: one worker more, to see whether that is faster");
            return grown(workers, bounds, why);
        };
        let ratio = seconds / reference;
        let compared = format!("The epoch took {seconds:.3} s, {ratio:.2} times the {reference:.3} s to compare with");
        if ratio <= GROW {
            self.reference = Some(seconds);
            grown(workers, bounds, format!("{compared}, which is at most {GROW}: one worker more"))
        } else if ratio >= SHRINK {
            self.reference = Some(seconds);
            let fewer = bounds.workers(workers.saturating_sub(1));
            let limit = if fewer < workers { "" } else { ", but there may not be fewer" };
            Step { workers: fewer, why: format!("{compared}, which is at least {SHRINK}: one worker fewer{limit}.") }
        } else {
            let why = format!("{compared}, between {GROW} and {SHRINK}: the workers stay.");
            Step { workers: bounds.workers(workers), why }
        }
    }
}

/// One worker more, if there may be.
fn grown(workers: u32, bounds: &Bounds, why: String) -> Step {
    let more = bounds.workers(workers.saturating_add(1));
    let limit = if more > workers { "" } else { ", but there may not be more" };
    Step { workers: more, why: format!("{why}{limit}.") }
}

/// Climbs until there is no gain, and goes back to the best.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Climb {
    /// Workers and time of the fastest epoch.
    best: Option<(u32, f64)>,
    /// Whether the top was reached.
    is_over: bool,
}

impl Climb {
    /// What follows from an epoch with so many workers that took so many seconds, without validation.
    pub fn step(&mut self, workers: u32, seconds: f64, bounds: &Bounds) -> Step {
        if !(seconds.is_finite() && seconds > 0.0) {
            let workers = bounds.workers(workers);
            return Step { workers, why: format!("An epoch of {seconds} s says nothing: the workers stay.") };
        }
        if self.is_over {
            return self.watch(workers, seconds, bounds);
        }
        let compared = match self.best {
            Some((best, least)) if seconds > least * FASTER => {
                self.is_over = true;
                let why = format!(
                    "The epoch took {seconds:.3} s with {workers}, no less than the {least:.3} s with {best}: back to {best}."
                );
                return Step { workers: bounds.workers(best), why };
            }
            Some((best, least)) => format!(", less than the {least:.3} s with {best}"),
            None => String::new(),
        };
        self.best = Some((workers, seconds));
        let step = grown(workers, bounds, format!("The epoch took {seconds:.3} s with {workers}{compared}: one more"));
        self.is_over = step.workers <= workers;
        step
    }

    /// Stays at the best, until the times are no longer those that led there.
    fn watch(&mut self, workers: u32, seconds: f64, bounds: &Bounds) -> Step {
        match self.best {
            Some((best, least)) if best == workers && (seconds > least * DRIFT || seconds * DRIFT < least) => {
                *self = Self { best: Some((workers, seconds)), is_over: false };
                let why =
                    format!("An epoch takes {seconds:.3} s now instead of {least:.3} s: climb again, one worker more");
                let step = grown(workers, bounds, why);
                self.is_over = step.workers <= workers;
                step
            }
            Some((best, least)) => {
                let workers = bounds.workers(best);
                Step { workers, why: format!("{best} workers were the fastest, with {least:.3} s: they stay.") }
            }
            None => {
                Step { workers: bounds.workers(workers), why: "There is no best yet: the workers stay.".to_owned() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(most_workers: u32) -> Bounds {
        Bounds { least_workers: 1, most_workers, least_memory: 1 << 23, most_memory: 1 << 30, memory_step: 1 << 20 }
    }

    fn trace(times: &[f64], first: u32, most: u32) -> Vec<u32> {
        let (mut rule, mut workers) = (Elastic::default(), first);
        times
            .iter()
            .map(|seconds| {
                workers = rule.step(workers, *seconds, &bounds(most)).workers;
                workers
            })
            .collect()
    }

    /// References: 10, 9, 9.45 (exactly 1.05 times), none, none, 12 (at least 1.2 times 9.45), none, 12.6, 6.
    #[test]
    fn the_rule_of_kubeml_is_followed_exactly() {
        let times = [10.0, 9.0, 9.45, 10.0, 11.0, 12.0, 13.0, 12.6, 6.0];
        assert_eq!(trace(&times, 2, 100), [3, 4, 5, 5, 5, 4, 4, 5, 6]);
    }

    #[test]
    fn an_epoch_of_exactly_the_upper_ratio_shrinks() {
        assert_eq!(trace(&[10.0, 12.0], 4, 100), [5, 4]);
        assert_eq!(trace(&[10.0, 11.999], 4, 100), [5, 5]);
    }

    #[test]
    fn it_climbs_while_every_epoch_is_a_little_slower() {
        let times: Vec<f64> = (0..8).map(|epoch| 10.0 * 1.04_f64.powi(epoch)).collect();
        assert_eq!(trace(&times, 1, 100), [2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn bounds_hold_and_the_reason_says_so() {
        assert_eq!(trace(&[10.0, 9.0, 8.0, 30.0, 90.0, 300.0, 900.0], 2, 3), [3, 3, 3, 2, 1, 1, 1]);
        let step = Elastic::default().step(3, 1.0, &bounds(3));
        assert!(step.why.contains("may not be more"), "{}", step.why);
    }

    #[test]
    fn a_time_that_is_none_changes_nothing() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut rule = Elastic::default();
            assert_eq!(rule.step(3, wrong, &bounds(8)).workers, 3);
            assert_eq!(rule, Elastic::default());
            assert_eq!(Climb::default().step(3, wrong, &bounds(8)).workers, 3);
        }
    }

    #[test]
    fn the_climb_goes_back_to_the_best_and_stays_there() {
        let time = |workers: u32| 1.0 / f64::from(workers) + 0.04 * f64::from(workers);
        let (mut climb, mut workers) = (Climb::default(), 1);
        let seen: Vec<u32> = (0..10)
            .map(|_| {
                workers = climb.step(workers, time(workers), &bounds(32)).workers;
                workers
            })
            .collect();
        assert_eq!(seen, [2, 3, 4, 5, 6, 5, 5, 5, 5, 5]);
    }

    #[test]
    fn the_climb_begins_again_once_times_have_changed() {
        let mut climb = Climb::default();
        let times = [(2, 10.0, 3), (3, 10.5, 2), (2, 10.0, 2), (2, 11.9, 2), (2, 5.0, 3), (3, 4.0, 4)];
        for (workers, seconds, next) in times {
            let step = climb.step(workers, seconds, &bounds(4));
            assert_eq!(step.workers, next, "{}", step.why);
        }
        assert_eq!(climb.step(4, 3.0, &bounds(4)).workers, 4);
    }
}
