//! Images `[n, c, h, w]` to smaller ones, window by window.

use super::Tensor;
use crate::Result;
use crate::host::kernels;

/// How windows lie on an image. Pairs are down and across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub kernel: (u32, u32),
    pub stride: (u32, u32),
    /// On each side; at most half the kernel.
    pub padding: (u32, u32),
    /// Whether a last window that does not fit whole counts.
    pub ceil: bool,
    /// Whether a mean counts the padding, as zeros. Maxima never do.
    pub count_padding: bool,
}

impl Window {
    /// Squares of this side beside each other, without padding.
    pub fn square(side: u32) -> Self {
        let kernel = (side, side);
        Self { kernel, stride: kernel, padding: (0, 0), ceil: false, count_padding: true }
    }

    /// So far from each other.
    pub fn stride(self, stride: u32) -> Self {
        Self { stride: (stride, stride), ..self }
    }

    /// With so much padding on each side.
    pub fn padding(self, padding: u32) -> Self {
        Self { padding: (padding, padding), ..self }
    }

    /// With a last window that hangs over the edge, where it must.
    pub fn ceil(self) -> Self {
        Self { ceil: true, ..self }
    }
}

impl Tensor {
    /// The largest of each window.
    pub fn max_pool2d(&self, window: Window) -> Result<Self> {
        let Window { kernel, stride, padding, ceil, .. } = window;
        kernels::max_pool2d(self.raw(), kernel, stride, padding, ceil).map(Self::from)
    }

    /// The mean of each window.
    pub fn average_pool2d(&self, window: Window) -> Result<Self> {
        let Window { kernel, stride, padding, ceil, count_padding } = window;
        kernels::average_pool2d(self.raw(), kernel, stride, padding, ceil, count_padding).map(Self::from)
    }

    /// The means of `height` by `width` windows that share each image as evenly as they can.
    pub fn adaptive_average_pool2d(&self, height: u32, width: u32) -> Result<Self> {
        kernels::adaptive_average_pool2d(self.raw(), height, width).map(Self::from)
    }

    /// The largest of each of `height` by `width` windows that share each image as evenly as they can.
    pub fn adaptive_max_pool2d(&self, height: u32, width: u32) -> Result<Self> {
        kernels::adaptive_max_pool2d(self.raw(), height, width).map(Self::from)
    }

    /// `[n, c, h, w]` to the mean of each image, `[n, c]`.
    pub fn mean_of_places(&self) -> Result<Self> {
        self.adaptive_average_pool2d(1, 1)?.reshape(&[self.size(0), self.size(1)])
    }
}
