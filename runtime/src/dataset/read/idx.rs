//! idx, the format of MNIST: two zeros, the type, the number of dimensions, the dimensions, the numbers; all big-endian.

use super::array::{Array, Header, Number};
use super::error::ReadError;
use super::source::{Input, Limits};

/// More dimensions than this are a mistake.
const MAX_DIMENSIONS: u8 = 8;

/// Whether a file could begin so.
pub(super) fn begins(first: &[u8]) -> bool {
    matches!(first, [0, 0, kind, 1..=MAX_DIMENSIONS, ..] if number(*kind).is_some())
}

pub(super) fn open(mut input: Input, limits: &Limits) -> Result<Array, ReadError> {
    let mut magic = [0; 4];
    input.exact(&mut magic, "the header")?;
    let [0, 0, kind, dimensions] = magic else {
        return Err(input.wrong_at(0, format!("no idx file: it begins with {magic:02x?}, not with two zeros")));
    };
    let Some(number) = number(kind) else {
        return Err(input.wrong_at(2, format!("idx has no type {kind:#04x} of numbers")));
    };
    if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
        return Err(input.wrong_at(3, format!("{dimensions} dimensions; from 1 to {MAX_DIMENSIONS} are understood")));
    }
    let mut shape = Vec::with_capacity(dimensions.into());
    for _ in 0..dimensions {
        let mut size = [0; 4];
        input.exact(&mut size, "the header")?;
        shape.push(u32::from_be_bytes(size).into());
    }
    Array::new(input, Header { number, big_endian: true, shape }, limits)
}

fn number(kind: u8) -> Option<Number> {
    Some(match kind {
        0x08 => Number::U8,
        0x09 => Number::I8,
        0x0b => Number::I16,
        0x0c => Number::I32,
        0x0d => Number::F32,
        0x0e => Number::F64,
        _ => return None,
    })
}
