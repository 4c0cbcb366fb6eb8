//! Device memory that is counted before it is allocated, and kept for the next step.
//!
//! A training step asks for the same sizes again and again, so a block that is given back is kept for the next one of
//! its size: after the first step nothing is allocated. Kept blocks count as used, and are let go when room is needed.
//! A heap belongs to one tenant; what it keeps never reaches another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::{Device, Memory};
use crate::error::{Error, Result};

/// Counts and keeps the memory of one device for one owner.
pub struct Heap {
    device: Arc<dyn Device>,
    limit: usize,
    used: AtomicUsize,
    peak: AtomicUsize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// By size, so that a block is found at once and the largest can be let go first.
    blocks: BTreeMap<usize, Vec<Box<dyn Memory>>>,
    bytes: usize,
}

/// Memory that goes back to its heap when dropped.
pub struct Block {
    memory: Option<Box<dyn Memory>>,
    bytes: usize,
    heap: Arc<Heap>,
}

impl Heap {
    pub fn new(device: Arc<dyn Device>, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            device,
            limit,
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            kept: Mutex::new(Kept::default()),
        })
    }

    /// Bytes that tensors hold, and bytes kept for the next ones.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The bytes of [`Self::used`] that no tensor holds.
    pub fn kept(&self) -> usize {
        self.lock().bytes
    }

    /// The most that was ever used.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// A block of at least this many bytes; what it holds is undefined, but never another owner's.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Block> {
        let bytes = size_class(bytes);
        let found = {
            let mut kept = self.lock();
            let found = kept.blocks.get_mut(&bytes).and_then(Vec::pop);
            if found.is_some() {
                kept.bytes -= bytes;
            }
            found
        };
        let memory = match found {
            Some(memory) => memory,
            None => self.allocate(bytes)?,
        };
        Ok(Block { memory: Some(memory), bytes, heap: Arc::clone(self) })
    }

    /// Lets go of everything that is kept.
    pub fn trim(&self) {
        let kept = std::mem::take(&mut *self.lock());
        self.used.fetch_sub(kept.bytes, Ordering::Relaxed);
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        if self.reserve(bytes).is_err() {
            self.trim();
            self.reserve(bytes)?;
        }
        self.device.allocate(bytes).inspect_err(|_| {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    fn reserve(&self, bytes: usize) -> Result<()> {
        let reserved = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&sum| sum <= self.limit)
        });
        match reserved {
            Ok(used) => {
                self.peak.fetch_max(used + bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(used) => Err(Error::OutOfMemory { wanted: bytes, used, limit: self.limit }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sizes are rounded up by at most a quarter, so that the last, smaller batch of an epoch finds the blocks of the others.
fn size_class(bytes: usize) -> usize {
    if bytes <= 256 {
        return bytes.max(1).next_multiple_of(64);
    }
    let step = (bytes.next_power_of_two() / 8).max(64);
    bytes.next_multiple_of(step)
}

impl Block {
    /// Panics never: the memory is only taken out by `drop`.
    pub fn memory(&self) -> &dyn Memory {
        match &self.memory {
            Some(memory) => memory.as_ref(),
            None => unreachable!("a block has its memory until it is dropped"),
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let mut kept = self.heap.lock();
            kept.bytes += self.bytes;
            kept.blocks.entry(self.bytes).or_default().push(memory);
        }
    }
}
