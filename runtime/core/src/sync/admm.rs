//! ADMM: consensus between workers that each minimise a loss of their own (LambdaML §3.2.1; Boyd et al. 2011, §7.2).
//!
//! Minimises the mean loss over all samples plus `lambda g(z)`, where `g` is the L1 norm or half the squared L2 norm. Each
//! worker i goes from `x_i` through its samples a few times with the gradient `∇f_i(x) + rho (x - z + u_i)`, where `f_i` is
//! the *mean* loss of its shard. Then `v`, the mean of all `x_i + u_i` weighted by samples, becomes the model `z` by a
//! proximal step, and each worker's scaled dual grows by `x_i - z`.
//!
//! Since losses are means and not sums over shards, the threshold of L1 is `lambda / rho`, without the number of workers;
//! with it, the penalty would shrink as workers are added. Biases, and what a job says beside them, are averaged and not
//! penalised ([`is_penalised`]).

use std::iter::repeat;
use std::num::NonZeroU32;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The settings of one job's ADMM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admm {
    /// How strongly workers are pulled to the model.
    pub rho: f32,
    /// How strongly large weights are penalised.
    pub lambda: f32,
    pub penalty: Penalty,
    /// How often a worker goes through its samples in a round.
    pub epochs: NonZeroU32,
}

/// Which norm of the weights is penalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Penalty {
    L1,
    L2,
}

super::words::words!(Penalty, "a penalty", "l1" => L1, "l2" => L2);

/// Whether a tensor of weights is penalised: biases are not, which are known by their name, nor what a job names.
pub fn is_penalised(tensor: &str, unpenalised: &[String]) -> bool {
    tensor.rsplit(['.', '-', '_']).next() != Some("bias") && !unpenalised.iter().any(|name| name == tensor)
}

impl Admm {
    /// Makes the model of the mean of all `x + u`, in place. Only what lies in `penalised` is changed.
    pub fn proximal(&self, mean: &mut [f32], penalised: &[Range<usize>]) {
        let threshold = self.lambda / self.rho;
        let shrink = self.rho / (self.lambda + self.rho);
        for range in penalised {
            for value in mean.get_mut(range.clone()).unwrap_or_default() {
                *value = match self.penalty {
                    Penalty::L1 => value.signum() * (value.abs() - threshold).max(0.0),
                    Penalty::L2 => shrink * *value,
                };
            }
        }
    }
}

/// How far workers are from agreeing, after a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    /// The distance of the workers' weights from the model, the root of its mean square weighted by samples.
    pub primal: f64,
    /// How far the model has moved, times rho.
    pub dual: f64,
    /// The larger of the norms of the workers' weights and of the model.
    scale: f64,
    /// The norm of the duals as they are after the round, times rho.
    dual_scale: f64,
    weights: usize,
}

/// One worker's part in [`Residuals`].
#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    pub weights: &'a [f32],
    /// As they are before they grow in this round; none in the first.
    pub duals: &'a [f32],
    pub samples: u64,
}

impl Residuals {
    /// Compares all workers with the model before and after the round.
    pub fn of(rho: f32, workers: &[Local<'_>], before: &[f32], after: &[f32]) -> Self {
        let total: u64 = workers.iter().map(|worker| worker.samples).sum();
        let (mut primal, mut weights, mut duals) = (0.0, 0.0, 0.0);
        for worker in workers {
            let share = worker.samples as f64 / total.max(1) as f64;
            primal += share * squares(worker.weights.iter().zip(after).map(|(x, z)| f64::from(*x) - f64::from(*z)));
            weights += share * squares(worker.weights.iter().map(|x| f64::from(*x)));
            // What they grow by in this round: Boyd's criterion is about the duals of the round that ends (§3.3.1).
            let earlier = worker.duals.iter().copied().chain(repeat(0.0));
            let grown = worker.weights.iter().zip(after).zip(earlier);
            duals += share * squares(grown.map(|((x, z), u)| f64::from(u) + f64::from(*x) - f64::from(*z)));
        }
        let moved = squares(after.iter().zip(before).map(|(now, before)| f64::from(*now) - f64::from(*before)));
        let model = squares(after.iter().map(|z| f64::from(*z)));
        let rho = f64::from(rho);
        Self {
            primal: primal.sqrt(),
            dual: rho * moved.sqrt(),
            scale: weights.max(model).sqrt(),
            dual_scale: rho * duals.sqrt(),
            weights: after.len(),
        }
    }

    /// Whether both residuals are within the tolerance, which is absolute for each weight and relative to all of them.
    pub fn are_within(&self, tolerance: f64) -> bool {
        let absolute = (self.weights as f64).sqrt() * tolerance;
        self.primal <= absolute + tolerance * self.scale && self.dual <= absolute + tolerance * self.dual_scale
    }
}

fn squares(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admm(rho: f32, lambda: f32, penalty: Penalty) -> Admm {
        Admm { rho, lambda, penalty, epochs: NonZeroU32::MIN }
    }

    #[test]
    fn l1_makes_small_weights_zero_and_leaves_biases_alone() {
        let mut mean = [3.0, -0.5, -3.0, 0.25, 0.25];
        admm(0.5, 0.5, Penalty::L1).proximal(&mut mean, std::slice::from_ref(&(0..4)));
        assert_eq!(mean, [2.0, 0.0, -2.0, 0.0, 0.25]);
    }

    #[test]
    fn biases_and_what_a_job_names_are_not_penalised() {
        let named = ["head.scale".to_owned()];
        for (tensor, is) in [("dense.weight", true), ("dense.bias", false), ("bias", false), ("head.scale", false)] {
            assert_eq!(is_penalised(tensor, &named), is, "{tensor}");
        }
        assert!(is_penalised("head.scale", &[]) && is_penalised("biased", &named));
    }

    /// By hand: `u = 3`, `x = 2` and `z = 6` make a dual of -1, which is as large as the dual residual may be.
    #[test]
    fn the_dual_residual_is_compared_with_the_duals_after_the_round() {
        let of = |duals: &[f32], before: f32| {
            Residuals::of(2.0, &[Local { weights: &[2.0], duals, samples: 1 }], &[before], &[6.0])
        };
        let expected = Residuals { primal: 4.0, dual: 4.0, scale: 6.0, dual_scale: 2.0, weights: 1 };
        assert_eq!(of(&[3.0], 4.0), expected);
        assert_eq!(of(&[], 4.0), Residuals { dual_scale: 8.0, ..expected });
    }

    #[test]
    fn l2_shrinks_all_weights_alike() {
        let mut mean = [4.0, -8.0, 1.0];
        admm(1.0, 3.0, Penalty::L2).proximal(&mut mean, std::slice::from_ref(&(0..2)));
        assert_eq!(mean, [1.0, -2.0, 1.0]);
    }

    /// Two workers with losses `(x - a)^2 / 2` and different numbers of samples reach the minimum of the weighted sum.
    #[test]
    fn workers_agree_on_the_minimum_of_their_common_loss() {
        let admm = admm(0.5, 0.2, Penalty::L2);
        let (targets, samples) = ([1.0_f32, 5.0], [1_u64, 3]);
        let (mut x, mut u, mut z) = ([0.0_f32; 2], [0.0_f32; 2], 0.0_f32);
        let mut within = false;
        for _ in 0..200 {
            for worker in 0..2 {
                // The exact minimum of the worker's loss with its term.
                x[worker] = (targets[worker] + admm.rho * (z - u[worker])) / (1.0 + admm.rho);
            }
            let before = z;
            let mut mean = [(x[0] + u[0]) * 0.25 + (x[1] + u[1]) * 0.75];
            admm.proximal(&mut mean, std::slice::from_ref(&(0..1)));
            z = mean[0];
            let locals: Vec<Local<'_>> = (0..2)
                .map(|worker| Local {
                    weights: &x[worker..=worker],
                    duals: &u[worker..=worker],
                    samples: samples[worker],
                })
                .collect();
            within = Residuals::of(admm.rho, &locals, &[before], &[z]).are_within(1e-5);
            for worker in 0..2 {
                u[worker] += x[worker] - z;
            }
        }
        // 0.25 (z - 1) + 0.75 (z - 5) + 0.2 z = 0
        assert!((z - 4.0 / 1.2).abs() < 1e-4, "{z}");
        assert!(within);
    }
}
