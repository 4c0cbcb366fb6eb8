//! The inner loops with vectors of sixteen: one vector is a row of a block.
//!
//! Six sums are too few to keep two multipliers busy, so every second step of the depth has sums of its own.

use std::arch::x86_64::{
    __m512, __mmask16, _mm_add_ps, _mm_storeu_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_extractf128_ps,
    _mm256_hadd_ps, _mm256_loadu_ps, _mm512_add_ps, _mm512_castps256_ps512, _mm512_castps512_ps256,
    _mm512_extractf32x8_ps, _mm512_fmadd_ps, _mm512_insertf32x8, _mm512_loadu_ps, _mm512_maskz_loadu_ps,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

use super::{Block, DOT_COLUMNS, DOT_ROWS, LANES, ROWS, Segments};

type Sums = [__m512; ROWS];

/// Both sums of each row, added.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn store(sums: [Sums; 2], block: &mut Block) {
    for (row, into) in block.iter_mut().enumerate() {
        // SAFETY: a row is one vector long.
        unsafe { _mm512_storeu_ps(into.as_mut_ptr(), _mm512_add_ps(sums[0][row], sums[1][row])) };
    }
}

/// # Safety
/// The panels have `depth` steps.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn multiply(depth: usize, mut rows: *const f32, mut columns: *const f32, block: &mut Block) {
    let mut sums = [[_mm512_setzero_ps(); ROWS]; 2];
    for _ in 0..depth / 2 {
        for (half, sums) in sums.iter_mut().enumerate() {
            // SAFETY: within the panels, by the contract.
            unsafe {
                let values = _mm512_loadu_ps(columns.add(half * LANES));
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_fmadd_ps(_mm512_set1_ps(*rows.add(half * ROWS + row)), values, *sum);
                }
            }
        }
        rows = rows.wrapping_add(2 * ROWS);
        columns = columns.wrapping_add(2 * LANES);
    }
    if depth % 2 == 1 {
        // SAFETY: as above.
        unsafe {
            let values = _mm512_loadu_ps(columns);
            for (row, sum) in sums[0].iter_mut().enumerate() {
                *sum = _mm512_fmadd_ps(_mm512_set1_ps(*rows.add(row)), values, *sum);
            }
        }
    }
    store(sums, block);
}

/// # Safety
/// There is half of [`LANES`] elements at the offset in both halves.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn both_halves(halves: [*const f32; 2], offset: u32) -> __m512 {
    // SAFETY: by the contract.
    let [low, high] = halves.map(|half| unsafe { _mm256_loadu_ps(half.add(offset as usize)) });
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
}

/// # Safety
/// The panel has as many steps as there are offsets, and at each there is half of [`LANES`] elements in both halves.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn multiply_at(mut rows: *const f32, halves: [*const f32; 2], offsets: &[u32], block: &mut Block) {
    let mut sums = [[_mm512_setzero_ps(); ROWS]; 2];
    let (pairs, last) = offsets.as_chunks::<2>();
    for pair in pairs {
        for ((half, &offset), sums) in pair.iter().enumerate().zip(&mut sums) {
            // SAFETY: by the contract.
            unsafe {
                let values = both_halves(halves, offset);
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_fmadd_ps(_mm512_set1_ps(*rows.add(half * ROWS + row)), values, *sum);
                }
            }
        }
        rows = rows.wrapping_add(2 * ROWS);
    }
    for &offset in last {
        // SAFETY: by the contract.
        unsafe {
            let values = both_halves(halves, offset);
            for (row, sum) in sums[0].iter_mut().enumerate() {
                *sum = _mm512_fmadd_ps(_mm512_set1_ps(*rows.add(row)), values, *sum);
            }
        }
    }
    store(sums, block);
}

/// # Safety
/// The sources reach to the last pixel, and there are columns for each.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn add_outer(
    pixels: &[u32],
    sources: [*const f32; ROWS],
    mut columns: *const f32,
    block: &mut Block,
) {
    // SAFETY: a row of the block is one vector long.
    let before = std::array::from_fn(|row| unsafe { _mm512_loadu_ps(block[row].as_ptr()) });
    let mut sums = [before, [_mm512_setzero_ps(); ROWS]];
    let (pairs, last) = pixels.as_chunks::<2>();
    for pair in pairs {
        for ((half, &at), sums) in pair.iter().enumerate().zip(&mut sums) {
            // SAFETY: by the contract.
            unsafe {
                let values = _mm512_loadu_ps(columns.add(half * LANES));
                for (source, sum) in sources.iter().zip(sums) {
                    *sum = _mm512_fmadd_ps(_mm512_set1_ps(*source.add(at as usize)), values, *sum);
                }
            }
        }
        columns = columns.wrapping_add(2 * LANES);
    }
    for &at in last {
        // SAFETY: by the contract.
        unsafe {
            let values = _mm512_loadu_ps(columns);
            for (source, sum) in sources.iter().zip(&mut sums[0]) {
                *sum = _mm512_fmadd_ps(_mm512_set1_ps(*source.add(at as usize)), values, *sum);
            }
        }
    }
    store(sums, block);
}

/// # Safety
/// All rows have `segments` pieces of `depth` elements.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn dots(
    segments: usize,
    depth: usize,
    a: Segments<'_, DOT_ROWS>,
    b: Segments<'_, DOT_COLUMNS>,
) -> [[f32; DOT_COLUMNS]; DOT_ROWS] {
    let mut sums = [[_mm512_setzero_ps(); DOT_COLUMNS]; DOT_ROWS];
    let (mut rows, mut columns) = (a.rows.map(<[f32]>::as_ptr), b.rows.map(<[f32]>::as_ptr));
    for segment in 0..segments {
        for at in (0..depth).step_by(LANES) {
            // What is behind the last element is neither read nor counted.
            let left = depth - at;
            let mask = if left < LANES { (1 << left) - 1 } else { __mmask16::MAX };
            // SAFETY: only elements below `depth` are read.
            unsafe {
                let rows = rows.map(|row| _mm512_maskz_loadu_ps(mask, row.add(at)));
                for (column, pointer) in columns.iter().enumerate() {
                    let factor = _mm512_maskz_loadu_ps(mask, pointer.add(at));
                    for (row, values) in rows.iter().enumerate() {
                        sums[row][column] = _mm512_fmadd_ps(*values, factor, sums[row][column]);
                    }
                }
            }
        }
        if segment + 1 < segments {
            // SAFETY: there is another piece.
            unsafe {
                rows = rows.map(|row| row.add(a.step));
                columns = columns.map(|column| column.add(b.step));
            }
        }
    }
    sums.map(|sums| {
        let eights = sums.map(|sum| _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps::<1>(sum)));
        let pairs = _mm256_hadd_ps(_mm256_hadd_ps(eights[0], eights[1]), _mm256_hadd_ps(eights[2], eights[3]));
        let total = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
        let mut result = [0.0; DOT_COLUMNS];
        // SAFETY: four floats have room in four floats.
        unsafe { _mm_storeu_ps(result.as_mut_ptr(), total) };
        result
    })
}
