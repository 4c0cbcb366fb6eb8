//! Device memory that is counted before it is allocated, and kept for the next step.
//!
//! A training step asks for the same sizes again and again, so a block that is given back is kept for the next one of
//! its size: after the first step nothing is allocated. Kept blocks count as used, and are let go when room is needed.
//! A heap belongs to one tenant; what it keeps never reaches another. Several heaps of one lease share its [`Budget`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::device::{Device, Memory};
use crate::error::{Error, Result};
use crate::pool::{Held, Lease};

/// Counts bytes against a limit, before they are allocated. All heaps of one owner share it.
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    peak: AtomicUsize,
    /// Whose kept blocks can be let go when room is needed.
    heaps: Mutex<Vec<Weak<Heap>>>,
}

impl Budget {
    pub fn new(limit: usize) -> Arc<Self> {
        let (used, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { limit, used, peak, heaps: Mutex::new(Vec::new()) })
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are allocated or about to be.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The most that was ever used.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: usize) -> Result<()> {
        let reserved = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&sum| sum <= self.limit)
        });
        match reserved {
            Ok(used) => {
                // Looked at first: in the steady state nothing is written.
                if self.peak() < used + bytes {
                    self.peak.fetch_max(used + bytes, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(used) => Err(Error::OutOfMemory { wanted: bytes, used, limit: self.limit }),
        }
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn trim(&self) {
        let mut listed = self.heaps.lock().unwrap_or_else(PoisonError::into_inner);
        listed.retain(|heap| heap.strong_count() > 0);
        let heaps: Vec<Arc<Heap>> = listed.iter().filter_map(Weak::upgrade).collect();
        // A heap may end here, if its last owner let go of it meanwhile.
        drop(listed);
        heaps.iter().for_each(|heap| heap.trim());
    }
}

/// Keeps the memory of one device for one owner.
pub struct Heap {
    device: Arc<dyn Device>,
    budget: Arc<Budget>,
    used: AtomicUsize,
    kept: Mutex<Kept>,
    /// Stays as long as any memory does. Last, so that it goes last.
    _lease: Option<Arc<Held>>,
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
    is_fresh: bool,
    heap: Arc<Heap>,
}

impl Heap {
    pub fn new(device: Arc<dyn Device>, limit: usize) -> Arc<Self> {
        Self::with(device, Budget::new(limit), None)
    }

    /// A heap whose bytes count against those of the lease, which stays as long as the heap and its blocks do.
    pub fn leased(lease: &Lease) -> Arc<Self> {
        let held = lease.held();
        Self::with(Arc::clone(held.handle()), Arc::clone(held.budget()), Some(Arc::clone(held)))
    }

    fn with(device: Arc<dyn Device>, budget: Arc<Budget>, lease: Option<Arc<Held>>) -> Arc<Self> {
        let heap = Arc::new(Self {
            device,
            budget: Arc::clone(&budget),
            used: AtomicUsize::new(0),
            kept: Mutex::new(Kept::default()),
            _lease: lease,
        });
        let mut heaps = budget.heaps.lock().unwrap_or_else(PoisonError::into_inner);
        heaps.retain(|heap| heap.strong_count() > 0);
        heaps.push(Arc::downgrade(&heap));
        heap
    }

    /// Bytes that tensors hold, and bytes kept for the next ones.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The bytes of [`Self::used`] that no tensor holds.
    pub fn kept(&self) -> usize {
        self.lock().bytes
    }

    /// The most that was ever used, by all heaps of its budget and their tapes together.
    pub fn peak(&self) -> usize {
        self.budget.peak()
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
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
        let is_fresh = found.is_none();
        let memory = match found {
            Some(memory) => memory,
            None => self.allocate(bytes)?,
        };
        Ok(Block { memory: Some(memory), bytes, is_fresh, heap: Arc::clone(self) })
    }

    /// Lets go of everything that is kept.
    pub fn trim(&self) {
        let Kept { blocks, bytes } = std::mem::take(&mut *self.lock());
        // First the memory, then its count: what is counted is never less than what there is.
        drop(blocks);
        self.give_back(bytes);
    }

    /// Counts bytes of the host's memory that its owner is about to take for something else than tensors.
    pub(crate) fn count(&self, bytes: usize) -> Result<()> {
        self.reserve(bytes)
    }

    /// Gives back what [`Self::count`] counted.
    pub(crate) fn uncount(&self, bytes: usize) {
        self.budget.give_back(bytes);
    }

    /// Finds room in the budget; what is kept for later makes way for what is needed now.
    fn reserve(&self, bytes: usize) -> Result<()> {
        if self.budget.reserve(bytes).is_err() {
            self.budget.trim();
            self.budget.reserve(bytes)?;
        }
        Ok(())
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        self.reserve(bytes)?;
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.device.allocate(bytes).inspect_err(|_| self.give_back(bytes))
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.give_back(bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        self.trim();
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

    /// Whether it came from the device when it was taken, and so held zeros.
    pub fn is_fresh(&self) -> bool {
        self.is_fresh
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
