//! Jobs that follow their data sets: what is kept of how far they are, and what wakes them.
//!
//! What is decided is decided in [`weft_core::follow`]. Here is one who looks: whenever a data set has grown or was deleted,
//! and whenever a job begins to wait, at all jobs that wait.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weft_core::follow::{Next, Phase, Version, Waiting, next};
use weft_core::spec::Follow;

use super::live::Live;
use super::record::{Job, State};
use super::team::Order;
use super::{JobError, Jobs};
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::locks::Lock;
use crate::tenant::Tenant;

/// How far a job is that follows its data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Following {
    /// Versions that it has begun to train on, after its first.
    pub followed: u64,
    /// Epochs that were done before the present version, and that are done when it has been trained on.
    pub begins: u64,
    pub until: u64,
    /// The version that the present one has grown out of; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grown_from: Option<GrownFrom>,
    /// Since when it waits, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_since_ms: Option<u64>,
}

/// A version that was trained on before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrownFrom {
    #[schema(value_type = String)]
    pub version: Digest,
    /// Samples to train on that it has.
    pub samples: u64,
}

impl Following {
    pub(super) fn first(epochs: u64) -> Self {
        Self { followed: 0, begins: 0, until: epochs, grown_from: None, waits_since_ms: None }
    }
}

impl Job {
    /// Epochs that were done before those that it trains now, and that are done then.
    pub fn epochs(&self) -> std::ops::Range<u64> {
        self.following.as_ref().map_or(0..self.spec.epochs, |following| following.begins..following.until)
    }

    fn phase(&self) -> Phase {
        match self.state {
            State::Waiting => Phase::Waits,
            state if state.is_over() => Phase::Over,
            _ => Phase::Trains,
        }
    }

    /// It has trained on all that there was.
    pub(super) fn caught_up(&mut self, is_told_to_stop: bool) {
        let mut phase = self.phase();
        phase.caught_up(is_told_to_stop);
        if phase == Phase::Over {
            return self.end(State::Stopped, "stopped");
        }
        (self.state, self.reason) = (State::Waiting, "waits for data".to_owned());
        if let Some(following) = &mut self.following {
            following.waits_since_ms = Some(unix_ms());
        }
        self.forget_deaths();
    }

    /// Ends it if it waits for data.
    pub(super) fn end_wait(&mut self, state: State, reason: &str) {
        if self.phase().end() {
            self.end(state, reason);
        }
    }

    /// Has it train on another version, if it waits. Whether it is to be put into the queue.
    fn wake(&mut self, version: Digest, grown_from: Version<Digest>) -> bool {
        let (wakes, done) = (self.phase().wake(), self.checkpoint.map_or(0, |checkpoint| checkpoint.epoch));
        let (Some(follow), Some(following)) = (self.spec.follow, &mut self.following) else { return false };
        if wakes {
            let GrownFrom { version: id, samples } = GrownFrom { version: grown_from.id, samples: grown_from.samples };
            *following = Following {
                followed: following.followed + 1,
                begins: done,
                until: done.saturating_add(follow.epochs),
                grown_from: Some(GrownFrom { version: id, samples }),
                waits_since_ms: None,
            };
            self.data = Some(version);
            (self.state, self.reason) = (State::Queued, String::new());
        }
        wakes
    }

    /// When it has waited for as long as it may.
    fn idle_ends_ms(&self) -> Option<u64> {
        let idle = self.spec.follow.map(|follow| follow.idle_ms).filter(|idle| *idle > 0)?;
        Some(self.following.as_ref()?.waits_since_ms?.saturating_add(idle))
    }

    /// What a job that waits does next.
    fn after_wait(&self, versions: Option<&[Version<Digest>]>) -> Next<Digest> {
        let (Some(follow), Some(following), Some(trained)) = (self.spec.follow, &self.following, self.data) else {
            return Next::Failed("it follows no data set".to_owned());
        };
        let waiting = Waiting { trained, followed: following.followed, lanes: self.shape().lanes().into() };
        let decided = next(&follow, &waiting, self.spec.dataset.as_deref().unwrap_or_default(), versions);
        match (decided, self.idle_ends_ms()) {
            (Next::Wait(_), Some(end)) if unix_ms() >= end => {
                Next::Done(format!("no more data came within {} s", follow.idle_ms as f64 / 1e3))
            }
            (decided, _) => decided,
        }
    }
}

/// Looks at jobs that wait whenever something has changed, for as long as there is a node.
pub(crate) async fn follow(jobs: Weak<Jobs>) {
    let Some((wake, mut changes)) =
        jobs.upgrade().map(|jobs| (jobs.roster.followers.clone(), jobs.facilities.catalog.changes()))
    else {
        return;
    };
    loop {
        let idle_ends = {
            let Some(jobs) = jobs.upgrade() else { return };
            // What changes from here on is looked at again.
            changes.borrow_and_update();
            jobs.look_at_followers().await
        };
        let idle_ends = async {
            match idle_ends {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wake.notified() => {}
            changed = changes.changed() => if changed.is_err() { return },
            () = idle_ends => {}
        }
    }
}

impl Jobs {
    /// Looks at all jobs that wait for data. How long it is until one of them has waited for as long as it may.
    async fn look_at_followers(self: &Arc<Self>) -> Option<Duration> {
        if self.is_stopping() {
            return None;
        }
        let mut idle_ends = None;
        for live in self.roster.waiting() {
            self.look_at(&live).await;
            let job = live.job();
            if let Some(end) = job.idle_ends_ms().filter(|_| job.state == State::Waiting) {
                idle_ends = Some(idle_ends.map_or(end, |first: u64| first.min(end)));
            }
        }
        idle_ends.map(|end| Duration::from_millis(end.saturating_sub(unix_ms()).max(1)))
    }

    async fn look_at(self: &Arc<Self>, live: &Arc<Live>) {
        let job = live.job();
        let Some(name) = &job.spec.dataset else { return };
        let versions = self.facilities.catalog.dataset(job.tenant, name).ok().map(|dataset| {
            let version = |version: &crate::catalog::Version| Version { id: version.digest, samples: version.train };
            dataset.versions.iter().map(version).collect::<Vec<_>>()
        });
        match job.after_wait(versions.as_deref()) {
            Next::Wait(reason) if reason == job.reason => {}
            Next::Wait(reason) => live.tell_reason(&reason),
            Next::Train { version, grown_from } => {
                let mut wakes = false;
                // What it needs is not known until the new manifest is read; until then nothing is collected.
                live.forget_needs();
                self.roster.change_anyway(live, |job| wakes = job.wake(version, grown_from)).await;
                if wakes {
                    self.go_on(live).await;
                }
            }
            Next::Done(reason) => {
                self.roster.change_anyway(live, |job| job.end_wait(State::Done, &reason)).await;
            }
            Next::Failed(reason) => {
                self.roster.change_anyway(live, |job| job.end_wait(State::Failed, &reason)).await;
            }
        }
    }

    /// Queues a job that has been woken.
    async fn go_on(self: &Arc<Self>, live: &Arc<Live>) {
        *live.asked.locked() = Instant::now();
        self.roster.enqueue(live, None, None);
        let (finding, jobs) = (live.clone(), self.clone());
        tokio::spawn(async move { finding.find_needs(&jobs.facilities.blobs).await });
        // An order that came before it was in the queue.
        let job = live.job();
        if *live.orders.borrow() == Order::Stop && self.roster.queue.locked().remove(job.tenant, job.name.as_str()) {
            self.roster.change_anyway(live, |job| job.end(State::Stopped, "stopped while it waited")).await;
        }
    }

    /// Refuses another job that follows its data set where the tenant has as many as it may.
    pub(super) fn check_followers(&self, tenant: &Tenant, follow: Option<&Follow>) -> Result<(), JobError> {
        let follows = |job: &Arc<Job>| job.spec.follow.is_some() && !job.state.is_over();
        let limit = tenant.quota().following_jobs;
        if follow.is_some() && self.roster.list(tenant.id).iter().filter(|job| follows(job)).count() >= limit as usize {
            let what = "another job that follows its data set".to_owned();
            return Err(JobError::Quota { name: "following_jobs", limit: limit.into(), what });
        }
        Ok(())
    }
}
