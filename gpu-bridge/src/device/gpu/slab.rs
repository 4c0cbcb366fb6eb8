//! Buffers, cut into regions.
//!
//! Small regions share large buffers (slabs); a large region has a buffer of its own. A region is handed out again only
//! after all work of its last owner has been given to the queue, and is then cleared before its new owner's first use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wgpu::{BufferDescriptor, BufferUsages};

use crate::error::{Error, Result};

/// Every region starts at a multiple of this, so that it can be bound.
const ALIGNMENT: u64 = 256;

/// The size of a shared buffer.
const SLAB_BYTES: u64 = 32 << 20;

/// From here on a region has its own buffer.
const OWN_BUFFER: u64 = SLAB_BYTES / 4;

/// Part of a buffer.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) buffer: wgpu::Buffer,
    /// Tells buffers apart.
    pub(super) id: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Whether it may hold what somebody else left there.
    pub(super) used: bool,
}

pub(super) struct Slabs {
    device: wgpu::Device,
    max_buffer: u64,
    next: AtomicU64,
    slabs: Mutex<Vec<Slab>>,
    /// Bytes of all buffers.
    allocated: AtomicU64,
}

struct Slab {
    buffer: wgpu::Buffer,
    id: u64,
    /// Where nobody is, by start: the length.
    free: BTreeMap<u64, u64>,
}

impl Slabs {
    pub(super) fn new(device: &wgpu::Device, limits: &wgpu::Limits) -> Self {
        Self {
            device: device.clone(),
            max_buffer: limits.max_buffer_size,
            next: AtomicU64::new(1),
            slabs: Mutex::default(),
            allocated: AtomicU64::new(0),
        }
    }

    /// Bytes of all buffers, those between regions too.
    pub(super) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, bytes: u64) -> Result<Region> {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        if bytes > self.max_buffer {
            let reason = format!("{bytes} bytes in one tensor, this GPU holds {} in one buffer", self.max_buffer);
            return Err(Error::TooLarge { reason });
        }
        if bytes >= OWN_BUFFER {
            let (buffer, id) = self.create(bytes)?;
            return Ok(Region { buffer, id, offset: 0, bytes, used: false });
        }
        let mut slabs = self.lock();
        for slab in slabs.iter_mut() {
            if let Some(offset) = slab.take(bytes) {
                return Ok(Region { buffer: slab.buffer.clone(), id: slab.id, offset, bytes, used: true });
            }
        }
        let (buffer, id) = self.create(SLAB_BYTES.min(self.max_buffer & !(ALIGNMENT - 1)))?;
        let free = BTreeMap::from([(bytes, buffer.size() - bytes)]);
        slabs.push(Slab { buffer: buffer.clone(), id, free });
        Ok(Region { buffer, id, offset: 0, bytes, used: true })
    }

    /// Gives a region back. Says whether its buffer is gone, so that what refers to it can be let go.
    pub(super) fn give(&self, region: &Region) -> bool {
        let mut slabs = self.lock();
        let Some(index) = slabs.iter().position(|slab| slab.id == region.id) else {
            drop(slabs);
            self.allocated.fetch_sub(region.bytes, Ordering::Relaxed);
            return true;
        };
        slabs[index].give(region.offset, region.bytes);
        // One empty slab is kept: the next step will want it.
        let empty = |slab: &Slab| slab.free.get(&0) == Some(&slab.buffer.size());
        if !empty(&slabs[index]) || slabs.iter().filter(|slab| empty(slab)).count() < 2 {
            return false;
        }
        let slab = slabs.swap_remove(index);
        self.allocated.fetch_sub(slab.buffer.size(), Ordering::Relaxed);
        true
    }

    fn create(&self, size: u64) -> Result<(wgpu::Buffer, u64)> {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let descriptor = BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let scopes = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal]
            .map(|filter| self.device.push_error_scope(filter));
        let buffer = self.device.create_buffer(&descriptor);
        let mut failure = None;
        for scope in scopes.into_iter().rev() {
            failure = failure.or(pollster::block_on(scope.pop()));
        }
        if let Some(error) = failure {
            return Err(Error::DeviceFull { wanted: size, reason: error.to_string() });
        }
        self.allocated.fetch_add(size, Ordering::Relaxed);
        Ok((buffer, self.next.fetch_add(1, Ordering::Relaxed)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slab>> {
        self.slabs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slab {
    /// The first gap that is long enough.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (&offset, &length) = self.free.iter().find(|&(_, &length)| length >= bytes)?;
        self.free.remove(&offset);
        if length > bytes {
            self.free.insert(offset + bytes, length - bytes);
        }
        Some(offset)
    }

    fn give(&mut self, mut offset: u64, mut bytes: u64) {
        if let Some((&before, &length)) = self.free.range(..offset).next_back()
            && before + length == offset
        {
            self.free.remove(&before);
            offset = before;
            bytes += length;
        }
        if let Some(length) = self.free.remove(&(offset + bytes)) {
            bytes += length;
        }
        self.free.insert(offset, bytes);
    }
}
