//! Training jobs, as a client sees them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weft::api::types::{JobDetail, JobEventList, JobEventView, JobView};
use weft::cli::{Client as Follower, Event};
use weft::job::{Job, JobEvent, State};
use weft::meta::Metadata;

use crate::http::{Answer, Client};

impl Client {
    pub fn submit(&self, spec: &Value) -> Result<Answer> {
        self.post("/v1/jobs", spec)
    }

    /// Submits with an `Idempotency-Key`.
    pub fn submit_with_key(&self, spec: &Value, key: &str) -> Result<Answer> {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.send("POST", "/v1/jobs", &headers, &serde_json::to_vec(spec)?)
    }

    /// Submits, does not take no for an answer, and gives the job's name.
    pub fn must_submit(&self, spec: &Value) -> Result<String> {
        let answer = self.submit(spec)?;
        ensure!(answer.status == 201, "submitting {spec}: {} {}", answer.status, answer.text());
        let job: JobView = serde_json::from_value(answer.json()?)?;
        let location = answer.header("location").context("no location")?;
        ensure!(location == format!("/v1/jobs/{}", job.name), "{location} is not where `{}` is", job.name);
        Ok(job.name)
    }

    /// Submits, and waits until it is done.
    pub fn must_train(&self, spec: &Value, at_most: Duration) -> Result<JobDetail> {
        self.must_finish(&self.must_submit(spec)?, at_most)
    }

    pub fn job(&self, name: &str) -> Result<JobDetail> {
        Ok(serde_json::from_value(self.get(&format!("/v1/jobs/{name}"))?.json()?)?)
    }

    /// `stop`, `resume`, or `workers/N/kill`.
    pub fn order(&self, name: &str, what: &str) -> Result<Answer> {
        self.send("POST", &format!("/v1/jobs/{name}/{what}"), &[], b"")
    }

    /// Waits until a job is as it is wanted. One that is over and will never be is an error at once.
    pub fn job_until(
        &self,
        name: &str,
        at_most: Duration,
        mut wanted: impl FnMut(&JobDetail) -> bool,
    ) -> Result<JobDetail> {
        let start = Instant::now();
        loop {
            let detail = self.job(name)?;
            if wanted(&detail) {
                return Ok(detail);
            }
            let (state, reason) = (detail.job.state, &detail.job.reason);
            ensure!(!state.is_over(), "job `{name}` is {}: {reason}", state.word());
            ensure!(start.elapsed() < at_most, "job `{name}` is {} after {at_most:?}: {reason}", state.word());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn job_in(&self, name: &str, state: State, at_most: Duration) -> Result<JobDetail> {
        self.job_until(name, at_most, |detail| detail.job.state == state)
    }

    /// Waits until a job is done; any other end is an error.
    pub fn must_finish(&self, name: &str, at_most: Duration) -> Result<JobDetail> {
        self.job_in(name, State::Done, at_most)
    }

    /// The events of a job that are still kept.
    pub fn events(&self, name: &str) -> Result<Vec<JobEventView>> {
        let list: JobEventList = serde_json::from_value(self.get(&format!("/v1/jobs/{name}/events"))?.json()?)?;
        Ok(list.events)
    }

    /// The events of a job as they happen, until it is over. `last` is the id of the last one that was seen.
    pub fn follow(&self, name: &str, last: Option<u64>) -> Result<impl Iterator<Item = Result<JobEventView>> + use<>> {
        let follower = Follower::new(self.url(), self.key(), None)?;
        let last = last.map(|id| id.to_string());
        let events = follower.follow_job(&name.parse()?, last.as_deref())?;
        Ok(events.map(|event| view(event?)))
    }

    /// The model of a job as a safetensors file: equal bytes are equal bits.
    pub fn model_file(&self, name: &str) -> Result<Vec<u8>> {
        let answer = self.get(&format!("/v1/models/{name}/file"))?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.body)
    }
}

/// Whether a job's record says that it is not over and has epochs to go, in a data directory that no node has open.
pub fn is_unfinished(data: &Path, name: &str) -> Result<bool> {
    let jobs = Metadata::open(&data.join("meta.redb"))?.all::<Job>()?;
    let job = jobs.iter().find(|job| job.name.as_str() == name).with_context(|| format!("no record of `{name}`"))?;
    let epoch = job.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.epoch);
    Ok(!job.state.is_over() && epoch < job.spec.epochs)
}

/// An event as it came over the wire: its name is that of its value.
fn view(event: Event) -> Result<JobEventView> {
    let id = event.id.as_deref().context("an event without an id")?.parse()?;
    let told: JobEvent = serde_json::from_str(&event.data).with_context(|| event.data.clone())?;
    ensure!(event.kind == told.kind(), "a `{}` is called `{}`", told.kind(), event.kind);
    Ok(JobEventView { id, event: told })
}
