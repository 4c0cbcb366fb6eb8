//! Gaussian processes: what a function that was seen at a few points is likely to be elsewhere, and how sure that is.
//!
//! Planner and tuner both decide by it. What it does fits in a few hundred lines, while the well-known crate for it brings
//! a whole linear algebra stack into a crate that otherwise depends on none: so this one is our own.
//!
//! The covariance is Matérn-5/2 with a length of its own for each input, or for each group of inputs (*automatic
//! relevance*: an input that changes nothing gets a long length). Lengths, signal and noise are those with the largest
//! posterior density: the marginal likelihood (Rasmussen and Williams 2006, §5.4.1) times weak priors, without which four
//! points fit anything. The search for them starts at fixed places and is the same each time.
//!
//! Inputs are expected in about the unit cube: lengths are searched for between 0.01 and 100. Targets may have any scale.
//!
//! - [`normal`]: Φ, φ and expected improvement
//! - [`cholesky`]: the one matrix decomposition that is needed

use serde::{Deserialize, Serialize};

use self::cholesky::{Cholesky, dot};
pub use self::normal::{expected_improvement, log_expected_improvement};

pub mod cholesky;
mod fit;
pub mod normal;

/// What a process assumes about the function, for targets that are normalised to mean zero and deviation one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// For each group of inputs, how far one must go for the function to become another.
    pub lengths: Vec<f64>,
    /// The variance of the function.
    pub signal: f64,
    /// The variance of what is added to it in each observation.
    pub noise: f64,
}

/// What a function probably is at a point, in the units of the targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    pub mean: f64,
    /// How unsure the mean is; the noise of an observation is not in it.
    pub deviation: f64,
}

/// Observations that no process can be fitted to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GaussianError {
    #[error("a Gaussian process needs at least one observation")]
    Empty,
    #[error("{points} points have {targets} targets, but each point needs one")]
    Unequal { points: usize, targets: usize },
    #[error("point {point} has {have} inputs, but the first one has {want}")]
    Inputs { point: usize, have: usize, want: usize },
    #[error("observation {0} is not finite")]
    NotFinite(usize),
    #[error("the covariance of the observations cannot be factored")]
    Covariance,
}

/// A process that has seen its observations.
#[derive(Clone, Debug)]
pub struct Gaussian {
    points: Vec<Vec<f64>>,
    groups: Vec<usize>,
    kernel: Kernel,
    /// For each input, one over the square of its length.
    relevance: Vec<f64>,
    mean: f64,
    scale: f64,
    factor: Cholesky,
    /// The inverse of the covariance times the normalised targets.
    weights: Vec<f64>,
}

impl Gaussian {
    /// The process with the most likely kernel, with a length for each input.
    pub fn fit(points: &[Vec<f64>], targets: &[f64]) -> Result<Self, GaussianError> {
        let groups: Vec<usize> = (0..points.first().map_or(0, Vec::len)).collect();
        Self::fit_grouped(points, targets, &groups)
    }

    /// The same where several inputs share a length: `groups` has the number of its length for each input.
    pub fn fit_grouped(points: &[Vec<f64>], targets: &[f64], groups: &[usize]) -> Result<Self, GaussianError> {
        check(points, targets, groups)?;
        let (normalised, _, _) = normalise(targets);
        let kernel = fit::most_likely(points, &normalised, groups);
        Self::with_kernel(points, targets, groups, kernel)
    }

    /// The process with a kernel that is known already.
    pub fn with_kernel(
        points: &[Vec<f64>],
        targets: &[f64],
        groups: &[usize],
        kernel: Kernel,
    ) -> Result<Self, GaussianError> {
        check(points, targets, groups)?;
        let (mut weights, mean, scale) = normalise(targets);
        let relevance: Vec<f64> = groups.iter().map(|&group| kernel.lengths[group].powi(-2)).collect();
        let size = points.len();
        let mut matrix = vec![0.0; size * size];
        for i in 0..size {
            for j in 0..i {
                matrix[i * size + j] = covariance(kernel.signal, distance(&points[i], &points[j], &relevance));
            }
            matrix[i * size + i] = kernel.signal + kernel.noise;
        }
        let factor = Cholesky::of(&matrix, size).ok_or(GaussianError::Covariance)?;
        factor.solve(&mut weights);
        Ok(Self { points: points.to_vec(), groups: groups.to_vec(), kernel, relevance, mean, scale, factor, weights })
    }

    /// What the function probably is at a point with as many inputs as the observed ones.
    pub fn predict(&self, point: &[f64]) -> Prediction {
        let mut shared: Vec<f64> = self
            .points
            .iter()
            .map(|seen| covariance(self.kernel.signal, distance(seen, point, &self.relevance)))
            .collect();
        let mean = self.mean + self.scale * dot(&shared, &self.weights);
        self.factor.solve_lower(&mut shared);
        let variance = (self.kernel.signal - dot(&shared, &shared)).max(0.0);
        Prediction { mean, deviation: self.scale * variance.sqrt() }
    }

    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The group of each input.
    pub fn groups(&self) -> &[usize] {
        &self.groups
    }

    /// The deviation of an observation from the function, in the units of the targets.
    pub fn noise(&self) -> f64 {
        self.scale * self.kernel.noise.sqrt()
    }
}

fn check(points: &[Vec<f64>], targets: &[f64], groups: &[usize]) -> Result<(), GaussianError> {
    if points.is_empty() {
        return Err(GaussianError::Empty);
    }
    if points.len() != targets.len() {
        return Err(GaussianError::Unequal { points: points.len(), targets: targets.len() });
    }
    for (index, (point, target)) in points.iter().zip(targets).enumerate() {
        if point.len() != groups.len() {
            return Err(GaussianError::Inputs { point: index, have: point.len(), want: groups.len() });
        }
        if !target.is_finite() || point.iter().any(|input| !input.is_finite()) {
            return Err(GaussianError::NotFinite(index));
        }
    }
    Ok(())
}

/// Targets with mean zero and deviation one, and what was taken from them. Equal targets stay as they are.
fn normalise(targets: &[f64]) -> (Vec<f64>, f64, f64) {
    let count = targets.len() as f64;
    let mean = targets.iter().map(|target| target / count).sum::<f64>();
    let largest = targets.iter().map(|target| (target - mean).abs()).fold(0.0, f64::max);
    // Squares of very large or very small numbers are none: the deviation is taken of shares of the largest.
    let variance = targets.iter().map(|target| ((target - mean) / largest).powi(2)).sum::<f64>() / count;
    let scale = largest * variance.sqrt();
    let scale = if scale > mean.abs() * 1e-14 && scale.is_finite() { scale } else { 1.0 };
    (targets.iter().map(|target| (target - mean) / scale).collect(), mean, scale)
}

/// The squared distance in lengths.
fn distance(a: &[f64], b: &[f64], relevance: &[f64]) -> f64 {
    a.iter().zip(b).zip(relevance).map(|((a, b), relevance)| (a - b) * (a - b) * relevance).sum()
}

/// Matérn-5/2 by the squared distance.
fn covariance(signal: f64, distance: f64) -> f64 {
    let root = (5.0 * distance).sqrt();
    signal * (1.0 + root + 5.0 / 3.0 * distance) * (-root).exp()
}

#[cfg(test)]
mod tests;
