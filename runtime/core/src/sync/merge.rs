//! Many workers' numbers become one's.
//!
//! Always in the order of the workers, whoever came first, so the bits do not depend on time. A mean is weighted by
//! samples: ragged batches and shards give what one process over all samples would.
//!
//! A part of the numbers may be merged apart from the others, by whoever: each number only meets those in the same
//! place, so the bits are those of a merge of all. Parts that come some at a time, and merges that are merged again, are
//! the [`Accumulator`](super::accumulate::Accumulator)'s. Whoever merges, whatever the numbers are: [`add_parts`] is where
//! they are added.

use std::ops::AddAssign;

/// The most numbers that are worked on at once: they stay in the nearest cache while all workers' parts are added.
pub(super) const PIECE: usize = 4_096;

/// Adds the numbers of `parts` from `from` on to `sums`: part after part, in their order. `term` says what a number of a
/// part of this weight adds. Unless sums have begun, the first part begins them, so that whoever is alone keeps its bits.
pub(super) fn add_parts<N: Copy, W: Copy, S: Copy + AddAssign>(
    sums: &mut [S],
    mut have_begun: bool,
    parts: &[(&[N], W)],
    from: usize,
    term: impl Fn(N, W) -> S,
) {
    for (part, weight) in parts {
        let weight = *weight;
        let pairs = sums.iter_mut().zip(part.get(from..).unwrap_or_default());
        if have_begun {
            pairs.for_each(|(sum, number)| *sum += term(*number, weight));
        } else {
            pairs.for_each(|(sum, number)| *sum = term(*number, weight));
        }
        have_begun = true;
    }
}

/// What each number of a part with so many samples is multiplied by in a mean over so many. Whoever is alone is not
/// rounded.
pub(super) fn share(samples: u64, total: u64) -> f32 {
    if samples == total { 1.0 } else { (samples as f64 / total as f64) as f32 }
}

/// Writes the mean of `parts`, each with its samples, over `into`. Parts without samples count nothing; if all are, `into`
/// stays as it is. All have the same length.
pub fn mean(into: &mut [f32], parts: &[(&[f32], u64)]) {
    let counted = || parts.iter().filter(|(_, samples)| *samples > 0);
    let total = counted().map(|(_, samples)| samples).sum();
    let weighted: Vec<(&[f32], f32)> = counted().map(|(part, samples)| (*part, share(*samples, total))).collect();
    for (index, into) in into.chunks_mut(PIECE).enumerate() {
        add_parts(into, false, &weighted, index * PIECE, |number, weight| weight * number);
    }
}

/// Writes the sum of `parts` over `into`. Counts are sums of many ones: they stay exact for longer in 64 bits.
pub fn sum(into: &mut [f32], parts: &[&[f32]]) {
    let narrow = |sum: f64| Some(sum as f32);
    // Every sum is some number.
    let _: Option<()> = sum_as(into, parts, f64::from, narrow);
}

/// Writes the sum of `parts` over `into`, with numbers of any kind: `widen` makes of each what is added, and `narrow` makes
/// a number of the sum again. `None` if a sum does not fit; what is in `into` then means nothing.
pub fn sum_as<N: Copy, S: Copy + Default + AddAssign>(
    into: &mut [N],
    parts: &[&[N]],
    widen: impl Fn(N) -> S,
    narrow: impl Fn(S) -> Option<N>,
) -> Option<()> {
    let parts: Vec<(&[N], ())> = parts.iter().map(|part| (*part, ())).collect();
    let mut sums = [S::default(); PIECE];
    for (index, into) in into.chunks_mut(PIECE).enumerate() {
        let sums = &mut sums[..into.len()];
        sums.fill(S::default());
        add_parts(sums, false, &parts, index * PIECE, |number, ()| widen(number));
        for (into, sum) in into.iter_mut().zip(&*sums) {
            *into = narrow(*sum)?;
        }
    }
    Some(())
}

/// Adds numbers to others, one by one.
pub fn add(into: &mut [f32], from: &[f32]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into += from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_weighted_by_samples() {
        let mut into = [9.0; 2];
        mean(&mut into, &[(&[1.0, 10.0], 1), (&[4.0, 20.0], 3), (&[f32::NAN, 7.0], 0)]);
        assert_eq!(into, [3.25, 17.5]);
    }

    #[test]
    fn a_mean_of_nobody_changes_nothing() {
        let mut into = [9.0; 2];
        mean(&mut into, &[(&[1.0, 2.0], 0)]);
        mean(&mut into, &[]);
        assert_eq!(into, [9.0; 2]);
    }

    #[test]
    fn whoever_is_alone_keeps_its_bits() {
        let value = f32::from_bits(0x3eaa_aaab);
        let mut into = [0.0];
        mean(&mut into, &[(&[value], 3), (&[5.0], 0)]);
        assert_eq!(into[0].to_bits(), value.to_bits());
    }

    #[test]
    fn sums_are_made_in_the_order_of_the_parts() {
        // In any other order, the small ones would be lost or kept otherwise.
        let parts: [&[f32]; 4] = [&[1e8], &[-1e8], &[1.0], &[1e-3]];
        let mut into = [0.0_f32];
        sum_as(&mut into, &parts, |number| number, Some).unwrap();
        assert_eq!(into, [1.001]);
        let parts: [&[f32]; 4] = [&[1.0], &[1e8], &[1e-3], &[-1e8]];
        sum_as(&mut into, &parts, |number| number, Some).unwrap();
        assert_eq!(into, [0.0]);
    }

    #[test]
    fn only_the_whole_sum_has_to_fit() {
        let narrow = |sum: i64| i32::try_from(sum).ok();
        let mut into = [0];
        assert_eq!(sum_as(&mut into, &[&[i32::MAX], &[1], &[-2]], i64::from, narrow), Some(()));
        assert_eq!(into, [i32::MAX - 1]);
        assert_eq!(sum_as(&mut into, &[&[i32::MAX], &[1]], i64::from, narrow), None);
        assert_eq!(sum_as(&mut into, &[], i64::from, narrow), Some(()));
        assert_eq!(into, [0], "the sum of nothing");
    }

    #[test]
    fn pieces_do_not_show() {
        let length = 3 * PIECE + 17;
        let one: Vec<f32> = (0..length).map(|index| index as f32).collect();
        let two: Vec<f32> = one.iter().map(|value| value * 3.0).collect();
        let mut into = vec![0.0; length];
        mean(&mut into, &[(&one, 5), (&two, 5)]);
        assert!(into.iter().zip(&one).all(|(mean, one)| *mean == one * 2.0));
        sum(&mut into, &[&one, &two]);
        assert!(into.iter().zip(&one).all(|(sum, one)| *sum == one * 4.0));
    }
}
