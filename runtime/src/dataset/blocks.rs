//! Where blocks are read from, and the cache that the workers of a node share.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use bytes::Bytes;

use super::manifest::BlockRef;
use crate::digest::Digest;

mod cache;

pub use cache::{CACHE_BYTES, Cache, CacheStats};

/// Gives the bytes of blocks.
pub trait Blocks: Send + Sync {
    /// Part of a block, all bytes of the range. Takes no more memory than there are bytes, whatever the manifest claims.
    fn read(&self, block: &BlockRef, range: Range<u64>) -> io::Result<Bytes>;
}

/// The bytes of a whole block.
pub fn read_whole(blocks: &dyn Blocks, block: &BlockRef) -> io::Result<Bytes> {
    read_part(blocks, block, 0..block.bytes)
}

/// Part of a block; a source that gives more or fewer bytes is an error.
pub fn read_part(blocks: &dyn Blocks, block: &BlockRef, range: Range<u64>) -> io::Result<Bytes> {
    let wanted = range.end.saturating_sub(range.start);
    let bytes = blocks.read(block, range)?;
    if bytes.len() as u64 != wanted {
        let reason = format!("it gave {} bytes where there should be {wanted}", bytes.len());
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
    }
    Ok(bytes)
}

/// Blocks in memory.
impl Blocks for HashMap<Digest, Bytes> {
    fn read(&self, block: &BlockRef, range: Range<u64>) -> io::Result<Bytes> {
        let bytes = self.get(&block.digest).ok_or(io::ErrorKind::NotFound)?;
        match (usize::try_from(range.start), usize::try_from(range.end)) {
            (Ok(start), Ok(end)) if start <= end && end <= bytes.len() => Ok(bytes.slice(start..end)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
