//! Values in pieces, over all slots. A chunk's key is never written twice with other bytes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ::redis::{Value as Reply, cmd};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::Link;
use crate::params::ParamError;
use crate::tenant::StoreId;

/// Bytes of a chunk; the last one has what is left.
pub const CHUNK: u64 = 4 << 20;

/// Chunks that are under way at once.
const AT_ONCE: usize = 8;

/// Chunks that one command deletes.
const DELETED_AT_ONCE: usize = 500;

/// Where the chunks of a value are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    pub reference: String,
    pub checksums: Vec<u32>,
}

/// Chunks that are in place.
pub struct Sent {
    pub reference: String,
    pub count: u64,
    pub checksums: Vec<u32>,
}

/// A place for the chunks of a value, as scripts name it: the reference and how many they are.
pub fn named(reference: &str, bytes: u64) -> String {
    format!("{reference} {}", count(bytes))
}

pub fn count(bytes: u64) -> u64 {
    bytes.div_ceil(CHUNK)
}

/// The reference is an epoch and a number: together with the tenant they are nobody else's.
fn key(tenant: &StoreId, reference: &str, index: u64) -> String {
    format!("weft:chunk:{}:{reference}:{index}", tenant.as_str())
}

fn part(bytes: u64, index: u64) -> Range<usize> {
    (index * CHUNK) as usize..((index + 1) * CHUNK).min(bytes) as usize
}

/// Sends chunks until all are there, one cannot be sent or somebody stops it. Whatever comes of it, none is under way any
/// more when it ends: a chunk that arrived after the others were deleted would stay for ever.
pub async fn put(
    link: &Link,
    tenant: &StoreId,
    reference: String,
    data: Bytes,
    is_stopped: &AtomicBool,
) -> Result<Sent, ParamError> {
    let bytes = data.len() as u64;
    let put = |index: u64| {
        let (chunk, key) = (data.slice(part(bytes, index)), key(tenant, &reference, index));
        async move {
            if is_stopped.load(Relaxed) {
                return Err(ParamError::Unavailable("a value was not sent to its end".to_owned()));
            }
            let checksum = crc32fast::hash(&chunk);
            let mut command = cmd("SET");
            command.arg(key).arg(&chunk[..]);
            let sent = link.run(&command).await;
            is_stopped.fetch_or(sent.is_err(), Relaxed);
            sent.map(|_| checksum)
        }
    };
    let sent: Vec<Result<u32, ParamError>> = stream::iter((0..count(bytes)).map(put)).buffered(AT_ONCE).collect().await;
    // The first error is the reason: what was stopped because of it comes after it.
    let checksums = sent.into_iter().collect::<Result<_, _>>()?;
    Ok(Sent { reference, count: count(bytes), checksums })
}

impl Chunks {
    /// Some bytes of the value; `None` if a chunk is not there.
    pub async fn get(&self, link: &Link, tenant: &StoreId, range: Range<u64>) -> Result<Option<Bytes>, ParamError> {
        if range.is_empty() {
            return Ok(Some(Bytes::new()));
        }
        let wanted = range.start / CHUNK..(range.end - 1) / CHUNK + 1;
        let get = |index: u64| {
            let mut command = cmd("GET");
            command.arg(key(tenant, &self.reference, index));
            async move { self.checked(index, link.run(&command).await?) }
        };
        let first = wanted.start * CHUNK;
        let mut found = stream::iter(wanted.clone().map(get)).buffered(AT_ONCE);
        if wanted.end - wanted.start == 1 {
            let chunk = found.try_next().await?.flatten().map(Bytes::from);
            return Ok(chunk.map(|chunk| chunk.slice((range.start - first) as usize..(range.end - first) as usize)));
        }
        let mut data = Vec::with_capacity((range.end - range.start) as usize);
        let mut index = wanted.start;
        while let Some(chunk) = found.try_next().await? {
            let Some(chunk) = chunk else { return Ok(None) };
            let at = index * CHUNK;
            let from = range.start.saturating_sub(at) as usize;
            let to = (range.end - at).min(chunk.len() as u64) as usize;
            data.extend_from_slice(&chunk[from..to]);
            index += 1;
        }
        Ok(Some(data.into()))
    }

    fn checked(&self, index: u64, reply: Reply) -> Result<Option<Vec<u8>>, ParamError> {
        match reply {
            Reply::Nil => Ok(None),
            Reply::BulkString(bytes) if self.checksums.get(index as usize) == Some(&crc32fast::hash(&bytes)) => {
                Ok(Some(bytes))
            }
            _ => Err(ParamError::Damaged(format!("chunk {index} has other bytes than were written"))),
        }
    }
}

/// Deletes chunks, each named as scripts do: the reference and how many they are.
pub async fn delete(link: &Link, tenant: &StoreId, named: &[String]) -> Result<(), ParamError> {
    let keys: Vec<String> = named
        .iter()
        .filter_map(|named| named.split_once(' '))
        .flat_map(|(reference, count)| (0..count.parse().unwrap_or(0)).map(move |index| key(tenant, reference, index)))
        .collect();
    for keys in keys.chunks(DELETED_AT_ONCE) {
        let mut command = cmd("UNLINK");
        command.arg(keys);
        link.run(&command).await?;
    }
    Ok(())
}
