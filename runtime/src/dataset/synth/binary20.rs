//! Twenty fair bits and a linear teacher, some of whose answers are wrong.

use super::Random;

pub const WIDTH: usize = 20;
const NOISE: f64 = 0.05;
/// Weights are whole 64ths, so that the rule can state them.
const STEPS: f64 = 64.0;

pub struct Teacher {
    weights: [f64; WIDTH],
}

impl Teacher {
    pub fn new(random: &mut Random) -> Self {
        Self { weights: std::array::from_fn(|_| (random.uniform() * 2.0 * STEPS).floor() / STEPS - 1.0) }
    }

    /// Adds a sample and gives its label.
    pub fn sample(&self, random: &mut Random, into: &mut Vec<u8>) -> bool {
        let bits = random.bits();
        let bit = |index: usize| (bits >> index) as u8 & 1;
        into.extend((0..WIDTH).map(bit));
        let score: f64 =
            self.weights.iter().enumerate().map(|(index, weight)| (f64::from(bit(index)) - 0.5) * weight).sum();
        (score > 0.0) != random.happens(NOISE)
    }

    pub fn rule(&self) -> String {
        let weights: Vec<_> = self.weights.iter().map(f64::to_string).collect();
        format!(
            "{WIDTH} independent fair bits x; class 1 where sum of w_i (x_i - 1/2) > 0, else 0; then {NOISE} of the labels \
             are flipped; w = [{}]",
            weights.join(", ")
        )
    }
}
