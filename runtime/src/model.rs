//! Models and checkpoints: what training leaves behind, as files that other tools open.
//!
//! A model is a safetensors file: eight bytes with the length of a header, the header (JSON: names, types, shapes and
//! places of tensors, and [`Meta`]), and then the tensors. It is written from the first byte to the last and read tensor
//! by tensor; nothing here holds all of it. Which models there are, and whose they are, is not known here.
//!
//! - `meta`: what a model says about itself
//! - `write`: tensors become a file
//! - `read`: a file becomes tensors; nothing in it is trusted
//! - `npz`: the same tensors for numpy

mod meta;
mod npz;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use meta::{BadMeta, FORMAT, Input, Meta};
pub use npz::{ExportError, export_npz};
pub use read::{MOST_HEADER_BYTES, MOST_TENSORS, Model, OpenError, open_bytes};
pub use safetensors::Dtype;
pub use write::{WriteError, le_bytes, write};

/// A tensor without its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
}

impl TensorInfo {
    /// None where that is no whole number of bytes, or no number at all.
    pub fn bytes(&self) -> Option<u64> {
        let numbers = self.shape.iter().try_fold(1_u64, |numbers, size| numbers.checked_mul(*size as u64))?;
        let bits = numbers.checked_mul(self.dtype.bitsize() as u64)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Whether a tensor can be called so: by something that can be shown, and that is not the key of the metadata.
    fn has_good_name(&self) -> bool {
        const MOST_NAME_BYTES: usize = 1_024;
        (1..=MOST_NAME_BYTES).contains(&self.name.len())
            && self.name != METADATA
            && !self.name.chars().any(char::is_control)
    }
}

/// The key of the header that is no tensor.
const METADATA: &str = "__metadata__";
