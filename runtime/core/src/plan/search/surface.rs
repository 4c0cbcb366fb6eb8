//! What an iteration takes with any shape, from those that were tried.

use super::{Probe, Size};
use crate::gaussian::Gaussian;
use crate::plan::bounds::Bounds;

/// What an iteration takes, as logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub log_seconds: f64,
    pub log_cost: f64,
    /// Of both, as cost is a number of times the time.
    pub deviation: f64,
}

/// How sure one can be of any shape at best: two runs of the same one differ by about that.
const LEAST_DEVIATION: f64 = 0.02;
/// What is fitted: the law's four parts, and the process's lengths, signal and noise.
const FITTED: f64 = 8.0;
/// How much less sure it is at the other end of what is possible, by the root of how many shapes were tried.
const FAR: f64 = 0.3;

#[derive(Clone, Debug)]
pub struct Surface {
    bounds: Bounds,
    law: Law,
    /// What the law leaves over, as logarithms.
    rest: Gaussian,
    /// A law and a process that were fitted to few points are surer than they should be: by so many times.
    doubt: f64,
    /// Where something was tried, the logarithm of what a second cost there.
    paid: Vec<([f64; 2], f64)>,
    /// The logarithm of a second's price for each shape is needed for those that were not tried.
    prices: Prices,
}

/// The price of a second by shape, and what was paid in proportion to it.
#[derive(Clone, Copy, Debug)]
struct Prices {
    fixed: f64,
    by_function: f64,
    by_gib: f64,
}

impl Prices {
    /// From the prices of three shapes: a price is linear in functions and in functions by memory.
    fn from(second: impl Fn(Size) -> f64) -> Self {
        let at = |workers: u32, memory: u64| second(Size { workers, memory });
        let (none, one, larger) = (at(0, 0), at(1, 0), at(1, 1 << 30));
        Self { fixed: none, by_function: one - none, by_gib: larger - one }
    }

    fn second(&self, size: Size) -> f64 {
        let gib = size.memory as f64 / (1_u64 << 30) as f64;
        self.fixed + f64::from(size.workers) * (self.by_function + self.by_gib * gib)
    }
}

impl Surface {
    /// The most likely surface, unless there is nothing to fit one to.
    pub fn fit(bounds: &Bounds, probes: &[Probe], second: impl Fn(Size) -> f64) -> Option<Self> {
        let prices = Prices::from(second);
        let law = Law::fit(bounds, probes)?;
        let points: Vec<Vec<f64>> = probes.iter().map(|it| unit(bounds, it.size).to_vec()).collect();
        let left: Vec<f64> = probes.iter().map(|it| (it.seconds / law.at(it.size)).ln()).collect();
        let rest = Gaussian::fit(&points, &left).ok()?;
        let paid =
            probes.iter().map(|it| (unit(bounds, it.size), (it.cost / (it.seconds * prices.second(it.size))).ln()));
        let doubt = (1.0 + FITTED / probes.len() as f64).sqrt();
        Some(Self { bounds: *bounds, law, rest, doubt, paid: paid.collect(), prices })
    }

    pub fn at(&self, size: Size) -> Estimate {
        let at = unit(&self.bounds, size);
        let left = self.rest.predict(&at);
        let log_seconds = self.law.at(size).ln() + left.mean;
        let squared = |tried: &[f64; 2]| tried.iter().zip(&at).map(|(one, other)| (one - other).powi(2)).sum::<f64>();
        let nearest = self.paid.iter().map(|(tried, _)| squared(tried)).fold(f64::INFINITY, f64::min).sqrt();
        let far = FAR * nearest / (self.paid.len() as f64).sqrt();
        let deviation = (left.deviation * self.doubt).hypot(LEAST_DEVIATION).hypot(far);
        let log_cost = log_seconds + self.prices.second(size).ln() + self.paid_near(&at);
        Estimate { log_seconds, log_cost, deviation }
    }

    /// What was paid in proportion to the price, from all that was tried, the nearest first.
    fn paid_near(&self, at: &[f64; 2]) -> f64 {
        let weighted = self.paid.iter().map(|(tried, ratio)| {
            let squared: f64 = tried.iter().zip(at).map(|(one, other)| (one - other).powi(2)).sum();
            let weight = (squared + 1e-6).powi(-2);
            (weight, weight * ratio)
        });
        let (weight, sum) = weighted.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        if weight > 0.0 { sum / weight } else { 0.0 }
    }
}

/// Where a shape lies between bounds, from 0 to 1, by logarithms.
fn unit(bounds: &Bounds, size: Size) -> [f64; 2] {
    let part =
        |least: f64, most: f64, value: f64| if most > least { (value / least).ln() / (most / least).ln() } else { 0.5 };
    [
        part(f64::from(bounds.least_workers), f64::from(bounds.most_workers), f64::from(size.workers.max(1))),
        part(bounds.least_memory as f64, bounds.most_memory as f64, size.memory.max(1) as f64),
    ]
}

/// Amdahl's law, with cores that are capped by memory: `fixed + shared / (workers · min(memory, full)) + each · workers`.
#[derive(Clone, Copy, Debug)]
struct Law {
    fixed: f64,
    shared: f64,
    each: f64,
    /// Bytes from which on more memory is no faster.
    full: f64,
}

/// Different sizes from which on more memory may be no faster.
const FULL_SIZES: i32 = 24;
/// Holds what few points leave open near zero, in squares of relative errors.
const HELD: f64 = 1e-5;

impl Law {
    fn features(size: Size, full: f64) -> [f64; 3] {
        let workers = f64::from(size.workers.max(1));
        [1.0, 1.0 / (workers * (size.memory.max(1) as f64).min(full) / full), workers]
    }

    fn at(&self, size: Size) -> f64 {
        let [one, shared, each] = Self::features(size, self.full);
        self.fixed * one + self.shared * shared + self.each * each
    }

    /// The law with the least relative errors of which no part is negative.
    fn fit(bounds: &Bounds, probes: &[Probe]) -> Option<Self> {
        let (least, most) = (bounds.least_memory as f64, bounds.most_memory as f64);
        let sizes = (0..=FULL_SIZES).map(|it| most * (least / most).powf(f64::from(it) / f64::from(FULL_SIZES)));
        let laws = sizes.flat_map(|full| (1..8_u8).filter_map(move |parts| Self::with_parts(probes, full, parts)));
        laws.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, law)| law)
    }

    /// The law with some of its three parts, and its relative errors squared.
    fn with_parts(probes: &[Probe], full: f64, parts: u8) -> Option<(f64, Self)> {
        let is_in = |part: usize| parts & (1 << part) != 0;
        let rows: Vec<[f64; 3]> =
            probes.iter().map(|it| Self::features(it.size, full).map(|feature| feature / it.seconds)).collect();
        let mut norms = [0.0_f64; 3];
        for row in &rows {
            for (norm, value) in norms.iter_mut().zip(row) {
                *norm += value * value;
            }
        }
        let norms = norms.map(f64::sqrt);
        // Parts that are left out have a row of their own, so that all systems have three unknowns.
        let mut system = [[0.0; 4]; 3];
        for (i, line) in system.iter_mut().enumerate() {
            for j in 0..3 {
                if is_in(i) && is_in(j) {
                    line[j] = rows.iter().map(|row| row[i] * row[j]).sum::<f64>() / (norms[i] * norms[j]);
                }
            }
            line[i] += if is_in(i) { HELD } else { 1.0 };
            line[3] = if is_in(i) { rows.iter().map(|row| row[i]).sum::<f64>() / norms[i] } else { 0.0 };
        }
        let scaled = solve(system)?;
        if scaled.iter().any(|it| !it.is_finite() || *it < 0.0) {
            return None;
        }
        let [fixed, shared, each] = [0, 1, 2].map(|part| scaled[part] / norms[part]);
        let law = Self { fixed, shared, each, full };
        let errors = probes.iter().map(|it| (law.at(it.size) / it.seconds - 1.0).powi(2)).sum::<f64>();
        (law.fixed + law.shared + law.each > 0.0).then_some((errors, law))
    }
}

/// Three equations with three unknowns, by elimination; the fourth column is what they equal.
fn solve(mut system: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let largest = (column..3).max_by(|a, b| system[*a][column].abs().total_cmp(&system[*b][column].abs()))?;
        system.swap(column, largest);
        let pivot = system[column];
        if pivot[column].abs() < 1e-14 {
            return None;
        }
        for (row, line) in system.iter_mut().enumerate() {
            if row != column {
                let factor = line[column] / pivot[column];
                line.iter_mut().zip(pivot).for_each(|(value, other)| *value -= factor * other);
            }
        }
    }
    Some([0, 1, 2].map(|row| system[row][3] / system[row][row]))
}
