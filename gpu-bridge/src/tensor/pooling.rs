//! Windows to one element: maxima and means of images.

use super::Tensor;
use crate::error::Result;
use crate::op::{AdaptiveAveragePool2d, AdaptiveMaxPool2d, AveragePool2d, MaxPool2d, Window};

impl Tensor {
    /// The largest of each window of `[n, c, h, w]`.
    pub fn max_pool2d(&self, window: Window) -> Result<Self> {
        self.context.run_one(MaxPool2d(window), &[self])
    }

    /// The mean of each window of `[n, c, h, w]`.
    pub fn average_pool2d(&self, window: Window) -> Result<Self> {
        self.context.run_one(AveragePool2d(window), &[self])
    }

    /// The means of `height` by `width` windows that share each image as evenly as they can.
    pub fn adaptive_average_pool2d(&self, height: usize, width: usize) -> Result<Self> {
        self.context.run_one(AdaptiveAveragePool2d { height, width }, &[self])
    }

    /// The largest of each of `height` by `width` windows that share each image as evenly as they can.
    pub fn adaptive_max_pool2d(&self, height: usize, width: usize) -> Result<Self> {
        self.context.run_one(AdaptiveMaxPool2d { height, width }, &[self])
    }
}
