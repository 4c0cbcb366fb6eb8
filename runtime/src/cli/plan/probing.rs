//! Finding out what training takes: short real jobs on the node, which are deleted when they have told what they are for.

use std::time::Instant;

use anyhow::Context;
use serde::Serialize;
use weft_core::plan::points::{Interval, Point};
use weft_core::spec::{K, Memory, PlanWords, Workers};

use super::{Question, Sizes, Variant};
use crate::api::types::JobDetail;
use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::train::{submit, watch};
use crate::digest::hex;
use crate::job::{JobSpec, State};
use crate::names::Name;
use crate::units::{Size, Span};
use weft_core::plan::aim::Aim;

/// Epochs of a try in a sweep. The first one has the start of everything in it and does not count.
pub const TRY_EPOCHS: u64 = 6;
/// How long a try in a sweep takes at most.
const TRY_FOR: std::time::Duration = std::time::Duration::from_secs(5);
/// How far off a mean of few epochs is at least, as a part of it: they are measured one after the other.
const LEAST_DEVIATION: f64 = 0.03;

/// What finding out has taken.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Profiling {
    /// Settings that were tried.
    pub tries: u32,
    pub seconds: f64,
    pub cost: f64,
}

/// What was found out.
#[derive(Debug, Default)]
pub struct Found {
    /// All settings that were looked at.
    pub points: Vec<Point>,
    pub profiling: Profiling,
}

impl Profiling {
    pub fn add(&mut self, more: Self) {
        self.tries += more.tries;
        self.seconds += more.seconds;
        self.cost += more.cost;
    }
}

impl Found {
    fn add(&mut self, points: impl IntoIterator<Item = Point>, variant: &Variant) {
        self.points.extend(points.into_iter().map(|point| Point {
            k: variant.k.map(|k| k.to_string()),
            codec: variant.codec.clone(),
            device: variant.device.clone(),
            ..point
        }));
    }
}

/// A job that is deleted, with what it has left, when it is dropped.
pub struct ProbeJob<'a> {
    name: Name,
    client: &'a Client,
    out: &'a Output,
}

impl<'a> ProbeJob<'a> {
    /// Submits it, and waits until it is over. One that was interrupted is stopped.
    pub fn run(mut spec: JobSpec, client: &'a Client, out: &'a Output) -> anyhow::Result<(Self, JobDetail)> {
        let mut random = [0; 6];
        getrandom::fill(&mut random)?;
        spec.name = Some(format!("plan-{}", hex(&random)));
        let job = submit(out, |key| client.submit_job(&spec, key))?;
        let this = Self { name: job.name.parse()?, client, out };
        watch::in_silence(&this.name, client)?;
        let detail = client.job(&this.name)?;
        anyhow::ensure!(detail.job.state == State::Done, "a try is {}: {}", detail.job.state.word(), detail.job.reason);
        Ok((this, detail))
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    fn delete(&self) -> anyhow::Result<()> {
        if !self.client.job(&self.name)?.job.state.is_over() {
            self.client.stop_job(&self.name)?;
            watch::in_silence(&self.name, self.client)?;
        }
        for model in self.client.job(&self.name)?.models {
            self.client.delete_model(&model.parse()?)?;
        }
        Ok(self.client.delete_job(&self.name)?)
    }
}

impl Drop for ProbeJob<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.delete() {
            self.out.diagnose(format_args!("a try is left as job `{}`: {error:#}", self.name));
        }
    }
}

/// Has the node look for the best settings: for each variant, one job that tries a few shapes for a few steps each.
pub fn search(question: &Question, client: &Client, out: &Output) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let Sizes { least, most } = question.sizes;
    let policy = match question.aim {
        Aim::Cheapest => "cheapest",
        Aim::Fastest => "fastest",
    };
    for variant in &question.variants {
        let spec = variant.over(&question.spec);
        if !is_searched(question, &spec) {
            sweep_one(question, variant, None, client, out, &mut found)?;
            continue;
        }
        let plan = PlanWords {
            policy: Some(policy.to_owned()),
            least_memory: Some(least),
            most_memory: Some(most),
            memory_step: Some(step(question.sizes)),
            deadline_ms: question.limits.seconds.map_or(0, |seconds| (seconds * 1e3) as u64),
            budget: question.limits.cost,
            only: true,
        };
        say(variant, out);
        let began = Instant::now();
        let (job, detail) = ProbeJob::run(JobSpec { plan: Some(plan), ..spec }, client, out)?;
        let view = client.job_plan(job.name())?;
        drop(job);
        found.profiling.tries += view.spent.probes;
        found.profiling.seconds += began.elapsed().as_secs_f64();
        found.profiling.cost += detail.spending.cost.max(view.spent.cost);
        if view.points.is_empty() {
            out.note("the job is too short for tries within it; trying a grid of settings instead");
            sweep_one(question, variant, None, client, out, &mut found)?;
        }
        found.add(view.points, variant);
    }
    Ok(found)
}

/// Whether the node can look for settings of such a job: where there is something to choose from, and where workers meet
/// within an epoch, so that they can be others after a few steps. What cannot be searched is a grid that is tried.
fn is_searched(question: &Question, spec: &JobSpec) -> bool {
    let has_choice = spec.workers.is_range() || question.sizes.least < question.sizes.most;
    let meets_late = matches!(spec.sync.k, Some(K::Epochs(_) | K::End))
        || matches!(spec.sync.rule.as_deref(), Some("admm" | "statistic-sum"));
    has_choice && !meets_late
}

/// Memory is chosen in steps of this: an eighth of the range, in whole MiB, and no less than 8.
fn step(sizes: Sizes) -> u64 {
    let mib = (sizes.most - sizes.least) >> 20;
    (mib / 8).max(8) << 20
}

/// Tries every setting of a grid.
pub fn sweep(question: &Question, try_for: Option<Span>, client: &Client, out: &Output) -> anyhow::Result<Found> {
    let mut found = Found::default();
    for variant in &question.variants {
        sweep_one(question, variant, try_for, client, out, &mut found)?;
    }
    Ok(found)
}

fn sweep_one(
    question: &Question,
    variant: &Variant,
    try_for: Option<Span>,
    client: &Client,
    out: &Output,
    found: &mut Found,
) -> anyhow::Result<()> {
    say(variant, out);
    let Workers { least, most } = question.spec.workers;
    let try_for = try_for.unwrap_or(Span(TRY_FOR));
    let spec = variant.over(&question.spec);
    for workers in doubling(u64::from(least), u64::from(most)) {
        for memory in doubling(question.sizes.least, question.sizes.most) {
            let workers = u32::try_from(workers)?;
            let tried = JobSpec {
                workers: Workers::exactly(workers),
                memory: Memory::Bytes(memory),
                epochs: TRY_EPOCHS,
                max_time_ms: u64::try_from(try_for.0.as_millis())?,
                batch_schedule: Default::default(),
                ..spec.clone()
            };
            let (job, detail) = ProbeJob::run(tried, client, out)?;
            drop(job);
            let point = whole(&detail, question.spec.epochs).with_context(|| {
                let memory = Size(memory);
                format!(
                    "{workers} workers of {memory} were not through an epoch within {try_for}: give more with `--try-for`"
                )
            })?;
            out.note(format_args!("  {}: {:.3} s an epoch", point.setting(), per_epoch(&detail).unwrap_or(0.0)));
            let (seconds, cost) = (detail.job.seconds, detail.spending.cost);
            found.profiling.add(Profiling { tries: 1, seconds, cost });
            found.add([point], variant);
        }
    }
    Ok(())
}

fn say(variant: &Variant, out: &Output) {
    let words = [
        variant.k.map(|k| format!("k {k}")),
        variant.codec.as_ref().map(|codec| format!("codec {codec}")),
        variant.device.as_ref().map(|device| format!("on {device}")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let with = if words.is_empty() { String::new() } else { format!(" with {}", words.join(", ")) };
    out.note(format_args!("trying{with} …"));
}

/// From the least to the most, each twice the one before.
pub fn doubling(least: u64, most: u64) -> Vec<u64> {
    let mut values: Vec<u64> =
        std::iter::successors(Some(least.max(1)), |it| it.checked_mul(2)).take_while(|it| *it < most).collect();
    values.push(most);
    values
}

/// Seconds of an epoch after the first.
fn per_epoch(detail: &JobDetail) -> Option<f64> {
    let counted = counted(detail);
    let seconds: f64 = counted.iter().map(|(seconds, _)| seconds).sum();
    (!counted.is_empty()).then(|| seconds / counted.len() as f64)
}

/// Seconds and cost of the epochs that count: all but the first, if there are more.
pub fn counted(detail: &JobDetail) -> Vec<(f64, f64)> {
    let epochs: Vec<(f64, f64)> = detail.history.iter().map(|epoch| (epoch.seconds, epoch.spending.cost)).collect();
    if epochs.len() > 1 { epochs[1..].to_vec() } else { epochs }
}

/// What a whole job takes whose first epochs were these; nothing if there is none.
fn whole(detail: &JobDetail, epochs: u64) -> Option<Point> {
    let counted = counted(detail);
    let start = detail.ready_ms.unwrap_or(0.0) / 1e3;
    let start_cost = detail.history.first().map_or(0.0, |first| first.costs.stages.start);
    let seconds = total(counted.iter().map(|it| it.0), epochs, start)?;
    let cost = total(counted.iter().map(|it| it.1), epochs, start_cost)?;
    let (workers, memory) = (detail.shape.workers, detail.shape.memory);
    Some(Point { workers, memory, k: None, codec: None, device: None, seconds, cost, is_measured: true })
}

/// So many times the mean of some values, and what comes once; with how sure that is.
fn total(values: impl Iterator<Item = f64>, times: u64, once: f64) -> Option<Interval> {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let deviation = if mean > 0.0 { (variance / count).sqrt() / mean } else { 0.0 };
    let deviation = deviation.max(LEAST_DEVIATION / count.sqrt());
    let whole = mean * times as f64 + once;
    let logarithm = Interval::of_logarithm(0.0, deviation);
    Some(if whole > 0.0 { logarithm.times(whole) } else { Interval { expected: 0.0, least: 0.0, most: 0.0 } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_doubles_and_ends_where_it_is_to_end() {
        assert_eq!(doubling(1, 8), [1, 2, 4, 8]);
        assert_eq!(doubling(3, 10), [3, 6, 10]);
        assert_eq!(doubling(4, 4), [4]);
        assert_eq!(doubling(u64::MAX, u64::MAX), [u64::MAX]);
    }

    #[test]
    fn memory_is_chosen_in_eight_steps() {
        let step = |least: u64, most: u64| step(Sizes { least: least << 20, most: most << 20 }) >> 20;
        assert_eq!((step(128, 1024), step(64, 64), step(64, 80)), (112, 8, 8));
    }

    #[test]
    fn a_whole_job_is_its_epochs_and_its_start() {
        let interval = total([1.0, 1.2, 0.8].into_iter(), 10, 0.5).unwrap();
        assert!((interval.expected - 10.5).abs() < 1e-9, "{interval:?}");
        assert!(interval.least < 10.5 && 10.5 < interval.most && interval.most < 13.0, "{interval:?}");
        assert_eq!(total([].into_iter(), 10, 0.5), None);
        assert_eq!(total([0.0].into_iter(), 10, 0.0).map(|it| it.most), Some(0.0));
    }
}
