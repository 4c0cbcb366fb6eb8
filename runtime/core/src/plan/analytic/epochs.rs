//! How many epochs a job will need, counted on a sample of its data (LambdaML, section 5.3).
//!
//! The sample is a tenth of the data by default. So that its epochs are comparable, each must have as many steps as one of
//! all data: its batches are smaller in the same proportion ([`batch`]). What was counted is the estimate. The method that
//! the paper refers to fits a curve to the errors where the target is not reached; no curve is fitted here: the number
//! of epochs that were trained is then given as what is needed at least.

use serde::{Deserialize, Serialize};

/// The part of the data that is trained on.
pub const FRACTION: f64 = 0.1;

/// Validations whose mean is compared with the target: one alone may be low by chance.
const MEAN_OF: usize = 3;

/// Epochs that a job will need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epochs {
    /// As counted, with the part of the last one in which the target was reached.
    pub expected: f64,
    /// When a single epoch reached the target first.
    pub least: f64,
    /// When the mean of three in a row did, if it did.
    pub most: Option<f64>,
    /// Whether the target was reached at all; if not, `expected` epochs were too few.
    pub is_reached: bool,
    pub why: String,
}

/// The batch of a sample, so that an epoch of it has as many steps as one of all data: one at least.
pub fn batch(batch: u32, fraction: f64) -> u32 {
    (f64::from(batch) * fraction).round().max(1.0) as u32
}

/// Counts the epochs after which losses, one for each epoch of a sample, were at most the target.
pub fn count(losses: &[f64], target: f64) -> Epochs {
    let Some(first) = losses.iter().position(|loss| *loss <= target) else {
        let trained = losses.len() as f64;
        let lowest = losses.iter().copied().fold(f64::INFINITY, f64::min);
        let why = format!(
            "{trained} epochs of a sample came down to a loss of {lowest:.4} and not to {target}: more are needed, and how \
             many more is not known."
        );
        return Epochs { expected: trained, least: trained, most: None, is_reached: false, why };
    };
    // The first loss counts for the whole first epoch; later ones are crossed somewhere on the way down.
    let crossed = |epoch: usize| match epoch.checked_sub(1).map(|before| losses[before]) {
        Some(before) if before > losses[epoch] => epoch as f64 + (before - target) / (before - losses[epoch]),
        _ => (epoch + 1) as f64,
    };
    let least = crossed(first);
    let mean_below = losses.windows(MEAN_OF).position(|it| it.iter().sum::<f64>() / MEAN_OF as f64 <= target);
    let most = mean_below.map(|from| least.max((from + MEAN_OF) as f64));
    let stayed = match most {
        Some(most) => format!(", and the mean of {MEAN_OF} epochs did after {most:.0}"),
        None => format!("; no {MEAN_OF} epochs in a row were that low on average"),
    };
    let why = format!("On a sample, the loss came down to {target} after {least:.1} epochs{stayed}.");
    Epochs { expected: least, least, most, is_reached: true, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_counted_with_the_part_of_the_last() {
        let epochs = count(&[1.0, 0.8, 0.6, 0.4, 0.4, 0.4], 0.5);
        assert!((epochs.expected - 3.5).abs() < 1e-12, "{epochs:?}");
        assert_eq!((epochs.is_reached, epochs.most), (true, Some(5.0)));
        assert_eq!(count(&[0.1], 0.5).expected, 1.0);
    }

    #[test]
    fn one_low_loss_by_chance_widens_the_range() {
        let epochs = count(&[1.0, 0.9, 0.4, 0.9, 0.8, 0.5, 0.4, 0.4], 0.5);
        assert!(epochs.least < 3.0 && epochs.most == Some(8.0), "{epochs:?}");
    }

    #[test]
    fn a_target_that_was_not_reached_is_no_estimate() {
        let epochs = count(&[1.0, 0.9, f64::NAN], 0.5);
        assert!(!epochs.is_reached && epochs.least == 3.0 && epochs.most.is_none());
        assert!(epochs.why.contains("0.9000"), "{}", epochs.why);
        assert!(!count(&[], 0.5).is_reached);
    }

    #[test]
    fn a_samples_epoch_has_as_many_steps() {
        for (samples, size) in [(10_000_u64, 100_u32), (50_000, 128), (60_000, 32)] {
            let steps = samples.div_ceil(u64::from(size));
            let of_sample = (samples / 10).div_ceil(u64::from(batch(size, FRACTION)));
            assert!(of_sample.abs_diff(steps) as f64 <= 0.1 * steps as f64, "{steps} and {of_sample}");
        }
    }
}
