//! A model's file becomes declared tensors.

use std::io::{Read, Seek};

use super::declared::{Declared, Role};
use crate::model::{Dtype, Model, OpenError};

/// A file that is no model of this trainer.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the model has no tensor `{0}`")]
    Missing(String),
    #[error("the model's `{name}` is {found:?} of {dtype:?}, and the trainer declares {expected:?} of F32")]
    Shape { name: String, found: Vec<usize>, dtype: Dtype, expected: Vec<usize> },
    #[error(
        "the model has a tensor `{name}` that the trainer does not declare{}: is it a model of another function, or of \
         other parameters?",
        and_more(*.more)
    )]
    Undeclared { name: String, more: usize },
    #[error(transparent)]
    Device(#[from] weft_gpu::Error),
}

fn and_more(more: usize) -> String {
    if more > 0 { format!(", and {more} more") } else { String::new() }
}

/// Refuses a model with tensors that are not declared: whoever leaves some of them out starts from another model than was
/// meant.
pub fn check_declared<R: Read + Seek>(model: &Model<R>, is_declared: impl Fn(&str) -> bool) -> Result<(), LoadError> {
    let mut undeclared = model.tensors().filter(|tensor| !is_declared(&tensor.name));
    let Some(first) = undeclared.next() else { return Ok(()) };
    Err(LoadError::Undeclared { name: first.name.clone(), more: undeclared.count() })
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
    check_declared(model, |name| kept.iter().any(|(tensor, _)| tensor.name == name))?;
    for (tensor, memory) in kept {
        let bytes = model.tensor(&tensor.name)?;
        memory.detach().write(0, &bytes)?;
    }
    Ok(())
}
