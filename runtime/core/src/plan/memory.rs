//! How large workers are, tuned while they train (Feng et al., section III-D).
//!
//! Two random sizes are tried for a few iterations each; the slope between the last two then says where to step next:
//! towards lower cost `C(z) = p·n·z·t(z)`, or towards a higher ratio of performance to cost `R(z) = f / (C(z)·t(z))`.
//!
//! What the paper leaves open is settled so:
//! - The two random sizes lie at least a third of the range apart: between close ones, a slope is mostly noise.
//! - Equation 6 steps from the first size, equation 9 from the latest; here a step is from the better one of the last two.
//! - The step size has a unit that the paper does not give. Here sizes are scaled to their range and the slope is that of
//!   the logarithm, so it has none: it begins with a quarter, is halved whenever the direction turns, and grows while it
//!   stays.
//! - Two sizes on either side of the optimum may have the same value, so that there is no slope between them. So once the
//!   best size lies between others, or the slope leads to a size that was tried already, the wider gap beside the best one
//!   is halved instead, or else any that is wider than a third of the range.
//! - Once there is no such gap, it ends, and the best size *seen* is used, which need not be the last.

use std::cmp::Ordering;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::bounds::Bounds;

/// Iterations that each size is tried for.
pub const ITERATIONS: u64 = 10;
/// Steps that follow on the two random sizes.
pub const STEPS: u32 = 5;
/// The first step size, as a part of the range for a slope of one.
const FIRST_RATE: f64 = 0.25;
/// It grows by so much while the direction stays.
const FURTHER: f64 = 1.5;
/// A gap is wide that is more than the range over this.
const WIDE: u64 = 3;

/// What a size is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The least cost.
    Cost,
    /// The most performance for the cost.
    Ratio,
}

/// A size that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    pub memory: u64,
    /// What one iteration took.
    pub seconds: f64,
    pub cost: f64,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Train this many iterations with this size, and tell what they took.
    Try { memory: u64, iterations: u64, why: String },
    /// Nothing more is tried.
    Settled { memory: u64, why: String },
}

/// Tunes the memory of workers.
#[derive(Clone, Debug)]
pub struct MemoryTuner {
    objective: Objective,
    bounds: Bounds,
    /// The two sizes to begin with.
    first: [u64; 2],
    tried: Vec<Tried>,
    rate: f64,
    /// Whether the last step went to larger sizes.
    direction: Option<bool>,
    /// Where the last look led, or that it led nowhere.
    next: Option<(u64, String)>,
}

impl MemoryTuner {
    /// Begins with two different sizes that follow from the seed.
    pub fn new(objective: Objective, bounds: &Bounds, seed: u64) -> Self {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let sizes = (bounds.most_memory - bounds.least_memory) / bounds.memory_step.max(1) + 1;
        let size = |index: u64| bounds.least_memory + index * bounds.memory_step;
        let one = random.next_u64() % sizes;
        // The other one is counted on from the first, around the range, by a third to two thirds of it.
        let apart = sizes.div_ceil(3);
        let other = (one + apart + random.next_u64() % (sizes.saturating_sub(2 * apart) + 1)) % sizes;
        let first = [size(one), size(other)];
        let next = Some((first[0], "A random size to begin with.".to_owned()));
        Self { objective, bounds: *bounds, first, tried: Vec::new(), rate: FIRST_RATE, direction: None, next }
    }

    /// What to do next. It stays the same until something is told.
    pub fn ask(&self) -> Next {
        if let Some((memory, why)) = &self.next {
            return Next::Try { memory: *memory, iterations: ITERATIONS, why: why.clone() };
        }
        match self.best() {
            Some(best) => {
                let (merit, name) = match self.objective {
                    Objective::Cost => (best.cost, "costs the least"),
                    Objective::Ratio => (1.0 / (best.cost * best.seconds), "gives the most for its cost"),
                };
                let (size, tried) = (mib(best.memory), self.tried.len());
                let why = format!("Of {tried} sizes that were tried, {size} MiB {name} ({merit:.3e} per iteration).");
                Next::Settled { memory: best.memory, why }
            }
            None => Next::Settled {
                memory: self.first[0],
                why: "No size gave a time and a cost that say anything: the first one stays.".to_owned(),
            },
        }
    }

    /// What iterations with a size took, each, on average.
    pub fn tell(&mut self, tried: Tried) {
        if tried.seconds.is_finite() && tried.seconds > 0.0 && tried.cost.is_finite() && tried.cost > 0.0 {
            self.tried.push(tried);
            self.next = self.step();
        } else {
            // A size that cannot even be measured is not tried again.
            self.next = self.next.take().filter(|(memory, _)| *memory == self.first[0] && self.first[1] != *memory);
            self.next =
                self.next.take().map(|_| (self.first[1], "The first size gave no measure: another.".to_owned()));
        }
    }

    /// The best size that was tried.
    pub fn best(&self) -> Option<Tried> {
        let by_merit =
            |one: &Tried, other: &Tried| self.loss(one).partial_cmp(&self.loss(other)).unwrap_or(Ordering::Equal);
        self.tried.iter().copied().min_by(by_merit)
    }

    /// All that was tried, in order.
    pub fn tried(&self) -> &[Tried] {
        &self.tried
    }

    /// What is to become less: cost, or cost times time, which is the ratio upside down.
    fn loss(&self, tried: &Tried) -> f64 {
        match self.objective {
            Objective::Cost => tried.cost,
            Objective::Ratio => tried.cost * tried.seconds,
        }
    }

    /// The quantity whose slope is followed downwards: the logarithm, so that a slope is a part of the present value.
    fn scaled(&self, tried: &Tried) -> f64 {
        self.loss(tried).ln()
    }

    /// The size to try next, unless there is none.
    fn step(&mut self) -> Option<(u64, String)> {
        let [.., before, last] = self.tried.as_slice() else {
            let other = self.first[1];
            return (other != self.first[0]).then(|| (other, "Another random size, for a slope.".to_owned()));
        };
        let (before, last) = (*before, *last);
        if self.tried.len() as u32 >= STEPS + 2 || before.memory == last.memory {
            return None;
        }
        let range = (self.bounds.most_memory - self.bounds.least_memory) as f64;
        let distance = (last.memory as f64 - before.memory as f64) / range;
        let slope = (self.scaled(&last) - self.scaled(&before)) / distance;
        let is_up = slope < 0.0;
        match self.direction {
            Some(before) if before != is_up => self.rate /= 2.0,
            Some(_) => self.rate *= FURTHER,
            None => {}
        }
        self.direction = Some(is_up);
        let better = if self.loss(&before) < self.loss(&last) { before } else { last };
        let aimed = better.memory as f64 - self.rate * slope * range;
        let next = self.bounds.memory(aimed.max(0.0) as u64);
        let is_enclosed = self.best().is_some_and(|best| {
            let is_beside = |side: Ordering| self.tried.iter().any(|it| it.memory.cmp(&best.memory) == side);
            is_beside(Ordering::Less) && is_beside(Ordering::Greater)
        });
        if is_enclosed || self.tried.iter().any(|it| it.memory == next) {
            return self.gap();
        }
        let (from, to, way) = (mib(before.memory), mib(last.memory), if is_up { "more" } else { "less" });
        let was = if (last.memory > before.memory) == is_up { "better" } else { "worse" };
        let why = format!("From {from} to {to} MiB it got {was}, so towards {way} memory: {} MiB.", mib(next));
        Some((next, why))
    }

    /// The middle of the wider gap beside the best size that was tried; if there is none, of any gap that is wide.
    fn gap(&self) -> Option<(u64, String)> {
        let best = self.best()?.memory;
        let mut sizes: Vec<u64> = self.tried.iter().map(|it| it.memory).collect();
        sizes.sort_unstable();
        let middle = |gap: &[u64]| self.bounds.memory(gap[0].midpoint(gap[1]));
        let gaps = || sizes.windows(2).filter(|gap| !gap.contains(&middle(gap)));
        let width = |gap: &&[u64]| gap[1] - gap[0];
        let wide = (self.bounds.most_memory - self.bounds.least_memory) / WIDE;
        let beside = gaps().filter(|gap| gap.contains(&best)).max_by_key(width);
        let gap = beside.or_else(|| gaps().filter(|gap| width(gap) > wide).max_by_key(width))?;
        let (low, high, next) = (mib(gap[0]), mib(gap[1]), middle(gap));
        let why = format!("Of those tried, {} MiB is best; between {low} and {high}: {} MiB.", mib(best), mib(next));
        Some((next, why))
    }
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

#[cfg(test)]
mod tests;
