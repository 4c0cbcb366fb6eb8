//! A model's file becomes declared tensors.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use super::declared::{Declared, Plan, Role, TensorDeclaration};
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

/// What a model's file has of a tensor.
fn is_kept(tensor: &TensorDeclaration) -> bool {
    matches!(tensor.role, Role::Weight | Role::Buffer)
}

/// Refuses a model whose tensors are not those that are declared. Of the file, it looks at the head alone.
pub fn check<R: Read + Seek>(plan: &Plan, model: &Model<R>) -> Result<(), LoadError> {
    let kept: BTreeMap<&str, &TensorDeclaration> =
        (plan.tensors().iter().filter(|tensor| is_kept(tensor))).map(|tensor| (tensor.name.as_str(), tensor)).collect();
    for tensor in kept.values() {
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
    // Whoever leaves some of a model's tensors out starts from another model than was meant.
    let mut undeclared = model.tensors().filter(|tensor| !kept.contains_key(tensor.name.as_str()));
    let Some(first) = undeclared.next() else { return Ok(()) };
    Err(LoadError::Undeclared { name: first.name.clone(), more: undeclared.count() })
}

/// Overwrites weights and buffers with those of a model, all or none unless the file cannot be read to its end.
pub fn load<R: Read + Seek>(declared: &Declared, model: &mut Model<R>) -> Result<(), LoadError> {
    check(declared.plan(), model)?;
    for (tensor, memory) in declared.named().filter(|(tensor, _)| is_kept(tensor)) {
        let (memory, mut done) = (memory.detach(), 0);
        model.pieces(&tensor.name, |piece| {
            memory.write(done, piece)?;
            done += piece.len() / size_of::<f32>();
            Ok::<_, LoadError>(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor, SeekFrom};

    use weft_gpu::Shape;

    use super::*;
    use crate::model::{self, Meta, TensorInfo};
    use crate::train::declared::Initial;

    /// A file of which only so many bytes can be read.
    struct Head {
        file: Cursor<Vec<u8>>,
        end: u64,
    }

    impl Read for Head {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let left = self.end.saturating_sub(self.file.position());
            if left == 0 {
                return Err(io::Error::other("the tensors were read"));
            }
            let most = into.len().min(left as usize);
            self.file.read(&mut into[..most])
        }
    }

    impl Seek for Head {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.file.seek(to)
        }
    }

    fn plan(shape: &[usize]) -> Plan {
        let mut plan = Plan::default();
        let initial = Initial::Constant(0.0);
        let (name, role, shape) = ("weight".to_owned(), Role::Weight, Shape::new(shape).unwrap());
        plan.declare(TensorDeclaration { name, role, shape, initial }).unwrap();
        plan
    }

    #[test]
    fn a_model_is_compared_with_what_is_declared_by_its_head_alone() {
        let info = TensorInfo { name: "weight".to_owned(), dtype: Dtype::F32, shape: vec![2, 3] };
        let mut file = Vec::new();
        model::write(&[info], [io::Result::Ok(vec![0; 24])], &Meta::default(), &mut file).unwrap();
        let end = file.len() as u64 - 24;
        let model = Model::open(Head { file: Cursor::new(file), end }).unwrap();
        check(&plan(&[2, 3]), &model).unwrap();
        let error = check(&plan(&[3, 2]), &model).unwrap_err().to_string();
        assert!(error.contains("[2, 3]") && error.contains("[3, 2]"), "{error}");
        assert!(matches!(check(&Plan::default(), &model), Err(LoadError::Undeclared { .. })));
    }
}
