//! Transcendental functions as polynomials: no calls, so that loops over them become vectors.

/// `e^x` within an ulp or two; denormal results are kept, NaN stays NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Adding this leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let p = 1.987_569_1e-4_f32;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    // In two steps: 2^n itself may be no f32 though the result is.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The natural logarithm within an ulp or two; `-inf` of 0, NaN below.
#[inline(always)]
pub(super) fn log(x: f32) -> f32 {
    let small = x < f32::MIN_POSITIVE;
    let scaled = if small { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    // The mantissa between the roots of 1/2 and 2.
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let e = (shifted >> 23) as f32 - if small { 23.0 } else { 0.0 };
    let m = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(0x3f35_04f3) as u32) - 1.0;
    let p = 7.037_683_6e-2_f32;
    let p = p * m - 1.151_461e-1;
    let p = p * m + 1.167_699_9e-1;
    let p = p * m - 1.242_014_1e-1;
    let p = p * m + 1.424_932_3e-1;
    let p = p * m - 1.666_805_8e-1;
    let p = p * m + 2.000_071_5e-1;
    let p = p * m - 2.499_999_4e-1;
    let p = p * m + 3.333_333e-1;
    let square = m * m;
    let y = p * m * square - 2.121_944_4e-4 * e - 0.5 * square;
    let result = m + y + 0.693_359_4 * e;
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    // Neither infinity nor NaN went through the above.
    let result = if x < f32::INFINITY { result } else { x };
    if x < 0.0 { f32::NAN } else { result }
}
