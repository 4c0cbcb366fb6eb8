//! safetensors: the length of a header, the header in JSON, and the tensors one after the other.

use std::io::Read;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::Options;
use super::array::{Array, Header, Number};
use super::error::{Place, ReadError, excerpt};
use super::names::Role;
use super::source::{Input, Opened};

/// A file whose header has been read and whose tensors lie where it says.
pub(super) struct SafeTensors {
    file: Opened,
    tensors: Vec<(String, TensorInfo)>,
    /// Where the tensors begin.
    start: u64,
}

/// Whether a file could begin so.
pub(super) fn begins(first: &[u8]) -> bool {
    matches!(first, [_, _, _, _, 0, 0, 0, 0, b'{', ..])
}

impl SafeTensors {
    pub fn open(file: Opened, options: &Options) -> Result<Self, ReadError> {
        let file = file.expanded(options.spool_in.as_deref())?;
        let mut input = file.input();
        let mut length = [0; 8];
        input.exact(&mut length, "the length of the header")?;
        let length = u64::from_le_bytes(length);
        let most = file.limits.max_header_bytes;
        let length = usize::try_from(length)
            .ok()
            .filter(|&length| length <= most && input.left().is_some_and(|left| length as u64 <= left));
        let Some(length) = length else {
            return Err(input.wrong_at(
                0,
                format!("the header claims to be longer than the file, or than {most} bytes (`max_header_bytes`)"),
            ));
        };
        let mut json = Vec::new();
        input.append(length, &mut json, "the header")?;
        let metadata: Metadata = serde_json::from_slice(&json).map_err(|problem| {
            let problem = excerpt(problem.to_string().as_bytes());
            input.wrong_at(8, format!("the header is not that of a safetensors file: {problem}"))
        })?;
        let mut tensors: Vec<(String, TensorInfo)> =
            metadata.tensors().into_iter().map(|(name, info)| (name, info.clone())).collect();
        tensors.sort_by_key(|(_, info)| info.data_offsets);
        let start = input.offset();
        let bytes = file.length() - start;
        let mut end = 0;
        for (name, info) in &tensors {
            let (from, to) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
            if from != end || to < from || to > bytes {
                let name = excerpt(name.as_bytes());
                return Err(input.wrong_at(
                    start.saturating_add(from),
                    format!("the tensor `{name}` lies from {from} to {to} of {bytes} bytes, and should begin at {end}"),
                ));
            }
            end = to;
        }
        if end != bytes {
            return Err(input.wrong_at(start + end, format!("{} bytes are left after the last tensor", bytes - end)));
        }
        if tensors.len() > file.limits.max_arrays {
            let most = file.limits.max_arrays;
            return Err(file.wrong(format!("it has {} tensors; the limit is {most} (`max_arrays`)", tensors.len())));
        }
        Ok(Self { file, tensors, start })
    }

    /// The places of the features and the labels.
    pub fn find(&self, options: &Options, labels: bool) -> Result<(usize, Option<usize>), ReadError> {
        options.arrays.find(&self.names(), labels).map_err(|problem| self.file.wrong(problem))
    }

    /// The place of the labels in a file that is there for them.
    pub fn labels(&self, options: &Options) -> Result<usize, ReadError> {
        options.arrays.one(&self.names(), Role::Labels).map_err(|problem| self.file.wrong(problem))
    }

    pub fn array(&self, index: usize) -> Result<Array, ReadError> {
        let (name, info) = &self.tensors[index];
        let file = format!("{}:{name}", self.file.name);
        let start = self.start + info.data_offsets.0 as u64;
        let length = (info.data_offsets.1 - info.data_offsets.0) as u64;
        let Some(number) = number(info.dtype) else {
            return Err(ReadError::content(
                &file,
                Place::Byte(start),
                format!("numbers of type {:?} are not understood", info.dtype),
            ));
        };
        let shape = info.shape.iter().map(|&size| size as u64).collect();
        let piece: Box<dyn Read + Send> = Box::new(self.file.piece(start, length));
        let header = Header { number, big_endian: false, shape };
        Array::new(Input::new(file, piece, Some(length), false), header, &self.file.limits)
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.iter().map(|(name, _)| name.as_str()).collect()
    }
}

fn number(dtype: Dtype) -> Option<Number> {
    Some(match dtype {
        Dtype::BOOL => Number::Bool,
        Dtype::U8 => Number::U8,
        Dtype::I8 => Number::I8,
        Dtype::U16 => Number::U16,
        Dtype::I16 => Number::I16,
        Dtype::U32 => Number::U32,
        Dtype::I32 => Number::I32,
        Dtype::U64 => Number::U64,
        Dtype::I64 => Number::I64,
        Dtype::F16 => Number::F16,
        Dtype::BF16 => Number::BF16,
        Dtype::F32 => Number::F32,
        Dtype::F64 => Number::F64,
        _ => return None,
    })
}
