//! The tree-structured Parzen estimator (Bergstra et al. 2011, "Algorithms for hyper-parameter optimization", §4; its choices
//! weighed in Watanabe 2023, "Tree-structured Parzen estimator: understanding its algorithm components").
//!
//! What was tried is cut in two: the best seventh or so, and the rest with what failed and what is being tried. Each half becomes a
//! density, a mixture of one kernel for each of its points and one that is nearly flat. Of some points drawn from the density
//! of the best, the one is proposed that is most likely there and least likely among the others. A kernel is a product over
//! all parameters, so that what only goes well together stays together.

use super::Seen;
use crate::gaussian::normal;
use crate::tune::chance::Chance;
use crate::tune::space::{Domain, Point, Space};

/// Until so many trials are done, points are drawn.
pub const START: usize = 10;

/// How many points are drawn from the density of the best.
const CANDIDATES: usize = 64;

/// The share of trials that count as the best.
const BEST: f64 = 0.15;

/// One factor of a kernel.
enum Factor {
    /// Of a parameter that did not count where the kernel is.
    Flat,
    /// A normal distribution: its mean, its deviation, and how much of it is inside of the unit interval.
    Around(f64, f64, f64),
    /// How likely each choice is.
    Choices(Vec<f64>),
}

/// A kernel for each point, and a nearly flat one.
struct Density<'a> {
    space: &'a Space,
    kernels: Vec<Vec<Factor>>,
}

pub fn propose(space: &Space, seen: Seen<'_>, chance: &mut Chance) -> Point {
    let ranked = seen.ranked();
    let best = ((BEST * ranked.len() as f64).ceil() as usize).clamp(1, 25);
    if ranked.is_empty() {
        return space.draw(chance);
    }
    let encoded = |point: &Point| space.encode(point);
    let above: Vec<_> = ranked[..best].iter().map(|(point, _)| encoded(point)).collect();
    let failed = seen.done.iter().filter(|seen| seen.value.is_none()).map(|seen| &seen.point);
    let rest = ranked[best..].iter().map(|(point, _)| *point).chain(failed).chain(seen.pending);
    let rest: Vec<_> = rest.map(encoded).collect();
    let (good, bad) = (Density::new(space, &above), Density::new(space, &rest));
    let candidates = (0..CANDIDATES).map(|_| good.draw(chance));
    let scored = candidates.map(|coordinates| {
        let point = space.decode(&coordinates);
        let at = space.encode(&point);
        (good.log(&at) - bad.log(&at), point)
    });
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map_or_else(|| space.draw(chance), |(_, point)| point)
}

impl<'a> Density<'a> {
    fn new(space: &'a Space, points: &[Vec<Option<f64>>]) -> Self {
        let widths: Vec<Vec<f64>> = (0..space.parameters().len()).map(|index| widths(points, index)).collect();
        let mut kernels: Vec<Vec<Factor>> = Vec::with_capacity(points.len() + 1);
        for (row, point) in points.iter().enumerate() {
            let factors = space.parameters().iter().enumerate().map(|(index, parameter)| match point[index] {
                None => Factor::Flat,
                Some(at) => match &parameter.domain {
                    Domain::Choice(choices) if !parameter.domain.is_ordered() => {
                        let mut weights = vec![1.0 / (points.len() + 1) as f64; choices.len()];
                        weights[parameter.domain.piece(at) as usize] += 1.0;
                        let sum: f64 = weights.iter().sum();
                        Factor::Choices(weights.into_iter().map(|weight| weight / sum).collect())
                    }
                    Domain::Constant(_) => Factor::Flat,
                    _ => around(at, widths[index][row]),
                },
            });
            kernels.push(factors.collect());
        }
        let prior = |domain: &Domain| if domain.is_ordered() { around(0.5, 1.0) } else { Factor::Flat };
        kernels.push(space.parameters().iter().map(|parameter| prior(&parameter.domain)).collect());
        Self { space, kernels }
    }

    fn draw(&self, chance: &mut Chance) -> Vec<f64> {
        let kernel = &self.kernels[chance.below(self.kernels.len())];
        let draw = |(factor, parameter): (&Factor, &crate::tune::space::Parameter)| match factor {
            Factor::Flat => chance.unit(),
            Factor::Around(at, width, _) => chance.normal_in_unit(*at, *width),
            Factor::Choices(weights) => parameter.domain.middle_of_piece(chance.weighted(weights) as u64),
        };
        kernel.iter().zip(self.space.parameters()).map(draw).collect()
    }

    /// The logarithm of the density, for those parameters that count.
    fn log(&self, at: &[Option<f64>]) -> f64 {
        let logs: Vec<f64> = self.kernels.iter().map(|kernel| self.log_of(kernel, at)).collect();
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        largest + (logs.iter().map(|log| (log - largest).exp()).sum::<f64>() / logs.len() as f64).ln()
    }

    fn log_of(&self, kernel: &[Factor], at: &[Option<f64>]) -> f64 {
        let mut log = 0.0;
        for ((factor, parameter), at) in kernel.iter().zip(self.space.parameters()).zip(at) {
            let Some(at) = at else { continue };
            let pieces = parameter.domain.count();
            log += match factor {
                Factor::Flat => pieces.map_or(0.0, |pieces| -(pieces as f64).ln()),
                Factor::Choices(weights) => weights[parameter.domain.piece(*at) as usize].ln(),
                Factor::Around(mean, width, inside) => {
                    let density = |x: f64| normal::density((x - mean) / width) / width;
                    let share = if pieces.is_none() {
                        density(*at)
                    } else {
                        let (from, to) = parameter.domain.piece_around(*at);
                        if to - from < *width {
                            // Simpson's rule is exact enough where the curve is wider than the piece.
                            (density(from) + 4.0 * density(0.5 * (from + to)) + density(to)) / 6.0 * (to - from)
                        } else {
                            normal::probability((to - mean) / width) - normal::probability((from - mean) / width)
                        }
                    };
                    (share / inside).max(1e-300).ln()
                }
            };
        }
        log
    }
}

fn around(mean: f64, width: f64) -> Factor {
    Factor::Around(mean, width, normal::probability((1.0 - mean) / width) - normal::probability(-mean / width))
}

/// How wide the kernel of each point is: as far as to the further one of its neighbours, but not narrower than the number
/// of points justifies ("magic clipping").
fn widths(points: &[Vec<Option<f64>>], index: usize) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> =
        points.iter().enumerate().filter_map(|(row, point)| Some((point[index]?, row))).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let least = 1.0 / (2.0 + points.len() as f64).min(100.0);
    let mut widths = vec![1.0; points.len()];
    for (place, (at, row)) in order.iter().enumerate() {
        let left = place.checked_sub(1).map(|left| at - order[left].0);
        let right = order.get(place + 1).map(|right| right.0 - at);
        let width = match (left, right) {
            (Some(left), Some(right)) => left.max(right),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => at.max(1.0 - at),
        };
        widths[*row] = width.clamp(least, 1.0);
    }
    widths
}
