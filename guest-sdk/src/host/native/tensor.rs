//! `wit/tensor.wit`.

use weft_gpu::DType;

use super::{context, dtype, made, refused, sizes};
use crate::bindings::weft::train::tensor::TensorType;
use crate::{Error, Result};

pub struct Tensor(pub weft_gpu::Tensor);

impl Tensor {
    pub fn rank(&self) -> u32 {
        self.0.shape().rank() as u32
    }

    pub fn size(&self, axis: u32) -> u32 {
        self.0.shape().get(axis as usize).map_or(0, |&size| size as u32)
    }

    pub fn dimensions(&self) -> Vec<u32> {
        self.0.shape().iter().map(|&size| size as u32).collect()
    }

    pub fn ty(&self) -> TensorType {
        match self.0.dtype() {
            DType::F32 => TensorType::F32,
            DType::F16 => TensorType::F16,
            DType::U8 => TensorType::U8,
            DType::I32 => TensorType::I32,
            DType::U32 => TensorType::U32,
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the host can refuse")]
    pub fn share(&self) -> Result<Self> {
        Ok(Self(self.0.clone()))
    }

    pub fn read(&self, start: u64, count: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize * self.0.dtype().size()];
        self.0.read(start as usize, &mut bytes).map_err(refused)?;
        Ok(bytes)
    }

    pub fn item(&self) -> Result<f32> {
        self.0.item().map_err(refused)
    }

    pub fn write(&self, start: u64, bytes: &[u8]) -> Result<()> {
        self.0.write(start as usize, bytes).map_err(refused)
    }
}

pub fn create(ty: TensorType, dimensions: &[u32], bytes: &[u8]) -> Result<Tensor> {
    let tensor = full(ty, dimensions, 0.0)?;
    let wanted = tensor.0.shape().elements() * tensor.0.dtype().size();
    if bytes.len() != wanted {
        return Err(Error::bad_shape(format!("{} bytes for {dimensions:?}, which has {wanted}", bytes.len())));
    }
    tensor.write(0, bytes)?;
    Ok(tensor)
}

pub fn full(ty: TensorType, dimensions: &[u32], value: f64) -> Result<Tensor> {
    made(context().full(&sizes(dimensions), dtype(ty), value))
}
