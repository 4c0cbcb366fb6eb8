//! `weft job history NAME --plan`: what was decided about a job's workers, and what came of it.

use weft_core::plan::points::{Interval, Point};
use weft_core::plan::policy::{Action, Kept};

use crate::api::types::PlanView;
use crate::cli::client::Client;
use crate::cli::output::{Output, bytes, harmless};
use crate::cli::train::seconds;
use crate::names::Name;

pub fn show(name: &Name, client: &Client, out: &Output) -> anyhow::Result<()> {
    let plan = client.job_plan(name)?;
    out.show(&plan, || describe(&plan, out))
}

fn describe(plan: &PlanView, out: &Output) -> String {
    let mut rows = vec![("policy", plan.policy.clone())];
    rows.extend(plan.limits.seconds.map(|limit| ("deadline", seconds(limit))));
    rows.extend(plan.limits.cost.map(|limit| ("budget", money(limit))));
    rows.push(("workers", format!("{}, {} each", plan.shape.workers, bytes(plan.shape.memory))));
    rows.push(("spent", format!("{} in {}", money(plan.spent.cost), seconds(plan.spent.seconds))));
    let tries = plan.spent.probes;
    if tries > 0 {
        let (cost, time) = (money(plan.spent.probing_cost), seconds(plan.spent.probing_seconds));
        rows.push(("of that", format!("{cost} in {time} for {tries} tries")));
    }
    rows.extend(plan.recommendation.as_ref().map(|choice| ("choice", harmless(&choice.why))));
    let mut text = out.fields(&rows);
    if !plan.decisions.is_empty() {
        text += &format!("\n\n{}", decisions(plan, out));
    }
    if !plan.points.is_empty() {
        text += &format!("\n\n{}", points(plan, out));
    }
    text
}

fn decisions(plan: &PlanView, out: &Output) -> String {
    let row = |(at, kept): (usize, &Kept)| {
        let decision = &kept.decision;
        let what = match decision.action {
            Action::Keep => "keep".to_owned(),
            Action::Reshape(shape) => format!("{} x {}", shape.workers, bytes(shape.memory)),
            Action::Stop => "end".to_owned(),
        };
        let step = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{:.2} ms", value * 1e3));
        let cost = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2e}"));
        let (expected, came) = (decision.expected, kept.came);
        vec![
            (plan.forgotten + at as u64 + 1).to_string(),
            if decision.is_probe { "try".to_owned() } else { String::new() },
            what,
            came.map_or_else(String::new, |came| format!("{} x {}", came.shape.workers, bytes(came.shape.memory))),
            came.map_or_else(String::new, |came| came.steps.to_string()),
            step(expected.map(|it| it.step_seconds)),
            step(came.map(|it| it.step_seconds)),
            cost(expected.map(|it| it.step_cost)),
            cost(came.map(|it| it.step_cost)),
            harmless(&decision.why),
        ]
    };
    let rows: Vec<Vec<String>> = plan.decisions.iter().enumerate().map(row).collect();
    let header = ["NO", "", "DECIDED", "HAD", "STEPS", "EXPECTED", "CAME", "COST EXPECTED", "CAME", "WHY"];
    out.table(&header, &rows)
}

fn points(plan: &PlanView, out: &Output) -> String {
    let chosen = plan.recommendation.as_ref().map(|choice| choice.point);
    let row = |(at, point): (usize, &Point)| {
        let between = |it: &Interval, say: fn(f64) -> String| format!("{} to {}", say(it.least), say(it.most));
        vec![
            if chosen == Some(at) { "*".to_owned() } else { String::new() },
            point.workers.to_string(),
            bytes(point.memory),
            seconds(point.seconds.expected),
            between(&point.seconds, seconds),
            money(point.cost.expected),
            between(&point.cost, money),
            if point.is_measured { "tried".to_owned() } else { String::new() },
        ]
    };
    let rows: Vec<Vec<String>> = plan.points.iter().enumerate().map(row).collect();
    out.table(&["", "WORKERS", "MEMORY", "TIME", "", "COST", "", ""], &rows)
}

/// An amount with as many digits as tell small jobs apart.
fn money(amount: f64) -> String {
    if amount >= 0.1 { format!("{amount:.3}") } else { format!("{amount:.6}") }
}
