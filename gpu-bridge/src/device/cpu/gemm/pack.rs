//! Operands brought into the order in which [`super::block`] reads them.

use super::Matrix;
use super::block::{LANES, ROWS};

/// Floats from one panel to the next. Some more than a panel has, because panels that lie a power of two apart would fight
/// for the same lines of a cache.
pub(super) fn stride(depth: usize, width: usize) -> usize {
    depth * width + 16
}

/// Puts `count` columns of `depth` rows into panels of [`LANES`], row after row; columns that are missing of the last
/// panel become zero.
///
/// The matrix must hold them all, and `panels` have room.
pub(super) fn columns(from: Matrix<'_>, depth: usize, count: usize, panels: &mut [f32]) {
    assert!(from.holds(depth, count), "the matrix holds what is packed");
    let (stride, whole) = (stride(depth, LANES), count / LANES);
    let (panels, last) = panels[..count.div_ceil(LANES) * stride].split_at_mut(whole * stride);
    if !last.is_empty() {
        ragged(from.from(0, whole * LANES), count % LANES, &mut last[..depth * LANES]);
    }
    if from.row == 1 && from.column != 1 {
        for (panel, place) in panels.chunks_exact_mut(stride).enumerate() {
            transpose(from.from(0, panel * LANES), depth, place);
        }
    } else if from.column == 1 {
        // Row by row, so that all of a line is read at once.
        for step in 0..depth {
            let row = &from.data[step * from.row..][..whole * LANES];
            for (panel, values) in row.as_chunks::<LANES>().0.iter().enumerate() {
                // Arrays, so that their size is known: a copy of unknown size is a call.
                if let Some(place) = panels[panel * stride + step * LANES..].first_chunk_mut::<LANES>() {
                    *place = *values;
                }
            }
        }
    } else {
        for (panel, place) in panels.chunks_exact_mut(stride).enumerate() {
            ragged(from.from(0, panel * LANES), LANES, &mut place[..depth * LANES]);
        }
    }
}

/// One panel of any columns, perhaps not all of them.
fn ragged(from: Matrix<'_>, count: usize, panel: &mut [f32]) {
    let (places, _) = panel.as_chunks_mut::<LANES>();
    if from.column == 1 {
        for (step, place) in places.iter_mut().enumerate() {
            let row = &from.data[step * from.row..];
            *place = match row.first_chunk::<LANES>() {
                // What is behind the row is read with it, so that no lane is checked.
                Some(row) => std::array::from_fn(|lane| if lane < count { row[lane] } else { 0.0 }),
                None => std::array::from_fn(|lane| if lane < count { row[lane] } else { 0.0 }),
            };
        }
        return;
    }
    if count < LANES {
        places.as_flattened_mut().fill(0.0);
    }
    for column in 0..count {
        let line = &from.data[column * from.column..];
        for (step, place) in places.iter_mut().enumerate() {
            place[column] = line[step * from.row];
        }
    }
}

/// [`LANES`] columns that lie along the depth.
fn transpose(from: Matrix<'_>, depth: usize, panel: &mut [f32]) {
    let whole = depth / 8 * 8;
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx") {
        for half in 0..LANES / 8 {
            for step in (0..whole).step_by(8) {
                // SAFETY: the feature is there; `step + 8` is within the depth, in eight columns that the matrix holds, and
                // the panel has a row for each step.
                unsafe {
                    let source = from.data.as_ptr().add(half * 8 * from.column + step);
                    transpose_avx(source, from.column, panel.as_mut_ptr().add(step * LANES + half * 8));
                }
            }
        }
        done = whole;
    }
    for column in 0..LANES {
        let line = &from.data[column * from.column..][..depth];
        for (step, &value) in line.iter().enumerate().skip(done) {
            panel[step * LANES + column] = value;
        }
    }
}

/// Eight by eight: rows `stride` apart become columns [`LANES`] apart.
///
/// # Safety
/// There are eight rows of eight to read, and eight to write.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn transpose_avx(from: *const f32, stride: usize, to: *mut f32) {
    use std::arch::x86_64::{
        _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps,
        _mm256_unpacklo_ps,
    };
    // SAFETY: eight rows of eight, by the contract.
    let rows: [_; 8] = std::array::from_fn(|row| unsafe { _mm256_loadu_ps(from.add(row * stride)) });
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
    for (step, (&low, &high)) in fours[0].iter().zip(&fours[1]).enumerate() {
        // SAFETY: eight rows to write, by the contract.
        unsafe {
            _mm256_storeu_ps(to.add(step * LANES), _mm256_permute2f128_ps::<0x20>(low, high));
            _mm256_storeu_ps(to.add((step + 4) * LANES), _mm256_permute2f128_ps::<0x31>(low, high));
        }
    }
}

/// Puts `count` rows of `depth` columns, where rows lie side by side, into panels of [`ROWS`]: step after step. What
/// is missing of the last panel is not written.
pub(super) fn rows(from: Matrix<'_>, count: usize, depth: usize, panels: &mut [f32]) {
    assert!(from.holds(count, depth) && from.row == 1, "the matrix holds what is packed");
    let stride = stride(depth, ROWS);
    let panels = &mut panels[..count.div_ceil(ROWS) * stride];
    for step in 0..depth {
        let line = &from.data[step * from.column..][..count];
        for (panel, rows) in line.chunks(ROWS).enumerate() {
            let place = &mut panels[panel * stride + step * ROWS..][..ROWS];
            match (place.first_chunk_mut::<ROWS>(), rows.first_chunk::<ROWS>()) {
                (Some(place), Some(rows)) => *place = *rows,
                _ => place.iter_mut().zip(rows).for_each(|(place, &value)| *place = value),
            }
        }
    }
}
