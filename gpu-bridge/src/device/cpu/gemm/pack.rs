//! Operands brought into the order in which [`super::block`] reads them.

use super::Matrix;
use super::block::{LANES, ROWS};
use crate::device::cpu::eight::{self, EIGHT};
use crate::device::cpu::simd::vectorized;

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
            vectorized(
                #[inline(always)]
                || transpose(from.from(0, panel * LANES), depth, place),
            );
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
#[inline(always)]
fn transpose(from: Matrix<'_>, depth: usize, panel: &mut [f32]) {
    let (places, _) = panel.as_chunks_mut::<LANES>();
    for column in (0..LANES).step_by(EIGHT) {
        let lines: [&[f32]; EIGHT] = std::array::from_fn(|line| &from.data[(column + line) * from.column..][..depth]);
        for (step, places) in places[..depth].chunks_mut(EIGHT).enumerate() {
            let eights = lines.map(|line| line[step * EIGHT..].first_chunk::<EIGHT>());
            if eights[0].is_none() {
                for (offset, place) in places.iter_mut().enumerate() {
                    for (place, line) in place[column..].iter_mut().zip(lines) {
                        *place = line[step * EIGHT + offset];
                    }
                }
                continue;
            }
            let eights = eight::transpose(&eights.map(|eight| eight.copied().unwrap_or_default()));
            for (place, eight) in places.iter_mut().zip(eights) {
                place[column..column + EIGHT].copy_from_slice(&eight);
            }
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
