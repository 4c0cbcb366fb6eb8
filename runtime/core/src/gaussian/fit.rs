//! The kernel under which what was observed is most likely.
//!
//! Found in the space of logarithms by resilient propagation (Riedmiller and Braun 1993): each coordinate has a step of its
//! own, which grows while the slope keeps its sign and shrinks when it changes. It needs no line search and does not mind
//! slopes of very different sizes, which lengths of relevant and of irrelevant inputs have.

use super::Kernel;
use super::cholesky::{Cholesky, dot};

/// The bounds of a length, of the signal's variance and of the noise's.
const LENGTHS: (f64, f64) = (1e-2, 1e2);
const SIGNAL: (f64, f64) = (1e-2, 1e2);
const NOISE: (f64, f64) = (1e-6, 1.0);

/// Where the search begins: a length for all inputs, and the noise.
const STARTS: [(f64, f64); 3] = [(0.5, 1e-3), (0.15, 1e-4), (2.0, 1e-1)];
const STEPS: usize = 40;

/// A normal distribution of a logarithm.
struct Prior {
    centre: f64,
    deviation: f64,
}

impl Prior {
    fn slope(&self, at: f64) -> f64 {
        (self.centre - at) / (self.deviation * self.deviation)
    }

    fn log_density(&self, at: f64) -> f64 {
        -0.5 * ((at - self.centre) / self.deviation).powi(2)
    }
}

/// What is fitted to, computed once for all kernels that are tried.
struct Observed<'a> {
    targets: &'a [f64],
    /// For each pair of points, the squared distance in each group of inputs.
    squares: Vec<f64>,
    groups: usize,
    priors: Vec<Prior>,
    bounds: Vec<(f64, f64)>,
}

pub fn most_likely(points: &[Vec<f64>], targets: &[f64], groups: &[usize]) -> Kernel {
    let observed = Observed::new(points, targets, groups);
    let mut best = (f64::NEG_INFINITY, observed.start(STARTS[0]));
    for start in STARTS {
        let found = observed.climb(observed.start(start));
        if found.0 > best.0 {
            best = found;
        }
    }
    let mut values: Vec<f64> = best.1.iter().map(|log| log.exp()).collect();
    let noise = values.pop().unwrap_or(NOISE.0);
    let signal = values.pop().unwrap_or(1.0);
    Kernel { lengths: values, signal, noise }
}

impl<'a> Observed<'a> {
    fn new(points: &[Vec<f64>], targets: &'a [f64], of_input: &[usize]) -> Self {
        let groups = of_input.iter().map(|group| group + 1).max().unwrap_or(0);
        let mut squares = Vec::with_capacity(points.len() * points.len() / 2 * groups);
        for (i, a) in points.iter().enumerate() {
            for b in &points[..i] {
                let from = squares.len();
                squares.resize(from + groups, 0.0);
                for ((a, b), group) in a.iter().zip(b).zip(of_input) {
                    squares[from + group] += (a - b) * (a - b);
                }
            }
        }
        // With more inputs points are further apart, and a function that can be learned at all is smoother in each.
        let centre = (0.35 * (groups as f64).sqrt()).ln();
        let mut priors: Vec<Prior> = (0..groups).map(|_| Prior { centre, deviation: 1.2 }).collect();
        priors.push(Prior { centre: 0.0, deviation: 1.0 });
        priors.push(Prior { centre: 1e-4_f64.ln(), deviation: 3.0 });
        let mut bounds = vec![LENGTHS; groups];
        bounds.extend([SIGNAL, NOISE]);
        let bounds = bounds.into_iter().map(|(low, high)| (low.ln(), high.ln())).collect();
        Self { targets, squares, groups, priors, bounds }
    }

    fn start(&self, (length, noise): (f64, f64)) -> Vec<f64> {
        let mut logs = vec![length.ln(); self.groups];
        logs.extend([0.0, noise.ln()]);
        logs
    }

    /// Goes uphill from a place, and gives the best one it came through.
    fn climb(&self, mut at: Vec<f64>) -> (f64, Vec<f64>) {
        let mut best = (f64::NEG_INFINITY, at.clone());
        let mut steps = vec![0.3_f64; at.len()];
        let mut before = vec![0.0_f64; at.len()];
        for _ in 0..STEPS {
            let Some((value, slopes)) = self.posterior(&at) else { break };
            if value > best.0 {
                best = (value, at.clone());
            }
            let mut moved = 0.0_f64;
            for (i, slope) in slopes.into_iter().enumerate() {
                let turn = slope * before[i];
                if turn > 0.0 {
                    steps[i] = (steps[i] * 1.2).min(1.5);
                } else if turn < 0.0 {
                    steps[i] = (steps[i] * 0.5).max(1e-4);
                }
                before[i] = if turn < 0.0 { 0.0 } else { slope };
                if before[i] != 0.0 {
                    let (low, high) = self.bounds[i];
                    let next = (at[i] + steps[i].copysign(slope)).clamp(low, high);
                    moved = moved.max((next - at[i]).abs());
                    at[i] = next;
                } else {
                    moved = moved.max(steps[i]);
                }
            }
            if moved < 1e-3 {
                break;
            }
        }
        best
    }

    /// The logarithm of the posterior density of a kernel, given as logarithms, and its slopes.
    fn posterior(&self, logs: &[f64]) -> Option<(f64, Vec<f64>)> {
        let (size, groups) = (self.targets.len(), self.groups);
        let (signal, noise) = (logs[groups].exp(), logs[groups + 1].exp());
        let relevance: Vec<f64> = logs[..groups].iter().map(|log| (-2.0 * log).exp()).collect();
        let mut matrix = vec![0.0; size * size];
        // What the slope along each length has in common: the derivative of the covariance by the squared distance.
        let mut bends = vec![0.0; size * size];
        let mut pair = 0;
        for i in 0..size {
            for j in 0..i {
                let squares = &self.squares[pair * groups..(pair + 1) * groups];
                pair += 1;
                let distance = dot(squares, &relevance);
                let root = (5.0 * distance).sqrt();
                let decay = signal * (-root).exp();
                matrix[i * size + j] = (1.0 + root + 5.0 / 3.0 * distance) * decay;
                bends[i * size + j] = 5.0 / 3.0 * (1.0 + root) * decay;
            }
            matrix[i * size + i] = signal + noise;
        }
        let factor = Cholesky::of(&matrix, size)?;
        let mut weights = self.targets.to_vec();
        factor.solve(&mut weights);
        let mut value = -0.5 * dot(self.targets, &weights) - 0.5 * factor.log_determinant();
        let inverse = factor.inverse();
        let mut slopes = vec![0.0; groups + 2];
        let mut pair = 0;
        for i in 0..size {
            for j in 0..i {
                let at = i * size + j;
                let pull = weights[i] * weights[j] - inverse[at];
                let bend = pull * bends[at];
                let squares = &self.squares[pair * groups..(pair + 1) * groups];
                pair += 1;
                for (slope, (square, relevance)) in slopes.iter_mut().zip(squares.iter().zip(&relevance)) {
                    *slope += bend * square * relevance;
                }
                slopes[groups] += pull * matrix[at];
            }
            let pull = weights[i] * weights[i] - inverse[i * size + i];
            slopes[groups] += 0.5 * pull * signal;
            slopes[groups + 1] += 0.5 * pull * noise;
        }
        for (i, (prior, log)) in self.priors.iter().zip(logs).enumerate() {
            value += prior.log_density(*log);
            slopes[i] += prior.slope(*log);
        }
        value.is_finite().then_some((value, slopes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_posterior() {
        let points: Vec<Vec<f64>> = (0..7).map(|i| vec![f64::from(i) / 7.0, f64::from(i * i % 5) / 5.0, 0.3]).collect();
        let targets: Vec<f64> = points.iter().map(|point| (5.0 * point[0]).sin() + point[1]).collect();
        let observed = Observed::new(&points, &targets, &[0, 1, 1]);
        let at = [-0.5, 0.4, 0.2, -3.0];
        let (_, slopes) = observed.posterior(&at).unwrap();
        for (i, slope) in slopes.into_iter().enumerate() {
            let moved = |by: f64| {
                let mut moved = at;
                moved[i] += by;
                observed.posterior(&moved).unwrap().0
            };
            let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slope - difference).abs() < 1e-5 * (1.0 + slope.abs()), "{i}: {slope} is not {difference}");
        }
    }
}
