//! Tensors become a file: the header first, then each tensor as it is handed over.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};

use serde_json::json;

use super::{METADATA, MOST_HEADER_BYTES, MOST_TENSORS, Meta, TensorInfo};

/// Where tensors start is a multiple of this, so that a mapped file can be used in place.
const ALIGNMENT: usize = 8;

/// Why no model was written, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("a tensor cannot be called `{}`: names have 1 to 1024 bytes and nothing that cannot be shown", .0.escape_debug())]
    Name(String),
    #[error("two tensors are called `{0}`")]
    Twice(String),
    #[error("tensor `{name}` of {dtype} and shape {shape:?} has no number of bytes that could be written")]
    Shape { name: String, dtype: safetensors::Dtype, shape: Vec<usize> },
    #[error("tensor `{name}` should have {expected} bytes and came with {found}")]
    Length { name: String, expected: u64, found: u64 },
    #[error("{expected} tensors were announced and {found} came")]
    Missing { expected: usize, found: usize },
    #[error("{0} tensors: at most {MOST_TENSORS} fit into a model")]
    TooMany(usize),
    #[error("a header of {0} bytes: at most {MOST_HEADER_BYTES} can be read")]
    Header(usize),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The bytes of numbers, least significant first, without copying them where memory has them so.
pub fn le_bytes(numbers: &[f32]) -> Cow<'_, [u8]> {
    match cfg!(target_endian = "little") {
        true => Cow::Borrowed(bytemuck::cast_slice(numbers)),
        false => Cow::Owned(numbers.iter().flat_map(|number| number.to_le_bytes()).collect()),
    }
}

/// Writes a model. `numbers` gives the bytes of each tensor (little-endian) in the order of `tensors`, and is asked for the
/// next when the last is written, so that they need not be in memory together. Gives the bytes written.
pub fn write<B: AsRef<[u8]>>(
    tensors: &[TensorInfo],
    numbers: impl IntoIterator<Item = io::Result<B>>,
    meta: &Meta,
    mut to: impl Write,
) -> Result<u64, WriteError> {
    let (header, sizes) = header(tensors, meta)?;
    to.write_all(&(header.len() as u64).to_le_bytes())?;
    to.write_all(&header)?;
    let (mut numbers, mut written) = (numbers.into_iter(), 8 + header.len() as u64);
    for (index, (tensor, expected)) in tensors.iter().zip(sizes).enumerate() {
        let bytes = numbers.next().ok_or(WriteError::Missing { expected: tensors.len(), found: index })??;
        let found = bytes.as_ref().len() as u64;
        if found != expected {
            return Err(WriteError::Length { name: tensor.name.clone(), expected, found });
        }
        to.write_all(bytes.as_ref())?;
        written += found;
    }
    if numbers.next().is_some() {
        return Err(WriteError::Missing { expected: tensors.len(), found: tensors.len() + 1 });
    }
    to.flush()?;
    Ok(written)
}

/// The header, and the bytes of each tensor. Keys are in order (metadata, then tensors as they lie), so the same model is
/// the same bytes.
fn header(tensors: &[TensorInfo], meta: &Meta) -> Result<(Vec<u8>, Vec<u64>), WriteError> {
    if tensors.len() > MOST_TENSORS {
        return Err(WriteError::TooMany(tensors.len()));
    }
    let mut entries = vec![format!("{}:{}", json!(METADATA), json!(meta.to_strings()))];
    let (mut sizes, mut names, mut end) = (Vec::with_capacity(tensors.len()), HashSet::new(), 0_u64);
    for tensor in tensors {
        let TensorInfo { name, dtype, shape } = tensor;
        if !tensor.has_good_name() {
            return Err(WriteError::Name(name.chars().take(80).collect()));
        }
        if !names.insert(name) {
            return Err(WriteError::Twice(name.clone()));
        }
        let wrong = || WriteError::Shape { name: name.clone(), dtype: *dtype, shape: shape.clone() };
        let bytes = tensor.bytes().ok_or_else(wrong)?;
        let start = end;
        end = end.checked_add(bytes).ok_or_else(wrong)?;
        sizes.push(bytes);
        let entry = json!({ "dtype": dtype.to_string(), "shape": shape, "data_offsets": [start, end] });
        entries.push(format!("{}:{entry}", json!(name)));
    }
    let mut header = format!("{{{}}}", entries.join(",")).into_bytes();
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    if header.len() as u64 > MOST_HEADER_BYTES { Err(WriteError::Header(header.len())) } else { Ok((header, sizes)) }
}
