//! The blocks that were used last, for all workers of a node: each is read once, however many want it.
//!
//! Bytes are counted before they are read. A reader keeps what it was given for as long as it likes, also when the cache
//! has let go of it: [`CacheStats::alive`] counts that too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;

use super::{Blocks, read_part, read_whole};
use crate::dataset::manifest::BlockRef;
use crate::digest::Digest;
use crate::locks::Lock as _;

/// What a node keeps of blocks, unless it is told otherwise.
pub const CACHE_BYTES: u64 = 128 << 20;

/// Keeps whole blocks, up to a limit. Parts of blocks that it does not have are read past it.
pub struct Cache {
    source: Arc<dyn Blocks>,
    limit: u64,
    state: Mutex<State>,
    /// A block that was being read is there, or will not come.
    settled: Condvar,
    alive: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    entries: HashMap<Digest, Entry>,
    /// By when they were used last.
    order: BTreeMap<u64, Digest>,
    clock: u64,
    /// Of entries, and of blocks that are being read to become one.
    bytes: u64,
    reading: HashSet<Digest>,
    reads: u64,
    hits: u64,
}

struct Entry {
    bytes: Bytes,
    used: u64,
}

/// What a cache holds and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Bytes of blocks that it keeps, or has made room for.
    pub kept: u64,
    /// Bytes of whole blocks in memory that came from it: kept, or still held by a reader.
    pub alive: u64,
    /// Whole blocks that were read.
    pub reads: u64,
    /// Requests that needed no reading.
    pub hits: u64,
}

impl Cache {
    pub fn new(source: Arc<dyn Blocks>, limit: u64) -> Self {
        let (state, alive) = (Mutex::default(), Arc::default());
        Self { source, limit, state, settled: Condvar::new(), alive }
    }

    pub fn stats(&self) -> CacheStats {
        let state = self.state.locked();
        let alive = self.alive.load(Ordering::Relaxed);
        CacheStats { kept: state.bytes, alive, reads: state.reads, hits: state.hits }
    }

    fn whole(&self, block: &BlockRef) -> io::Result<Bytes> {
        let mut state = self.state.locked();
        loop {
            if let Some(bytes) = state.find(&block.digest) {
                return Ok(bytes);
            }
            if state.reading.insert(block.digest) {
                break;
            }
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let keep = state.make_room(block.bytes, self.limit);
        state.reads += 1;
        drop(state);
        let mut reading = Reading { cache: self, digest: block.digest, reserved: if keep { block.bytes } else { 0 } };
        let bytes = read_whole(&*self.source, block)?;
        self.alive.fetch_add(block.bytes, Ordering::Relaxed);
        let bytes = Bytes::from_owner(Counted { bytes, alive: Arc::clone(&self.alive) });
        if keep {
            self.state.locked().keep(block.digest, bytes.clone());
            reading.reserved = 0;
        }
        Ok(bytes)
    }
}

impl Blocks for Cache {
    fn read(&self, block: &BlockRef, range: Range<u64>) -> io::Result<Bytes> {
        if range == (0..block.bytes) {
            return self.whole(block);
        }
        let found = self.state.locked().find(&block.digest);
        match (found, usize::try_from(range.start), usize::try_from(range.end)) {
            (Some(bytes), Ok(start), Ok(end)) if start <= end && end <= bytes.len() => Ok(bytes.slice(start..end)),
            _ => read_part(&*self.source, block, range),
        }
    }
}

impl State {
    fn find(&mut self, digest: &Digest) -> Option<Bytes> {
        let entry = self.entries.get_mut(digest)?;
        self.order.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.order.insert(self.clock, *digest);
        self.hits += 1;
        Some(entry.bytes.clone())
    }

    /// Counts the bytes of a block that is about to be read, if they can be kept: blocks that were not used for longest
    /// make room.
    fn make_room(&mut self, bytes: u64, limit: u64) -> bool {
        if bytes > limit {
            return false;
        }
        while self.bytes > limit - bytes {
            // What is left is being read: none of it can be let go.
            let Some((_, oldest)) = self.order.pop_first() else { return false };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.bytes -= entry.bytes.len() as u64;
            }
        }
        self.bytes += bytes;
        true
    }

    fn keep(&mut self, digest: Digest, bytes: Bytes) {
        self.clock += 1;
        self.order.insert(self.clock, digest);
        self.entries.insert(digest, Entry { bytes, used: self.clock });
    }
}

/// While it lives, others wait for the block.
struct Reading<'a> {
    cache: &'a Cache,
    digest: Digest,
    /// Bytes to give back, if the block does not come.
    reserved: u64,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state.locked();
        state.reading.remove(&self.digest);
        state.bytes -= self.reserved;
        self.cache.settled.notify_all();
    }
}

/// Bytes that are counted for as long as anybody has them.
struct Counted {
    bytes: Bytes,
    alive: Arc<AtomicU64>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
