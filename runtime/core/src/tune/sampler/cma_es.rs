//! A cloud of points that moves, turns and stretches: CMA-ES with the parameters of Hansen 2016, "The CMA evolution strategy:
//! a tutorial" (appendix A, positive weights), started again with twice as many points where it settles (IPOP, Auger and
//! Hansen 2005).
//!
//! The cloud is computed anew from what was tried, in the order in which it ended: every so many trials are a generation.
//! So it does not matter from which cloud a point was drawn, that several are tried at once, or that some were proposed by
//! a person; what lies far outside of the cloud is taken to be as far as a drawn point can be (Hansen 2011, "Injecting
//! external solutions into CMA-ES"). Failed trials are the last of their generation.
//!
//! Numbers with steps and integers are coordinates whose cloud never gets narrower than a step, or it would settle between two
//! of them. For choices without an order the best points' choices become likelier, and none ever impossible.

use super::Seen;
use crate::tune::chance::{Chance, Purpose};
use crate::tune::space::{Parameter, Point, Space};

/// The width of the first cloud, of a range of one.
const FIRST_WIDTH: f64 = 0.25;

struct Cloud {
    size: usize,
    mean: Vec<f64>,
    width: f64,
    /// Symmetric, row by row.
    shape: Vec<f64>,
    /// Its eigenvectors, as columns, and the square roots of its eigenvalues.
    axes: Vec<f64>,
    spreads: Vec<f64>,
    path_width: Vec<f64>,
    path_shape: Vec<f64>,
    generation: u32,
    /// The best value of each generation since the start, to see when it settles.
    bests: Vec<f64>,
}

/// Which parameters are coordinates, and which are choices with how likely each is.
struct Layout {
    numeric: Vec<usize>,
    choices: Vec<(usize, Vec<f64>)>,
}

pub fn propose(space: &Space, seed: u64, seen: Seen<'_>, chance: &mut Chance) -> Point {
    let free = |parameter: &Parameter| parameter.domain.is_free();
    let of = |ordered: bool| {
        let parameters = space.parameters().iter().enumerate();
        parameters.filter(move |(_, parameter)| free(parameter) && parameter.domain.is_ordered() == ordered)
    };
    let even = |count: u64| vec![1.0 / count as f64; count as usize];
    let mut layout = Layout {
        numeric: of(true).map(|(index, _)| index).collect(),
        choices: of(false).map(|(index, parameter)| (index, even(parameter.domain.count().unwrap_or(1)))).collect(),
    };
    let first = 4 + (3.0 * (layout.numeric.len().max(layout.choices.len()).max(1) as f64).ln()) as usize;
    let steps: Vec<f64> = layout.numeric.iter().map(|&index| step(&space.parameters()[index])).collect();
    let mut cloud = Cloud::new(layout.numeric.len(), first, None);
    let (mut from, mut restarts) = (0, 0);
    while from + cloud.size <= seen.done.len() {
        let generation = &seen.done[from..from + cloud.size];
        from += cloud.size;
        let mut ranked: Vec<(f64, Vec<f64>)> =
            (generation.iter()).map(|seen| (seen.value.unwrap_or(f64::INFINITY), space.filled(&seen.point))).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let places = ranked.iter().map(|(_, at)| layout.numeric.iter().map(|&index| at[index]).collect());
        cloud.advance(&places.collect::<Vec<_>>(), ranked[0].0, &steps);
        layout.learn(space, &ranked);
        if cloud.has_settled(&steps) {
            restarts += 1;
            let mut chance = Chance::new(seed, Purpose::Design, restarts);
            let mean = (0..layout.numeric.len()).map(|_| chance.unit()).collect();
            cloud = Cloud::new(layout.numeric.len(), cloud.size * 2, Some(mean));
            for (_, likely) in &mut layout.choices {
                *likely = even(likely.len() as u64);
            }
        }
    }
    let mut coordinates = vec![0.5; space.parameters().len()];
    for (index, at) in layout.numeric.iter().zip(cloud.draw(chance)) {
        coordinates[*index] = at;
    }
    for (index, likely) in &layout.choices {
        coordinates[*index] = space.parameters()[*index].domain.middle_of_piece(chance.weighted(likely) as u64);
    }
    space.decode(&coordinates)
}

/// How far apart values are; zero where they are not.
fn step(parameter: &Parameter) -> f64 {
    parameter.domain.count().map_or(0.0, |count| 1.0 / count as f64)
}

impl Layout {
    /// The choices of the better half become likelier.
    fn learn(&mut self, space: &Space, ranked: &[(f64, Vec<f64>)]) {
        let better: Vec<&(f64, Vec<f64>)> =
            ranked[..ranked.len().div_ceil(2)].iter().filter(|(value, _)| value.is_finite()).collect();
        if better.is_empty() {
            return;
        }
        for (index, likely) in &mut self.choices {
            let floor = 0.2 / likely.len() as f64;
            for (choice, likely) in likely.iter_mut().enumerate() {
                let chosen = |(_, at): &&&(f64, Vec<f64>)| {
                    space.parameters()[*index].domain.piece(at[*index]) as usize == choice
                };
                let share = better.iter().filter(chosen).count() as f64 / better.len() as f64;
                *likely = (0.7 * *likely + 0.3 * share).max(floor);
            }
            let sum: f64 = likely.iter().sum();
            likely.iter_mut().for_each(|likely| *likely /= sum);
        }
    }
}

impl Cloud {
    fn new(dimensions: usize, size: usize, mean: Option<Vec<f64>>) -> Self {
        let mut unit = vec![0.0; dimensions * dimensions];
        for i in 0..dimensions {
            unit[i * dimensions + i] = 1.0;
        }
        Self {
            size,
            mean: mean.unwrap_or_else(|| vec![0.5; dimensions]),
            width: FIRST_WIDTH,
            shape: unit.clone(),
            axes: unit,
            spreads: vec![1.0; dimensions],
            path_width: vec![0.0; dimensions],
            path_shape: vec![0.0; dimensions],
            generation: 0,
            bests: Vec::new(),
        }
    }

    /// A point of the cloud inside of the cube: drawn again while it is not, and then cut off.
    fn draw(&self, chance: &mut Chance) -> Vec<f64> {
        let size = self.mean.len();
        let mut at = Vec::new();
        for _ in 0..20 {
            let normal: Vec<f64> = self.spreads.iter().map(|spread| spread * chance.normal()).collect();
            let along = |i: usize| (0..size).map(|j| self.axes[i * size + j] * normal[j]).sum::<f64>();
            at = (0..size).map(|i| self.mean[i] + self.width * along(i)).collect();
            if at.iter().all(|at| (0.0..=1.0).contains(at)) {
                break;
            }
        }
        at.into_iter().map(|at: f64| at.clamp(0.0, 1.0)).collect()
    }

    /// Moves on by a generation, whose points are ranked.
    fn advance(&mut self, ranked: &[Vec<f64>], best: f64, steps: &[f64]) {
        let (n, size) = (self.mean.len() as f64, self.mean.len());
        self.bests.push(best);
        self.generation += 1;
        if size == 0 {
            return;
        }
        let parents = ranked.len() / 2;
        let raw: Vec<f64> =
            (0..parents).map(|i| (ranked.len() as f64 / 2.0 + 0.5).ln() - (i as f64 + 1.0).ln()).collect();
        let sum: f64 = raw.iter().sum();
        let weights: Vec<f64> = raw.iter().map(|weight| weight / sum).collect();
        let mass = 1.0 / weights.iter().map(|weight| weight * weight).sum::<f64>();
        let rate_width = (mass + 2.0) / (n + mass + 5.0);
        let damping = 1.0 + 2.0 * (((mass - 1.0) / (n + 1.0)).sqrt() - 1.0).max(0.0) + rate_width;
        let rate_path = (4.0 + mass / n) / (n + 4.0 + 2.0 * mass / n);
        let rate_one = 2.0 / ((n + 1.3).powi(2) + mass);
        let rate_many = (1.0 - rate_one).min(2.0 * (mass - 2.0 + 1.0 / mass) / ((n + 2.0).powi(2) + mass));
        let expected = n.sqrt() * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n));
        let steps_taken: Vec<Vec<f64>> = ranked[..parents]
            .iter()
            .map(|at| {
                let step: Vec<f64> = at.iter().zip(&self.mean).map(|(at, mean)| (at - mean) / self.width).collect();
                // What is further away than a drawn point can be was not drawn from this cloud.
                let length = length(&self.whitened(&step));
                let most = expected + 2.0 * n / (n + 2.0) * 2.0;
                step.into_iter().map(|step| if length > most { step * most / length } else { step }).collect()
            })
            .collect();
        let mean_step: Vec<f64> =
            (0..size).map(|i| steps_taken.iter().zip(&weights).map(|(step, weight)| step[i] * weight).sum()).collect();
        let white = self.whitened(&mean_step);
        for i in 0..size {
            self.mean[i] = (self.mean[i] + self.width * mean_step[i]).clamp(0.0, 1.0);
            self.path_width[i] =
                (1.0 - rate_width) * self.path_width[i] + (rate_width * (2.0 - rate_width) * mass).sqrt() * white[i];
        }
        let long = length(&self.path_width);
        let share = 1.0 - (1.0 - rate_width).powi(2 * self.generation as i32);
        let is_slow = long / share.sqrt() < (1.4 + 2.0 / (n + 1.0)) * expected;
        for (path, step) in self.path_shape.iter_mut().zip(&mean_step) {
            let pulled = if is_slow { (rate_path * (2.0 - rate_path) * mass).sqrt() * step } else { 0.0 };
            *path = (1.0 - rate_path) * *path + pulled;
        }
        let kept = 1.0 - rate_one - rate_many + if is_slow { 0.0 } else { rate_one * rate_path * (2.0 - rate_path) };
        for i in 0..size {
            for j in 0..size {
                let many: f64 = steps_taken.iter().zip(&weights).map(|(step, weight)| weight * step[i] * step[j]).sum();
                let shape = &mut self.shape[i * size + j];
                *shape = kept * *shape + rate_one * self.path_shape[i] * self.path_shape[j] + rate_many * many;
            }
        }
        self.width = (self.width * ((rate_width / damping) * (long / expected - 1.0)).exp()).clamp(1e-12, 1.0);
        for (i, step) in steps.iter().enumerate() {
            // A cloud narrower than a step would draw one value only.
            let least = 0.3 * step / self.width;
            let spread = &mut self.shape[i * size + i];
            *spread = spread.max(least * least);
        }
        (self.axes, self.spreads) = eigen(&self.shape, size);
    }

    /// A step in units of the cloud.
    fn whitened(&self, step: &[f64]) -> Vec<f64> {
        let size = step.len();
        let along: Vec<f64> = (0..size)
            .map(|j| (0..size).map(|i| self.axes[i * size + j] * step[i]).sum::<f64>() / self.spreads[j])
            .collect();
        (0..size).map(|i| (0..size).map(|j| self.axes[i * size + j] * along[j]).sum()).collect()
    }

    /// Whether nothing better is to be expected of this cloud.
    fn has_settled(&self, steps: &[f64]) -> bool {
        let widest = (0..self.mean.len()).map(|i| {
            let spread = self.width * self.shape[i * self.mean.len() + i].sqrt();
            if spread <= steps[i] { 0.0 } else { spread }
        });
        let is_narrow = widest.fold(0.0, f64::max) < 1e-5;
        let patience = 10 + 30 * self.mean.len() / self.size;
        let before = self.bests.len().saturating_sub(patience);
        let least = |bests: &[f64]| bests.iter().copied().fold(f64::INFINITY, f64::min);
        is_narrow && self.generation > 3 || before > 0 && least(&self.bests[before..]) >= least(&self.bests[..before])
    }
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The eigenvectors of a symmetric matrix as columns, and the square roots of its eigenvalues, by Jacobi's rotations.
fn eigen(matrix: &[f64], size: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rest = matrix.to_vec();
    let mut axes = vec![0.0; size * size];
    for i in 0..size {
        axes[i * size + i] = 1.0;
    }
    for _ in 0..30 {
        let aside: f64 =
            (0..size).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| rest[i * size + j].powi(2)).sum();
        let along: f64 = (0..size).map(|i| rest[i * size + i].powi(2)).sum();
        if aside <= 1e-24 * along {
            break;
        }
        for p in 0..size {
            for q in p + 1..size {
                if rest[p * size + q] == 0.0 {
                    continue;
                }
                let theta = (rest[q * size + q] - rest[p * size + p]) / (2.0 * rest[p * size + q]);
                let tangent = theta.signum() / (theta.abs() + theta.hypot(1.0));
                let tangent = if theta == 0.0 { 1.0 } else { tangent };
                let cosine = 1.0 / tangent.hypot(1.0);
                let sine = tangent * cosine;
                for k in 0..size {
                    let (a, b) = (rest[k * size + p], rest[k * size + q]);
                    (rest[k * size + p], rest[k * size + q]) = (cosine * a - sine * b, sine * a + cosine * b);
                }
                for k in 0..size {
                    let (a, b) = (rest[p * size + k], rest[q * size + k]);
                    (rest[p * size + k], rest[q * size + k]) = (cosine * a - sine * b, sine * a + cosine * b);
                    let (a, b) = (axes[k * size + p], axes[k * size + q]);
                    (axes[k * size + p], axes[k * size + q]) = (cosine * a - sine * b, sine * a + cosine * b);
                }
            }
        }
    }
    let spreads = (0..size).map(|i| rest[i * size + i].max(1e-24).sqrt()).collect();
    (axes, spreads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenvectors_put_the_matrix_together_again() {
        let matrix = [4.0, 1.0, -2.0, 1.0, 3.0, 0.5, -2.0, 0.5, 5.0];
        let (axes, spreads) = eigen(&matrix, 3);
        for i in 0..3 {
            for j in 0..3 {
                let sum: f64 = (0..3).map(|k| axes[i * 3 + k] * spreads[k].powi(2) * axes[j * 3 + k]).sum();
                assert!((sum - matrix[i * 3 + j]).abs() < 1e-10, "{i} {j}: {sum}");
            }
        }
    }
}
