//! `wit/data.wit`.

use super::HOST;
use super::tensor::Tensor;
use crate::{Error, Result};

pub struct Csr {
    pub offsets: Tensor,
    pub columns: Tensor,
    pub values: Tensor,
    pub width: u32,
}

/// The samples of the next calls.
#[derive(Default)]
pub struct Batch {
    pub samples: u32,
    pub features: Option<Tensor>,
    pub sparse: Option<Csr>,
    pub labels: Option<Tensor>,
}

/// Says what the next calls are about.
pub fn give(batch: Batch) {
    HOST.with(|host| host.batch.replace(batch));
}

pub fn samples() -> u32 {
    HOST.with(|host| host.batch.borrow().samples)
}

pub fn features() -> Result<Tensor> {
    find("dense features", |batch| batch.features.as_ref().map(Tensor::share))
}

pub fn sparse_features() -> Result<Csr> {
    find("sparse features", |batch| batch.sparse.as_ref().map(Csr::share))
}

pub fn labels() -> Result<Tensor> {
    find("labels", |batch| batch.labels.as_ref().map(Tensor::share))
}

fn find<T>(what: &str, part: impl FnOnce(&Batch) -> Option<Result<T>>) -> Result<T> {
    HOST.with(|host| part(&host.batch.borrow()))
        .unwrap_or_else(|| Err(Error::not_found(format!("the samples have no {what}"))))
}

impl Csr {
    fn share(&self) -> Result<Self> {
        Ok(Self {
            offsets: self.offsets.share()?,
            columns: self.columns.share()?,
            values: self.values.share()?,
            width: self.width,
        })
    }
}
