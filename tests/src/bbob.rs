//! Functions to minimise on which tuners are compared, in the manner of the black-box optimisation benchmark (Hansen et al.
//! 2009, "Real-parameter black-box optimization benchmarking": noiseless functions). Each seed is another instance: the
//! optimum lies elsewhere, and the axes are turned. Values are above the optimum's, which is zero.

use std::f64::consts::PI;

/// One function with its optimum and its axes.
pub struct Bbob {
    name: &'static str,
    optimum: Vec<f64>,
    turn: Vec<Vec<f64>>,
    second: Vec<Vec<f64>>,
    peaks: Vec<Peak>,
}

struct Peak {
    at: Vec<f64>,
    height: f64,
    shape: Vec<f64>,
}

pub const NAMES: [&str; 12] = [
    "sphere",
    "ellipsoid",
    "rastrigin",
    "rosenbrock",
    "attractive-sector",
    "step-ellipsoid",
    "sharp-ridge",
    "different-powers",
    "weierstrass",
    "schaffers",
    "griewank-rosenbrock",
    "gallagher",
];

/// The cube that is searched: this far from zero in each dimension.
pub const REACH: f64 = 5.0;

impl Bbob {
    pub fn new(name: &str, dimensions: usize, seed: u64) -> Option<Self> {
        let name = NAMES.into_iter().find(|known| *known == name)?;
        let mut random = Random(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ name.len() as u64);
        let optimum = random.point(dimensions, 4.0);
        let (turn, second) = (random.rotation(dimensions), random.rotation(dimensions));
        let peaks = if name == "gallagher" { random.peaks(&optimum) } else { Vec::new() };
        Some(Self { name, optimum, turn, second, peaks })
    }

    /// The value at a point of as many dimensions as the function has.
    pub fn value(&self, x: &[f64]) -> f64 {
        let shifted: Vec<f64> = x.iter().zip(&self.optimum).map(|(x, optimum)| x - optimum).collect();
        let count = x.len() as f64;
        let share = |i: usize| if x.len() > 1 { i as f64 / (count - 1.0) } else { 0.0 };
        let outside: f64 = x.iter().map(|x| (x.abs() - REACH).max(0.0).powi(2)).sum();
        match self.name {
            "sphere" => squares(&shifted),
            "ellipsoid" => {
                let z = wavy(&turned(&self.turn, &shifted));
                z.iter().enumerate().map(|(i, z)| 10_f64.powf(6.0 * share(i)) * z * z).sum()
            }
            "rastrigin" => {
                let z = uneven(&wavy(&turned(&self.turn, &shifted)), 0.2);
                let mut z = turned(&self.second, &z);
                for (i, z) in z.iter_mut().enumerate() {
                    *z *= 10_f64.powf(0.5 * share(i));
                }
                10.0 * (count - z.iter().map(|z| (2.0 * PI * z).cos()).sum::<f64>()) + squares(&z)
            }
            "rosenbrock" => {
                let z: Vec<f64> =
                    turned(&self.turn, &shifted).iter().map(|z| (count.sqrt() / 8.0).max(1.0) * z + 1.0).collect();
                z.windows(2).map(|z| 100.0 * (z[0] * z[0] - z[1]).powi(2) + (z[0] - 1.0).powi(2)).sum()
            }
            "attractive-sector" => {
                let mut z = turned(&self.turn, &shifted);
                for (i, z) in z.iter_mut().enumerate() {
                    *z *= 10_f64.powf(0.5 * share(i));
                }
                let z = turned(&self.second, &z);
                let steep = |(z, optimum): (&f64, &f64)| if z * optimum > 0.0 { 100.0 * z } else { *z };
                let sum = z.iter().zip(&self.optimum).map(|pair| steep(pair).powi(2)).sum::<f64>();
                waved(sum).powf(0.9)
            }
            "step-ellipsoid" => {
                let mut z = turned(&self.turn, &shifted);
                for (i, z) in z.iter_mut().enumerate() {
                    *z *= 10_f64.powf(0.5 * share(i));
                }
                let first = z.first().map_or(0.0, |z| z.abs());
                let steps: Vec<f64> = z
                    .iter()
                    .map(|z| if z.abs() > 0.5 { (0.5 + z).floor() } else { (0.5 + 10.0 * z).floor() / 10.0 })
                    .collect();
                let z = turned(&self.second, &steps);
                let sum: f64 = z.iter().enumerate().map(|(i, z)| 10_f64.powf(2.0 * share(i)) * z * z).sum();
                0.1 * sum.max(first / 1e4) + outside
            }
            "sharp-ridge" => {
                let mut z = turned(&self.turn, &shifted);
                for (i, z) in z.iter_mut().enumerate() {
                    *z *= 10_f64.powf(0.5 * share(i));
                }
                let z = turned(&self.second, &z);
                z[0] * z[0] + 100.0 * squares(&z[1..]).sqrt()
            }
            "different-powers" => {
                let z = turned(&self.turn, &shifted);
                z.iter().enumerate().map(|(i, z)| z.abs().powf(2.0 + 4.0 * share(i))).sum::<f64>().sqrt()
            }
            "weierstrass" => {
                let z = turned(&self.turn, &wavy(&turned(&self.second, &shifted)));
                let rough = |z: f64| {
                    (0..12).map(|k| 0.5_f64.powi(k) * (2.0 * PI * 3_f64.powi(k) * (z + 0.5)).cos()).sum::<f64>()
                };
                let least = rough(0.0);
                let mean = z.iter().map(|z| rough(*z)).sum::<f64>() / count;
                10.0 * (mean - least).max(0.0).powi(3) + 10.0 / count * outside
            }
            "schaffers" => {
                let z = uneven(&turned(&self.turn, &shifted), 0.5);
                let mut z = turned(&self.second, &z);
                for (i, z) in z.iter_mut().enumerate() {
                    *z *= 10_f64.powf(0.5 * share(i));
                }
                let wave = |z: &[f64]| {
                    let s = z[0].hypot(z[1]);
                    s.sqrt() + s.sqrt() * (50.0 * s.powf(0.2)).sin().powi(2)
                };
                (z.windows(2).map(wave).sum::<f64>() / (count - 1.0)).powi(2) + 10.0 * outside
            }
            "griewank-rosenbrock" => {
                let z: Vec<f64> =
                    turned(&self.turn, &shifted).iter().map(|z| (count.sqrt() / 8.0).max(1.0) * z + 1.0).collect();
                let of = |z: &[f64]| 100.0 * (z[0] * z[0] - z[1]).powi(2) + (z[0] - 1.0).powi(2);
                10.0 / (count - 1.0) * z.windows(2).map(|z| of(z) / 4_000.0 - of(z).cos()).sum::<f64>() + 10.0
            }
            _ => {
                let nearest = self.peaks.iter().map(|peak| {
                    let away: Vec<f64> = x.iter().zip(&peak.at).map(|(x, at)| x - at).collect();
                    let z = turned(&self.turn, &away);
                    let sum: f64 = z.iter().zip(&peak.shape).map(|(z, shape)| shape * z * z).sum();
                    peak.height * (-sum / (2.0 * count)).exp()
                });
                waved(10.0 - nearest.fold(0.0, f64::max)).powi(2) + outside
            }
        }
    }
}

fn squares(z: &[f64]) -> f64 {
    z.iter().map(|z| z * z).sum()
}

fn turned(axes: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    axes.iter().map(|axis| axis.iter().zip(x).map(|(a, x)| a * x).sum()).collect()
}

/// Small smooth irregularities, with the same optimum (the oscillation of the benchmark's definition).
fn waved(x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    let log = x.abs().ln();
    let (fast, slow) = if x > 0.0 { (10.0, 7.9) } else { (5.5, 3.1) };
    x.signum() * (log + 0.049 * ((fast * log).sin() + (slow * log).sin())).exp()
}

fn wavy(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| waved(*x)).collect()
}

/// Steeper on the one side of the optimum than on the other.
fn uneven(x: &[f64], beta: f64) -> Vec<f64> {
    let share = |i: usize| if x.len() > 1 { i as f64 / (x.len() - 1) as f64 } else { 0.0 };
    x.iter().enumerate().map(|(i, x)| if *x > 0.0 { x.powf(1.0 + beta * share(i) * x.sqrt()) } else { *x }).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (2.0 * PI * self.unit()).cos()
    }

    fn point(&mut self, dimensions: usize, reach: f64) -> Vec<f64> {
        (0..dimensions).map(|_| reach * (2.0 * self.unit() - 1.0)).collect()
    }

    /// Orthogonal axes, by Gram and Schmidt.
    fn rotation(&mut self, dimensions: usize) -> Vec<Vec<f64>> {
        let mut axes: Vec<Vec<f64>> = Vec::new();
        while axes.len() < dimensions {
            let mut axis: Vec<f64> = (0..dimensions).map(|_| self.normal()).collect();
            for known in &axes {
                let along: f64 = axis.iter().zip(known).map(|(a, b)| a * b).sum();
                axis.iter_mut().zip(known).for_each(|(a, b)| *a -= along * b);
            }
            let length = squares(&axis).sqrt();
            if length > 1e-6 {
                axes.push(axis.into_iter().map(|a| a / length).collect());
            }
        }
        axes
    }

    /// A hundred and one peaks, the highest at the optimum.
    fn peaks(&mut self, optimum: &[f64]) -> Vec<Peak> {
        let dimensions = optimum.len();
        let shape = |random: &mut Self, condition: f64| -> Vec<f64> {
            let mut powers: Vec<f64> =
                (0..dimensions).map(|i| condition.powf(i as f64 / (dimensions.max(2) - 1) as f64 - 0.5)).collect();
            for left in (1..dimensions).rev() {
                powers.swap(left, (random.unit() * (left + 1) as f64) as usize);
            }
            powers
        };
        let first = Peak { at: optimum.to_vec(), height: 10.0, shape: shape(self, 1_000.0) };
        let others = (0..100).map(|i| {
            let condition = 1_000_f64.powf(2.0 * (self.unit() * 100.0).floor() / 99.0);
            Peak {
                at: self.point(dimensions, REACH),
                height: 1.1 + 8.0 * f64::from(i) / 99.0,
                shape: shape(self, condition),
            }
        });
        let others: Vec<Peak> = others.collect();
        std::iter::once(first).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_below_the_optimum_and_the_optimum_is_zero() {
        for name in NAMES {
            for seed in 0..5 {
                let function = Bbob::new(name, 5, seed).unwrap();
                assert!(
                    function.value(&function.optimum).abs() < 1e-6,
                    "{name}: {}",
                    function.value(&function.optimum)
                );
                let mut random = Random(seed);
                assert!((0..500).all(|_| function.value(&random.point(5, REACH)) > 0.0), "{name}");
            }
        }
    }
}
