//! What one may choose between: settings of a job with the time and the cost of each.
//!
//! A setting is worth showing if no other one is both faster and cheaper. The recommendation is one of those, with the
//! reason in words. [`chart`] draws them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::aim::{Aim, Limits};
use super::words::{money, spoken};

mod chart;

pub use chart::chart;

/// A value that is not known exactly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Interval {
    pub expected: f64,
    /// Nine times in ten it is between these.
    pub least: f64,
    pub most: f64,
}

impl Interval {
    /// Around the exponential of a mean, by the deviation of its logarithm.
    pub fn of_logarithm(mean: f64, deviation: f64) -> Self {
        const NINE_IN_TEN: f64 = 1.645;
        let at = |deviations: f64| (mean + deviations * deviation).exp();
        Self { expected: at(0.0), least: at(-NINE_IN_TEN), most: at(NINE_IN_TEN) }
    }

    pub fn times(&self, factor: f64) -> Self {
        Self { expected: self.expected * factor, least: self.least * factor, most: self.most * factor }
    }
}

/// A setting, and what a job takes with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    pub workers: u32,
    /// Bytes of each function.
    pub memory: u64,
    /// Steps between averages, where the job averages weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    pub seconds: Interval,
    pub cost: Interval,
    /// Whether this setting was tried, or only its neighbours.
    pub is_measured: bool,
}

impl Point {
    /// The setting in words: `8 workers of 512 MiB, k 16`.
    pub fn setting(&self) -> String {
        let noun = if self.workers == 1 { "worker" } else { "workers" };
        let words = [("k ", &self.k), ("codec ", &self.codec), ("on ", &self.device)];
        let rest = words.into_iter().filter_map(|(word, value)| Some(format!(", {word}{}", value.as_ref()?)));
        format!("{} {noun} of {} MiB{}", self.workers, self.memory >> 20, rest.collect::<String>())
    }

    fn is_within(&self, limits: &Limits) -> bool {
        limits.seconds.is_none_or(|most| self.seconds.most <= most)
            && limits.cost.is_none_or(|most| self.cost.most <= most)
    }

    /// Whether times and costs are numbers that can be compared and drawn.
    fn is_sound(&self) -> bool {
        [self.seconds, self.cost]
            .iter()
            .flat_map(|it| [it.least, it.expected, it.most])
            .all(|it| it.is_finite() && it >= 0.0)
    }
}

/// The points that no other one beats in both time and cost, the fastest first.
pub fn pareto(points: &[Point]) -> Vec<Point> {
    let mut sorted: Vec<&Point> = points.iter().filter(|it| it.is_sound()).collect();
    sorted.sort_by(|one, other| {
        let by_time = one.seconds.expected.total_cmp(&other.seconds.expected);
        by_time.then(one.cost.expected.total_cmp(&other.cost.expected))
    });
    let mut cheapest = f64::INFINITY;
    sorted.retain(|it| {
        let is_cheaper = it.cost.expected < cheapest;
        cheapest = cheapest.min(it.cost.expected);
        is_cheaper
    });
    sorted.into_iter().cloned().collect()
}

/// Which point to take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Recommendation {
    /// Its place among the points.
    pub point: usize,
    /// Whether it keeps the limits nine times in ten or more.
    pub is_within: bool,
    pub why: String,
}

/// The best of the points for an aim within limits; where none keeps them, the one that misses them by least.
pub fn recommend(points: &[Point], aim: Aim, limits: &Limits) -> Option<Recommendation> {
    let value = |point: &Point| match aim {
        Aim::Cheapest => point.cost.expected,
        Aim::Fastest => point.seconds.expected,
    };
    let sound = || points.iter().enumerate().filter(|(_, it)| it.is_sound());
    let within = sound().filter(|(_, it)| it.is_within(limits)).min_by(|a, b| value(a.1).total_cmp(&value(b.1)));
    if let Some((index, point)) = within {
        let name = match aim {
            Aim::Cheapest => "the cheapest",
            Aim::Fastest => "the fastest",
        };
        let kept = sound().filter(|(_, it)| it.is_within(limits)).count();
        let why = format!(
            "{} is {name}{} of {kept} settings: about {} for about {}.",
            point.setting(),
            limits.words(),
            spoken(point.seconds.expected),
            money(point.cost.expected)
        );
        return Some(Recommendation { point: index, is_within: true, why });
    }
    let missed = |point: &Point| {
        let seconds = limits.seconds.map_or(0.0, |most| point.seconds.most / most);
        seconds.max(limits.cost.map_or(0.0, |most| point.cost.most / most))
    };
    let (index, point) = sound().min_by(|a, b| missed(a.1).total_cmp(&missed(b.1)))?;
    let why = format!(
        "No setting is sure to be done{}. {} misses that by least: about {} for about {}.",
        limits.words(),
        point.setting(),
        spoken(point.seconds.expected),
        money(point.cost.expected)
    );
    Some(Recommendation { point: index, is_within: false, why })
}

#[cfg(test)]
mod tests;
