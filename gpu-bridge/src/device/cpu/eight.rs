//! Eight floats side by side, and eight of them turned over.
//!
//! To be called where code is [`vectorized`](super::simd::vectorized).

pub(super) const EIGHT: usize = 8;

pub(super) type Eight = [f32; EIGHT];

/// Rows become columns.
#[inline(always)]
pub(super) fn transpose(rows: &[Eight; EIGHT]) -> [Eight; EIGHT] {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx") {
        // SAFETY: the feature is there.
        return unsafe { transpose_avx(rows) };
    }
    std::array::from_fn(|column| std::array::from_fn(|row| rows[row][column]))
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx")]
fn transpose_avx(rows: &[Eight; EIGHT]) -> [Eight; EIGHT] {
    use std::arch::x86_64::{
        _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps,
        _mm256_unpacklo_ps,
    };
    // SAFETY: a row is eight floats.
    let rows = rows.each_ref().map(|row| unsafe { _mm256_loadu_ps(row.as_ptr()) });
    // Pairs of rows, element by element; then fours, in each half of a vector.
    let pairs: [_; 4] = std::array::from_fn(|pair| {
        let (a, b) = (rows[pair * 2], rows[pair * 2 + 1]);
        (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b))
    });
    let fours: [[_; 4]; 2] = std::array::from_fn(|four| {
        let ((a, b), (c, d)) = (pairs[four * 2], pairs[four * 2 + 1]);
        [
            _mm256_shuffle_ps::<0b01_00_01_00>(a, c),
            _mm256_shuffle_ps::<0b11_10_11_10>(a, c),
            _mm256_shuffle_ps::<0b01_00_01_00>(b, d),
            _mm256_shuffle_ps::<0b11_10_11_10>(b, d),
        ]
    });
    let mut columns = [[0.0; EIGHT]; EIGHT];
    for (step, (&low, &high)) in fours[0].iter().zip(&fours[1]).enumerate() {
        // SAFETY: a column is eight floats.
        unsafe {
            _mm256_storeu_ps(columns[step].as_mut_ptr(), _mm256_permute2f128_ps::<0x20>(low, high));
            _mm256_storeu_ps(columns[step + 4].as_mut_ptr(), _mm256_permute2f128_ps::<0x31>(low, high));
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_turned_over_twice_is_as_before() {
        let rows: [Eight; EIGHT] = std::array::from_fn(|row| std::array::from_fn(|lane| (row * EIGHT + lane) as f32));
        let columns = transpose(&rows);
        assert_eq!(columns[3][5], rows[5][3]);
        assert_eq!(transpose(&columns), rows);
    }
}
