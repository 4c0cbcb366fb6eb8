//! The inner loop of a product: a block of [`ROWS`] rows and [`LANES`] columns, kept in registers.
//!
//! Rows are read where they lie, at any strides; columns lie side by side, [`LANES`] of them at each step of the depth.

#[cfg(target_arch = "x86_64")]
use crate::device::cpu::simd::has_avx512;
use crate::device::cpu::simd::vectorized;

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use avx512::{multiply_avx512, multiply_pair_avx512};

/// The most rows of a block.
pub(super) const ROWS: usize = 6;

/// Columns of a block: two vectors of eight.
pub(super) const LANES: usize = 16;

/// What a block multiplies. Pointers, because rows and columns of neighbouring blocks interleave.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub depth: usize,
    /// Element (row, step) lies at `row * row_stride + step * row_step`.
    pub rows: *const f32,
    pub row_stride: usize,
    pub row_step: usize,
    /// The columns of a step lie at `step * column_step`.
    pub columns: *const f32,
    pub column_step: usize,
}

/// Where a block goes: `scale` times the product, added to what is there if so wished.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub place: *mut f32,
    pub stride: usize,
    pub columns: usize,
    pub scale: f32,
    pub accumulate: bool,
}

impl Target {
    /// Writes one element.
    ///
    /// # Safety
    /// It is within the target, and nobody else uses it.
    #[inline(always)]
    pub(super) unsafe fn store(&self, row: usize, column: usize, sum: f32) {
        // SAFETY: by the contract.
        let place = unsafe { &mut *self.place.add(row * self.stride + column) };
        *place = if self.accumulate { *place + self.scale * sum } else { self.scale * sum };
    }
}

/// Computes a block of `count` rows.
///
/// # Safety
/// Rows and columns hold `depth` steps, all [`LANES`] columns of each; the target has `count` rows of at most [`LANES`]
/// columns, `stride` apart, which nobody else uses.
#[inline]
pub(super) unsafe fn multiply(count: usize, from: Operands, to: Target) {
    macro_rules! by_count {
        ($function:ident) => {
            // SAFETY: as promised to this function; those for AVX2 and AVX-512 are called where that is.
            unsafe {
                match count {
                    1 => $function::<1>(from, to),
                    2 => $function::<2>(from, to),
                    3 => $function::<3>(from, to),
                    4 => $function::<4>(from, to),
                    5 => $function::<5>(from, to),
                    _ => $function::<ROWS>(from, to),
                }
            }
        };
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        return by_count!(multiply_avx512);
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        return by_count!(multiply_avx2);
    }
    by_count!(multiply_plain)
}

/// Computes two blocks side by side: the columns of the second lie at `second`, with the same steps. Each row's factor is
/// read once for both, where there are registers enough.
///
/// # Safety
/// As for [`multiply`], for both blocks: the target has more than [`LANES`] columns, and at most twice as many.
#[inline]
pub(super) unsafe fn multiply_pair(count: usize, from: Operands, second: *const f32, to: Target) {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: as promised to this function, and the features are there.
        return unsafe {
            match count {
                1 => multiply_pair_avx512::<1>(from, second, to),
                2 => multiply_pair_avx512::<2>(from, second, to),
                3 => multiply_pair_avx512::<3>(from, second, to),
                4 => multiply_pair_avx512::<4>(from, second, to),
                5 => multiply_pair_avx512::<5>(from, second, to),
                _ => multiply_pair_avx512::<ROWS>(from, second, to),
            }
        };
    }
    // SAFETY: as promised to this function.
    unsafe {
        multiply(count, from, Target { columns: LANES, ..to });
        let place = to.place.add(LANES);
        multiply(count, Operands { columns: second, ..from }, Target { place, columns: to.columns - LANES, ..to });
    }
}

/// # Safety
/// As for [`multiply`].
unsafe fn multiply_plain<const COUNT: usize>(from: Operands, to: Target) {
    let sums = vectorized(
        #[inline(always)]
        || {
            let mut sums = [[0.0_f32; LANES]; COUNT];
            for step in 0..from.depth {
                // SAFETY: within the operands, by the contract.
                let columns = unsafe { &*from.columns.add(step * from.column_step).cast::<[f32; LANES]>() };
                for (row, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: as above.
                    let factor = unsafe { *from.rows.add(row * from.row_stride + step * from.row_step) };
                    sums.iter_mut().zip(columns).for_each(|(sum, &x)| *sum += factor * x);
                }
            }
            sums
        },
    );
    // SAFETY: by the contract.
    unsafe { store(&sums, to) };
}

/// # Safety
/// The target is as for [`multiply`].
unsafe fn store<const COUNT: usize>(sums: &[[f32; LANES]; COUNT], to: Target) {
    for (row, sums) in sums.iter().enumerate() {
        for (column, &sum) in sums[..to.columns].iter().enumerate() {
            // SAFETY: an element of the target.
            unsafe { to.store(row, column, sum) };
        }
    }
}

/// # Safety
/// As for [`multiply`], on a processor with these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_avx2<const COUNT: usize>(from: Operands, to: Target) {
    use std::arch::x86_64::{
        _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps,
        _mm256_storeu_ps,
    };
    let mut sums = [[_mm256_setzero_ps(); 2]; COUNT];
    // Two pointers with three rows each, which addressing modes reach: one chain of additions through all rows would take
    // as long as the products.
    let mut halves = [from.rows, from.rows.wrapping_add(3 * from.row_stride)];
    let mut columns = from.columns;
    let double = std::hint::black_box(2 * from.row_stride);
    for _ in 0..from.depth {
        // SAFETY: within the operands, by the contract. The pointers may end one step behind them, unread.
        unsafe {
            let (low, high) = (_mm256_loadu_ps(columns), _mm256_loadu_ps(columns.add(8)));
            for (row, sum) in sums.iter_mut().enumerate() {
                let offset = [0, from.row_stride, double][row % 3];
                let factor = _mm256_broadcast_ss(&*halves[row / 3].add(offset));
                sum[0] = _mm256_fmadd_ps(factor, low, sum[0]);
                sum[1] = _mm256_fmadd_ps(factor, high, sum[1]);
            }
        }
        halves = halves.map(|rows| rows.wrapping_add(from.row_step));
        columns = columns.wrapping_add(from.column_step);
    }
    let scale = _mm256_set1_ps(to.scale);
    if to.columns == LANES {
        for (row, sum) in sums.iter().enumerate() {
            for (half, &sum) in sum.iter().enumerate() {
                // SAFETY: half of a row of the target.
                unsafe {
                    let place = to.place.add(row * to.stride + half * 8);
                    let result = match to.accumulate {
                        true => _mm256_fmadd_ps(scale, sum, _mm256_loadu_ps(place)),
                        false => _mm256_mul_ps(scale, sum),
                    };
                    _mm256_storeu_ps(place, result);
                }
            }
        }
        return;
    }
    let mut block = [[0.0; LANES]; COUNT];
    for (row, sum) in block.iter_mut().zip(sums) {
        // SAFETY: a row is two vectors long.
        unsafe {
            _mm256_storeu_ps(row.as_mut_ptr(), sum[0]);
            _mm256_storeu_ps(row.as_mut_ptr().add(8), sum[1]);
        }
    }
    // SAFETY: by the contract.
    unsafe { store(&block, to) };
}
