//! A block with vectors of sixteen: one vector is a row.

use std::arch::x86_64::{
    __m512, __mmask16, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
};

use super::{LANES, Operands, Target};

/// # Safety
/// As for [`super::multiply`], on a processor with these features.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply_avx512<const COUNT: usize>(from: Operands, to: Target) {
    // So few sums do not keep two multipliers busy: every second step has sums of its own.
    let mut sums = [[_mm512_setzero_ps(); COUNT]; 2];
    // As for AVX2: two pointers with three rows each, which addressing modes reach.
    let mut halves = [from.rows, from.rows.wrapping_add(3 * from.row_stride)];
    let mut columns = from.columns;
    let double = std::hint::black_box(2 * from.row_stride);
    for step in (0..from.depth).step_by(2) {
        for sums in sums.iter_mut().take(from.depth - step) {
            // SAFETY: within the operands, by the contract. The pointers may end one step behind them, unread.
            unsafe {
                let values = _mm512_loadu_ps(columns);
                for (row, sum) in sums.iter_mut().enumerate() {
                    let offset = [0, from.row_stride, double][row % 3];
                    *sum = _mm512_fmadd_ps(_mm512_set1_ps(*halves[row / 3].add(offset)), values, *sum);
                }
            }
            halves = halves.map(|rows| rows.wrapping_add(from.row_step));
            columns = columns.wrapping_add(from.column_step);
        }
    }
    let sums = std::array::from_fn(|row| _mm512_add_ps(sums[0][row], sums[1][row]));
    // SAFETY: by the contract.
    unsafe { store::<COUNT>(sums, to) };
}

/// # Safety
/// As for [`super::multiply_pair`], on a processor with these features.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply_pair_avx512<const COUNT: usize>(from: Operands, second: *const f32, to: Target) {
    // Added in the same order as in single blocks, so that the bits do not depend on what is paired.
    let mut sums = [[[_mm512_setzero_ps(); COUNT]; 2]; 2];
    let mut halves = [from.rows, from.rows.wrapping_add(3 * from.row_stride)];
    let mut columns = [from.columns, second];
    let double = std::hint::black_box(2 * from.row_stride);
    for step in (0..from.depth).step_by(2) {
        for [low, high] in sums.iter_mut().take(from.depth - step) {
            // SAFETY: within the operands, by the contract. The pointers may end one step behind them, unread.
            unsafe {
                let values = columns.map(|columns| _mm512_loadu_ps(columns));
                for (row, (low, high)) in low.iter_mut().zip(high).enumerate() {
                    let offset = [0, from.row_stride, double][row % 3];
                    let factor = _mm512_set1_ps(*halves[row / 3].add(offset));
                    *low = _mm512_fmadd_ps(factor, values[0], *low);
                    *high = _mm512_fmadd_ps(factor, values[1], *high);
                }
            }
            halves = halves.map(|rows| rows.wrapping_add(from.row_step));
            columns = columns.map(|columns| columns.wrapping_add(from.column_step));
        }
    }
    let [even, odd] = sums;
    let sums: [[__m512; COUNT]; 2] =
        std::array::from_fn(|half| std::array::from_fn(|row| _mm512_add_ps(even[half][row], odd[half][row])));
    // SAFETY: by the contract.
    unsafe {
        store::<COUNT>(sums[0], Target { columns: LANES, ..to });
        store::<COUNT>(sums[1], Target { place: to.place.add(LANES), columns: to.columns - LANES, ..to });
    }
}

/// # Safety
/// The target is as for [`super::multiply`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store<const COUNT: usize>(sums: [__m512; COUNT], to: Target) {
    let scale = _mm512_set1_ps(to.scale);
    let mask = __mmask16::MAX >> (LANES - to.columns);
    for (row, &sum) in sums.iter().enumerate() {
        // SAFETY: a row of the target, of which only the columns that there are are touched.
        unsafe {
            let place = to.place.add(row * to.stride);
            let result = match to.accumulate {
                true => _mm512_fmadd_ps(scale, sum, _mm512_maskz_loadu_ps(mask, place)),
                false => _mm512_mul_ps(scale, sum),
            };
            _mm512_mask_storeu_ps(place, mask, result);
        }
    }
}
