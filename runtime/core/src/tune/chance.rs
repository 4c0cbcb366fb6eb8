//! Random numbers that follow from a seed and from what they are drawn for, and from nothing else.
//!
//! Each draw of a tuner has a stream of its own, so a study that is rebuilt from its record draws the same again, however
//! often it had been interrupted. The generator is SplitMix64 (Steele, Lea and Flood 2014): a counter and a function that
//! mixes its bits.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Chance(u64);

/// The distance between two counters: 2⁶⁴ over the golden ratio, which is odd.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

impl Chance {
    /// The stream of `number` among those for one `purpose`.
    pub fn new(seed: u64, purpose: Purpose, number: u64) -> Self {
        let start = mixed(mixed(mixed(seed) ^ purpose as u64) ^ number);
        Self(start)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STRIDE);
        mixed(self.0)
    }

    /// From zero to one, without one.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A whole number below `count`, which is not zero.
    pub fn below(&mut self, count: usize) -> usize {
        // The high half of the product; what it prefers is beyond what anybody could draw.
        ((u128::from(self.bits()) * count as u128) >> 64) as usize
    }

    /// Of the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Of a normal distribution around a place in the unit interval, without what is outside of it.
    pub fn normal_in_unit(&mut self, mean: f64, deviation: f64) -> f64 {
        let mean = mean.clamp(0.0, 1.0);
        // Deviations of at most one hit the interval with every third draw or more.
        let drawn = (0..64).map(|_| mean + deviation * self.normal()).find(|drawn| (0.0..=1.0).contains(drawn));
        drawn.unwrap_or(mean)
    }

    /// One of several, each as often as it weighs.
    pub fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut left = self.unit() * weights.iter().sum::<f64>();
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        weights.len().saturating_sub(1)
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (1..items.len()).rev() {
            items.swap(left, self.below(left + 1));
        }
    }
}

/// What random numbers are drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A point of the space that nothing is known about.
    Point = 1,
    /// A point that a model proposes.
    Model = 2,
    /// The order of the first points.
    Design = 3,
    /// The points at which importance is estimated.
    Importance = 4,
}

fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, number| Chance::new(seed, Purpose::Point, number).bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
        assert_ne!(first(0, 0), Chance::new(0, Purpose::Model, 0).bits());
    }

    #[test]
    fn draws_have_the_moments_of_their_distribution() {
        let mut chance = Chance::new(7, Purpose::Point, 0);
        let mean = |draw: &mut dyn FnMut() -> f64| (0..20_000).map(|_| draw()).sum::<f64>() / 20_000.0;
        assert!((mean(&mut || chance.unit()) - 0.5).abs() < 0.01);
        assert!(mean(&mut || chance.normal()).abs() < 0.03);
        assert!((mean(&mut || chance.normal().powi(2)) - 1.0).abs() < 0.05);
        assert!((mean(&mut || chance.below(5) as f64) - 2.0).abs() < 0.05);
        assert!((mean(&mut || chance.weighted(&[1.0, 0.0, 3.0]) as f64) - 1.5).abs() < 0.03);
        assert!((mean(&mut || chance.normal_in_unit(0.5, 0.1)) - 0.5).abs() < 0.01);
    }

    #[test]
    fn what_is_cut_off_stays_inside() {
        let mut chance = Chance::new(7, Purpose::Point, 1);
        for mean in [-3.0, 0.0, 0.5, 1.0, 4.0] {
            assert!((0..1_000).all(|_| (0.0..=1.0).contains(&chance.normal_in_unit(mean, 0.05))));
        }
    }
}
