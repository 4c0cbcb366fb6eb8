//! One source becomes samples to train on and samples to test with, while it streams by.
//!
//! The rule: of the first `n` samples, however many there will be, `round(fraction * n)` are for training whenever a
//! window of samples has been dealt out. Within a window, the samples to test with are taken from the class that is most
//! behind its share, and among those of a class in the order of a hash of the seed and the sample's number: files that are
//! sorted by class, or that repeat with a period, split well too.

use super::BuildError;

/// Deals samples out.
pub struct Splitter {
    fraction: f64,
    seed: u64,
    seen: u64,
    /// How many samples each class is owed in the test split.
    owed: Vec<f64>,
}

impl Splitter {
    /// `fraction` is the share of the training samples.
    pub fn new(fraction: f64, seed: u64) -> Result<Self, BuildError> {
        if fraction > 0.0 && fraction < 1.0 {
            Ok(Self { fraction, seed, seen: 0, owed: Vec::new() })
        } else {
            Err(BuildError::Fraction(fraction))
        }
    }

    /// Which of the next samples, whose classes these are, are to test with.
    pub fn deal(&mut self, classes: &[u32]) -> Vec<bool> {
        let mut waiting: Vec<(u32, u64, usize)> = classes
            .iter()
            .enumerate()
            .map(|(index, class)| (*class, mix(self.seed, self.seen + index as u64), index))
            .collect();
        // Descending, so that a class's next sample is the last of its run.
        waiting.sort_unstable_by(|one, other| other.cmp(one));
        let mut runs: Vec<&[(u32, u64, usize)]> = waiting.chunk_by(|one, next| one.0 == next.0).collect();
        for run in &runs {
            let class = run[0].0 as usize;
            if self.owed.len() <= class {
                self.owed.resize(class + 1, 0.0);
            }
            self.owed[class] += (1.0 - self.fraction) * run.len() as f64;
        }
        let mut for_test = vec![false; classes.len()];
        for _ in 0..self.quota(classes.len()) {
            let owed = |run: &&[(u32, u64, usize)]| run.first().map_or(f64::MIN, |first| self.owed[first.0 as usize]);
            let most = runs.iter_mut().max_by(|one, other| owed(one).total_cmp(&owed(other)));
            if let Some(run) = most
                && let Some(((class, _, index), rest)) = run.split_last()
            {
                self.owed[*class as usize] -= 1.0;
                for_test[*index] = true;
                *run = rest;
            }
        }
        self.seen += classes.len() as u64;
        for_test
    }

    /// How many of the next samples are to test with.
    fn quota(&self, samples: usize) -> usize {
        let train = |seen: u64| (self.fraction * seen as f64).round() as u64;
        let for_train = train(self.seen + samples as u64) - train(self.seen);
        samples.saturating_sub(for_train as usize)
    }
}

/// A number that depends on every bit of both (the finisher of SplitMix64).
fn mix(seed: u64, number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.rotate_left(32);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_training_share_is_exact_however_long_the_source(
            fraction in 0.01..0.99_f64, windows in prop::collection::vec(prop::collection::vec(0..5_u32, 1..60), 1..6)
        ) {
            let mut splitter = Splitter::new(fraction, 7).unwrap();
            let (mut train, mut seen) = (0, 0);
            for window in windows {
                train += splitter.deal(&window).iter().filter(|test| !**test).count();
                seen += window.len();
                prop_assert_eq!(train, (fraction * seen as f64).round() as usize);
            }
        }

        #[test]
        fn every_class_gets_its_share(
            fraction in 0.5..0.95_f64, seed: u64, classes in prop::collection::vec(0..4_u32, 200..600), sorted: bool
        ) {
            let mut classes = classes;
            if sorted {
                classes.sort_unstable();
            }
            let mut splitter = Splitter::new(fraction, seed).unwrap();
            let test: Vec<_> = classes.chunks(100).flat_map(|window| splitter.deal(window)).collect();
            for class in 0..4 {
                let of_class = || classes.iter().zip(&test).filter(|(other, _)| **other == class);
                let share = (1.0 - fraction) * of_class().count() as f64;
                let dealt = of_class().filter(|(_, test)| **test).count() as f64;
                prop_assert!((dealt - share).abs() <= 2.0, "class {class}: {dealt} of {share}");
            }
        }
    }

    #[test]
    fn a_source_that_repeats_with_the_period_of_the_split_has_every_class_in_both() {
        let classes: Vec<u32> = (0..1000).map(|index| index % 10).collect();
        let test = Splitter::new(0.9, 1).unwrap().deal(&classes);
        let counts = |class| classes.iter().zip(&test).filter(|(other, test)| **other == class && **test).count();
        assert_eq!((0..10).map(counts).collect::<Vec<_>>(), [10; 10]);
    }

    #[test]
    fn the_same_seed_deals_alike() {
        let classes = [0; 500];
        let deal = |seed| Splitter::new(0.8, seed).unwrap().deal(&classes);
        assert_eq!(deal(3), deal(3));
        assert_ne!(deal(3), deal(4));
    }

    #[test]
    fn fractions_that_leave_one_side_empty_are_refused() {
        for fraction in [0.0, 1.0, -0.1, 1.5, f64::NAN] {
            assert!(Splitter::new(fraction, 0).is_err(), "{fraction}");
        }
    }
}
