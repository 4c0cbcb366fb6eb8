//! Where a Gaussian process expects the largest improvement (Jones et al. 1998, "Efficient global optimization").
//!
//! Values are bent before they are modelled, so that a few very bad ones do not hide the differences between good ones.
//! Trials that are not over count with what the process expects of them ("kriging believer", Ginsbourger et al. 2010), so
//! that others go elsewhere. Many points are looked at, drawn and near the best, and from the most promising of them the
//! search goes on in small steps.

use super::Seen;
use crate::gaussian::{Gaussian, Kernel, log_expected_improvement};
use crate::tune::chance::Chance;
use crate::tune::space::{Point, Space};

/// A kernel is fitted to so many observations at most, and used with as many: the best and the latest.
const MOST: usize = 160;
const DRAWN: usize = 256;
const NEAR: usize = 128;
const CLIMBERS: usize = 4;

/// The last kernel that was fitted, and to how many observations.
#[derive(Clone, Debug, Default)]
pub struct Memo(Option<(usize, Kernel)>);

/// How many points are drawn before the process has a say.
pub fn start(space: &Space) -> usize {
    let free = space.parameters().iter().filter(|parameter| parameter.domain.is_free()).count();
    (free + 3).clamp(4, 16)
}

/// None where no process can be fitted.
pub fn propose(space: &Space, seen: Seen<'_>, memo: &mut Memo, chance: &mut Chance) -> Option<Point> {
    let groups = space.feature_groups();
    let (mut points, mut targets) = observed(space, seen);
    let known = targets.len();
    let kernel = memo.kernel(&points[..fitted(known)], &bent(&targets[..fitted(known)]), &groups)?;
    targets = bent(&targets);
    let mut process = Gaussian::with_kernel(&points, &targets, &groups, kernel.clone()).ok()?;
    if !seen.pending.is_empty() {
        for pending in seen.pending {
            let features = space.features(pending);
            targets.push(process.predict(&features).mean);
            points.push(features);
        }
        process = Gaussian::with_kernel(&points, &targets, &groups, kernel).ok()?;
    }
    // What is best by the process, which is not taken in by a lucky measurement.
    let best = points.iter().map(|point| process.predict(point).mean).fold(f64::INFINITY, f64::min);
    let worth = |point: &Point| {
        let expected = process.predict(&space.features(point));
        log_expected_improvement(expected.mean, expected.deviation, best)
    };
    let mut candidates = candidates(space, seen, chance);
    candidates.retain(|coordinates| space.count().is_none() || !seen.has(&space.decode(coordinates)));
    let mut scored: Vec<(f64, Vec<f64>)> =
        candidates.into_iter().map(|coordinates| (worth(&space.decode(&coordinates)), coordinates)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.truncate(CLIMBERS);
    let climbed = scored.into_iter().map(|start| climb(space, seen, start, chance, &worth));
    climbed.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, coordinates)| space.decode(&coordinates))
}

/// Features and values, in the order in which trials ended. What failed is as bad as the worst.
fn observed(space: &Space, seen: Seen<'_>) -> (Vec<Vec<f64>>, Vec<f64>) {
    let worst = seen.done.iter().filter_map(|seen| seen.value).fold(f64::NEG_INFINITY, f64::max);
    let mut kept: Vec<usize> = (0..seen.done.len()).collect();
    if kept.len() > MOST {
        let value = |index: &usize| seen.done[*index].value.unwrap_or(f64::INFINITY);
        let latest = kept.split_off(kept.len() - MOST / 2);
        kept.sort_by(|a, b| value(a).total_cmp(&value(b)));
        kept.truncate(MOST / 2);
        kept.sort_unstable();
        kept.extend(latest);
    }
    let of = |index: usize| {
        let seen = &seen.done[index];
        (space.features(&seen.point), seen.value.unwrap_or(worst))
    };
    kept.into_iter().map(of).unzip()
}

/// How many observations the kernel is fitted to: with many, a tenth more is waited for before it is fitted again.
fn fitted(known: usize) -> usize {
    let mut fitted = known.min(20);
    while fitted + fitted / 10 <= known && fitted >= 20 {
        fitted += fitted / 10;
    }
    fitted
}

impl Memo {
    fn kernel(&mut self, points: &[Vec<f64>], targets: &[f64], groups: &[usize]) -> Option<Kernel> {
        match &self.0 {
            // With so many that some are left out, the same number may stand for others.
            Some((count, kernel)) if *count == points.len() && points.len() < MOST * 10 / 11 => Some(kernel.clone()),
            _ => {
                let kernel = Gaussian::fit_grouped(points, targets, groups).ok()?.kernel().clone();
                self.0 = Some((points.len(), kernel.clone()));
                Some(kernel)
            }
        }
    }
}

/// Values on a scale on which the good ones differ most: the logarithm of one more than the distance to the best, in units of
/// the distance between the best and the median.
pub fn bent(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(&low), Some(&middle)) = (sorted.first(), sorted.get(sorted.len() / 2)) else { return Vec::new() };
    let spread = middle - low;
    if spread <= 0.0 || !spread.is_finite() {
        return values.to_vec();
    }
    values.iter().map(|value| ((value - low) / spread).ln_1p()).collect()
}

/// Where it may be worth to look: anywhere, and near the best of what was tried.
fn candidates(space: &Space, seen: Seen<'_>, chance: &mut Chance) -> Vec<Vec<f64>> {
    let size = space.parameters().len();
    let mut candidates: Vec<Vec<f64>> = (0..DRAWN).map(|_| (0..size).map(|_| chance.unit()).collect()).collect();
    let best: Vec<Vec<f64>> = seen.ranked().iter().take(5).map(|(point, _)| space.filled(point)).collect();
    for round in 0..if best.is_empty() { 0 } else { NEAR } {
        let from = &best[round % best.len()];
        let width = 0.1_f64.powf(0.5 + 2.0 * chance.unit());
        candidates.push(stepped(space, from, width, chance));
    }
    candidates
}

/// A place near another one, with some of the choices made anew.
fn stepped(space: &Space, from: &[f64], width: f64, chance: &mut Chance) -> Vec<f64> {
    let changes = 1.0 / space.parameters().len() as f64;
    let keeps_none = chance.unit() < 0.5;
    let step = |(parameter, at): (&crate::tune::space::Parameter, &f64)| {
        if parameter.domain.count().is_none() {
            return if keeps_none || chance.unit() < changes {
                (at + width * chance.normal()).clamp(0.0, 1.0)
            } else {
                *at
            };
        }
        if chance.unit() < changes { parameter.domain.moved(*at, chance) } else { *at }
    };
    space.parameters().iter().zip(from).map(step).collect()
}

/// From a place in random steps uphill, which get shorter where they do not help.
fn climb(
    space: &Space,
    seen: Seen<'_>,
    (mut height, mut at): (f64, Vec<f64>),
    chance: &mut Chance,
    worth: &impl Fn(&Point) -> f64,
) -> (f64, Vec<f64>) {
    let mut width = 0.1;
    for _ in 0..60 {
        let other = stepped(space, &at, width, chance);
        let point = space.decode(&other);
        if space.count().is_some() && seen.has(&point) {
            continue;
        }
        let higher = worth(&point);
        if higher > height {
            (height, at) = (higher, other);
            width = (width * 2.0).min(0.3);
        } else {
            width = (width * 0.85).max(1e-4);
        }
    }
    (height, at)
}
