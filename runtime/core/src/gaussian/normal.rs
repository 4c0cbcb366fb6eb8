//! The normal distribution, as far as expected improvement needs it.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The density of the standard normal distribution, φ.
pub fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// The standard normal distribution function, Φ, exact to about 1e-15 of its value also far to the left.
pub fn probability(x: f64) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    if x > 0.0 { 1.0 - upper_tail(x) } else { upper_tail(-x) }
}

/// What lies above `x`, which is not negative.
fn upper_tail(x: f64) -> f64 {
    // The series converges everywhere, but what is subtracted from one half loses digits; the fraction does not, but
    // converges slowly near zero.
    if x < 2.5 {
        return 0.5 - below_in_series(x);
    }
    density(x) * mills(x)
}

/// What lies between zero and `x`: the density times x + x³/3 + x⁵/(3·5) + …, all terms of one sign.
fn below_in_series(x: f64) -> f64 {
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term > sum * 1e-17 {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    sum * density(x)
}

/// The upper tail over the density, for `x` of at least 2: the continued fraction 1/(x + 1/(x + 2/(x + 3/(x + …)))).
fn mills(x: f64) -> f64 {
    let depth = (30.0 + 300.0 / (x * x)) as u32;
    1.0 / (1..=depth).rev().fold(x, |rest, step| x + f64::from(step) / rest)
}

/// The error function, by the distribution function.
pub fn error_function(x: f64) -> f64 {
    let z = x / FRAC_1_SQRT_2;
    if z.abs() < 2.5 { (2.0 * below_in_series(z.abs())).copysign(x) } else { 2.0 * probability(z) - 1.0 }
}

/// The `x` below which lies a share `p` of the standard normal distribution.
pub fn quantile(p: f64) -> f64 {
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    // Below 1e-300 the density has no digits left to divide by.
    if p < 1e-300 {
        return f64::NEG_INFINITY;
    }
    if p > 0.5 {
        return -quantile(1.0 - p);
    }
    // Newton on the logarithm of the distribution function, which is concave: from the left it never overshoots.
    let mut x = -(2.0 * (1.0 / p).ln()).sqrt();
    for _ in 0..60 {
        let below = probability(x);
        let step = below * (p / below).ln() / density(x);
        x += step;
        if step.abs() <= 1e-15 * (1.0 + x.abs()) {
            break;
        }
    }
    x
}

/// By how much a value that is normal around `mean` is expected to be *below* `best`, counting nothing where it is not:
/// (best − mean)·Φ(γ) + deviation·φ(γ) with γ = (best − mean) / deviation.
pub fn expected_improvement(mean: f64, deviation: f64, best: f64) -> f64 {
    if deviation <= 0.0 {
        return (best - mean).max(0.0);
    }
    let gamma = (best - mean) / deviation;
    // Where both terms nearly cancel, the logarithm is computed without subtracting them.
    if gamma < -3.0 {
        return log_expected_improvement(mean, deviation, best).exp();
    }
    (best - mean) * probability(gamma) + deviation * density(gamma)
}

/// The logarithm of the expected improvement, which tells hopeless points apart where the improvement itself is zero (Ament
/// et al. 2023, "Unexpected improvements to expected improvement").
pub fn log_expected_improvement(mean: f64, deviation: f64, best: f64) -> f64 {
    if deviation <= 0.0 {
        return (best - mean).max(0.0).ln();
    }
    let gamma = (best - mean) / deviation;
    if gamma >= -3.0 {
        return (deviation * (gamma * probability(gamma) + density(gamma))).ln();
    }
    let inverse = 1.0 / (gamma * gamma);
    let share = if gamma > -30.0 {
        1.0 + gamma * mills(-gamma)
    } else {
        inverse * (1.0 - inverse * (3.0 - inverse * (15.0 - inverse * 105.0)))
    };
    deviation.ln() - 0.5 * gamma * gamma - 0.5 * (2.0 * PI).ln() + share.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(have: f64, want: f64, relative: f64) -> bool {
        (have - want).abs() <= relative * want.abs()
    }

    #[test]
    fn the_distribution_has_the_values_of_the_tables() {
        for (x, want) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (-1.959_963_984_540_054, 0.025),
            (-2.5, 0.006_209_665_325_776_132),
            (-5.0, 2.866_515_718_791_939e-7),
            (-10.0, 7.619_853_024_160_527e-24),
            (-30.0, 4.906_713_927_148_187e-198),
            (3.0, 0.998_650_101_968_369_9),
        ] {
            assert!(is_near(probability(x), want, 1e-13), "{x}: {} not {want}", probability(x));
        }
        assert!(probability(f64::NAN).is_nan());
        assert_eq!((probability(f64::NEG_INFINITY), probability(f64::INFINITY)), (0.0, 1.0));
    }

    #[test]
    fn both_ways_to_compute_a_tail_meet() {
        let (series, fraction) = (0.5 - below_in_series(2.5), density(2.5) * mills(2.5));
        assert!(is_near(series, fraction, 1e-13), "{series} {fraction}");
    }

    #[test]
    fn a_quantile_is_the_inverse() {
        for p in [1e-200, 1e-12, 1e-3, 0.025, 0.3, 0.5, 0.8, 0.999] {
            assert!(is_near(probability(quantile(p)), p, 1e-11), "{p}: {}", quantile(p));
        }
        assert_eq!((quantile(0.0), quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn the_error_function_has_the_values_of_the_tables() {
        for (x, want) in [(0.5, 0.520_499_877_813_046_5), (-1.0, -0.842_700_792_949_714_9), (1e-9, 1.128_379_167e-9)] {
            assert!(is_near(error_function(x), want, 1e-9), "{x}");
        }
    }

    #[test]
    fn expected_improvement_is_the_integral_that_defines_it() {
        for (mean, deviation, best) in [(0.0_f64, 1.0, 0.0), (1.0, 0.5, 0.0), (-2.0, 3.0, 1.0), (4.0, 1.0, 0.0)] {
            // Simpson's rule over eleven deviations below the best value.
            let (steps, low) = (20_000, (mean - 11.0 * deviation).min(best));
            let width = (best - low) / f64::from(steps);
            let integral: f64 = (0..=steps)
                .map(|step| {
                    let y = low + f64::from(step) * width;
                    let weight = if step == 0 || step == steps { 1.0 } else { f64::from(2 + 2 * (step % 2)) };
                    weight * (best - y) * density((y - mean) / deviation) / deviation
                })
                .sum::<f64>()
                * width
                / 3.0;
            let have = expected_improvement(mean, deviation, best);
            assert!(is_near(have, integral, 1e-7), "{mean} {deviation} {best}: {have} not {integral}");
        }
    }

    #[test]
    fn without_doubt_the_improvement_is_the_difference() {
        assert_eq!(expected_improvement(1.0, 0.0, 3.0), 2.0);
        assert_eq!(expected_improvement(3.0, 0.0, 1.0), 0.0);
    }

    #[test]
    fn the_logarithm_agrees_and_goes_on_where_the_improvement_is_zero() {
        for gamma in [3.0, 0.0, -2.999, -3.001, -8.0, -29.9, -30.1] {
            let (have, want) =
                (log_expected_improvement(-gamma, 1.0, 0.0), expected_improvement(-gamma, 1.0, 0.0).ln());
            assert!(is_near(have, want, 1e-9), "{gamma}: {have} {want}");
        }
        let (near, far) = (log_expected_improvement(50.0, 1.0, 0.0), log_expected_improvement(60.0, 1.0, 0.0));
        assert!(near.is_finite() && far.is_finite() && near > far);
        for gamma in [-3.0_f64, -30.0] {
            let (left, right) = (gamma - 1e-9, gamma + 1e-9);
            let jump = log_expected_improvement(-left, 1.0, 0.0) - log_expected_improvement(-right, 1.0, 0.0);
            assert!(jump.abs() < 1e-5, "{gamma}: {jump}");
        }
    }
}
