//! How far from the best value a search is after sixty trials: ours beside Optuna as its default comes, on the same functions
//! and tables, with the same seeds.
//!
//! Regret is normalised: what is left above the optimum, over what the median of points drawn by chance is above it. So each
//! function counts alike, and a search that learns nothing would come to a little under one.

use std::collections::BTreeMap;
use std::sync::mpsc;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use weft_core::tune::chance::{Chance, Purpose};
use weft_core::tune::sampler::{Observation, Sampler, SamplerKind, Seen};
use weft_core::tune::space::{Point, Space};
use weft_tests::bbob::{Bbob, NAMES, REACH};

use super::BENCH;
use crate::framework::{OPTUNA, Process};
use crate::{Measurement, is_wanted};

const TRIALS: u64 = 60;
const SEEDS: u64 = 20;
const DIMENSIONS: usize = 5;
/// Points drawn by chance, for what a function comes to without a search.
const DRAWN: usize = 501;

#[derive(Clone, Deserialize)]
struct Table {
    suite: String,
    sizes: Vec<usize>,
    is_ordered: bool,
    values: Vec<f64>,
}

#[derive(Deserialize)]
struct Tables {
    tables: Vec<Table>,
}

#[derive(Deserialize)]
struct Asked {
    point: Vec<f64>,
}

/// Something to minimise, of points in so many dimensions.
enum Problem {
    Function(&'static str),
    Table(Table),
}

/// One instance of it.
enum Instance<'a> {
    Function(Bbob),
    Table(&'a Table),
}

impl Instance<'_> {
    fn value(&self, point: &[f64]) -> f64 {
        match self {
            Self::Function(function) => function.value(point),
            Self::Table(table) => {
                let place =
                    table.sizes.iter().zip(point).fold(0, |place, (size, digit)| place * size + *digit as usize);
                table.values[place]
            }
        }
    }

    fn optimum(&self) -> f64 {
        match self {
            Self::Function(_) => 0.0,
            Self::Table(table) => table.values.iter().copied().fold(f64::INFINITY, f64::min),
        }
    }
}

impl Problem {
    fn suite(&self) -> &str {
        match self {
            Self::Function(_) => "bbob",
            Self::Table(table) => &table.suite,
        }
    }

    fn instance(&self, seed: u64) -> Result<Instance<'_>> {
        match self {
            Self::Function(name) => {
                let function = Bbob::new(name, DIMENSIONS, seed).with_context(|| format!("no function `{name}`"))?;
                Ok(Instance::Function(function))
            }
            Self::Table(table) => Ok(Instance::Table(table)),
        }
    }

    fn space(&self) -> Result<Space> {
        let words = |size: usize| (0..size).map(|place| format!("c{place}")).collect::<Vec<_>>().join("|");
        let texts: Vec<String> = match self {
            Self::Function(_) => (0..DIMENSIONS).map(|place| format!("x{place}=-{REACH}..{REACH}")).collect(),
            Self::Table(table) => (table.sizes.iter().enumerate())
                .map(|(place, size)| match table.is_ordered {
                    true => format!("x{place}=int:0..{}", size - 1),
                    false => format!("x{place}={}", words(*size)),
                })
                .collect(),
        };
        Ok(Space::parse(&texts)?)
    }

    /// The same space, in Optuna's words.
    fn dimensions(&self) -> Value {
        match self {
            Self::Function(_) => (0..DIMENSIONS).map(|_| json!({"low": -REACH, "high": REACH})).collect(),
            Self::Table(table) => {
                let word = if table.is_ordered { "whole" } else { "choices" };
                table.sizes.iter().map(|size| json!({ word: size })).collect()
            }
        }
    }
}

pub fn run() -> Result<()> {
    let mut optuna = OPTUNA.start("tune_optuna.py", &[])?;
    let tables: Tables = optuna.ask(&json!({"tables": true}))?;
    let problems = NAMES.into_iter().map(Problem::Function).chain(tables.tables.into_iter().map(Problem::Table));
    let problems: Vec<Problem> = problems.filter(|problem| is_wanted(&format!("regret.{}", problem.suite()))).collect();
    // Both at once, as only what they find is compared.
    let (ours, theirs) = std::thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        let problems = &problems;
        scope.spawn(move || {
            send.send(each(problems, |problem, instance, seed| theirs(problem, instance, seed, &mut optuna)))
        });
        let ours = each(problems, ours)?;
        Ok::<_, anyhow::Error>((ours, receive.recv().map_err(|_| anyhow!("Optuna's side ended early"))??))
    })?;
    for (suite, metric) in
        [("bbob", "regret.bbob"), ("hpobench", "regret.hpobench"), ("nasbench201", "regret.nasbench201")]
    {
        if let (Some(ours), Some(theirs)) = (ours.get(suite), theirs.get(suite)) {
            Measurement::beside(BENCH, metric, "share", mean(ours), mean(theirs)).print()?;
        }
    }
    Ok(())
}

/// The normalised regrets of each suite.
fn each(
    problems: &[Problem],
    mut best: impl FnMut(&Problem, &Instance<'_>, u64) -> Result<f64>,
) -> Result<BTreeMap<String, Vec<f64>>> {
    let mut regrets: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for problem in problems {
        for seed in 0..SEEDS {
            let instance = problem.instance(seed)?;
            let found = best(problem, &instance, seed)? - instance.optimum();
            let by_chance = by_chance(problem, &instance)? - instance.optimum();
            ensure!(by_chance > 0.0, "half of all points are optima");
            regrets.entry(problem.suite().to_owned()).or_default().push(found / by_chance);
        }
    }
    Ok(regrets)
}

fn ours(problem: &Problem, instance: &Instance<'_>, seed: u64) -> Result<f64> {
    let space = problem.space()?;
    let mut sampler = Sampler::new(SamplerKind::Auto, space, seed);
    let (mut done, mut best) = (Vec::new(), f64::INFINITY);
    for number in 0..TRIALS {
        let Some(point) = sampler.propose(number, Seen { done: &done, pending: &[] }) else { break };
        let value = instance.value(&coordinates(&point)?);
        best = value.min(best);
        done.push(Observation { point, value: Some(value) });
    }
    Ok(best)
}

fn theirs(problem: &Problem, instance: &Instance<'_>, seed: u64, optuna: &mut Process) -> Result<f64> {
    let mut asked: Asked = optuna.ask(&json!({"begin": seed, "space": problem.dimensions()}))?;
    let mut best = f64::INFINITY;
    for number in 0..TRIALS {
        let value = instance.value(&asked.point);
        best = value.min(best);
        if number + 1 < TRIALS {
            asked = optuna.ask(&json!({ "value": value }))?;
        }
    }
    Ok(best)
}

/// What half of all points are better than.
fn by_chance(problem: &Problem, instance: &Instance<'_>) -> Result<f64> {
    let space = problem.space()?;
    let draw = |number: usize| {
        let point = space.draw(&mut Chance::new(0, Purpose::Point, number as u64));
        Ok(instance.value(&coordinates(&point)?))
    };
    let mut values = (0..DRAWN).map(draw).collect::<Result<Vec<f64>>>()?;
    values.sort_by(f64::total_cmp);
    Ok(values[DRAWN / 2])
}

/// The numbers of a point, in order; of a word its place.
fn coordinates(point: &Point) -> Result<Vec<f64>> {
    let number = |place: usize| {
        let value = point.get(&format!("x{place}")).with_context(|| format!("no `x{place}`"))?;
        match value.number() {
            Some(number) => Ok(number),
            None => Ok(value.to_string().trim_start_matches('c').parse()?),
        }
    };
    (0..point.len()).map(number).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
