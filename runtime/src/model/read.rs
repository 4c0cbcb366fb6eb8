//! A file becomes tensors. The header is checked whole before anything is read by it: whatever it says must lie in the
//! file, without overlap and without gaps.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::{BadMeta, Dtype, METADATA, Meta, TensorInfo};

/// Largest header that is read.
pub const MOST_HEADER_BYTES: u64 = 32 << 20;
/// Bytes of the number before the header, which is the header's length.
const LENGTH_BYTES: u64 = 8;
/// The most bytes that a byte of the header becomes: a pair of short strings, or a number of a shape, while it is read.
const UNPACKED: u64 = 16;
/// Most tensors of a model.
pub const MOST_TENSORS: usize = 100_000;
/// Most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 32;
/// Read at once of a tensor.
const PIECE_BYTES: usize = 256 << 10;

/// Why a file is no model, or a tensor could not be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("not a model: {0} bytes are too few for a safetensors file")]
    Short(u64),
    #[error(
        "not a model: the header should have {header} bytes, of a file of {file}; at most {MOST_HEADER_BYTES} are read"
    )]
    HeaderLength { header: u64, file: u64 },
    #[error("header of the model: {0}")]
    Header(#[from] serde_json::Error),
    #[error("a tensor is called `{}`, which is no name", .0.escape_debug())]
    Name(String),
    #[error("tensor `{name}`: {dtype} of shape {shape:?} does not take the {} bytes from {start} to {end}", .end.saturating_sub(*.start))]
    Size { name: String, dtype: Dtype, shape: Vec<usize>, start: u64, end: u64 },
    #[error("tensor `{name}` should start at byte {expected} of the tensors and starts at {found}")]
    Place { name: String, expected: u64, found: u64 },
    #[error("tensors end at byte {tensors} of {file} after the header: the file is cut short, or something follows it")]
    End { tensors: u64, file: u64 },
    #[error(transparent)]
    Meta(#[from] BadMeta),
    #[error("there is no tensor `{0}`")]
    NoTensor(String),
    #[error("tensor `{name}` ends after {found} of {expected} bytes: the file was changed")]
    Truncated { name: String, expected: u64, found: u64 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A model in a file, or in whatever else can be read from any place.
#[derive(Debug)]
pub struct Model<R> {
    file: R,
    pub meta: Meta,
    /// In the order in which they lie, with the byte of the file where each starts.
    tensors: Vec<(TensorInfo, u64)>,
    by_name: HashMap<String, usize>,
}

/// Bytes that the header of a file has, and those after its length: the header is the first of them.
fn lengths(file: &mut (impl Read + Seek)) -> Result<(u64, u64), OpenError> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut header = [0; LENGTH_BYTES as usize];
    let rest = length.checked_sub(LENGTH_BYTES).ok_or(OpenError::Short(length))?;
    file.read_exact(&mut header)?;
    let header = u64::from_le_bytes(header);
    if header > MOST_HEADER_BYTES || header > rest {
        return Err(OpenError::HeaderLength { header, file: length });
    }
    Ok((header, rest))
}

/// The most memory that a model takes when it is open, and what is read of it to open it; in bytes.
pub fn open_bytes(file: &mut (impl Read + Seek)) -> Result<u64, OpenError> {
    Ok(lengths(file)?.0 * UNPACKED)
}

impl<R: Read + Seek> Model<R> {
    /// Reads the header and nothing else.
    pub fn open(mut file: R) -> Result<Self, OpenError> {
        let (header, rest) = lengths(&mut file)?;
        let mut json = Vec::new();
        (&mut file).take(header).read_to_end(&mut json)?;
        let Header { metadata, tensors } = serde_json::from_slice(&json)?;
        let meta = Meta::from_strings(metadata)?;
        let tensors = placed(tensors, LENGTH_BYTES + header, rest - header)?;
        let by_name = tensors.iter().enumerate().map(|(index, (tensor, _))| (tensor.name.clone(), index)).collect();
        Ok(Self { file, meta, tensors, by_name })
    }

    /// The file, when the model is not needed any more.
    pub fn into_file(self) -> R {
        self.file
    }

    /// What tensors there are, in the order in which they lie.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter().map(|(tensor, _)| tensor)
    }

    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|index| &self.tensors[*index].0)
    }

    /// The bytes of one tensor, little-endian.
    pub fn tensor(&mut self, name: &str) -> Result<Vec<u8>, OpenError> {
        let mut bytes = Vec::new();
        self.copy(name, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Passes the bytes of one tensor on.
    pub fn copy_tensor(&mut self, name: &str, to: &mut impl Write) -> Result<(), OpenError> {
        self.copy(name, |piece| to.write_all(piece))
    }

    /// Pieces are whole numbers of elements, except the last.
    pub(super) fn copy(&mut self, name: &str, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> Result<(), OpenError> {
        self.pieces(name, |piece| take(piece).map_err(OpenError::Io))
    }

    /// Gives the bytes of one tensor piece by piece, the first first: a tensor may be larger than there is memory for a
    /// copy of it. Pieces are whole numbers of elements, except the last.
    pub fn pieces<E: From<OpenError>>(
        &mut self,
        name: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let index = *self.by_name.get(name).ok_or_else(|| OpenError::NoTensor(name.chars().take(80).collect()))?;
        let (tensor, start) = &self.tensors[index];
        let expected = tensor.bytes().unwrap_or(0);
        self.file.seek(SeekFrom::Start(*start)).map_err(OpenError::Io)?;
        let (mut left, mut piece) = (expected, vec![0; expected.min(PIECE_BYTES as u64) as usize]);
        while left > 0 {
            let most = left.min(PIECE_BYTES as u64) as usize;
            let piece = &mut piece[..most];
            self.file.read_exact(piece).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    OpenError::Truncated { name: name.to_owned(), expected, found: expected - left }
                }
                _ => OpenError::Io(error),
            })?;
            take(piece)?;
            left -= most as u64;
        }
        Ok(())
    }
}

/// Where each tensor lies in the file, if they lie side by side from the first byte after the header to the last.
fn placed(tensors: Vec<(String, Entry)>, first: u64, bytes: u64) -> Result<Vec<(TensorInfo, u64)>, OpenError> {
    let mut tensors: Vec<_> = tensors
        .into_iter()
        .map(|(name, Entry { dtype, shape, data_offsets })| (TensorInfo { name, dtype, shape }, data_offsets))
        .collect();
    // Empty tensors lie before what starts where they do.
    tensors.sort_by_key(|(_, place)| *place);
    let mut expected = 0;
    for (tensor, (start, end)) in &tensors {
        let TensorInfo { name, dtype, shape } = tensor;
        if !tensor.has_good_name() {
            return Err(OpenError::Name(name.chars().take(80).collect()));
        }
        let (start, end) = (*start, *end);
        if shape.len() > MOST_DIMENSIONS || end.checked_sub(start).is_none() || tensor.bytes() != end.checked_sub(start)
        {
            let (name, shape) = (name.clone(), shape.iter().copied().take(MOST_DIMENSIONS).collect());
            return Err(OpenError::Size { name, dtype: *dtype, shape, start, end });
        }
        if start != expected {
            return Err(OpenError::Place { name: name.clone(), expected, found: start });
        }
        expected = end;
    }
    if expected != bytes {
        return Err(OpenError::End { tensors: expected, file: bytes });
    }
    Ok(tensors.into_iter().map(|(tensor, (start, _))| (tensor, first + start)).collect())
}

/// What a header says of a tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

struct Header {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, Entry)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            /// Not a map, where the last of two tensors with one name would win.
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { metadata: BTreeMap::new(), tensors: Vec::new() };
                let mut names = std::collections::HashSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    let shown = || name.chars().take(80).collect::<String>().escape_debug().to_string();
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format_args!("`{}` is there twice", shown())));
                    }
                    if name == METADATA {
                        header.metadata = map.next_value()?;
                    } else if header.tensors.len() == MOST_TENSORS {
                        return Err(A::Error::custom(format_args!("more than {MOST_TENSORS} tensors")));
                    } else {
                        let entry = map
                            .next_value()
                            .map_err(|error| A::Error::custom(format_args!("tensor `{}`: {error}", shown())))?;
                        header.tensors.push((name, entry));
                    }
                }
                Ok(header)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}
