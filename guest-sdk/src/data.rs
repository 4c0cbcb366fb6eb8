//! The samples that this call is about, on the device.
//!
//! A trainer seldom asks for them itself: [`Trainer::output`](crate::Trainer::output) hands them to `forward`.

use crate::host::{data as host, kernels};
use crate::{Result, Tensor};

/// How many samples there are; 0 for a trainer that makes its own.
pub fn samples() -> u32 {
    host::samples()
}

/// f32, one row for each sample. An error if they are sparse.
pub fn features() -> Result<Tensor> {
    host::features().map(Tensor::from)
}

/// An error if they are dense.
pub fn sparse_features() -> Result<Csr> {
    let host::Csr { offsets, columns, values, width } = host::sparse_features()?;
    Ok(Csr { offsets: offsets.into(), columns: columns.into(), values: values.into(), width })
}

/// Classes (i32), or rows of values (f32).
pub fn labels() -> Result<Tensor> {
    host::labels().map(Tensor::from)
}

/// Samples as they are.
#[derive(Clone, Debug)]
pub enum Features {
    Dense(Tensor),
    Sparse(Csr),
}

/// Dense rows, or sparse ones, by what the data set has.
pub fn any_features() -> Result<Features> {
    match features() {
        Ok(dense) => Ok(Features::Dense(dense)),
        // Of two failures the first says more: dense is what is asked for by default.
        Err(error) => sparse_features().map(Features::Sparse).map_err(|_| error),
    }
}

impl Features {
    /// `x * weight^T + bias`, of `weight [out, in]` and `bias [out]`.
    pub fn linear(&self, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
        match self {
            Self::Dense(x) => {
                let x = if x.rank() == 2 { x.clone() } else { x.flatten()? };
                x.linear(weight, Some(bias), None)
            }
            Self::Sparse(x) => x.matmul(&weight.transpose()?)?.add(bias),
        }
    }
}

/// Sparse rows: for each its values that are not 0, and their columns.
#[derive(Clone, Debug)]
pub struct Csr {
    /// Where each row begins, and the end (u32).
    pub offsets: Tensor,
    /// Of each value (u32).
    pub columns: Tensor,
    pub values: Tensor,
    /// How many columns there are.
    pub width: u32,
}

impl Csr {
    /// The product with a dense matrix `[width, n]`.
    pub fn matmul(&self, x: &Tensor) -> Result<Tensor> {
        kernels::csr_matmul(self.values.raw(), self.offsets.raw(), self.columns.raw(), x.raw()).map(Tensor::from)
    }

    /// The transpose's product with a dense matrix `[rows, n]`.
    pub fn transposed_matmul(&self, x: &Tensor) -> Result<Tensor> {
        let (values, offsets, columns) = (self.values.raw(), self.offsets.raw(), self.columns.raw());
        kernels::csr_transposed_matmul(values, offsets, columns, x.raw(), self.width).map(Tensor::from)
    }
}
