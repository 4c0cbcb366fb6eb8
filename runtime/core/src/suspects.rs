//! Which job takes its node with it? Pure.
//!
//! A node that has died finds the jobs that ran then. Any of them may be to blame, and most are not: whoever blamed all of
//! them would sooner or later hold back everybody's long jobs for the sake of one deadly one. So all of them are suspects
//! until they have made progress, and suspects start one at a time. One that has just started is on trial, which a record
//! on disk says; only when its trial is over does the next suspect start. If the node dies during a trial, the
//! one on trial is blamed; otherwise only a job that ran alone is. Jobs that have been blamed too often are held back.
//!
//! A job that does its harm late outlives its trial, and others may be blamed in its place. Hence trials become longer
//! with every death: sooner or later the node dies during the right one. Whoever has outlived a trial of its own is not
//! blamed for anything before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often in a row a job that makes no progress may be blamed for the death of its node, before it is held back.
pub const MAX_DEATHS: u32 = 3;
/// How long a suspect that makes no progress is on trial after the first death; twice as long after each one more.
const FIRST_TRIAL: Duration = Duration::from_secs(30);
/// How often that is doubled at most.
const MOST_DOUBLINGS: u32 = 10;

/// How often the node has died while a job ran. It is kept among the other words of the job's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deaths {
    /// In a row, without any progress from one time to the next.
    #[serde(default, rename = "deaths")]
    pub in_a_row: u32,
    /// Steps that were kept when the node last died.
    #[serde(default)]
    died_at: Option<u64>,
    /// Of those deaths, how many in a row the job was blamed for.
    #[serde(default)]
    pub blamed: u32,
}

impl Deaths {
    /// Whether the node has died while a job ran of which so many steps are kept, and it has made no progress since.
    pub fn is_suspect(&self, kept: u64) -> bool {
        self.in_a_row > 0 && self.died_at == Some(kept)
    }

    /// Notes that the node has died while the job ran, and whether the job is to blame.
    pub fn add(&mut self, kept: u64, is_blamed: bool) {
        let again = self.is_suspect(kept);
        self.in_a_row = if again { self.in_a_row + 1 } else { 1 };
        // One that ran and is not to blame has outlived its trial.
        self.blamed = match is_blamed {
            true if again => self.blamed + 1,
            blamed => blamed.into(),
        };
        self.died_at = Some(kept);
    }

    /// Whether the job seems to take its node with it: the node would die again and again.
    pub fn are_too_many(&self) -> bool {
        self.blamed >= MAX_DEATHS
    }

    /// How long the job is on trial when it is started again.
    pub fn trial(&self) -> Duration {
        FIRST_TRIAL * (1 << self.in_a_row.saturating_sub(1).min(MOST_DOUBLINGS))
    }
}

/// Which of the jobs that ran when the node died is to blame, if that can be known. One of them may have been on trial.
pub fn blame<'a, Job: PartialEq>(ran: &'a [Job], on_trial: Option<&Job>) -> Option<&'a Job> {
    let on_trial = on_trial.and_then(|on_trial| ran.iter().find(|job| *job == on_trial));
    match (on_trial, ran) {
        (Some(on_trial), _) => Some(on_trial),
        (None, [alone]) => Some(alone),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Steps that each job keeps: none makes progress.
    const KEPT: u64 = 7;

    #[derive(Clone, Default)]
    struct Job {
        deaths: Deaths,
        runs: bool,
        is_held_back: bool,
    }

    /// A node whose jobs never make progress. The deadly one takes the node with it after so long.
    struct World {
        jobs: Vec<Job>,
        deadly: usize,
        after: Duration,
    }

    impl World {
        fn new(jobs: usize, deadly: usize, after: Duration) -> Self {
            Self { jobs: vec![Job { runs: true, ..Job::default() }; jobs], deadly, after }
        }

        /// The node starts after a death, and runs until it dies again. Whether it does.
        fn live_and_die(&mut self, on_trial: &mut Option<usize>) -> bool {
            let ran: Vec<usize> = (0..self.jobs.len()).filter(|&job| self.jobs[job].runs).collect();
            let blamed = blame(&ran, on_trial.as_ref()).copied();
            for (index, job) in self.jobs.iter_mut().enumerate().filter(|(_, job)| !job.is_held_back) {
                if job.runs {
                    job.deaths.add(KEPT, blamed == Some(index));
                }
                (job.is_held_back, job.runs) = (job.deaths.are_too_many(), false);
            }
            *on_trial = None;
            let mut order: Vec<usize> = (0..self.jobs.len()).filter(|&job| !self.jobs[job].is_held_back).collect();
            order.sort_by_key(|&job| std::cmp::Reverse(self.jobs[job].deaths.blamed));
            let mut since_deadly = None;
            for index in order {
                let job = &mut self.jobs[index];
                assert!(job.deaths.is_suspect(KEPT));
                job.runs = true;
                if index == self.deadly {
                    since_deadly = Some(Duration::ZERO);
                }
                if let Some(since) = &mut since_deadly {
                    if *since + job.deaths.trial() > self.after {
                        *on_trial = Some(index);
                        return true;
                    }
                    *since += job.deaths.trial();
                }
            }
            since_deadly.is_some()
        }
    }

    #[test]
    fn only_the_deadly_job_is_held_back_however_many_run_and_however_late_it_does_its_harm() {
        for jobs in 1..6 {
            for (deadly, seconds) in (0..jobs).flat_map(|deadly| [0, 10, 45, 100].map(|seconds| (deadly, seconds))) {
                let mut world = World::new(jobs, deadly, Duration::from_secs(seconds));
                let (mut on_trial, mut lives) = (None, 0);
                while world.live_and_die(&mut on_trial) {
                    lives += 1;
                    assert!(lives < 30, "nobody is held back: {jobs} jobs, {deadly} after {seconds} s");
                }
                let held: BTreeSet<usize> = (0..jobs).filter(|&job| world.jobs[job].is_held_back).collect();
                assert_eq!(held, BTreeSet::from([deadly]), "{jobs} jobs, {deadly} after {seconds} s");
            }
        }
    }

    #[test]
    fn jobs_that_ran_together_are_not_blamed_for_a_death() {
        let ran = ["one", "two"];
        assert_eq!(blame(&ran, None), None);
        let mut deaths = Deaths::default();
        for _ in 0..3 * MAX_DEATHS {
            deaths.add(KEPT, false);
            assert!(deaths.is_suspect(KEPT) && !deaths.are_too_many());
        }
        assert_eq!(blame(&ran[..1], None), Some(&"one"));
        assert_eq!(blame(&ran, Some(&"two")), Some(&"two"));
        assert_eq!(blame(&ran[..1], Some(&"two")), Some(&"one"), "one that did not run is not to blame");
    }

    #[test]
    fn deaths_between_which_a_job_makes_progress_do_not_add_up() {
        let mut deaths = Deaths::default();
        for kept in 0..20 {
            deaths.add(kept, true);
            assert!(!deaths.are_too_many() && !deaths.is_suspect(kept + 1));
        }
        assert_eq!(deaths.trial(), FIRST_TRIAL);
    }
}
