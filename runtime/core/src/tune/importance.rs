//! Which parameters mattered: how much of what a goal varies over the space is lost if one parameter is known to nobody.
//!
//! A Gaussian process that was fitted to all trials is asked, because the trials themselves are few and gather near the best.
//! Of its mean over the space the total-effect indices are estimated (Sobol' 2001; the estimator is Jansen's, 1999, in
//! Saltelli et al. 2010, table 2): half the mean square by which it changes when this parameter alone is drawn again, over
//! its variance. They count what a parameter does together with others, so they can add up to more than one; shares are of
//! their sum.

use super::chance::{Chance, Purpose};
use super::sampler::Seen;
use super::space::Space;
use crate::gaussian::Gaussian;

/// How many points are drawn for each parameter.
const POINTS: usize = 512;

/// A share for each parameter by its name, the largest first. None with fewer than four trials that worked, or where all
/// came to the same.
pub fn importance(space: &Space, seen: Seen<'_>, seed: u64) -> Option<Vec<(String, f64)>> {
    let ranked = seen.ranked();
    if ranked.len() < 4 {
        return None;
    }
    let points: Vec<Vec<f64>> = ranked.iter().take(200).map(|(point, _)| space.features(point)).collect();
    // Where values differ by orders of magnitude, one bad trial would be all that varies.
    let targets = super::sampler::gp::bent(&ranked.iter().take(200).map(|(_, value)| *value).collect::<Vec<_>>());
    let process = Gaussian::fit_grouped(&points, &targets, &space.feature_groups()).ok()?;
    let mean = |coordinates: &[f64]| process.predict(&space.features(&space.decode(coordinates))).mean;
    let mut chance = Chance::new(seed, Purpose::Importance, 0);
    let mut draw = || -> Vec<f64> { space.parameters().iter().map(|_| chance.unit()).collect() };
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = (0..POINTS).map(|_| (draw(), draw())).collect();
    let values: Vec<f64> = pairs.iter().map(|(point, _)| mean(point)).collect();
    let centre = values.iter().sum::<f64>() / POINTS as f64;
    let variance = values.iter().map(|value| (value - centre).powi(2)).sum::<f64>() / POINTS as f64;
    if variance <= 1e-12 {
        return None;
    }
    let total = |index: usize| {
        let changes = pairs.iter().zip(&values).map(|((point, other), value)| {
            let mut moved = point.clone();
            moved[index] = other[index];
            (value - mean(&moved)).powi(2)
        });
        changes.sum::<f64>() / (2.0 * POINTS as f64 * variance)
    };
    let free = space.parameters().iter().enumerate().filter(|(_, parameter)| parameter.domain.is_free());
    let mut totals: Vec<(String, f64)> =
        free.map(|(index, parameter)| (parameter.name.clone(), total(index))).collect();
    let sum: f64 = totals.iter().map(|(_, total)| total).sum();
    totals.iter_mut().for_each(|(_, total)| *total /= sum);
    totals.sort_by(|a, b| b.1.total_cmp(&a.1));
    Some(totals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::sampler::Observation;

    fn observed(space: &Space, value: impl Fn(f64, f64) -> f64) -> Vec<Observation> {
        let of = |number| {
            let point = space.draw(&mut Chance::new(1, Purpose::Point, number));
            let value = value(point["a"].number().unwrap(), point["b"].number().unwrap());
            Observation { point, value: Some(value) }
        };
        (0..40).map(of).collect()
    }

    #[test]
    fn what_matters_more_is_first_and_shares_add_up() {
        let space = Space::parse(&["a=0..1", "b=0..1", "c=x|y|z"]).unwrap();
        let done = observed(&space, |a, b| 3.0 * a + b);
        let shares = importance(&space, Seen { done: &done, pending: &[] }, 1).unwrap();
        assert_eq!(shares.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
        // Nine parts of ten of the variance of a linear function come from `a`, and nothing from `c`.
        assert!(shares[0].1 > 0.75 && shares[2].1 < 0.05, "{shares:?}");
    }

    #[test]
    fn nothing_is_said_where_nothing_differs_or_little_is_known() {
        let space = Space::parse(&["a=0..1", "b=0..1"]).unwrap();
        let done = observed(&space, |_, _| 1.0);
        assert_eq!(importance(&space, Seen { done: &done, pending: &[] }, 1), None);
        assert_eq!(importance(&space, Seen { done: &done[..3], pending: &[] }, 1), None);
    }
}
