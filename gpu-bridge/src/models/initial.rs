//! Initial weights and data by a formula, so that PyTorch can be given the very same ones: what
//! `scripts/torch_models.py` computes for seed 0 is this, bit for bit.
//!
//! ```text
//! hash(seed, stream, element): x = element * 0x9E3779B1 + (stream + 1) * 0x85EBCA77 + seed * 0xC2B2AE3D, then mixed:
//!     x ^= x >> 16; x *= 0x7FEB352D; x ^= x >> 15; x *= 0x846CA68B; x ^= x >> 16
//! uniform(seed, stream, element) = hash / 2^31 - 1, in [-1, 1)
//!
//! parameter n, in the order in which they are declared, element i:
//!     two axes or more             uniform(n, i) * sqrt(3 / fan_in), fan_in being the product of all axes but the first
//!     one axis, named `..weight`   1 + uniform(n, i) / 10
//!     one axis, otherwise          uniform(n, i) / 10
//! inputs    uniform(1000001, i) * sqrt(3), or hash(1000001, i) modulo 2 (MLP) or the number of words (BERT)
//! targets   hash(1000002, i) modulo the number of classes
//! ```
//! Hashes are of 32 bits and wrap; the rest is computed in f64 and rounded to f32 at the end.

use crate::shape::Shape;

/// The stream that inputs come from.
pub const INPUTS: u32 = 1_000_001;

/// The stream that targets come from.
pub const TARGETS: u32 = 1_000_002;

pub fn hash(seed: u32, stream: u32, element: u32) -> u32 {
    let mut x = element
        .wrapping_mul(0x9E37_79B1)
        .wrapping_add(stream.wrapping_add(1).wrapping_mul(0x85EB_CA77))
        .wrapping_add(seed.wrapping_mul(0xC2B2_AE3D));
    x ^= x >> 16;
    x = x.wrapping_mul(0x7FEB_352D);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

/// In `[-1, 1)`.
pub fn uniform(seed: u32, stream: u32, element: u32) -> f64 {
    f64::from(hash(seed, stream, element)) / f64::from(1_u32 << 31) - 1.0
}

/// The elements of a parameter: the `number`-th, of this name and shape.
pub fn parameter(seed: u32, number: u32, name: &str, shape: &Shape) -> Vec<f32> {
    let value = |element| uniform(seed, number, element);
    let elements = 0..shape.elements() as u32;
    if shape.rank() >= 2 {
        let fan_in = shape[1..].iter().product::<usize>();
        let bound = (3.0 / fan_in as f64).sqrt();
        elements.map(|i| (value(i) * bound) as f32).collect()
    } else if name.ends_with("weight") {
        elements.map(|i| (1.0 + value(i) / 10.0) as f32).collect()
    } else {
        elements.map(|i| (value(i) / 10.0) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by `hashes` of `scripts/torch_models.py`.
    #[test]
    fn hashes_are_those_of_the_script() {
        assert_eq!(
            [0, 1, 2, 15_000_000].map(|element| hash(0, 0, element)),
            [0xC4A0_E45C, 0x0255_B236, 0x3EF2_2BFA, 0xA8DC_135A]
        );
        assert_eq!(hash(0, INPUTS, 7), 0x2E6D_C053);
    }
}
