//! A frame: what goes from one worker to another.
//!
//! Numbers are little endian. A header of 40 bytes, then the parts of the codec, one after the other; their lengths
//! follow from the header, and a frame of any other length is none.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `WFTC` |
//! | 4 | version, 1 |
//! | 5 | codec: 0 `plain`, 1 `f16`, 2 `qsgd`, 3 `top-k`, 4 `significance` |
//! | 6 | bits of a code (`qsgd`), else 0 |
//! | 7 | 0 |
//! | 8..16 | elements |
//! | 16..24 | elements that are sent |
//! | 24..28 | elements of a bucket (`qsgd`), else 0 |
//! | 28..32 | fraction or threshold (`top-k`, `significance`), else 0 |
//! | 32..40 | checksum of all other bytes |
//!
//! The checksum finds what was damaged on the way; it keeps nobody from making frames up, so everything that memory or a
//! kernel goes by is checked for itself.

use smallvec::SmallVec;

use super::{Codec, Parts, top_k};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::Meta;
use crate::tensor::Tensor;

#[cfg(test)]
mod tests;

pub(super) const HEADER: usize = 40;
const MAGIC: [u8; 4] = *b"WFTC";
const VERSION: u8 = 1;
const CHECKSUM: std::ops::Range<usize> = 32..40;

/// A frame that was found to be right.
pub(super) struct Frame<'a> {
    pub(super) codec: Codec,
    pub(super) elements: usize,
    pub(super) parts: SmallVec<[(Meta, &'a [u8]); 2]>,
}

pub(super) fn write(codec: Codec, elements: usize, sent: usize, parts: &Parts) -> Result<Vec<u8>> {
    let length = HEADER + parts.iter().map(|part| part.meta().bytes()).sum::<usize>();
    let mut frame = vec![0; length];
    let (number, bits, bucket, parameter) = match codec {
        Codec::Plain => (0, 0, 0, 0.0),
        Codec::F16 => (1, 0, 0, 0.0),
        Codec::Qsgd { bits, bucket } => (2, bits as u8, bucket as u32, 0.0),
        Codec::TopK { fraction } => (3, 0, 0, fraction),
        Codec::Significance { threshold } => (4, 0, 0, threshold),
    };
    frame[..4].copy_from_slice(&MAGIC);
    frame[4..8].copy_from_slice(&[VERSION, number, bits, 0]);
    frame[8..16].copy_from_slice(&(elements as u64).to_le_bytes());
    frame[16..24].copy_from_slice(&(sent as u64).to_le_bytes());
    frame[24..28].copy_from_slice(&bucket.to_le_bytes());
    frame[28..32].copy_from_slice(&f32::to_le_bytes(parameter));
    let mut at = HEADER;
    for part in parts {
        let bytes = &mut frame[at..at + part.meta().bytes()];
        part.read(0, bytes)?;
        swap(bytes, part.dtype());
        at += bytes.len();
    }
    seal(&mut frame);
    Ok(frame)
}

pub(super) fn read(frame: &[u8], at_most: usize) -> Result<Frame<'_>> {
    let wrong = |reason: String| Error::argument("from-wire", reason);
    let Some((header, mut rest)) = frame.split_at_checked(HEADER) else {
        return Err(wrong(format!("{} bytes are no frame: its header alone has {HEADER}", frame.len())));
    };
    if header[..4] != MAGIC || header[4] != VERSION {
        return Err(wrong("the bytes are no frame of this version".into()));
    }
    let (elements, sent) = (u64_at(header, 8), u64_at(header, 16));
    let (Ok(elements), Ok(sent)) = (usize::try_from(elements), usize::try_from(sent)) else {
        return Err(wrong(format!("{elements} elements are more than this machine can count")));
    };
    if elements > at_most {
        return Err(wrong(format!("{elements} elements, at most {at_most} are taken")));
    }
    if sent > elements {
        return Err(wrong(format!("{sent} of {elements} elements are sent")));
    }
    let codec =
        codec(header).ok_or_else(|| wrong("its codec is unknown, or has numbers that are not its own".into()))?;
    codec.check().map_err(|error| wrong(error.to_string()))?;
    let expected = match codec {
        Codec::TopK { fraction } => top_k::count(elements, fraction),
        Codec::Significance { .. } => sent,
        _ => elements,
    };
    if sent != expected {
        return Err(wrong(format!("`{codec}` sends {expected} of {elements} elements, not {sent}")));
    }
    let metas = codec.parts(elements, sent)?;
    let length = metas.iter().map(Meta::bytes).sum::<usize>();
    if rest.len() != length {
        return Err(wrong(format!("`{codec}` of {elements} elements is {length} bytes, not {}", rest.len())));
    }
    if u64_at(header, CHECKSUM.start) != checksum(frame) {
        return Err(wrong("the checksum differs: it was damaged on the way".into()));
    }
    let mut parts: SmallVec<[(Meta, &[u8]); 2]> = SmallVec::new();
    for meta in metas {
        let (part, after) = rest.split_at(meta.bytes());
        parts.push((meta, part));
        rest = after;
    }
    if codec.takes_residual()
        && let Some((_, indices)) = parts.first()
    {
        check_indices(indices, elements).map_err(wrong)?;
    }
    Ok(Frame { codec, elements, parts })
}

/// The codec that a header names. None if it has numbers that belong to another.
fn codec(header: &[u8]) -> Option<Codec> {
    let bits = u32::from(header[6]);
    let (bucket, parameter) = (u32_at(header, 24), f32::from_bits(u32_at(header, 28)));
    let codec = match header[5] {
        0 => Codec::Plain,
        1 => Codec::F16,
        2 => Codec::Qsgd { bits, bucket: usize::try_from(bucket).ok()? },
        3 => Codec::TopK { fraction: parameter },
        4 => Codec::Significance { threshold: parameter },
        _ => return None,
    };
    let has_levels = matches!(codec, Codec::Qsgd { .. });
    let strange = (!has_levels && (bits, bucket) != (0, 0))
        || (!codec.takes_residual() && parameter.to_bits() != 0)
        || header[7] != 0;
    (!strange).then_some(codec)
}

/// Refuses indices that do not rise, or that there are no elements for.
fn check_indices(bytes: &[u8], elements: usize) -> Result<(), String> {
    let mut least = 0;
    for (place, bytes) in bytes.chunks_exact(4).enumerate() {
        let index = u32_at(bytes, 0) as usize;
        if index < least || index >= elements {
            return Err(format!("index {index}, at place {place}, must be from {least} to below {elements}"));
        }
        least = index + 1;
    }
    Ok(())
}

/// A part on a device.
pub(super) fn upload(context: &Context, meta: Meta, bytes: &[u8]) -> Result<Tensor> {
    let fill = |into: &mut [u8]| {
        into.copy_from_slice(bytes);
        swap(into, meta.dtype);
    };
    match meta.dtype {
        DType::F16 => context.tensor_with(&meta.shape, |into: &mut [::half::f16]| {
            fill(bytemuck::cast_slice_mut(into));
            Ok::<_, Error>(())
        }),
        DType::U32 => context.tensor_with(&meta.shape, |into: &mut [u32]| {
            fill(bytemuck::cast_slice_mut(into));
            Ok::<_, Error>(())
        }),
        _ => context.tensor_with(&meta.shape, |into: &mut [f32]| {
            fill(bytemuck::cast_slice_mut(into));
            Ok::<_, Error>(())
        }),
    }
}

/// Between the machine's order of bytes and that of frames.
fn swap(bytes: &mut [u8], dtype: DType) {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Writes the checksum of a frame's other bytes where it belongs; also for tests, which make frames up. What is too short
/// to be a frame stays as it is.
pub fn seal(frame: &mut [u8]) {
    if frame.len() >= HEADER {
        let checksum = checksum(frame);
        frame[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Of a frame without its own eight bytes. Four sums side by side, each of every fourth word: every step can be undone, so
/// one word that differs always shows.
fn checksum(frame: &[u8]) -> u64 {
    const LANES: usize = 4;
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut sums = [1, 2, 3, 4];
    let mut add = |bytes: &[u8]| {
        let mut blocks = bytes.chunks_exact(8 * LANES);
        for block in &mut blocks {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = step(*sum, u64_at(block, 8 * lane));
            }
        }
        for (bytes, sum) in blocks.remainder().chunks(8).zip(&mut sums) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            *sum = step(*sum, u64::from_le_bytes(word));
        }
    };
    add(&frame[..CHECKSUM.start]);
    add(&frame[CHECKSUM.end..]);
    sums.into_iter().fold(frame.len() as u64, step)
}
