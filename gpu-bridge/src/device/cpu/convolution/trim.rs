//! Kernels without the taps that never see the image: on a map of one pixel, a padded 3 x 3 has one tap that counts.

use std::ops::Range;

use super::Geometry;
use crate::error::Result;
use crate::run::{Run, Scratch};

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
        let (Some(rows), Some(columns)) = (live(geometry, 0, run)?, live(geometry, 1, run)?) else { return Ok(None) };
        Ok(Self::keeping(geometry, [rows, columns]))
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
        for (kernel, into) in weight.chunks_exact(whole).zip(trimmed.floats().chunks_exact_mut(taps)) {
            run.cancel.check()?;
            for (row, into) in self.live[0].clone().zip(into.chunks_exact_mut(self.live[1].len())) {
                into.copy_from_slice(&kernel[row * self.whole[1]..][self.live[1].clone()]);
            }
        }
        Ok(trimmed)
    }

    /// Puts the gradients of these taps into those of all; the others' are zero.
    pub(super) fn restore(&self, trimmed: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
        run.fill(dw, 0.0)?;
        let whole = self.whole[0] * self.whole[1];
        for (kernel, from) in dw.chunks_exact_mut(whole).zip(trimmed.chunks_exact(self.geometry.taps())) {
            run.cancel.check()?;
            for (row, from) in self.live[0].clone().zip(from.chunks_exact(self.live[1].len())) {
                kernel[row * self.whole[1]..][self.live[1].clone()].copy_from_slice(from);
            }
        }
        Ok(())
    }
}

/// From the first to the last tap along an axis that sees the image.
fn live(geometry: &Geometry, axis: usize, run: &Run<'_>) -> Result<Option<Range<usize>>> {
    /// Taps that are looked at before the cancel flag is.
    const TOGETHER: usize = 1 << 16;
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
        run.cancel.check()?;
        let Some(first) = piece(index).find(sees) else { continue };
        for index in (0..pieces).rev() {
            run.cancel.check()?;
            if let Some(last) = piece(index).rfind(sees) {
                return Ok(Some(first..last + 1));
            }
        }
    }
    Ok(None)
}
