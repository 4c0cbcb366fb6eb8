//! Sparse rows (CSR), and the two steps of k-means.

use super::Tensor;
use crate::error::{Error, Result};
use crate::op::{CsrMatMul, CsrTransposedMatMul, KMeansAccumulate, KMeansAssign};

impl Tensor {
    /// With these as the stored values of sparse rows: the sparse matrix times `x`, a vector or a matrix.
    pub fn csr_matmul(&self, offsets: &Self, columns: &Self, x: &Self) -> Result<Self> {
        self.context.run_one(CsrMatMul, &[offsets, columns, self, x])
    }

    /// With these as the stored values of sparse rows with `count` columns: the transpose of the sparse matrix times `r`.
    pub fn csr_transposed_matmul(&self, offsets: &Self, columns: &Self, r: &Self, count: usize) -> Result<Self> {
        self.context.run_one(CsrTransposedMatMul { columns: count }, &[offsets, columns, self, r])
    }

    /// For each of these points the nearest centroid (u32), and its squared distance.
    pub fn kmeans_assign(&self, centroids: &Self) -> Result<(Self, Self)> {
        self.pair(KMeansAssign, centroids)
    }

    /// The sums of these points by cluster, and how many (u32) each has.
    pub fn kmeans_accumulate(&self, assignment: &Self, clusters: usize) -> Result<(Self, Self)> {
        self.pair(KMeansAccumulate { clusters }, assignment)
    }

    /// Runs an operation on this and another tensor that has two results.
    fn pair(&self, op: impl Into<crate::op::Op>, other: &Self) -> Result<(Self, Self)> {
        let op = op.into();
        let name = op.name();
        let mut results = self.context.run(op, &[self, other])?.into_iter();
        match (results.next(), results.next()) {
            (Some(first), Some(second)) => Ok((first, second)),
            _ => Err(Error::Internal { op: name, reason: "it has two results".into() }),
        }
    }
}
