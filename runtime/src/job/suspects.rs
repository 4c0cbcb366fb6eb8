//! Which job takes its node with it? Pure, but for one record.
//!
//! A node that has died finds the jobs that ran then. Any of them may be to blame, and most are not: whoever blamed all of
//! them would sooner or later hold back everybody's long jobs for the sake of one deadly one. So all of them are suspects
//! until they have made progress, and suspects start one at a time. One that has just started is on trial, which a
//! [`Trial`] on disk says; only when its trial is over does the next suspect start. If the node dies during a trial, the
//! one on trial is blamed; otherwise only a job that ran alone is. Jobs that have been blamed too often are held back.
//!
//! A job that does its harm late outlives its trial, and others may be blamed in its place. Hence trials become longer
//! with every death: sooner or later the node dies during the right one. Whoever has outlived a trial of its own is not
//! blamed for anything before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::live::Live;
use super::roster::Roster;
use crate::clock::unix_ms;
use crate::locks::Lock;
use crate::meta::{Batch, MetaError, Record};
use crate::names::Name;
use crate::tenant::TenantId;

/// How long a suspect that makes no progress is on trial after the first death; twice as long after each one more.
const FIRST_TRIAL: Duration = Duration::from_secs(30);
/// How long a suspect's blobs are waited for at first: none of its code runs before it has them, and the others wait.
pub(super) const FIRST_FIND: Duration = Duration::from_secs(5);
/// How often that is doubled at most.
const MOST_DOUBLINGS: u32 = 10;

/// The suspect that is on trial, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trial {
    pub tenant: TenantId,
    pub job: Name,
    pub began_ms: u64,
}

/// There is one at a time.
const KEY: &str = "now";

impl Record for Trial {
    const TABLE: &'static str = "trial";

    fn key(&self) -> String {
        KEY.to_owned()
    }
}

/// Which of the jobs that ran when the node died is to blame, if that can be known.
pub(super) fn blame<'a>(ran: &'a [(TenantId, Name)], trial: Option<&Trial>) -> Option<&'a (TenantId, Name)> {
    let on_trial = |trial: &Trial| ran.iter().find(|(tenant, name)| (*tenant, name) == (trial.tenant, &trial.job));
    match (trial.and_then(on_trial), ran) {
        (Some(on_trial), _) => Some(on_trial),
        (None, [alone]) => Some(alone),
        (None, _) => None,
    }
}

/// How long a job is on trial after the node has died so often while it ran.
pub(super) fn trial_of(deaths: u32) -> Duration {
    FIRST_TRIAL * (1 << deaths.saturating_sub(1).min(MOST_DOUBLINGS))
}

/// Nobody is on trial, as a record.
pub(super) fn no_trial() -> Batch {
    Batch::default().delete::<Trial>(KEY.to_owned())
}

impl Roster {
    /// Notes that a suspect is on trial, before any of its code runs.
    pub(super) async fn begin_trial(&self, live: &Live) -> Result<(), MetaError> {
        let job = live.job();
        let trial = Trial { tenant: job.tenant, job: job.name.clone(), began_ms: unix_ms() };
        self.metadata.commit(Batch::default().put(&trial)?).await
    }

    /// Ends a job's trial, if it is the one on trial: the next suspect may start.
    pub(super) async fn end_trial(&self, live: &Live) {
        let job = live.job();
        if !self.queue.locked().is_on_trial(job.tenant, job.name.as_str()) {
            return;
        }
        // On disk first: the next one must not be taken for this one.
        self.forget_trial().await;
        self.queue.locked().end_trial(job.tenant, job.name.as_str());
        self.look_through_queue();
    }

    async fn forget_trial(&self) {
        if let Err(error) = self.metadata.commit(no_trial()).await {
            tracing::error!(%error, "that a suspect's trial is over could not be written");
        }
    }

    /// Who was on trial when the node died.
    pub(super) fn last_trial(&self) -> Option<Trial> {
        let trials = self.metadata.all::<Trial>();
        let trials = trials.inspect_err(|error| tracing::error!(%error, "who was on trial cannot be read"));
        trials.ok()?.pop()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::record::tests::job;
    use super::super::record::{Job, MAX_DEATHS, State};
    use super::*;

    /// A node whose jobs never make progress. The deadly one takes the node with it after so long.
    struct World {
        jobs: Vec<Job>,
        deadly: usize,
        after: Duration,
    }

    impl World {
        fn new(jobs: usize, deadly: usize, after: Duration) -> Self {
            let named =
                |number: usize| Job { name: format!("job-{number}").parse().unwrap(), ..job(State::Running, 7) };
            Self { jobs: (0..jobs).map(named).collect(), deadly, after }
        }

        fn id(&self, index: usize) -> (TenantId, Name) {
            (self.jobs[index].tenant, self.jobs[index].name.clone())
        }

        /// The node starts after a death, and runs until it dies again. Whether it does.
        fn live_and_die(&mut self, trial: &mut Option<Trial>) -> bool {
            let ran: Vec<_> = (0..self.jobs.len())
                .filter(|&job| self.jobs[job].state == State::Running)
                .map(|job| self.id(job))
                .collect();
            let blamed = blame(&ran, trial.as_ref()).cloned();
            for index in 0..self.jobs.len() {
                let is_blamed = blamed == Some(self.id(index));
                if !self.jobs[index].state.is_over() {
                    self.jobs[index].found_unfinished(is_blamed);
                }
            }
            *trial = None;
            let mut order: Vec<usize> = (0..self.jobs.len()).filter(|&job| !self.jobs[job].state.is_over()).collect();
            order.sort_by_key(|&job| std::cmp::Reverse(self.jobs[job].blamed));
            let mut since_deadly = None;
            for index in order {
                assert!(self.jobs[index].is_suspect());
                self.jobs[index].state = State::Running;
                let watched = trial_of(self.jobs[index].deaths);
                if index == self.deadly {
                    since_deadly = Some(Duration::ZERO);
                }
                if let Some(since) = &mut since_deadly {
                    if *since + watched > self.after {
                        let (tenant, job) = self.id(index);
                        *trial = Some(Trial { tenant, job, began_ms: 0 });
                        return true;
                    }
                    *since += watched;
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
                let (mut trial, mut lives) = (None, 0);
                while world.live_and_die(&mut trial) {
                    lives += 1;
                    assert!(lives < 30, "nobody is held back: {jobs} jobs, {deadly} after {seconds} s");
                }
                let held: BTreeSet<usize> = (0..jobs).filter(|&job| world.jobs[job].state.is_over()).collect();
                assert_eq!(held, BTreeSet::from([deadly]), "{jobs} jobs, {deadly} after {seconds} s");
            }
        }
    }

    #[test]
    fn jobs_that_ran_together_are_not_blamed_for_a_death() {
        let mut jobs = [job(State::Running, 7), job(State::Running, 7)];
        let ran = [(TenantId(1), "one".parse().unwrap()), (TenantId(2), "two".parse().unwrap())];
        assert_eq!(blame(&ran, None), None);
        for _ in 0..3 * MAX_DEATHS {
            for job in &mut jobs {
                assert!(job.found_unfinished(false) && job.is_suspect());
                job.state = State::Running;
            }
        }
        assert_eq!(blame(&ran[..1], None), Some(&ran[0]));
        let trial = Trial { tenant: TenantId(2), job: "two".parse().unwrap(), began_ms: 0 };
        assert_eq!(blame(&ran, Some(&trial)), Some(&ran[1]));
        assert_eq!(blame(&ran[..1], Some(&trial)), Some(&ran[0]), "one that did not run is not to blame");
    }
}
