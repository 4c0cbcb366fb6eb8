//! The same elements elsewhere.

use super::{Resampling, Tensor};
use crate::host::kernels;
use crate::{Error, Result};

impl Tensor {
    /// The elements in the same order under other sizes.
    pub fn reshape(&self, dimensions: &[u32]) -> Result<Self> {
        kernels::reshape(self.raw(), dimensions).map(Self::from)
    }

    /// `[n, ...]` to `[n, elements of one]`.
    pub fn flatten(&self) -> Result<Self> {
        let dimensions = self.dimensions();
        let (first, rest) = dimensions.split_first().map_or((1, &[][..]), |(first, rest)| (*first, rest));
        self.reshape(&[first, rest.iter().product()])
    }

    /// Samples as images `[n, channels, height, width]`: rows of as many numbers are taken as such, images of another size
    /// are resized.
    pub fn to_images(&self, channels: u32, height: u32, width: u32) -> Result<Self> {
        let dimensions = self.dimensions();
        match dimensions[..] {
            [_, c, h, w] if [c, h, w] == [channels, height, width] => Ok(self.clone()),
            [_, c, _, _] if c == channels => self.resize(Resampling::Bilinear, height, width),
            [n, h, w] if channels == 1 => self.reshape(&[n, 1, h, w])?.to_images(channels, height, width),
            [n, length] if u64::from(length) == u64::from(channels) * u64::from(height) * u64::from(width) => {
                self.reshape(&[n, channels, height, width])
            }
            _ => Err(Error::bad_shape(format!(
                "samples of {dimensions:?} are not images of {channels}x{height}x{width}, the first axis being the samples"
            ))),
        }
    }

    /// Axis `i` of the result is axis `order[i]` of this one.
    pub fn permute(&self, order: &[u32]) -> Result<Self> {
        kernels::permute(self.raw(), order).map(Self::from)
    }

    /// The last two axes swapped.
    pub fn transpose(&self) -> Result<Self> {
        kernels::transpose(self.raw()).map(Self::from)
    }

    /// Axes of size 1, and axes that are not there, repeated to fill these dimensions.
    pub fn expand(&self, dimensions: &[u32]) -> Result<Self> {
        kernels::expand(self.raw(), dimensions).map(Self::from)
    }

    /// Per axis: `size` elements from `start`, `step` apart.
    pub fn slice(&self, starts: &[u32], sizes: &[u32], steps: &[u32]) -> Result<Self> {
        kernels::slice(self.raw(), starts, sizes, steps).map(Self::from)
    }

    /// `size` elements of one axis, from `start`.
    pub fn narrow(&self, axis: u32, start: u32, size: u32) -> Result<Self> {
        kernels::narrow(self.raw(), axis, start, size).map(Self::from)
    }

    /// With `before` and `after` elements of `value` around it, per axis.
    pub fn pad(&self, before: &[u32], after: &[u32], value: f32) -> Result<Self> {
        kernels::pad(self.raw(), before, after, value).map(Self::from)
    }

    /// One after the other along an axis.
    pub fn concat(tensors: &[&Self], axis: u32) -> Result<Self> {
        let tensors: Vec<_> = tensors.iter().map(|tensor| tensor.raw()).collect();
        kernels::concat(&tensors, axis).map(Self::from)
    }

    /// The rows of this tensor at these indices.
    pub fn gather_rows(&self, index: &Self) -> Result<Self> {
        kernels::gather_rows(self.raw(), index.raw()).map(Self::from)
    }

    /// Zeros of `count` rows with these rows added, each at its index.
    pub fn scatter_add_rows(&self, index: &Self, count: u32) -> Result<Self> {
        kernels::scatter_add_rows(self.raw(), index.raw(), count).map(Self::from)
    }

    /// The rows of this table that belong to some tokens.
    pub fn embedding(&self, tokens: &Self) -> Result<Self> {
        kernels::embedding(self.raw(), tokens.raw()).map(Self::from)
    }

    /// Classes to rows of 0 with a 1 at the class.
    pub fn one_hot(&self, classes: u32) -> Result<Self> {
        kernels::one_hot(self.raw(), classes).map(Self::from)
    }

    /// Images `[n, c, h, w]` of another size.
    pub fn resize(&self, mode: Resampling, height: u32, width: u32) -> Result<Self> {
        kernels::resize(self.raw(), mode, height, width).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(dimensions: &[u32]) -> Tensor {
        let count = dimensions.iter().product::<u32>();
        Tensor::new(&(0..count).map(|index| index as f32).collect::<Vec<_>>(), dimensions).unwrap()
    }

    #[test]
    fn rows_and_grey_planes_become_images_without_a_change_of_values() {
        for dimensions in [&[2, 16][..], &[2, 4, 4], &[2, 1, 4, 4]] {
            let images = counted(dimensions).to_images(1, 4, 4).unwrap();
            assert_eq!(images.dimensions(), [2, 1, 4, 4]);
            assert_eq!(images.to_vec::<f32>().unwrap(), counted(dimensions).to_vec::<f32>().unwrap());
        }
    }

    #[test]
    fn images_of_another_size_are_resized() {
        let images = Tensor::ones(&[2, 3, 8, 6]).unwrap().to_images(3, 4, 4).unwrap();
        assert_eq!(images.dimensions(), [2, 3, 4, 4]);
        assert_eq!(images.max().unwrap().item(), Ok(1.0));
    }

    #[test]
    fn samples_that_cannot_be_the_images_say_what_they_are() {
        let error = counted(&[2, 15]).to_images(1, 4, 4).unwrap_err();
        assert!(error.message().contains("[2, 15]") && error.message().contains("1x4x4"), "{error}");
        assert!(counted(&[2, 3, 4, 4]).to_images(1, 4, 4).is_err());
    }

    #[test]
    fn flattening_keeps_the_samples_apart() {
        assert_eq!(counted(&[2, 3, 4]).flatten().unwrap().dimensions(), [2, 12]);
        assert_eq!(counted(&[5]).flatten().unwrap().dimensions(), [5, 1]);
    }
}
