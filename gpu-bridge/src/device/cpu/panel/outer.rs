//! Sums of outer products along an image: for the gradient of a weight, where nothing need be gathered.

use super::{Block, LANES, Offsets, ROWS};
#[cfg(target_arch = "x86_64")]
use crate::device::cpu::simd::has_avx512;
use crate::device::cpu::simd::vectorized;

/// Adds to the block, for each of some pixels, what lies there at each offset of the source times the pixel's [`LANES`] columns.
#[inline]
pub(in super::super) fn add_outer(
    pixels: Offsets<'_>,
    source: &[f32],
    offsets: [usize; ROWS],
    columns: &[f32],
    block: &mut Block,
) {
    let columns = &columns[..pixels.steps.len() * LANES];
    let sources = offsets.map(|offset| &source[offset..][..=pixels.reach]);
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features are there, the sources reach to the last pixel, and the columns are as many.
        return unsafe {
            super::avx512::add_outer(pixels.steps, sources.map(<[f32]>::as_ptr), columns.as_ptr(), block)
        };
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there, the sources reach to the last pixel, and the columns are as many.
        return unsafe { add_outer_avx2(pixels.steps, sources.map(<[f32]>::as_ptr), columns.as_ptr(), block) };
    }
    vectorized(
        #[inline(always)]
        || {
            for (&at, columns) in pixels.steps.iter().zip(columns.chunks_exact(LANES)) {
                for (sums, source) in block.iter_mut().zip(sources) {
                    let factor = source[at as usize];
                    sums.iter_mut().zip(columns).for_each(|(sum, &x)| *sum += factor * x);
                }
            }
        },
    );
}

/// # Safety
/// The sources reach to the last pixel, and there are columns for each.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn add_outer_avx2(
    pixels: &[u32],
    sources: [*const f32; ROWS],
    mut columns: *const f32,
    block: &mut Block,
) {
    use std::arch::x86_64::{_mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_storeu_ps};
    // SAFETY: a row of the block is two vectors long.
    let mut sums = unsafe {
        std::array::from_fn::<_, ROWS, _>(|row| {
            [_mm256_loadu_ps(block[row].as_ptr()), _mm256_loadu_ps(block[row].as_ptr().add(8))]
        })
    };
    for &at in pixels {
        // SAFETY: by the contract.
        unsafe {
            let (low, high) = (_mm256_loadu_ps(columns), _mm256_loadu_ps(columns.add(8)));
            for (source, sum) in sources.iter().zip(&mut sums) {
                let factor = _mm256_broadcast_ss(&*source.add(at as usize));
                sum[0] = _mm256_fmadd_ps(factor, low, sum[0]);
                sum[1] = _mm256_fmadd_ps(factor, high, sum[1]);
            }
            columns = columns.add(LANES);
        }
    }
    for (row, sum) in block.iter_mut().zip(sums) {
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_ps(row.as_mut_ptr(), sum[0]);
            _mm256_storeu_ps(row.as_mut_ptr().add(8), sum[1]);
        }
    }
}
