//! One merge of a plan: parts come in the order of their workers, some at a time, and become one.
//!
//! The bits do not depend on how many parts come at a time, so that a merger may hold few of them. They are the bits of
//! [`merge::mean`](super::merge::mean) and [`merge::sum`](super::merge::sum) where one merge has all parts. A tree carries
//! the sum of its parts times their samples, and divides once, at its root.

use super::merge::{PIECE, add_parts, share};

/// How parts become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Each weighs as much as its share of all samples; one merge has all parts.
    Mean,
    /// Each weighs as much as its samples, and the last merge divides by all of them. For merges of merges.
    WeightedSum,
    /// All weigh the same. Counts are sums of many ones: they stay exact for longer in 64 bits.
    Sum,
}

/// One part of a merge.
#[derive(Clone, Copy, Debug)]
pub struct Term<'a> {
    pub numbers: &'a [f32],
    /// Without samples it counts nothing.
    pub samples: u64,
    /// Whether it is the result of a merge, and so weighted already.
    pub is_merged: bool,
}

/// A merge under way.
#[derive(Clone, Debug)]
pub struct Accumulator {
    arithmetic: Arithmetic,
    /// The number of samples of all parts.
    total: u64,
    /// Whether a part has come that counts.
    is_begun: bool,
    numbers: Vec<f32>,
    /// For sums.
    wide: Vec<f64>,
}

impl Accumulator {
    /// For parts of so many numbers, which have so many samples altogether.
    pub fn new(arithmetic: Arithmetic, length: usize, total: u64) -> Self {
        let wide = if arithmetic == Arithmetic::Sum { length } else { 0 };
        Self { arithmetic, total, is_begun: false, numbers: vec![0.0; length], wide: vec![0.0; wide] }
    }

    /// Adds the parts that come next, all of the length that was said.
    pub fn add(&mut self, terms: &[Term<'_>]) {
        let parts: Vec<(&[f32], f32)> = terms
            .iter()
            .filter(|term| term.samples > 0)
            .map(|term| {
                let weight = match self.arithmetic {
                    Arithmetic::Mean => share(term.samples, self.total),
                    Arithmetic::WeightedSum if !term.is_merged => term.samples as f32,
                    Arithmetic::WeightedSum | Arithmetic::Sum => 1.0,
                };
                (term.numbers, weight)
            })
            .collect();
        for (index, sums) in self.wide.chunks_mut(PIECE).enumerate() {
            add_parts(sums, self.is_begun, &parts, index * PIECE, |number, _| f64::from(number));
        }
        if self.arithmetic != Arithmetic::Sum {
            for (index, sums) in self.numbers.chunks_mut(PIECE).enumerate() {
                add_parts(sums, self.is_begun, &parts, index * PIECE, |number, weight| weight * number);
            }
        }
        self.is_begun |= !parts.is_empty();
    }

    /// What the parts have become. `is_last` says that no other merge takes it.
    pub fn finish(mut self, is_last: bool) -> Vec<f32> {
        match self.arithmetic {
            Arithmetic::Sum => {
                self.numbers.iter_mut().zip(&self.wide).for_each(|(into, sum)| *into = *sum as f32);
            }
            Arithmetic::WeightedSum if is_last && self.total > 0 => {
                let samples = self.total as f32;
                self.numbers.iter_mut().for_each(|number| *number /= samples);
            }
            Arithmetic::Mean | Arithmetic::WeightedSum => {}
        }
        self.numbers
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::merge;
    use super::*;

    /// Merges parts of workers, so many at a time.
    fn merged(arithmetic: Arithmetic, parts: &[(Vec<f32>, u64)], at_a_time: usize) -> Vec<f32> {
        let total = parts.iter().map(|(_, samples)| samples).sum();
        let mut accumulator = Accumulator::new(arithmetic, parts[0].0.len(), total);
        for parts in parts.chunks(at_a_time) {
            let terms = parts.iter().map(|(numbers, samples)| Term { numbers, samples: *samples, is_merged: false });
            accumulator.add(&terms.collect::<Vec<_>>());
        }
        accumulator.finish(true)
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|number| number.to_bits()).collect()
    }

    fn parts() -> impl Strategy<Value = Vec<(Vec<f32>, u64)>> {
        let number = prop_oneof![-1e3_f32..1e3, Just(-0.0), Just(f32::INFINITY), Just(1e-40), Just(3e38)];
        (1_usize..7, 1_usize..40).prop_flat_map(move |(workers, length)| {
            let part = (prop::collection::vec(number.clone(), length), 0_u64..5);
            prop::collection::vec(part, workers)
        })
    }

    proptest! {
        #[test]
        fn a_mean_has_the_bits_of_a_merge_of_all(parts in parts(), at_a_time in 1_usize..8) {
            let borrowed: Vec<(&[f32], u64)> = parts.iter().map(|(numbers, samples)| (&numbers[..], *samples)).collect();
            let mut all = vec![0.0; parts[0].0.len()];
            merge::mean(&mut all, &borrowed);
            let ours = merged(Arithmetic::Mean, &parts, at_a_time);
            // Which of several numbers that are none it is does not matter.
            let same = ours.iter().zip(&all).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()));
            prop_assert!(same, "{ours:?} {all:?}");
        }

        #[test]
        fn a_sum_has_the_bits_of_a_merge_of_all(parts in parts(), at_a_time in 1_usize..8) {
            let borrowed: Vec<&[f32]> =
                parts.iter().filter(|(_, samples)| *samples > 0).map(|(numbers, _)| &numbers[..]).collect();
            let mut all = vec![0.0; parts[0].0.len()];
            merge::sum(&mut all, &borrowed);
            prop_assert_eq!(bits(&merged(Arithmetic::Sum, &parts, at_a_time)), bits(&all));
        }
    }

    #[test]
    fn a_tree_divides_once() {
        let total = 4;
        let leaf = |numbers, samples| Term { numbers, samples, is_merged: false };
        let mut first = Accumulator::new(Arithmetic::WeightedSum, 2, 3);
        first.add(&[leaf(&[1.0, 10.0], 1), leaf(&[f32::NAN, 7.0], 0)]);
        first.add(&[leaf(&[2.0, 20.0], 2)]);
        let first = first.finish(false);
        assert_eq!(first, [5.0, 50.0]);
        let mut root = Accumulator::new(Arithmetic::WeightedSum, 2, total);
        root.add(&[Term { numbers: &first, samples: 3, is_merged: true }, leaf(&[7.0, 2.0], 1)]);
        assert_eq!(root.finish(true), [3.0, 13.0]);
    }

    #[test]
    fn pieces_do_not_show() {
        let length = 3 * PIECE + 17;
        let one: Vec<f32> = (0..length).map(|index| index as f32).collect();
        let two: Vec<f32> = one.iter().map(|number| number * 3.0).collect();
        let parts = [(one.clone(), 5), (two, 5)];
        for at_a_time in [1, 2] {
            let mean = merged(Arithmetic::Mean, &parts, at_a_time);
            assert!(mean.iter().zip(&one).all(|(mean, one)| *mean == one * 2.0));
            let sum = merged(Arithmetic::WeightedSum, &parts, at_a_time);
            assert!(sum.iter().zip(&one).all(|(mean, one)| *mean == one * 2.0));
        }
    }

    #[test]
    fn without_samples_nothing_is_merged() {
        let parts = [(vec![f32::NAN], 0), (vec![1.0], 0)];
        for arithmetic in [Arithmetic::Mean, Arithmetic::WeightedSum, Arithmetic::Sum] {
            assert_eq!(merged(arithmetic, &parts, 1), [0.0]);
        }
    }
}
