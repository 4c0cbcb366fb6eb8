//! An array in a file: numbers of one type, sample after sample. Several formats consist of these.

use half::{bf16, f16};

use super::error::ReadError;
use super::source::{Input, Limits};
use crate::dataset::rows::{Element, Features};

/// Bytes that are converted at once.
const CHUNK: usize = 64 << 10;

/// The types of numbers that files hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl Number {
    /// Bytes of one.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    /// What it is kept as.
    fn element(self) -> Element {
        match self {
            Self::Bool | Self::U8 => Element::U8,
            _ => Element::F32,
        }
    }
}

/// What the header of an array says.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub number: Number,
    pub big_endian: bool,
    /// The first is the number of samples.
    pub shape: Vec<u64>,
}

/// An array whose numbers are the rest of an input.
pub(super) struct Array {
    pub input: Input,
    number: Number,
    big_endian: bool,
    features: Features,
    /// Numbers of one sample.
    width: usize,
    count: u64,
    left: u64,
    chunk: Vec<u8>,
}

impl Array {
    /// Compares what the header claims with what there is, before anything is done with it.
    pub fn new(input: Input, header: Header, limits: &Limits) -> Result<Self, ReadError> {
        let Header { number, big_endian, shape } = header;
        let Some((&count, sample)) = shape.split_first() else {
            return Err(input.wrong("the array is a single number; its first dimension must be the samples"));
        };
        let numbers = sample.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
        let width = numbers.filter(|&width| {
            width.checked_mul(number.element().size() as u64).is_some_and(|bytes| bytes <= limits.max_sample_bytes)
        });
        let Some(width) = width else {
            return Err(input.wrong(format!(
                "a sample of shape {sample:?} is larger than the limit of {} bytes (`max_sample_bytes`)",
                limits.max_sample_bytes
            )));
        };
        if count == 0 || width == 0 {
            return Err(input.wrong(format!("an array of shape {shape:?} holds nothing")));
        }
        let claimed = count.checked_mul(width).and_then(|numbers| numbers.checked_mul(number.size() as u64));
        let Some(claimed) = claimed else {
            return Err(input.wrong(format!("no file is as large as shape {shape:?} says")));
        };
        if let Some(left) = input.left()
            && left != claimed
        {
            let how = if left < claimed { "it is truncated, or its header is wrong" } else { "bytes are left over" };
            return Err(input.wrong(format!(
                "the header claims {claimed} bytes of numbers, shape {shape:?}, and there are {left}: {how}"
            )));
        }
        // Below the limit for samples, which is in memory.
        let shape = sample.iter().map(|&size| size as usize).collect();
        let features = Features::Dense { element: number.element(), shape };
        Ok(Self { input, number, big_endian, features, width: width as usize, count, left: count, chunk: Vec::new() })
    }

    pub fn features(&self) -> &Features {
        &self.features
    }

    pub fn number(&self) -> Number {
        self.number
    }

    /// Numbers of one sample.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether a sample is one number or one row of them.
    pub fn is_flat(&self) -> bool {
        matches!(&self.features, Features::Dense { shape, .. } if shape.len() <= 1)
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The features of up to `most` more samples, as they are kept. Gives how many.
    pub fn features_of(&mut self, most: usize, into: &mut Vec<u8>) -> Result<usize, ReadError> {
        let rows = self.take(most);
        let from = into.len();
        let start = self.input.offset();
        if self.number == Number::U8 || (self.number == Number::F32 && !self.big_endian) {
            self.input.append(rows * self.width * self.number.size(), into, "its numbers")?;
        } else {
            let mut left = rows * self.width;
            while left > 0 {
                let numbers = self.next_chunk(left)?;
                self.convert(into);
                left -= numbers;
            }
        }
        let size = self.number.size() as u64;
        let bad = match self.number {
            Number::Bool => into[from..].iter().position(|&byte| byte > 1),
            _ if self.number.is_float() => first_not_finite(&into[from..]),
            _ => None,
        };
        match bad {
            Some(index) => {
                let problem = if self.number == Number::Bool {
                    "a truth value that is neither 0 nor 1"
                } else {
                    "a number that is not finite as a 32-bit float; samples must not have NaN or infinity"
                };
                Err(self.input.wrong_at(start + index as u64 * size, problem))
            }
            None => Ok(rows),
        }
    }

    /// The numbers of up to `most` more samples, each with its offset. Gives how many samples.
    pub fn numbers_of(
        &mut self,
        most: usize,
        mut each: impl FnMut(&Input, u64, f64) -> Result<(), ReadError>,
    ) -> Result<usize, ReadError> {
        let rows = self.take(most);
        let mut left = rows * self.width;
        let size = self.number.size();
        while left > 0 {
            let start = self.input.offset();
            left -= self.next_chunk(left)?;
            for (index, bytes) in self.chunk.chunks_exact(size).enumerate() {
                each(&self.input, start + (index * size) as u64, as_f64(self.number, bytes))?;
            }
        }
        Ok(rows)
    }

    /// That this was all.
    pub fn finish(&mut self) -> Result<(), ReadError> {
        self.input.finish()
    }

    fn take(&mut self, most: usize) -> usize {
        let rows = usize::try_from(self.left).unwrap_or(usize::MAX).min(most);
        self.left -= rows as u64;
        rows
    }

    /// Up to `most` numbers into the chunk, little-endian. Gives how many.
    fn next_chunk(&mut self, most: usize) -> Result<usize, ReadError> {
        let size = self.number.size();
        let numbers = most.min(CHUNK / size);
        self.chunk.clear();
        self.input.append(numbers * size, &mut self.chunk, "its numbers")?;
        if self.big_endian && size > 1 {
            self.chunk.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        Ok(numbers)
    }

    fn convert(&self, into: &mut Vec<u8>) {
        let from = &self.chunk;
        match self.number {
            Number::Bool | Number::U8 => into.extend_from_slice(from),
            Number::F32 => into.extend_from_slice(from),
            Number::I8 => floats(from, into, |[byte]| f32::from(byte as i8)),
            Number::U16 => floats(from, into, |bytes| f32::from(u16::from_le_bytes(bytes))),
            Number::I16 => floats(from, into, |bytes| f32::from(i16::from_le_bytes(bytes))),
            Number::U32 => floats(from, into, |bytes| u32::from_le_bytes(bytes) as f32),
            Number::I32 => floats(from, into, |bytes| i32::from_le_bytes(bytes) as f32),
            Number::U64 => floats(from, into, |bytes| u64::from_le_bytes(bytes) as f32),
            Number::I64 => floats(from, into, |bytes| i64::from_le_bytes(bytes) as f32),
            Number::F16 => floats(from, into, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Number::BF16 => floats(from, into, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            Number::F64 => floats(from, into, |bytes| f64::from_le_bytes(bytes) as f32),
        }
    }
}

/// Numbers of `N` bytes as f32, after those in `into`.
fn floats<const N: usize>(from: &[u8], into: &mut Vec<u8>, convert: impl Fn([u8; N]) -> f32) {
    let (numbers, _) = from.as_chunks::<N>();
    let start = into.len();
    into.resize(start + 4 * numbers.len(), 0);
    for (number, float) in numbers.iter().zip(into[start..].as_chunks_mut::<4>().0) {
        *float = convert(*number).to_le_bytes();
    }
}

/// Which of these little-endian f32 is the first that is NaN or infinite.
fn first_not_finite(bytes: &[u8]) -> Option<usize> {
    const EXPONENT: u32 = 0x7f80_0000;
    let (floats, _) = bytes.as_chunks::<4>();
    let bad = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) & EXPONENT == EXPONENT;
    // Without a branch for each number, so that it costs next to nothing where all is well.
    for (index, group) in floats.chunks(1024).enumerate() {
        if group.iter().fold(false, |any, bytes| any | bad(bytes)) {
            return group.iter().position(bad).map(|within| index * 1024 + within);
        }
    }
    None
}

/// One little-endian number.
fn as_f64(number: Number, bytes: &[u8]) -> f64 {
    let mut wide = [0; 8];
    wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let [a, b, c, d, ..] = wide;
    match number {
        Number::Bool | Number::U8 => f64::from(a),
        Number::I8 => f64::from(a as i8),
        Number::U16 => f64::from(u16::from_le_bytes([a, b])),
        Number::I16 => f64::from(i16::from_le_bytes([a, b])),
        Number::F16 => f16::from_le_bytes([a, b]).to_f64(),
        Number::BF16 => bf16::from_le_bytes([a, b]).to_f64(),
        Number::U32 => f64::from(u32::from_le_bytes([a, b, c, d])),
        Number::I32 => f64::from(i32::from_le_bytes([a, b, c, d])),
        Number::F32 => f64::from(f32::from_le_bytes([a, b, c, d])),
        Number::U64 => u64::from_le_bytes(wide) as f64,
        Number::I64 => i64::from_le_bytes(wide) as f64,
        Number::F64 => f64::from_le_bytes(wide),
    }
}
