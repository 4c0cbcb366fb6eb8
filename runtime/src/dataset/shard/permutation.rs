//! Shuffles without a list: the place of any sample is computed from a key.
//!
//! A Feistel network over the next power of two, walked until it falls within the range, is a bijection whatever its round
//! function does. So an order takes no memory, and going on in the middle of it costs nothing. Orders are part of what a
//! seed means: nothing here may change, or a restarted job would see other shards.

/// Rounds of the network: an even number, so that both halves are back in their places.
const ROUNDS: usize = 8;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads every bit of a number over all of them (the finish of SplitMix64).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// What one shuffle is derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(GOLDEN)))
    }

    /// The key of part of what this one is for.
    pub fn part(self, number: u64) -> Self {
        Self(mix(self.0.wrapping_add(GOLDEN) ^ mix(number.wrapping_add(GOLDEN))))
    }
}

/// An order of the numbers below `count`.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    low_bits: u32,
    high_bits: u32,
    rounds: [u64; ROUNDS],
}

impl Permutation {
    pub fn new(count: u64, key: Key) -> Self {
        // Bits that hold every number below `count`, and no fewer than one for each half.
        let bits = (u64::BITS - count.saturating_sub(1).leading_zeros()).max(2);
        let rounds = std::array::from_fn(|round| mix(key.0.wrapping_add(GOLDEN.wrapping_mul(round as u64 + 1))));
        Self { count, low_bits: bits.div_ceil(2), high_bits: bits / 2, rounds }
    }

    /// The number at a place, which must be below `count`.
    #[inline]
    pub fn at(&self, place: u64) -> u64 {
        debug_assert!(place < self.count);
        let mut number = place;
        loop {
            number = self.step(number);
            // The walk goes along a cycle of the larger range that `place` is on, so it comes to an end.
            if number < self.count {
                return number;
            }
        }
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        let masks = [(1_u64 << self.high_bits) - 1, (1_u64 << self.low_bits) - 1];
        let (mut high, mut low) = (number >> self.low_bits, number & masks[1]);
        for (round, key) in self.rounds.iter().enumerate() {
            let mut hash = (low ^ key).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            hash ^= hash >> 32;
            hash = hash.wrapping_mul(0xA076_1D64_78BD_642F);
            (high, low) = (low, high ^ ((hash >> 32) & masks[round & 1]));
        }
        high << self.low_bits | low
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_comes_once(count in 0..3000_u64, seed: u64) {
            let permutation = Permutation::new(count, Key::new(seed));
            let mut numbers: Vec<u64> = (0..count).map(|place| permutation.at(place)).collect();
            numbers.sort_unstable();
            prop_assert!(numbers.into_iter().eq(0..count));
        }
    }

    #[test]
    fn numbers_stay_in_range_for_the_largest_counts() {
        for count in [(1 << 32) - 1, 1 << 32, (1 << 33) + 1, u64::MAX] {
            let permutation = Permutation::new(count, Key::new(7));
            for place in [0, 1, count / 2, count - 1] {
                assert!(permutation.at(place) < count);
            }
        }
    }

    /// Each of the 24 orders of four comes about as often as the others.
    #[test]
    fn small_orders_are_all_as_likely() {
        let mut counts = std::collections::HashMap::<Vec<u64>, u32>::new();
        let seeds = 24_000;
        for seed in 0..seeds {
            let permutation = Permutation::new(4, Key::new(seed).part(1));
            *counts.entry((0..4).map(|place| permutation.at(place)).collect()).or_default() += 1;
        }
        assert_eq!(counts.len(), 24);
        let surprise: f64 = counts.values().map(|&count| (f64::from(count) - 1000.0).powi(2) / 1000.0).sum();
        // Chi-squared with 23 degrees of freedom is above this once in 10,000.
        assert!(surprise < 52.0, "{surprise}");
    }

    /// A number is as likely at one place as at another.
    #[test]
    fn places_do_not_favour_numbers() {
        let (count, seeds) = (37, 37_000);
        let mut counts = vec![vec![0_u32; count]; count];
        for seed in 0..seeds {
            let permutation = Permutation::new(count as u64, Key::new(seed));
            for (place, counts) in counts.iter_mut().enumerate() {
                counts[permutation.at(place as u64) as usize] += 1;
            }
        }
        let surprise: f64 = counts.iter().flatten().map(|&count| (f64::from(count) - 1000.0).powi(2) / 1000.0).sum();
        // 36 x 36 degrees of freedom: mean 1296, deviation 51.
        assert!((1296.0 - 204.0..1296.0 + 204.0).contains(&surprise), "{surprise}");
    }

    #[test]
    fn orders_never_change() {
        let permutation = Permutation::new(10, Key::new(42).part(3));
        let order: Vec<u64> = (0..10).map(|place| permutation.at(place)).collect();
        assert_eq!(order, [1, 4, 2, 3, 9, 7, 8, 0, 6, 5]);
    }
}
