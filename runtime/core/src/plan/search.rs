//! Which workers, and how large: found by trying few of them (SMLT, sections 3.2 and 4.1).
//!
//! A handful of shapes is tried for a few real iterations each. A Gaussian process on the logarithm of an iteration's time
//! says what the others would take, and how sure that is; the next one to try is where the expected improvement, times the
//! probability that the limits are kept, is largest. SMLT leaves open what its process models, and what improvement means
//! under a limit. Here:
//! - There is one process, for time. Cost is time by the price of a second, so a limit on either is a limit on the
//!   logarithm of an iteration's time, and the probability of keeping both is one value of Φ.
//! - Most of what time depends on is known: Amdahl's law, with cores that are capped by memory, and an exchange that each
//!   worker adds to. So the process is fitted to what that leaves over.
//! - What was paid differs from the price of a second, as a device costs by how busy it is. The ratio is known where
//!   something was tried, and taken from the nearest of those elsewhere.

use serde::{Deserialize, Serialize};

use self::surface::{Estimate, Surface};
use super::aim::{Aim, Limits};
use super::bounds::Bounds;
use super::points::{Interval, Point};
use super::prices::{GIB, PriceTable};
use super::words::{money, spoken};
use crate::gaussian::expected_improvement;
use crate::gaussian::normal::probability;

mod candidates;
mod surface;

pub use candidates::Size;

/// Shapes that are tried before the process is asked, with the one that the job has.
pub const FIRST: usize = 4;
/// Shapes that are tried at most.
pub const PROBES: usize = 12;
/// Shapes that are tried before a small expected gain ends it: a process that has seen fewer is too sure of itself.
pub const TRUSTED: usize = 8;
/// A gain of less than this part of the best value so far is not worth another try.
const LEAST_GAIN: f64 = 0.01;
/// How sure it must be that limits are kept.
const SURE: f64 = 0.95;

/// What a second of a shape costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Of each function, whatever its size.
    pub function_second: f64,
    /// Of each GiB of it.
    pub gib_second: f64,
    /// Of what there is once: the store through which workers exchange.
    #[serde(default)]
    pub fixed_second: f64,
}

impl Rate {
    /// By a price table, for functions that keep so many cores busy.
    pub fn of(prices: &PriceTable, cores: f64) -> Self {
        Self { function_second: prices.core_second * cores, gib_second: prices.gib_second, fixed_second: 0.0 }
    }

    /// A second of so many functions, and never nothing: where all is free, fewer and smaller ones are still cheaper.
    pub fn second(&self, functions: f64, memory: u64) -> f64 {
        const NEARLY_FREE: f64 = 1e-12;
        let gib = memory as f64 / GIB;
        self.fixed_second + functions * (self.function_second + self.gib_second * gib + NEARLY_FREE * (1.0 + gib))
    }
}

/// What iterations with a shape took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub size: Size,
    pub iterations: u64,
    /// Of one iteration, on average.
    pub seconds: f64,
    pub cost: f64,
}

/// What is still to be done, and within what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rest {
    pub iterations: u64,
    pub limits: Limits,
}

/// What is to be tried next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Try {
        size: Size,
        why: String,
    },
    /// Another try would not pay.
    Done {
        why: String,
    },
}

/// The shape to go on with.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub size: Size,
    /// Of the rest of the job.
    pub seconds: Interval,
    pub cost: Interval,
    /// How likely it is that all limits are kept.
    pub sure: f64,
    pub is_feasible: bool,
    pub why: String,
}

/// A search over workers and their memory.
#[derive(Clone, Debug)]
pub struct Search {
    bounds: Bounds,
    rate: Rate,
    fan_out: u32,
    /// Shapes to begin with, the job's own first.
    first: Vec<Size>,
    probes: Vec<Probe>,
    surface: Option<Surface>,
}

impl Search {
    /// Begins at the shape that the job has. Which others are tried first follows from the seed.
    pub fn new(bounds: &Bounds, rate: Rate, fan_out: u32, current: Size, seed: u64) -> Self {
        let first = candidates::first(bounds, current, FIRST, seed);
        Self { bounds: *bounds, rate, fan_out, first, probes: Vec::new(), surface: None }
    }

    /// Adds what a shape took. What the same shape took before is averaged with it, by iterations.
    pub fn tell(&mut self, probe: Probe) {
        let is_sound = |value: f64| value.is_finite() && value > 0.0;
        if !is_sound(probe.seconds) || probe.iterations == 0 {
            return;
        }
        let by_price = probe.seconds * self.second(probe.size);
        let probe = Probe { cost: if is_sound(probe.cost) { probe.cost } else { by_price }, ..probe };
        match self.probes.iter_mut().find(|it| it.size == probe.size) {
            Some(known) => {
                let iterations = known.iterations + probe.iterations;
                let part = probe.iterations as f64 / iterations as f64;
                known.seconds = (known.seconds.ln() * (1.0 - part) + probe.seconds.ln() * part).exp();
                known.cost = (known.cost.ln() * (1.0 - part) + probe.cost.ln() * part).exp();
                known.iterations = iterations;
            }
            None => self.probes.push(probe),
        }
        self.surface = Surface::fit(&self.bounds, &self.probes, |size| self.second(size));
    }

    /// Everything takes so many times as long as it did: the machine has become slower, or faster.
    pub fn drift(&mut self, ratio: f64) {
        for probe in &mut self.probes {
            probe.seconds *= ratio;
            probe.cost *= ratio;
            // It is an old measure now, and gives way to new ones.
            probe.iterations = 1;
        }
        self.surface = Surface::fit(&self.bounds, &self.probes, |size| self.second(size));
    }

    /// What was tried, in order.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// What was measured with a shape.
    pub fn known(&self, size: Size) -> Option<&Probe> {
        self.probes.iter().find(|it| it.size == size)
    }

    /// The seconds and the cost of one iteration with a shape that one must reckon with: before there is anything to go
    /// by but other shapes, as if nothing were gained by more workers or more memory.
    pub fn at_most(&self, size: Size) -> Option<(f64, f64)> {
        if self.probes.len() >= FIRST
            && let Some(surface) = &self.surface
        {
            let estimate = surface.at(size);
            let spread = (2.0 * estimate.deviation).exp();
            return Some((estimate.log_seconds.exp() * spread, estimate.log_cost.exp() * spread));
        }
        let seconds = |it: &Probe| {
            let fewer = f64::from(it.size.workers) / f64::from(size.workers);
            it.seconds * fewer.max(1.0) * (it.size.memory as f64 / size.memory as f64).max(1.0)
        };
        let seconds = self.probes.iter().map(seconds).reduce(f64::min)?;
        let paid = self.probes.iter().map(|it| it.cost / (it.seconds * self.second(it.size))).fold(0.0, f64::max);
        Some((seconds, seconds * self.second(size) * paid))
    }

    /// What to try next for an aim, within bounds that may be narrower than those of the search.
    pub fn next(&self, aim: Aim, rest: &Rest, within: &Bounds) -> Next {
        if self.probes.len() < FIRST {
            let within = |it: &Size| Size { workers: within.workers(it.workers), memory: within.memory(it.memory) };
            if let Some(size) = self.first.iter().map(within).find(|it| self.known(*it).is_none()) {
                let why = format!("{} of at most {FIRST} shapes to begin with: {size}.", self.probes.len() + 1);
                return Next::Try { size, why };
            }
        }
        let done = |why: String| Next::Done { why };
        if self.probes.len() >= PROBES {
            return done(format!("{PROBES} shapes were tried, which is the most."));
        }
        let Some(surface) = &self.surface else { return done("Nothing could be measured.".to_owned()) };
        // What was measured is no better known than its noise: the best value is one that was measured within limits.
        let value = |it: &Estimate| match aim {
            Aim::Cheapest => it.log_cost,
            Aim::Fastest => it.log_seconds,
        };
        let tried = self.probes.iter().map(|it| surface.at(it.size));
        let kept = tried.filter(|it| it.log_seconds <= self.limit(it, rest));
        let best = kept.map(|it| value(&it)).reduce(f64::min);
        let fresh = candidates::all(within).into_iter().filter(|it| self.known(*it).is_none());
        let scored = fresh.map(|size| {
            let estimate = surface.at(size);
            let kept = self.kept(&estimate, rest);
            // Where nothing keeps the limits, whatever may keep them is an improvement.
            let gain = match best {
                Some(best) => expected_improvement(value(&estimate), estimate.deviation, best),
                None => 1.0,
            };
            (size, gain * kept, kept)
        });
        let Some((size, gain, kept)) = scored.reduce(|best, it| if it.1 > best.1 { it } else { best }) else {
            return done("Every shape was tried.".to_owned());
        };
        let percent = 100.0 * gain;
        match best {
            _ if gain < LEAST_GAIN && self.probes.len() >= TRUSTED => {
                done(format!("No other shape promises a gain of {} % or more.", 100.0 * LEAST_GAIN))
            }
            Some(_) => {
                let sure = 100.0 * kept;
                let why = format!("{size} promises a gain of {percent:.1} %, and keeps the limits with {sure:.0} %.");
                Next::Try { size, why }
            }
            None => {
                let why = format!("Nothing that was tried keeps the limits; {size} does with {percent:.0} %.");
                Next::Try { size, why }
            }
        }
    }

    /// The best shape for an aim; where none keeps the limits, the one that misses them by least.
    pub fn choose(&self, aim: Aim, rest: &Rest, within: &Bounds) -> Option<Choice> {
        let surface = self.surface.as_ref()?;
        let tried = self.probes.iter().map(|it| it.size);
        let sizes = candidates::all(within).into_iter().chain(tried.filter(|it| within.hold(it.workers, it.memory)));
        let all: Vec<(Size, Estimate)> = sizes.map(|size| (size, surface.at(size))).collect();
        let value = |it: &Estimate| match aim {
            Aim::Cheapest => it.log_cost,
            Aim::Fastest => it.log_seconds,
        };
        let sure = all.iter().filter(|(_, it)| self.kept(it, rest) >= SURE);
        // Of two that promise the same, the one that is better known.
        let best = sure.min_by(|a, b| {
            let careful = |it: &Estimate| value(it) + 0.5 * it.deviation;
            careful(&a.1).total_cmp(&careful(&b.1))
        });
        if let Some((size, _)) = best {
            return self.weigh(*size, aim, rest);
        }
        let missed = |it: &Estimate| it.log_seconds - self.limit(it, rest);
        let (size, _) = all.iter().min_by(|a, b| missed(&a.1).total_cmp(&missed(&b.1)))?;
        self.weigh(*size, aim, rest)
    }

    /// What the rest of the job would take with a shape, and why one would take it.
    pub fn weigh(&self, size: Size, aim: Aim, rest: &Rest) -> Option<Choice> {
        let estimate = self.surface.as_ref()?.at(size);
        let iterations = rest.iterations as f64;
        // The mean of many iterations is off by what the surface does not know, not by the noise of each.
        let seconds = Interval::of_logarithm(estimate.log_seconds, estimate.deviation).times(iterations);
        let cost = Interval::of_logarithm(estimate.log_cost, estimate.deviation).times(iterations);
        let sure = self.kept(&estimate, rest);
        let is_feasible = sure >= 0.5;
        let (time, price, limits) = (spoken(seconds.expected), money(cost.expected), rest.limits.words());
        let why = match (is_feasible, aim) {
            (true, Aim::Cheapest) => format!("{size} is expected to be the cheapest{limits}: {time} more for {price}."),
            (true, Aim::Fastest) => format!("{size} is expected to be the fastest{limits}: {time} more for {price}."),
            (false, _) => {
                format!(
                    "No shape is expected to be done{limits}. {size} misses that by least: {time} more for {price}."
                )
            }
        };
        Some(Choice { size, seconds, cost, sure, is_feasible, why })
    }

    /// All shapes, with what the rest of the job takes with them.
    pub fn points(&self, rest: &Rest) -> Vec<Point> {
        let mut sizes = candidates::all(&self.bounds);
        sizes.extend(self.probes.iter().map(|it| it.size));
        sizes.sort_unstable();
        sizes.dedup();
        let point = |size: Size| {
            let choice = self.weigh(size, Aim::Cheapest, rest)?;
            let is_measured = self.known(size).is_some();
            let (workers, memory) = (size.workers, size.memory);
            let (seconds, cost) = (choice.seconds, choice.cost);
            Some(Point { workers, memory, k: None, codec: None, device: None, seconds, cost, is_measured })
        };
        sizes.into_iter().filter_map(point).collect()
    }

    fn second(&self, size: Size) -> f64 {
        self.rate.second(f64::from(size.workers) * f64::from(self.fan_out.max(1)), size.memory)
    }

    /// The logarithm of an iteration's time with which all limits are just kept.
    fn limit(&self, estimate: &Estimate, rest: &Rest) -> f64 {
        let iterations = rest.iterations.max(1) as f64;
        let logarithm = |it: f64| if it > 0.0 { (it / iterations).ln() } else { f64::NEG_INFINITY };
        let by_time = rest.limits.seconds.map_or(f64::INFINITY, logarithm);
        // Cost is a number of times the time, so a limit of cost is one of time.
        let by_cost = rest.limits.cost.map_or(f64::INFINITY, logarithm) - (estimate.log_cost - estimate.log_seconds);
        by_time.min(by_cost)
    }

    /// How likely it is that all limits are kept.
    fn kept(&self, estimate: &Estimate, rest: &Rest) -> f64 {
        match self.limit(estimate, rest) {
            f64::INFINITY => 1.0,
            f64::NEG_INFINITY => 0.0,
            limit => probability((limit - estimate.log_seconds) / estimate.deviation),
        }
    }
}

#[cfg(test)]
mod tests;
