//! Products: of matrices, of images and kernels, of sparse rows; and the clusters that products find.

use super::{Tensor, UnaryOp};
use crate::Result;
use crate::host::kernels;

/// How a kernel moves over an image. Pairs are down and across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    pub stride: (u32, u32),
    /// Zeros on each side.
    pub padding: (u32, u32),
    pub dilation: (u32, u32),
    /// Each group of output channels sees its own group of input channels only.
    pub groups: u32,
}

impl Default for Convolution {
    fn default() -> Self {
        Self { stride: (1, 1), padding: (0, 0), dilation: (1, 1), groups: 1 }
    }
}

impl Tensor {
    /// The product of the last two axes; those before broadcast.
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        self.scaled_matmul(other, 1.0)
    }

    /// The product times `scale`, which costs nothing.
    pub fn scaled_matmul(&self, other: &Self, scale: f32) -> Result<Self> {
        kernels::matmul(self.raw(), other.raw(), scale).map(Self::from)
    }

    /// `self * transpose(weight) + bias`, then the activation, in one pass.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>, activation: Option<UnaryOp>) -> Result<Self> {
        kernels::linear(self.raw(), weight.raw(), bias.map(Self::raw), activation).map(Self::from)
    }

    /// `self [n, c, h, w]` with `weight [o, c / groups, kh, kw]`.
    pub fn conv2d(&self, weight: &Self, bias: Option<&Self>, how: Convolution) -> Result<Self> {
        let Convolution { stride, padding, dilation, groups } = how;
        kernels::conv2d(self.raw(), weight.raw(), bias.map(Self::raw), stride, padding, dilation, groups)
            .map(Self::from)
    }

    /// The nearest centroid of each row (u32), and the square of how far it is.
    pub fn nearest(&self, centroids: &Self) -> Result<(Self, Self)> {
        kernels::kmeans_assign(self.raw(), centroids.raw()).map(|(index, distance)| (index.into(), distance.into()))
    }

    /// The sum of the rows of each cluster, and how many they are (u32).
    pub fn sum_clusters(&self, assignment: &Self, clusters: u32) -> Result<(Self, Self)> {
        kernels::kmeans_accumulate(self.raw(), assignment.raw(), clusters)
            .map(|(sums, counts)| (sums.into(), counts.into()))
    }
}
