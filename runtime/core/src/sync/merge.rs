//! Many workers' numbers become one's.
//!
//! Always in the order of the workers, whoever came first, so the bits do not depend on time. A mean is weighted by
//! samples: ragged batches and shards give what one process over all samples would.
//!
//! A part of the numbers may be merged apart from the others, by whoever: each number only meets those in the same
//! place, so the bits are those of a merge of all. Where merges are merged again, in a tree, each carries the sum of its
//! parts times their samples ([`weighted_sum`], [`add`]), and the last divides once ([`divide`]).

/// The largest piece that is worked on at once: it stays in the nearest cache while all workers' parts are added.
const PIECE: usize = 4_096;

/// Writes the mean of `parts`, each with its samples, over `into`. Parts without samples count nothing; if all are, `into`
/// stays as it is. All have the same length.
pub fn mean(into: &mut [f32], parts: &[(&[f32], u64)]) {
    let parts: Vec<&(&[f32], u64)> = parts.iter().filter(|(_, samples)| *samples > 0).collect();
    let total: u64 = parts.iter().map(|(_, samples)| samples).sum();
    match parts[..] {
        [] => {}
        // Whoever is alone is not rounded.
        [(only, _)] => into.copy_from_slice(only),
        _ => weighted(into, &parts, |samples| (samples as f64 / total as f64) as f32),
    }
}

/// Writes the sum of `parts`, each times its samples, over `into`.
pub fn weighted_sum(into: &mut [f32], parts: &[(&[f32], u64)]) {
    let parts: Vec<&(&[f32], u64)> = parts.iter().filter(|(_, samples)| *samples > 0).collect();
    into.fill(0.0);
    weighted(into, &parts, |samples| samples as f32);
}

/// Adds numbers to others, one by one.
pub fn add(into: &mut [f32], from: &[f32]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into += from);
}

/// Makes a mean of a weighted sum.
pub fn divide(sum: &mut [f32], samples: u64) {
    if samples > 0 {
        sum.iter_mut().for_each(|value| *value /= samples as f32);
    }
}

/// Writes the sum of `parts` over `into`.
pub fn sum(into: &mut [f32], parts: &[&[f32]]) {
    // Counts are sums of many ones: they stay exact for longer in 64 bits.
    let mut wide = [0.0_f64; PIECE];
    for (index, into) in into.chunks_mut(PIECE).enumerate() {
        let wide = &mut wide[..into.len()];
        wide.fill(0.0);
        for part in parts {
            let start = (index * PIECE).min(part.len());
            for (sum, value) in wide.iter_mut().zip(&part[start..]) {
                *sum += f64::from(*value);
            }
        }
        for (into, sum) in into.iter_mut().zip(&*wide) {
            *into = *sum as f32;
        }
    }
}

fn weighted(into: &mut [f32], parts: &[&(&[f32], u64)], weight: impl Fn(u64) -> f32) {
    for (index, into) in into.chunks_mut(PIECE).enumerate() {
        for (number, (part, samples)) in parts.iter().enumerate() {
            let start = (index * PIECE).min(part.len());
            let (weight, values) = (weight(*samples), &part[start..]);
            if number == 0 {
                into.iter_mut().zip(values).for_each(|(into, value)| *into = weight * value);
            } else {
                into.iter_mut().zip(values).for_each(|(into, value)| *into += weight * value);
            }
        }
    }
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
    fn a_weighted_sum_divided_by_its_samples_is_a_mean() {
        let (mut first, mut second) = ([0.0; 2], [0.0; 2]);
        weighted_sum(&mut first, &[(&[1.0, 10.0], 1), (&[f32::NAN, 7.0], 0)]);
        weighted_sum(&mut second, &[(&[4.0, 20.0], 3)]);
        add(&mut first, &second);
        divide(&mut first, 4);
        assert_eq!(first, [3.25, 17.5]);
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
