//! One vector of AVX-512, or two of AVX2.
//!
//! Values of these types exist only inside [`with_avx512`] and [`with_avx2`], whose callers know that the features are
//! there: that is what makes their instructions safe.

use std::arch::x86_64::{
    __m256, __m512, __mmask16, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_permute2f128_ps,
    _mm256_set1_ps, _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_sub_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    _mm512_add_ps, _mm512_castpd_ps, _mm512_castps_pd, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_sub_ps,
    _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

use super::{Floats, Kernel, SIXTEEN, Sixteen};

/// # Safety
/// The features are there.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn with_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<One>()
}

/// # Safety
/// The features are there.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Two>()
}

#[derive(Clone, Copy)]
pub(super) struct One(__m512);

/// The lanes that so many floats fill.
#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    if count < SIXTEEN { (1 << count) - 1 } else { __mmask16::MAX }
}

impl Sixteen for One {
    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: the features are there, as for all that follow.
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    fn load(from: &Floats) -> Self {
        // SAFETY: sixteen floats.
        Self(unsafe { _mm512_loadu_ps(from.as_ptr()) })
    }

    #[inline(always)]
    fn load_some(from: &[f32]) -> Self {
        // SAFETY: lanes past the last float are not read.
        Self(unsafe { _mm512_maskz_loadu_ps(mask(from.len()), from.as_ptr()) })
    }

    #[inline(always)]
    fn store(self, into: &mut Floats) {
        // SAFETY: sixteen floats.
        unsafe { _mm512_storeu_ps(into.as_mut_ptr(), self.0) };
    }

    #[inline(always)]
    fn store_some(self, into: &mut [f32]) {
        // SAFETY: lanes past the last float are not written.
        unsafe { _mm512_mask_storeu_ps(into.as_mut_ptr(), mask(into.len()), self.0) };
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn scale(self, factor: f32) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_mul_ps(self.0, _mm512_set1_ps(factor)) })
    }

    #[inline(always)]
    fn add_scaled(self, factor: f32, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_fmadd_ps(_mm512_set1_ps(factor), other.0, self.0) })
    }

    #[inline(always)]
    fn transpose(rows: [Self; SIXTEEN]) -> [Self; SIXTEEN] {
        let mut vectors = [rows[0].0; SIXTEEN];
        for (vector, row) in vectors.iter_mut().zip(&rows) {
            *vector = row.0;
        }
        // SAFETY: as above.
        let vectors = unsafe { transpose_sixteen(vectors) };
        let mut columns = rows;
        for (column, vector) in columns.iter_mut().zip(vectors) {
            *column = Self(vector);
        }
        columns
    }
}

/// Pairs of rows, then fours, each within quarters of a vector; then the quarters change places.
///
/// # Safety
/// The feature is there.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn transpose_sixteen(rows: [__m512; SIXTEEN]) -> [__m512; SIXTEEN] {
    let (mut pairs, mut fours, mut halves, mut columns) = (rows, rows, rows, rows);
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    // Of four rows, `fours[4 * group + i]` has column `i` of each quarter.
    for group in (0..SIXTEEN).step_by(4) {
        for half in 0..2 {
            let (a, b) = (_mm512_castps_pd(pairs[group + half]), _mm512_castps_pd(pairs[group + 2 + half]));
            fours[group + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            fours[group + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    // Even quarters of two groups, and odd ones.
    for groups in [0, 8] {
        for i in groups..groups + 4 {
            halves[i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(fours[i], fours[i + 4]);
            halves[i + 4] = _mm512_shuffle_f32x4::<0b11_01_11_01>(fours[i], fours[i + 4]);
        }
    }
    for i in 0..8 {
        columns[i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(halves[i], halves[i + 8]);
        columns[i + 8] = _mm512_shuffle_f32x4::<0b11_01_11_01>(halves[i], halves[i + 8]);
    }
    columns
}

#[derive(Clone, Copy)]
pub(super) struct Two([__m256; 2]);

impl Sixteen for Two {
    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: the features are there, as for all that follow.
        Self([unsafe { _mm256_set1_ps(value) }; 2])
    }

    #[inline(always)]
    fn load(from: &Floats) -> Self {
        // SAFETY: sixteen floats.
        Self(unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] })
    }

    #[inline(always)]
    fn load_some(from: &[f32]) -> Self {
        match from.first_chunk() {
            Some(from) => Self::load(from),
            None => {
                let mut floats = [0.0; SIXTEEN];
                floats[..from.len()].copy_from_slice(from);
                Self::load(&floats)
            }
        }
    }

    #[inline(always)]
    fn store(self, into: &mut Floats) {
        for (half, values) in self.0.into_iter().enumerate() {
            // SAFETY: sixteen floats.
            unsafe { _mm256_storeu_ps(into.as_mut_ptr().add(half * 8), values) };
        }
    }

    #[inline(always)]
    fn store_some(self, into: &mut [f32]) {
        match into.first_chunk_mut() {
            Some(into) => self.store(into),
            None => {
                let mut floats = [0.0; SIXTEEN];
                self.store(&mut floats);
                into.copy_from_slice(&floats[..into.len()]);
            }
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { [_mm256_add_ps(self.0[0], other.0[0]), _mm256_add_ps(self.0[1], other.0[1])] })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { [_mm256_sub_ps(self.0[0], other.0[0]), _mm256_sub_ps(self.0[1], other.0[1])] })
    }

    #[inline(always)]
    fn scale(self, factor: f32) -> Self {
        // SAFETY: as above.
        Self(unsafe {
            let factor = _mm256_set1_ps(factor);
            [_mm256_mul_ps(self.0[0], factor), _mm256_mul_ps(self.0[1], factor)]
        })
    }

    #[inline(always)]
    fn add_scaled(self, factor: f32, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe {
            let factor = _mm256_set1_ps(factor);
            [_mm256_fmadd_ps(factor, other.0[0], self.0[0]), _mm256_fmadd_ps(factor, other.0[1], self.0[1])]
        })
    }

    #[inline(always)]
    fn transpose(rows: [Self; SIXTEEN]) -> [Self; SIXTEEN] {
        // Four squares of eight: those off the diagonal change places.
        let mut columns = rows;
        for half in 0..2 {
            for first in [0, 8] {
                let mut square = [rows[0].0[0]; 8];
                for (i, row) in square.iter_mut().enumerate() {
                    *row = rows[first + i].0[half];
                }
                // SAFETY: as above.
                for (i, column) in unsafe { transpose_eight(square) }.into_iter().enumerate() {
                    columns[half * 8 + i].0[first / 8] = column;
                }
            }
        }
        columns
    }
}

/// # Safety
/// The feature is there.
#[inline]
#[target_feature(enable = "avx")]
unsafe fn transpose_eight(rows: [__m256; 8]) -> [__m256; 8] {
    let (mut pairs, mut fours, mut columns) = (rows, rows, rows);
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    for group in [0, 4] {
        for half in 0..2 {
            let (a, b) = (pairs[group + half], pairs[group + 2 + half]);
            fours[group + 2 * half] = _mm256_shuffle_ps::<0b01_00_01_00>(a, b);
            fours[group + 2 * half + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(a, b);
        }
    }
    for i in 0..4 {
        columns[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
        columns[i + 4] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
    }
    columns
}
