//! Kernels without the taps that never see the image: on a map of one pixel, a padded 3 x 3 has one tap that counts.

use std::ops::Range;
use std::sync::OnceLock;

use super::Geometry;
use crate::error::Result;
use crate::run::{PIECE, Pace, Run, Scratch};

/// Taps that are gone through together.
const TOGETHER: usize = 1 << 16;

/// The taps of a kernel that see the image from some output.
pub(super) struct Trim {
    /// The convolution with these taps alone.
    pub(super) geometry: Geometry,
    whole: [usize; 2],
    live: [Range<usize>; 2],
}

impl Trim {
    /// None if all taps count, or none does.
    pub(super) fn new(geometry: &Geometry, run: &Run<'_>) -> Result<Option<Self>> {
        let found = OnceLock::new();
        run.paced(1, |pace, _| {
            if let (Some(rows), Some(columns)) = (live(geometry, 0, pace)?, live(geometry, 1, pace)?) {
                found.get_or_init(|| [rows, columns]);
            }
            Ok(())
        })?;
        Ok(found.into_inner().and_then(|live| Self::keeping(geometry, live)))
    }

    fn keeping(geometry: &Geometry, live: [Range<usize>; 2]) -> Option<Self> {
        let kernel = [live[0].len(), live[1].len()];
        if kernel == geometry.kernel {
            return None;
        }
        // A tap that is cut off can have been further from the image than the padding is wide.
        let padding = |axis: usize| geometry.padding[axis].checked_sub(live[axis].start * geometry.dilation[axis]);
        let padding = [padding(0)?, padding(1)?];
        Some(Self { geometry: Geometry { kernel, padding, ..*geometry }, whole: geometry.kernel, live })
    }

    /// The weight with these taps alone.
    pub(super) fn weight(&self, weight: &[f32], run: &Run<'_>) -> Result<Scratch> {
        let (whole, taps) = (self.whole[0] * self.whole[1], self.geometry.taps());
        let mut trimmed = run.scratch(weight.len() / whole * taps)?;
        let together = (TOGETHER / taps).max(1);
        run.paced_chunks(trimmed.floats(), together * taps, |pace, tile, trimmed| {
            let kernels = weight[tile * together * whole..].chunks_exact(whole);
            for (kernel, trimmed) in kernels.zip(trimmed.chunks_exact_mut(taps)) {
                self.each_row(pace, |all, kept| trimmed[kept].copy_from_slice(&kernel[all]))?;
            }
            Ok(())
        })?;
        Ok(trimmed)
    }

    /// Puts the gradients of these taps into those of all; the others' are zero.
    pub(super) fn restore(&self, trimmed: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
        let (whole, taps) = (self.whole[0] * self.whole[1], self.geometry.taps());
        let together = (TOGETHER / whole).max(1);
        run.paced_chunks(dw, together * whole, |pace, tile, dw| {
            let kernels = trimmed[tile * together * taps..].chunks_exact(taps);
            for (trimmed, dw) in kernels.zip(dw.chunks_exact_mut(whole)) {
                pace.fill(dw, 0.0)?;
                self.each_row(pace, |all, kept| dw[all].copy_from_slice(&trimmed[kept]))?;
            }
            Ok(())
        })
    }

    /// Runs `body` for the rows of one kernel that count: where the taps of a row lie among all, and among those kept.
    fn each_row(&self, pace: &mut Pace<'_>, mut body: impl FnMut(Range<usize>, Range<usize>)) -> Result<()> {
        let width = self.live[1].len();
        for (kept, row) in self.live[0].clone().enumerate() {
            let (all, kept) = (row * self.whole[1] + self.live[1].start, kept * width);
            pace.step(width.min(PIECE))?;
            pace.pieces(width, |taps| body(all + taps.start..all + taps.end, kept + taps.start..kept + taps.end))?;
        }
        Ok(())
    }
}

/// From the first to the last tap along an axis that sees the image.
fn live(geometry: &Geometry, axis: usize, pace: &mut Pace<'_>) -> Result<Option<Range<usize>>> {
    /// What looking at a tap costs, in additions: there are two divisions in it.
    const COST: usize = 16;
    let sees = |tap: &usize| {
        // The first output that looks past the padding, if it looks no further than the image.
        let shift = tap * geometry.dilation[axis];
        let first = geometry.padding[axis].saturating_sub(shift).div_ceil(geometry.stride[axis]);
        first < geometry.to[axis] && geometry.source(axis, first, *tap).is_some()
    };
    let taps = geometry.kernel[axis];
    let pieces = taps.div_ceil(TOGETHER);
    let piece = |index: usize| index * TOGETHER..taps.min((index + 1) * TOGETHER);
    for index in 0..pieces {
        pace.step(COST * piece(index).len())?;
        let Some(first) = piece(index).find(sees) else { continue };
        for index in (index..pieces).rev() {
            pace.step(COST * piece(index).len())?;
            if let Some(last) = piece(index).rfind(sees) {
                return Ok(Some(first..last + 1));
            }
        }
    }
    Ok(None)
}
