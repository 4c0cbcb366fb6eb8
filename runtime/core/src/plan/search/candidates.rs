//! Which shapes there are to choose from, and which to try first.

use std::fmt;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::plan::bounds::Bounds;

/// Different numbers of workers, and different sizes, that are looked at. Beyond them, neighbours differ too little.
const MOST_WORKERS: u32 = 64;
const MOST_SIZES: u32 = 24;

/// How many workers, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    pub workers: u32,
    /// Bytes of each function.
    pub memory: u64,
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.workers == 1 { "worker" } else { "workers" };
        write!(out, "{} {noun} of {} MiB", self.workers, self.memory >> 20)
    }
}

/// All shapes within bounds, or as many of them as are different enough.
pub fn all(bounds: &Bounds) -> Vec<Size> {
    let count = bounds.most_workers - bounds.least_workers;
    let mut workers: Vec<u32> = if count < MOST_WORKERS {
        (bounds.least_workers..=bounds.most_workers).collect()
    } else {
        let spread = spread(f64::from(bounds.least_workers), f64::from(bounds.most_workers), MOST_WORKERS);
        spread.map(|it| bounds.workers(it.round() as u32)).collect()
    };
    let steps = (bounds.most_memory - bounds.least_memory) / bounds.memory_step;
    let mut memory: Vec<u64> = if steps < u64::from(MOST_SIZES) {
        (0..=steps).map(|step| bounds.least_memory + step * bounds.memory_step).collect()
    } else {
        let spread = spread(bounds.least_memory as f64, bounds.most_memory as f64, MOST_SIZES);
        spread.map(|it| bounds.memory(it as u64)).collect()
    };
    workers.dedup();
    memory.dedup();
    workers.into_iter().flat_map(|workers| memory.iter().map(move |&memory| Size { workers, memory })).collect()
}

/// Values that are each as many times the one before.
fn spread(least: f64, most: f64, count: u32) -> impl Iterator<Item = f64> {
    (0..count).map(move |it| least * (most / least).powf(f64::from(it) / f64::from(count - 1)))
}

/// Shapes to try first: the one that there is, and random ones, each from another quarter of what is possible.
pub fn first(bounds: &Bounds, current: Size, count: usize, seed: u64) -> Vec<Size> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let current = Size { workers: bounds.workers(current.workers), memory: bounds.memory(current.memory) };
    let halves = |least: f64, most: f64| (least.ln(), (most / least).ln() / 2.0);
    let workers = halves(f64::from(bounds.least_workers), f64::from(bounds.most_workers));
    let memory = halves(bounds.least_memory as f64, bounds.most_memory as f64);
    let is_high = |(low, half): (f64, f64), value: f64| value.ln() > low + half;
    let own = (is_high(workers, f64::from(current.workers)), is_high(memory, current.memory as f64));
    let mut sizes = vec![current];
    // The opposite quarter says the most, so it comes first.
    for (more_workers, more_memory) in [(!own.0, !own.1), (!own.0, own.1), (own.0, !own.1), own] {
        let mut draw = |(low, half): (f64, f64), is_high: bool| {
            let part = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            (low + half * (part + f64::from(u8::from(is_high)))).exp()
        };
        let size = Size {
            workers: bounds.workers(draw(workers, more_workers).round() as u32),
            memory: bounds.memory(draw(memory, more_memory) as u64),
        };
        if !sizes.contains(&size) && sizes.len() < count {
            sizes.push(size);
        }
    }
    sizes
}
