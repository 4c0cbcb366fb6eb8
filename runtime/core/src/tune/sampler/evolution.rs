//! Children of the best: regularised evolution (Real et al. 2019, "Regularized evolution for image classifier architecture
//! search", algorithm 1). Of the youngest trials some are looked at, and the best of these gets a child that differs in
//! about one parameter. Good for architectures, of which only changes have a meaning and distances have none.

use super::Seen;
use crate::tune::chance::Chance;
use crate::tune::space::{Point, Space};

/// So many trials are drawn, then so many live, and so many of them compete for the next child.
const FIRST: usize = 20;
const ALIVE: usize = 40;
const COMPETE: usize = 10;

pub fn propose(space: &Space, seen: Seen<'_>, chance: &mut Chance) -> Point {
    let alive = &seen.done[seen.done.len().saturating_sub(ALIVE)..];
    if seen.done.len() + seen.pending.len() < FIRST || alive.is_empty() {
        return space.draw(chance);
    }
    let rivals = (0..COMPETE).map(|_| &alive[chance.below(alive.len())]);
    let worth = |value: Option<f64>| value.unwrap_or(f64::INFINITY);
    let parent = rivals.min_by(|a, b| worth(a.value).total_cmp(&worth(b.value)));
    match parent {
        Some(parent) if parent.value.is_some() => space.mutate(&parent.point, chance),
        _ => space.draw(chance),
    }
}
