//! Two words of random bits to two normal numbers (Box and Muller), in plain arithmetic that is vectorized.
//!
//! The logarithm is not that of [`math`](super::super::math): another polynomial would give every seed other numbers,
//! and this one has no cases for what cannot come here.

use super::{LANES, Lanes, UNIT};

/// The numbers that come of two words, for each lane.
#[inline(always)]
pub(super) fn pair(a: Lanes<u32>, b: Lanes<u32>) -> [Lanes<f32>; 2] {
    let mut normal = [[0.0; LANES]; 2];
    for lane in 0..LANES {
        let radius = (-2.0 * log(((a[lane] >> 8) + 1) as f32 * UNIT)).sqrt();
        let (sine, cosine) = sine_and_cosine_of_turn(b[lane] >> 8);
        normal[0][lane] = radius * cosine;
        normal[1][lane] = radius * sine;
    }
    normal
}

/// The natural logarithm of a positive number that is not subnormal, to about one unit in the last place (Cephes).
#[inline(always)]
fn log(x: f32) -> f32 {
    // The number is `mantissa * 2^exponent` with a mantissa around 1, from sqrt(1/2) to sqrt(2).
    let exponent = (x.to_bits().wrapping_sub(0x3f35_04f3) as i32) >> 23;
    let f = f32::from_bits(x.to_bits().wrapping_sub((exponent << 23) as u32)) - 1.0;
    let exponent = exponent as f32;
    let z = f * f;
    let mut p = 7.037_683_6e-2_f32;
    for c in [
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ] {
        p = p * f + c;
    }
    // The logarithm of 2 in two parts, of which the first times the exponent is exact.
    f + (f * z * p - 2.121_944_4e-4 * exponent - 0.5 * z) + 0.693_359_4 * exponent
}

/// Of an angle in units of a turn / 2^24: so the quarter it lies in is exact.
#[inline(always)]
fn sine_and_cosine_of_turn(angle: u32) -> (f32, f32) {
    const QUARTER: u32 = 1 << 22;
    let quarter = (angle + QUARTER / 2) / QUARTER;
    let beyond = angle.wrapping_sub(quarter * QUARTER) as i32;
    let x = beyond as f32 * (std::f32::consts::FRAC_PI_2 / QUARTER as f32);
    let z = x * x;
    let sine = ((-1.951_529_6e-4 * z + 8.332_161e-3) * z - 1.666_665_5e-1) * z * x + x;
    let cosine = ((2.443_315_7e-5 * z - 1.388_731_6e-3) * z + 4.166_664_6e-2) * z * z - 0.5 * z + 1.0;
    let swapped = quarter & 1 != 0;
    let (s, c) = if swapped { (cosine, sine) } else { (sine, cosine) };
    (if quarter & 2 != 0 { -s } else { s }, if (quarter + 1) & 2 != 0 { -c } else { c })
}
