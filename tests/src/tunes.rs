//! Studies, as a client sees them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;
use weft::api::types::{
    AskAnswer, JobView, TellAnswer, TrialList, TrialView, TuneDetail, TuneEventList, TuneEventView,
};
use weft::study::TuneState;

use crate::http::{Answer, Client};

impl Client {
    /// Begins a study, does not take no for an answer, and gives its name.
    pub fn must_tune(&self, spec: &Value) -> Result<String> {
        let answer = self.post("/v1/tunes", spec)?;
        ensure!(answer.status == 201, "beginning {spec}: {} {}", answer.status, answer.text());
        let name = answer.json()?["name"].as_str().context("no name")?.to_owned();
        let location = answer.header("location").context("no location")?;
        ensure!(location == format!("/v1/tunes/{name}"), "{location} is not where `{name}` is");
        Ok(name)
    }

    pub fn tune(&self, name: &str) -> Result<TuneDetail> {
        self.read(&format!("/v1/tunes/{name}"))
    }

    /// All trials of a study, a page at a time.
    pub fn trials(&self, name: &str) -> Result<Vec<TrialView>> {
        let (mut trials, mut after) = (Vec::new(), String::new());
        loop {
            let page: TrialList = self.read(&format!("/v1/tunes/{name}/trials?limit=3{after}"))?;
            trials.extend(page.trials);
            match page.next {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(trials),
            }
        }
    }

    /// `stop` or `resume`.
    pub fn order_tune(&self, name: &str, what: &str) -> Result<Answer> {
        self.send("POST", &format!("/v1/tunes/{name}/{what}"), &[], b"")
    }

    /// Waits until a study is as it is wanted. One that is over and will never be is an error at once.
    pub fn tune_until(
        &self,
        name: &str,
        at_most: Duration,
        mut wanted: impl FnMut(&TuneDetail) -> bool,
    ) -> Result<TuneDetail> {
        let start = Instant::now();
        loop {
            let detail = self.tune(name)?;
            if wanted(&detail) {
                return Ok(detail);
            }
            let (state, reason, counts) = (detail.tune.state, &detail.tune.reason, detail.tune.counts);
            ensure!(!state.is_over(), "study `{name}` is {}: {reason}", state.word());
            let seconds = start.elapsed();
            ensure!(seconds < at_most, "study `{name}` is {} after {seconds:?}: {reason}; {counts:?}", state.word());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn tune_in(&self, name: &str, state: TuneState, at_most: Duration) -> Result<TuneDetail> {
        self.tune_until(name, at_most, |detail| detail.tune.state == state)
    }

    pub fn tune_events(&self, name: &str) -> Result<Vec<TuneEventView>> {
        let list: TuneEventList = self.read(&format!("/v1/tunes/{name}/events"))?;
        Ok(list.events)
    }

    pub fn ask(&self, name: &str) -> Result<AskAnswer> {
        let answer = self.order_tune(name, "ask")?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(serde_json::from_value(answer.json()?)?)
    }

    pub fn tell(&self, name: &str, words: &Value) -> Result<TellAnswer> {
        let answer = self.post(&format!("/v1/tunes/{name}/tell"), words)?;
        ensure!(answer.status == 200, "telling {words}: {answer:?}");
        Ok(serde_json::from_value(answer.json()?)?)
    }

    /// The tenant's jobs, with those that are trials or without.
    pub fn jobs(&self, trials: bool) -> Result<Vec<JobView>> {
        let list: weft::api::types::JobList = self.read(&format!("/v1/jobs?limit=1000&trials={trials}"))?;
        Ok(list.jobs)
    }

    fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let answer = self.get(path)?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
        serde_json::from_value(answer.json()?).with_context(|| path.to_owned())
    }
}
