//! Declared tensors become a model's file, and back.

use std::io::{self, Read, Seek, Write};

use super::declared::{Declared, Role};
use crate::model::{self, Dtype, Meta, Model, OpenError, TensorInfo, WriteError};

/// A file that is no model of this trainer.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the model has no tensor `{0}`")]
    Missing(String),
    #[error("the model's `{name}` is {found:?} of {dtype:?}, and the trainer declares {expected:?} of F32")]
    Shape { name: String, found: Vec<usize>, dtype: Dtype, expected: Vec<usize> },
    #[error(transparent)]
    Device(#[from] weft_gpu::Error),
}

/// Writes weights and buffers: what a model is to others.
pub fn save(declared: &Declared, meta: &Meta, to: impl Write) -> Result<u64, WriteError> {
    let kept: Vec<_> =
        declared.named().filter(|(tensor, _)| matches!(tensor.role, Role::Weight | Role::Buffer)).collect();
    let infos: Vec<TensorInfo> = kept
        .iter()
        .map(|(tensor, _)| TensorInfo { name: tensor.name.clone(), dtype: Dtype::F32, shape: tensor.shape.to_vec() })
        .collect();
    let numbers = kept.iter().map(|(_, tensor)| {
        let values = tensor.to_vec::<f32>().map_err(io::Error::other)?;
        Ok(values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    });
    model::write(&infos, numbers, meta, to)
}

/// Overwrites weights and buffers with those of a model, all or none.
pub fn load<R: Read + Seek>(declared: &Declared, model: &mut Model<R>) -> Result<(), LoadError> {
    let kept: Vec<_> =
        declared.named().filter(|(tensor, _)| matches!(tensor.role, Role::Weight | Role::Buffer)).collect();
    for (tensor, _) in &kept {
        let info = model.info(&tensor.name).ok_or_else(|| LoadError::Missing(tensor.name.clone()))?;
        if info.dtype != Dtype::F32 || info.shape != *tensor.shape {
            return Err(LoadError::Shape {
                name: tensor.name.clone(),
                found: info.shape.clone(),
                dtype: info.dtype,
                expected: tensor.shape.to_vec(),
            });
        }
    }
    for (tensor, memory) in kept {
        let bytes = model.tensor(&tensor.name)?;
        memory.detach().write(0, &bytes)?;
    }
    Ok(())
}
