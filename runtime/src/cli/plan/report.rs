//! What was found out, as a table, as JSON and as a picture.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use weft_core::plan::aim::{Aim, Limits};
use weft_core::plan::analytic::epochs::Epochs;
use weft_core::plan::points::{Interval, Point, Recommendation, chart, pareto, recommend};
use weft_core::plan::words::{money, spoken};
use weft_core::spec::{Memory, PlanWords, Workers};

use super::probing::{Found, Profiling};
use super::{Question, command};
use crate::cli::output::{Output, Style, bytes};
use crate::job::JobSpec;

/// What was counted on a sample is off by so much, even where it was counted well.
const UNSURE: f64 = 1.15;

/// What is told of a plan.
#[derive(Debug, Serialize)]
pub struct Report {
    function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset: Option<String>,
    /// What times and costs are of.
    epochs: u64,
    aim: Aim,
    limits: Limits,
    /// Settings of which no other is both faster and cheaper, the fastest first.
    points: Vec<Point>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recommendation: Option<Recommendation>,
    /// The command that follows the recommendation.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    profiling: Profiling,
    /// How many epochs the goal needs, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Epochs>,
    /// All settings that were looked at.
    #[serde(skip)]
    all: Vec<Point>,
}

impl Report {
    pub fn new(question: &Question, mut found: Found) -> Self {
        if let Some(goal) = &question.goal {
            found.points.iter_mut().for_each(|point| widen(point, &goal.epochs));
        }
        let points = pareto(&found.points);
        let recommendation = recommend(&points, question.aim, &question.limits);
        let command = recommendation.as_ref().map(|it| command::of(&job(question, &points[it.point])));
        Self {
            function: question.spec.function.clone(),
            dataset: question.spec.dataset.clone(),
            epochs: question.spec.epochs,
            aim: question.aim,
            limits: question.limits,
            points,
            recommendation,
            command,
            profiling: found.profiling,
            estimate: question.goal.as_ref().map(|goal| goal.epochs.clone()),
            all: found.points,
        }
    }

    fn title(&self) -> String {
        let data = self.dataset.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
        let noun = if self.epochs == 1 { "epoch" } else { "epochs" };
        format!("{}{data}, {} {noun}", self.function, self.epochs)
    }

    /// Writes a picture of time against cost.
    pub fn draw(&self, path: &Path) -> anyhow::Result<()> {
        let recommended = self.recommendation.as_ref().map(|it| &self.points[it.point]);
        let place = recommended.and_then(|best| self.all.iter().position(|point| point == best));
        let picture = chart(&self.title(), &self.all, place, &self.limits);
        std::fs::write(path, picture).with_context(|| format!("cannot write `{}`", path.display()))
    }

    pub fn text(&self, out: &Output) -> String {
        let mut text = format!("{}\n\n", out.paint(Style::Bold, &self.title()));
        let has = |value: fn(&Point) -> &Option<String>| self.points.iter().any(|point| value(point).is_some());
        type Column = (&'static str, fn(&Point) -> &Option<String>);
        let columns: [Column; 3] = [("K", |it| &it.k), ("CODEC", |it| &it.codec), ("DEVICE", |it| &it.device)];
        let shown: Vec<Column> = columns.into_iter().filter(|(_, value)| has(*value)).collect();
        let best = self.recommendation.as_ref().map(|it| it.point);
        let row = |(index, point): (usize, &Point)| {
            let mark = if best == Some(index) { "*" } else { "" };
            let mut row = vec![mark.to_owned(), point.workers.to_string(), bytes(point.memory)];
            row.extend(shown.iter().map(|(_, value)| value(point).clone().unwrap_or_default()));
            row.push(spoken(point.seconds.expected));
            row.push(range(&point.seconds, spoken));
            row.push(money(point.cost.expected));
            row.push(range(&point.cost, money));
            row.push(if point.is_measured { "tried" } else { "estimated" }.to_owned());
            row
        };
        let rows: Vec<Vec<String>> = self.points.iter().enumerate().map(row).collect();
        let mut header = vec!["", "WORKERS", "MEMORY"];
        header.extend(shown.iter().map(|(name, _)| *name));
        header.extend(["TIME", "9 IN 10", "COST", "9 IN 10", ""]);
        text += &out.table(&header, &rows);
        if let Some(recommendation) = &self.recommendation {
            text += &format!("\n{}\n", recommendation.why);
        }
        if let Some(estimate) = &self.estimate {
            text += &format!("{}\n", estimate.why);
        }
        let Profiling { tries, seconds, cost } = self.profiling;
        text += &format!("Finding that out took {tries} tries, {} and {}.\n", spoken(seconds), money(cost));
        if let Some(command) = &self.command {
            text += &format!("\n{}\n", out.paint(Style::Bold, command));
        }
        text
    }
}

fn range(interval: &Interval, word: fn(f64) -> String) -> String {
    format!("{} to {}", word(interval.least), word(interval.most))
}

/// How many epochs are needed is not known exactly, so neither is what they take.
fn widen(point: &mut Point, epochs: &Epochs) {
    let least = epochs.least / epochs.expected;
    let most = epochs.most.map_or(UNSURE, |most| (most / epochs.expected).max(UNSURE));
    for interval in [&mut point.seconds, &mut point.cost] {
        (interval.least, interval.most) = (interval.least * least.min(1.0 / UNSURE), interval.most * most);
    }
}

/// The job that a point stands for.
fn job(question: &Question, point: &Point) -> JobSpec {
    let mut job = question.spec.clone();
    if let Some(goal) = &question.goal {
        // It ends at its goal; what was counted on a sample may be too few.
        (job.goal_accuracy, job.epochs) = (Some(goal.accuracy), goal.asked.max(2 * job.epochs));
    }
    job.workers = Workers::exactly(point.workers);
    job.memory = Memory::Bytes(point.memory);
    // A budget is kept by the job itself.
    let budget = question.limits.cost;
    job.plan = budget.map(|_| PlanWords { budget, ..PlanWords::default() });
    // What a point says was read from words such as these before.
    job.sync.k = point.k.as_ref().and_then(|k| k.parse().ok()).or(job.sync.k);
    job.sync.codec = point.codec.clone().or(job.sync.codec);
    job.device = point.device.clone().unwrap_or(job.device);
    job
}
