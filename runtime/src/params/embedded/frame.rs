//! How a change is written to disk: lengths, a checksum, MessagePack, the value's bytes as they are.

use std::io::{self, Read, Write};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::params::{Entry, Form, Key, Moment, Space, Value};

/// The longest description of a change: names, a shape.
const MAX_META: u32 = 64 << 10;

/// The lengths that a record begins with.
pub const LENGTHS: usize = 12;

/// Lengths and checksum before a record.
const PREFIX: usize = LENGTHS + 4;

/// What is read at a time: a length that is a lie costs no more.
const PIECE: u64 = 1 << 20;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Put {
        space: Space,
        key: Key,
        entry: Entry,
        durable: bool,
    },
    Delete {
        space: Space,
        key: Key,
        version: u64,
    },
    Claim {
        space: Space,
        claim: Key,
        epoch: u64,
    },
    /// All values and claims of a space that are older than this are gone.
    Clear {
        space: Space,
        version: u64,
    },
    /// Versions and epochs up to this may have been given out.
    Clock {
        version: u64,
    },
    /// Begins what is synced to a journal at once. The mark is the journal's own, and nobody can guess it.
    Begin {
        mark: String,
    },
}

/// A record as MessagePack has it.
#[derive(Serialize, Deserialize)]
enum Meta {
    Put { space: Space, key: Key, version: u64, form: Form, expires: Option<Moment>, durable: bool },
    Delete { space: Space, key: Key, version: u64 },
    Claim { space: Space, claim: Key, epoch: u64 },
    Clear { space: Space, version: u64 },
    Clock { version: u64 },
    Begin { mark: String },
}

impl Record {
    pub fn put(space: &Space, key: &Key, entry: &Entry, durable: bool) -> Self {
        Self::Put { space: space.clone(), key: key.clone(), entry: entry.clone(), durable }
    }

    pub fn delete(space: &Space, key: &Key, version: u64) -> Self {
        Self::Delete { space: space.clone(), key: key.clone(), version }
    }

    pub fn claim(space: &Space, claim: &Key, epoch: u64) -> Self {
        Self::Claim { space: space.clone(), claim: claim.clone(), epoch }
    }

    /// The version or epoch that it has of the store's clock.
    pub fn version(&self) -> u64 {
        match self {
            Self::Put { entry, .. } => entry.version,
            Self::Claim { epoch, .. } => *epoch,
            Self::Begin { .. } => 0,
            Self::Delete { version, .. } | Self::Clear { version, .. } | Self::Clock { version } => *version,
        }
    }

    /// Writes it, and says how many bytes that were.
    pub fn write(&self, to: &mut impl Write) -> io::Result<u64> {
        let (meta, data) = self.parts();
        let meta = rmp_serde::to_vec(&meta).map_err(io::Error::other)?;
        let mut prefix = [0; PREFIX];
        prefix[..4].copy_from_slice(&(meta.len() as u32).to_le_bytes());
        prefix[4..12].copy_from_slice(&(data.len() as u64).to_le_bytes());
        let checksum = checksum(&prefix[..LENGTHS], &meta, data);
        prefix[LENGTHS..].copy_from_slice(&checksum.to_le_bytes());
        for part in [&prefix[..], &meta, data] {
            to.write_all(part)?;
        }
        Ok((PREFIX + meta.len() + data.len()) as u64)
    }

    /// The next record. `None` where there is none that is whole.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let Some(prefix) = read_exactly(from, PREFIX as u64)? else { return Ok(None) };
        let number = |range: std::ops::Range<usize>| {
            prefix[range].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        let (meta, data, expected) = (number(0..4), number(4..LENGTHS), number(LENGTHS..PREFIX));
        if meta > u64::from(MAX_META) {
            return Ok(None);
        }
        let Some(meta) = read_exactly(from, meta)? else { return Ok(None) };
        let Some(data) = read_exactly(from, data)? else { return Ok(None) };
        if u64::from(checksum(&prefix[..LENGTHS], &meta, &data)) != expected {
            return Ok(None);
        }
        // Whole, and yet not understood: another version has written it. What follows must not be dropped for that.
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "a record that this version cannot read");
        Self::from_parts(&meta, data).map(Some).ok_or_else(strange)
    }

    fn parts(&self) -> (Meta, &[u8]) {
        match self.clone() {
            Self::Put { space, key, entry: Entry { version, value: Value { form, .. }, expires }, durable } => {
                let data: &[u8] = if let Self::Put { entry, .. } = self { &entry.value.data } else { &[] };
                (Meta::Put { space, key, version, form, expires, durable }, data)
            }
            Self::Delete { space, key, version } => (Meta::Delete { space, key, version }, &[]),
            Self::Claim { space, claim, epoch } => (Meta::Claim { space, claim, epoch }, &[]),
            Self::Clear { space, version } => (Meta::Clear { space, version }, &[]),
            Self::Clock { version } => (Meta::Clock { version }, &[]),
            Self::Begin { mark } => (Meta::Begin { mark }, &[]),
        }
    }

    fn from_parts(meta: &[u8], data: Vec<u8>) -> Option<Self> {
        Some(match rmp_serde::from_slice(meta).ok()? {
            Meta::Put { space, key, version, form, expires, durable } => {
                let value = Value { form: form.stored(), data: Bytes::from(data) }.checked().ok()?;
                Self::Put { space, key, entry: Entry { version, value, expires }, durable }
            }
            Meta::Delete { space, key, version } => Self::Delete { space, key, version },
            Meta::Claim { space, claim, epoch } => Self::Claim { space, claim, epoch },
            Meta::Clear { space, version } => Self::Clear { space, version },
            Meta::Clock { version } => Self::Clock { version },
            Meta::Begin { mark } => Self::Begin { mark },
        })
    }
}

fn checksum(prefix: &[u8], meta: &[u8], data: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    [prefix, meta, data].into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// So many bytes, or `None` if there are fewer.
fn read_exactly(from: &mut impl Read, count: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < count {
        let piece = PIECE.max(bytes.len() as u64).min(count - bytes.len() as u64);
        if from.by_ref().take(piece).read_to_end(&mut bytes)? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let space = Space { tenant: "ada".parse().unwrap(), job: Some("j".parse().unwrap()) };
        let key: Key = "layer/weight".parse().unwrap();
        let value = Value::bytes(vec![7; 1000]);
        vec![
            Record::put(&space, &key, &Entry { version: 3, value, expires: Some(Moment(9)) }, true),
            Record::delete(&space, &key, 4),
            Record::claim(&space, &key, 5),
            Record::Clear { space, version: 6 },
            Record::Clock { version: 7 },
            Record::Begin { mark: "0f".repeat(16) },
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut bytes = Vec::new();
        let lengths: u64 = records().iter().map(|record| record.write(&mut bytes).unwrap()).sum();
        assert_eq!(lengths, bytes.len() as u64);
        let mut from = &bytes[..];
        let read: Vec<Record> = std::iter::from_fn(|| Record::read(&mut from).unwrap()).collect();
        assert_eq!(read, records());
    }

    #[test]
    fn what_is_cut_off_or_changed_is_not_a_record() {
        let mut bytes = Vec::new();
        records()[0].write(&mut bytes).unwrap();
        for end in 0..bytes.len() {
            assert_eq!(Record::read(&mut &bytes[..end]).unwrap(), None);
        }
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            assert_eq!(Record::read(&mut &broken[..]).unwrap(), None, "byte {at}");
        }
    }
}
