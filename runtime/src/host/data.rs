//! `weft:train/data`: the samples that a call is about.

use wasmtime::Result;
use wasmtime::component::Resource;

use super::HostState;
use super::bindings::weft::train::data::{Csr, Error, Host};
use super::tensor::Handle;
use crate::dataset::batches::{Batch, Inputs};
use crate::train::declared::Plan;

/// What a call of a trainer is about.
#[derive(Default)]
pub struct Training {
    /// While `init` runs: what it declares.
    pub plan: Option<Plan>,
    pub batch: Option<Batch>,
    pub place: StepInfo,
}

/// Where in the training a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepInfo {
    pub step: u64,
    pub epoch: u64,
    pub rate: f32,
    pub worker: u32,
    pub workers: u32,
}

impl HostState {
    fn batch(&self) -> Result<&Batch, Error> {
        self.training.batch.as_ref().ok_or_else(|| Error::NotFound("this call is about no samples".to_owned()))
    }
}

impl Host for HostState {
    fn samples(&mut self) -> Result<u32> {
        Ok(self.training.batch.as_ref().map_or(0, |batch| u32::try_from(batch.count).unwrap_or(u32::MAX)))
    }

    fn features(&mut self) -> Result<Result<Resource<Handle>, Error>> {
        self.give(|host| match &host.batch()?.features {
            Inputs::Dense(tensor) => Ok(tensor.clone()),
            Inputs::Sparse(_) => Err(Error::BadInput("the samples are sparse: use `sparse-features`".to_owned())),
        })
    }

    fn sparse_features(&mut self) -> Result<Result<Csr, Error>> {
        let csr = self.batch().and_then(|batch| match &batch.features {
            Inputs::Sparse(csr) => Ok(csr.clone()),
            Inputs::Dense(_) => Err(Error::BadInput("the samples are dense: use `features`".to_owned())),
        });
        Ok(csr.and_then(|csr| {
            let width = u32::try_from(csr.width).unwrap_or(u32::MAX);
            let [offsets, columns, values] = self.compute.tensors.hold_all([csr.offsets, csr.columns, csr.values])?;
            Ok(Csr { offsets, columns, values, width })
        }))
    }

    fn labels(&mut self) -> Result<Result<Resource<Handle>, Error>> {
        self.give(|host| {
            let labels = host.batch()?.labels.clone();
            labels.ok_or_else(|| Error::NotFound("the samples have no labels".to_owned()))
        })
    }
}
