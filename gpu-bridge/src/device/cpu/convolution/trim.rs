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
    pub(super) fn new(geometry: &Geometry) -> Option<Self> {
        let live = [live(geometry, 0)?, live(geometry, 1)?];
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
            for (row, into) in self.live[0].clone().zip(into.chunks_exact_mut(self.live[1].len())) {
                into.copy_from_slice(&kernel[row * self.whole[1]..][self.live[1].clone()]);
            }
        }
        Ok(trimmed)
    }

    /// Puts the gradients of these taps into those of all; the others' are zero.
    pub(super) fn restore(&self, trimmed: &[f32], dw: &mut [f32]) {
        dw.fill(0.0);
        let whole = self.whole[0] * self.whole[1];
        for (kernel, from) in dw.chunks_exact_mut(whole).zip(trimmed.chunks_exact(self.geometry.taps())) {
            for (row, from) in self.live[0].clone().zip(from.chunks_exact(self.live[1].len())) {
                kernel[row * self.whole[1]..][self.live[1].clone()].copy_from_slice(from);
            }
        }
    }
}

/// From the first to the last tap along an axis that sees the image.
fn live(geometry: &Geometry, axis: usize) -> Option<Range<usize>> {
    let sees = |tap: &usize| {
        // The first output that looks past the padding, if it looks no further than the image.
        let shift = tap * geometry.dilation[axis];
        let first = geometry.padding[axis].saturating_sub(shift).div_ceil(geometry.stride[axis]);
        first < geometry.to[axis] && geometry.source(axis, first, *tap).is_some()
    };
    let first = (0..geometry.kernel[axis]).find(sees)?;
    let last = (0..geometry.kernel[axis]).rfind(sees)?;
    Some(first..last + 1)
}
