//! Models for numpy: a zip file, not compressed, with one npy file by tensor.
//!
//! Tensors are passed on in pieces. numpy has no bfloat16: such tensors become f32, which holds each of their values.

use std::collections::HashSet;
use std::io::{self, Read, Seek, Write};

use safetensors::Dtype;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::{Model, OpenError, TensorInfo};

/// Longest name of a tensor in the file.
const MOST_NAME_BYTES: usize = 200;
/// Larger files in a zip file need other headers.
const LARGE_BYTES: u64 = u32::MAX as u64 - (1 << 20);

/// Why no npz file was written, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("tensor `{name}` is of {dtype}, for which numpy has no type")]
    Type { name: String, dtype: Dtype },
    #[error(transparent)]
    Model(#[from] OpenError),
    #[error("the npz file could not be written: {0}")]
    Zip(#[from] zip::result::ZipError),
    #[error("the npz file could not be written: {0}")]
    Io(#[from] io::Error),
}

/// Writes every tensor of a model for numpy.
pub fn export_npz<R: Read + Seek>(model: &mut Model<R>, to: impl Write) -> Result<(), ExportError> {
    let tensors: Vec<TensorInfo> = model.tensors().cloned().collect();
    // Before the first byte: a type that cannot be written must not leave half a file.
    for TensorInfo { name, dtype, .. } in &tensors {
        numpy_type(*dtype).ok_or(ExportError::Type { name: name.clone(), dtype: *dtype })?;
    }
    let (mut zip, mut names) = (ZipWriter::new_stream(to), HashSet::new());
    for tensor in &tensors {
        let bytes = 2 * tensor.bytes().unwrap_or(0);
        // No moment: the same model is the same file.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(DateTime::default())
            .large_file(bytes > LARGE_BYTES);
        zip.start_file(format!("{}.npy", file_name(&tensor.name, &mut names)), options)?;
        zip.write_all(&npy_header(tensor))?;
        if tensor.dtype == Dtype::BF16 {
            model.copy(&tensor.name, |piece| {
                let widened: Vec<u8> =
                    piece.as_chunks::<2>().0.iter().flat_map(|[low, high]| [0, 0, *low, *high]).collect();
                zip.write_all(&widened)
            })?;
        } else {
            model.copy(&tensor.name, |piece| zip.write_all(piece))?;
        }
    }
    zip.finish()?.flush()?;
    Ok(())
}

fn numpy_type(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::BOOL => "|b1",
        Dtype::U8 => "|u1",
        Dtype::I8 => "|i1",
        Dtype::U16 => "<u2",
        Dtype::I16 => "<i2",
        Dtype::F16 => "<f2",
        Dtype::U32 => "<u4",
        Dtype::I32 => "<i4",
        Dtype::F32 | Dtype::BF16 => "<f4",
        Dtype::U64 => "<u8",
        Dtype::I64 => "<i8",
        Dtype::F64 => "<f8",
        Dtype::C64 => "<c8",
        _ => return None,
    })
}

/// Magic, version, length, and a Python dictionary padded so that the numbers are aligned.
fn npy_header(tensor: &TensorInfo) -> Vec<u8> {
    const ALIGNMENT: usize = 64;
    const BEFORE: usize = 10;
    let sizes: String = tensor.shape.iter().map(|size| format!("{size},")).collect();
    let dtype = numpy_type(tensor.dtype).unwrap_or("|u1");
    let mut text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let length = (BEFORE + text.len() + 1).next_multiple_of(ALIGNMENT) - BEFORE;
    text.extend(std::iter::repeat_n(' ', length - text.len() - 1));
    text.push('\n');
    // At most 32 dimensions of 20 digits: the length fits.
    [b"\x93NUMPY\x01\x00".as_slice(), &(length as u16).to_le_bytes(), text.as_bytes()].concat()
}

/// A name that is a plain path inside the zip file on every system, and no other's.
fn file_name(name: &str, taken: &mut HashSet<String>) -> String {
    let plain =
        |character: char| if character.is_alphanumeric() || "._-".contains(character) { character } else { '_' };
    let parts = name.split('/').map(|part| part.chars().map(plain).collect::<String>());
    // `..` and empty parts would lead elsewhere; numpy takes a final `.npy` away.
    let parts: Vec<_> = parts.filter(|part| part.chars().any(|character| character != '.')).collect();
    let mut whole = parts.join("/");
    while let Some(stem) = whole.strip_suffix(".npy") {
        whole = stem.to_owned();
    }
    let end = whole.char_indices().map(|(at, _)| at).find(|at| *at >= MOST_NAME_BYTES).unwrap_or(whole.len());
    whole.truncate(end);
    if whole.is_empty() {
        "tensor".clone_into(&mut whole);
    }
    let mut unique = whole.clone();
    let mut number = 1;
    while !taken.insert(unique.to_lowercase()) {
        number += 1;
        unique = format!("{whole}_{number}");
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_the_file_and_apart() {
        let mut taken = HashSet::new();
        let mut name = |name| file_name(name, &mut taken);
        assert_eq!(name("layer.0/weight"), "layer.0/weight");
        assert_eq!(name("/../../etc/passwd"), "etc/passwd");
        assert_eq!(name("C:\\x"), "C__x");
        assert_eq!(name("..."), "tensor");
        assert_eq!(name("w"), "w");
        assert_eq!(name("w.npy.npy"), "w_2");
        assert_eq!(name("W"), "W_3");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert!(file_name(&"é".repeat(500), &mut HashSet::new()).len() <= MOST_NAME_BYTES + 1);
    }
}
