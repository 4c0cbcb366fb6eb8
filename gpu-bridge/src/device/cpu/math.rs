//! Functions of one or two numbers that the compiler turns into vector code.
//!
//! Each is straight-line code, choices by selection, no table and no call, so a loop over it inside
//! [`vectorized`](super::simd::vectorized) runs eight or sixteen lanes at a time. Nothing is contracted, so an element has the same bits
//! whether it is computed by a vector or in the rest of a loop. Errors are in units of the last place (ulp), the most
//! that the tests found; NaN, infinities, zeros and subnormal numbers are as IEEE 754 has them.

use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E};
use std::f64::consts::LN_2;

/// Adding it to a small number leaves the nearest integer in the low bits: 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;

/// The same for f64: 1.5 * 2^52.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

/// ln 2 in two parts; the first has so few bits that its product with an exponent is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// `e^x`, within 1 ulp.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Beyond these it is infinite or zero. Comparisons that are false for NaN let it through.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let rounded = x * LOG2_E + ROUND;
    let power = rounded - ROUND;
    let rest = x - power * LN_2_HIGH - power * LN_2_LOW;
    let tail = 1.987_569_1e-4 * rest + 1.398_2e-3;
    let tail = tail * rest + 8.333_452e-3;
    let tail = tail * rest + 4.166_579_6e-2;
    let tail = tail * rest + 1.666_666_5e-1;
    let tail = tail * rest + 0.5;
    let fraction = tail * (rest * rest) + rest + 1.0;
    // 2^power in two halves: one alone would overflow before the result does, and lose what is subnormal.
    let power = (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = power >> 1;
    fraction * power_of_two(half) * power_of_two(power.wrapping_sub(half))
}

/// `2^power` for a normal result.
#[inline(always)]
fn power_of_two(power: i32) -> f32 {
    f32::from_bits((power.wrapping_add(127) as u32) << 23)
}

/// The natural logarithm, within 1 ulp.
#[inline(always)]
pub(super) fn log(x: f32) -> f32 {
    // Numbers below the normal ones are brought among them first.
    let small = x < f32::MIN_POSITIVE;
    let normal = if small { x * 8_388_608.0 } else { x };
    let shift = if small { -23 } else { 0 };
    // x = 2^power * fraction, with the fraction between sqrt(1/2) and sqrt(2).
    let bits = normal.to_bits().wrapping_add(0x3f80_0000 - 0x3f35_04f3);
    let power = ((bits >> 23) as i32).wrapping_sub(127).wrapping_add(shift) as f32;
    let fraction = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3)) - 1.0;
    let s = fraction / (2.0 + fraction);
    let z = s * s;
    let w = z * z;
    let odd = w * (0.400_009_72 + w * 0.242_790_79);
    let even = z * (0.666_666_6 + w * 0.284_987_87);
    let half_square = 0.5 * fraction * fraction;
    let value = s * (half_square + (odd + even)) + power * 9.058_001e-6 - half_square + fraction + power * 0.693_138_1;
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    let value = if x < 0.0 { f32::NAN } else { value };
    // Infinity and NaN are their own logarithms.
    if x < f32::INFINITY { value } else { x }
}

/// The hyperbolic tangent, within 2 ulp.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let size = x.abs();
    let z = x * x;
    let tail = -5.704_988_7e-3 * z + 2.063_909e-2;
    let tail = tail * z - 5.373_971_6e-2;
    let tail = tail * z + 1.333_144_2e-1;
    let tail = tail * z - 3.333_328e-1;
    let near = tail * z * x + x;
    let far = 1.0 - 2.0 / (exp(2.0 * size) + 1.0);
    (if size < 0.625 { near } else { far }).copysign(x)
}

/// `1 / (1 + e^-x)`, within 3 ulp, small results too.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    let small = exp(-x.abs());
    let above = if x < 0.0 { small } else { 1.0 };
    above / (1.0 + small)
}

/// The error function, within 2 ulp.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let z = x * x;
    let tail = -5.967_617e-4 * z + 4.991_194_2e-3;
    let tail = tail * z - 2.676_813_5e-2;
    let tail = tail * z + 1.128_199_25e-1;
    let tail = tail * z - 3.761_253_4e-1;
    let tail = tail * z + 1.283_791_7e-1;
    let near = tail * x + x;
    // From 4 on it is 1.
    let size = x.abs();
    let t = if size > 4.0 { 4.0 } else { size };
    let s = t * t;
    let power = (-1.728_534_7e-5 * t + 3.831_971_3e-4) * s + (-3.883_964_4e-3 * t + 2.425_462_2e-2);
    let power = power * t - 1.067_778_8e-1;
    let power = power * t - 6.348_467e-1;
    let power = power * t - 1.287_175_1e-1;
    let power = power * t - t;
    let far = (1.0 - exp(power)).copysign(x);
    if size > 0.927_734_4 { far } else { near }
}

/// The share of a normal distribution below `x`: `(1 + erf(x / sqrt 2)) / 2`. Within 1e-7.
#[inline(always)]
pub(super) fn normal_share(x: f32) -> f32 {
    0.5 + 0.5 * erf(x * FRAC_1_SQRT_2)
}

/// `1 / sqrt(x)`, within 1 ulp.
#[inline(always)]
pub(super) fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// `x^y`, within 1 ulp: in f64, because an error in the logarithm grows with the exponent. What IEEE 754 says holds:
/// anything to the power 0 and 1 to any power are 1, and a negative base takes integer powers only.
#[inline(always)]
pub(super) fn pow(x: f32, y: f32) -> f32 {
    let base = f64::from(x).abs();
    let log = natural_log(base);
    let exponent = Exponent::new(y);
    // 1 to an infinite power is 1.
    let power = if log == 0.0 { 0.0 } else { exponent.value * log };
    let value = natural_exp(power) as f32;
    let value = f32::from_bits(value.to_bits() ^ (x.to_bits() & exponent.odd));
    // What is negative and finite has no other powers.
    let refused = if (x < 0.0) & (base < f64::INFINITY) { exponent.broken } else { 0 };
    let refused = if x.is_nan() { u32::MAX } else { refused };
    let value = f32::from_bits(value.to_bits() | ((refused | exponent.nan) & f32::NAN.to_bits()));
    let value = if x == 1.0 { 1.0 } else { value };
    f32::from_bits((value.to_bits() & !exponent.zero) | (1.0_f32.to_bits() & exponent.zero))
}

/// What an exponent does to the result, as masks of bits and not as choices: in a loop with one exponent for all, the
/// compiler would make a loop for each combination of choices, none of them with vectors.
#[derive(Clone, Copy)]
struct Exponent {
    value: f64,
    /// The sign bit where it is an odd integer.
    odd: u32,
    /// All bits where it is no integer.
    broken: u32,
    nan: u32,
    zero: u32,
}

impl Exponent {
    #[inline(always)]
    fn new(y: f32) -> Self {
        const SHIFT: f64 = 4_503_599_627_370_496.0;
        let mask = |is: bool| 0_u32.wrapping_sub(u32::from(is));
        // An integer below 2^52 shows whether it is odd in its lowest bit when 2^52 is added.
        let value = f64::from(y);
        let shifted = value.abs() + SHIFT;
        let integer = shifted - SHIFT == value.abs();
        let odd = integer & (value.abs() < SHIFT) & (shifted.to_bits() & 1 == 1);
        Self { value, odd: mask(odd) & (1 << 31), broken: mask(!integer), nan: mask(y.is_nan()), zero: mask(y == 0.0) }
    }
}

/// The logarithm of a number that is not negative and, unless zero, is normal; to 2^-38 of its size.
#[inline(always)]
fn natural_log(x: f64) -> f64 {
    const HALF_ROOT: u64 = 0x3fe6_a09e_0000_0000;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    let bits = x.to_bits().wrapping_add(ONE - HALF_ROOT);
    // An integer below 2^52 becomes an f64 by writing it into the low bits of 2^52.
    let power = f64::from_bits((bits >> 52) | 0x4330_0000_0000_0000) - (4_503_599_627_370_496.0 + 1023.0);
    let fraction = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(HALF_ROOT)) - 1.0;
    let s = fraction / (2.0 + fraction);
    let z = s * s;
    let tail = z / 15.0 + 1.0 / 13.0;
    let tail = tail * z + 1.0 / 11.0;
    let tail = tail * z + 1.0 / 9.0;
    let tail = tail * z + 1.0 / 7.0;
    let tail = tail * z + 1.0 / 5.0;
    let tail = tail * z + 1.0 / 3.0;
    let value = power * LN_2 + 2.0 * (s + s * z * tail);
    let value = if x == 0.0 { f64::NEG_INFINITY } else { value };
    if x < f64::INFINITY { value } else { x }
}

/// `e^x` far enough to either side that as an f32 it is infinite or zero; to 2^-32 of its size.
#[inline(always)]
fn natural_exp(x: f64) -> f64 {
    let x = if x > 128.0 { 128.0 } else { x };
    let x = if x < -128.0 { -128.0 } else { x };
    let rounded = x * std::f64::consts::LOG2_E + ROUND_F64;
    let rest = x - (rounded - ROUND_F64) * LN_2;
    let tail = rest / 362_880.0 + 1.0 / 40_320.0;
    let tail = tail * rest + 1.0 / 5_040.0;
    let tail = tail * rest + 1.0 / 720.0;
    let tail = tail * rest + 1.0 / 120.0;
    let tail = tail * rest + 1.0 / 24.0;
    let tail = tail * rest + 1.0 / 6.0;
    let tail = tail * rest + 0.5;
    let fraction = tail * rest * rest + rest + 1.0;
    fraction * f64::from_bits((rounded.to_bits().wrapping_add(1023)) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest error over a sweep of inputs, in units of the last place of the exact result.
    fn worst(inputs: impl Iterator<Item = f32>, got: impl Fn(f32) -> f32, want: impl Fn(f64) -> f64) -> (f64, f32) {
        let mut worst = (0.0, 0.0);
        for x in inputs {
            let error = ulps(got(x), want(f64::from(x)));
            if error > worst.0 {
                worst = (error, x);
            }
        }
        worst
    }

    fn ulps(got: f32, want: f64) -> f64 {
        let rounded = want as f32;
        if rounded.is_nan() || rounded.is_infinite() || got.is_nan() || got.is_infinite() {
            let same = rounded.to_bits() == got.to_bits() || (rounded.is_nan() && got.is_nan());
            return if same { 0.0 } else { f64::INFINITY };
        }
        let size = rounded.abs().max(f32::MIN_POSITIVE);
        let ulp = f64::from(f32::from_bits(size.to_bits() + 1)) - f64::from(size);
        (f64::from(got) - want).abs() / ulp
    }

    fn sweep(low: f32, high: f32) -> impl Iterator<Item = f32> {
        let count = 400_001;
        (0..count).map(move |i| low + (high - low) * (i as f32 / (count - 1) as f32))
    }

    /// Every magnitude, subnormal ones too.
    fn magnitudes() -> impl Iterator<Item = f32> {
        (0..f32::INFINITY.to_bits()).step_by(4_999).map(f32::from_bits)
    }

    fn both_signs() -> impl Iterator<Item = f32> {
        magnitudes().flat_map(|x| [x, -x])
    }

    /// By the series that has no terms of different signs.
    fn exact_erf(x: f64) -> f64 {
        if x.abs() > 6.0 {
            return x.signum();
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..400 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[track_caller]
    fn assert_within(limit: f64, (error, at): (f64, f32)) {
        assert!(error <= limit, "{error} ulp at {at}, the limit is {limit}");
    }

    #[test]
    fn exp_is_within_one_ulp() {
        assert_within(1.0, worst(sweep(-104.5, 89.5), exp, f64::exp));
        assert_within(1.0, worst(sweep(-1.0, 1.0), exp, f64::exp));
        assert_within(1.0, worst(both_signs(), exp, f64::exp));
    }

    #[test]
    fn log_is_within_one_ulp() {
        assert_within(1.0, worst(magnitudes(), log, f64::ln));
        assert_within(1.0, worst(sweep(0.5, 2.0), log, f64::ln));
    }

    #[test]
    fn tanh_is_within_two_ulp() {
        assert_within(2.0, worst(sweep(-10.0, 10.0), tanh, f64::tanh));
        assert_within(2.0, worst(both_signs(), tanh, f64::tanh));
    }

    #[test]
    fn sigmoid_is_within_three_ulp() {
        let exact = |x: f64| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
        assert_within(3.0, worst(sweep(-110.0, 30.0), sigmoid, exact));
        assert_within(3.0, worst(both_signs(), sigmoid, exact));
    }

    #[test]
    fn erf_is_within_two_ulp() {
        assert_within(2.0, worst(sweep(-5.0, 5.0), erf, exact_erf));
        assert_within(2.0, worst(both_signs(), erf, exact_erf));
    }

    #[test]
    fn the_normal_share_is_within_1e_7() {
        for x in sweep(-8.0, 8.0) {
            let want = 0.5 + 0.5 * exact_erf(f64::from(x) / std::f64::consts::SQRT_2);
            assert!((f64::from(normal_share(x)) - want).abs() < 1e-7, "{x}");
        }
    }

    #[test]
    fn rsqrt_is_within_one_and_a_half_ulp() {
        assert_within(1.5, worst(magnitudes(), rsqrt, |x| 1.0 / x.sqrt()));
    }

    #[test]
    fn pow_is_within_one_ulp() {
        for y in [0.5_f32, -0.5, 2.0, 3.0, -1.0, 0.75, 17.25, -33.3, 1e-3, 1e-30, 1e30, 0.1, 2.5, 100.0] {
            assert_within(1.0, worst(magnitudes(), |x| pow(x, y), |x| x.powf(f64::from(y))));
            assert_within(1.0, worst(sweep(0.9, 1.1), |x| pow(x, y), |x| x.powf(f64::from(y))));
        }
    }

    #[test]
    fn pow_has_the_special_cases_of_ieee() {
        let odd = 16_777_215.0;
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            2.0,
            -2.0,
            3.0,
            -3.0,
            2.5,
            -2.5,
            odd,
            -odd,
            16_777_216.0,
            1e30,
            -1e30,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            1e-45,
            -1e-45,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        for x in special {
            for y in special {
                let (got, want) = (pow(x, y), x.powf(y));
                let error = ulps(got, f64::from(want));
                assert!(error <= 1.0, "{x}^{y} is {got}, not {want}");
                assert!(want.is_nan() || got.is_sign_negative() == want.is_sign_negative(), "{x}^{y}: sign of {got}");
            }
        }
    }

    #[test]
    fn ends_are_as_they_should_be() {
        let infinity = f32::INFINITY;
        for (function, low, high) in [
            (exp as fn(f32) -> f32, 0.0, infinity),
            (tanh, -1.0, 1.0),
            (sigmoid, 0.0, 1.0),
            (erf, -1.0, 1.0),
            (normal_share, 0.0, 1.0),
        ] {
            assert_eq!(function(-infinity), low);
            assert_eq!(function(infinity), high);
            assert!(function(f32::NAN).is_nan());
        }
        assert_eq!(log(0.0), -infinity);
        assert_eq!(log(-0.0), -infinity);
        assert_eq!(log(infinity), infinity);
        assert!(log(-1.0).is_nan() && log(-infinity).is_nan() && log(f32::NAN).is_nan());
        assert_eq!(rsqrt(0.0), infinity);
        assert_eq!(rsqrt(infinity), 0.0);
        assert!(rsqrt(-1.0).is_nan());
        assert!(tanh(-0.0).is_sign_negative() && erf(-0.0).is_sign_negative());
    }
}
