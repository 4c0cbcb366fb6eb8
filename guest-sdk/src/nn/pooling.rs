//! Images `[n, c, h, w]` to smaller ones, or to rows. No parameters.
//!
//! ```
//! use weft_sdk::Tensor;
//! use weft_sdk::nn::{Flatten, Layer, MaxPool2d, MeanOfPlaces, Mode};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let x = Tensor::new(&[1.0, 2.0, 3.0, 4.0], &[1, 1, 2, 2])?;
//! assert_eq!(MaxPool2d::square(2).forward(&x, Mode::Training)?.item()?, 4.0);
//! assert_eq!(MeanOfPlaces.forward(&x, Mode::Training)?.to_vec::<f32>()?, [2.5]);
//! assert_eq!(Flatten.forward(&x, Mode::Training)?.dimensions(), [1, 4]);
//! # Ok(())
//! # }
//! ```

use super::{Layer, Mode};
use crate::tensor::Window;
use crate::{Result, Tensor};

/// The largest of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool2d(pub Window);

impl MaxPool2d {
    /// Of squares beside each other.
    pub fn square(side: u32) -> Self {
        Self(Window::square(side))
    }
}

impl Layer for MaxPool2d {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        x.max_pool2d(self.0)
    }
}

/// The mean of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AveragePool2d(pub Window);

impl AveragePool2d {
    /// Of squares beside each other.
    pub fn square(side: u32) -> Self {
        Self(Window::square(side))
    }
}

impl Layer for AveragePool2d {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        x.average_pool2d(self.0)
    }
}

/// The mean of each image: `[n, c, h, w]` to `[n, c]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeanOfPlaces;

impl Layer for MeanOfPlaces {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        x.mean_of_places()
    }
}

/// One row for each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flatten;

impl Layer for Flatten {
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        x.flatten()
    }
}
