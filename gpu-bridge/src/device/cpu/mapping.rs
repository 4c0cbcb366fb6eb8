//! Memory that the system maps for one tensor.
//!
//! An allocator that is asked for zeros and has memory left from before writes them, and so takes every page of it at once.
//! What the system maps is zero as it is, and takes a page when that page is first used: gradients and moments of a worker
//! that has not begun take nothing. And it goes back when the tensor is dropped, whatever else the allocator keeps.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// From this size on, a mapping costs little beside what is done with the memory.
const WORTH_A_MAPPING: usize = 128 << 10;

/// From this size on, pages of 2 MiB are asked for: they are made, and found again, in a fraction of the time.
const WORTH_LARGE_PAGES: usize = 4 << 20;

/// Mappings at a time. The system has a limit for each process, some 65,000, and threads and instances need some too.
const MOST: usize = 1 << 14;

/// How many there are.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// Zeros, at the beginning of a page.
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is memory like any other, and says nothing of who may use it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Nothing if an allocator does as well, or the system gives no more.
    pub fn zeroed(bytes: usize) -> Option<Self> {
        if bytes < WORTH_A_MAPPING {
            return None;
        }
        let is_one_more = |mappings: usize| (mappings < MOST).then_some(mappings + 1);
        MAPPINGS.fetch_update(Relaxed, Relaxed, is_one_more).ok()?;
        // SAFETY: a new mapping, which nobody else knows of.
        let mapped =
            unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let Some(start) = mapped.ok().and_then(|start| NonNull::new(start.cast())) else {
            MAPPINGS.fetch_sub(1, Relaxed);
            return None;
        };
        let mapping = Self { start, bytes };
        if bytes >= WORTH_LARGE_PAGES {
            // SAFETY: it is this mapping, and its contents stay as they are. Without large pages it is as good.
            unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) }.ok();
        }
        Some(mapping)
    }

    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and whoever has used it is gone.
        unsafe { munmap(self.start.as_ptr().cast(), self.bytes) }.ok();
        MAPPINGS.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of this process that are in memory.
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    fn what_is_mapped_is_zero_and_takes_memory_only_when_it_is_used() {
        const BYTES: usize = 512 << 20;
        let before = resident();
        let mapping = Mapping::zeroed(BYTES).unwrap();
        assert!(resident() < before + BYTES / 2);
        // SAFETY: within the mapping, which nobody else has.
        let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.start().as_ptr(), BYTES) };
        assert!([0, 1, BYTES / 2, BYTES - 1].iter().all(|&at| bytes[at] == 0));
        bytes.fill(1);
        assert!(resident() > before + BYTES / 2);
        drop(mapping);
        assert!(resident() < before + BYTES / 2);
    }

    #[test]
    fn what_is_small_is_left_to_the_allocator() {
        assert!(Mapping::zeroed(0).is_none() && Mapping::zeroed(WORTH_A_MAPPING - 1).is_none());
        assert!(Mapping::zeroed(WORTH_A_MAPPING).is_some());
        assert!(Mapping::zeroed(usize::MAX).is_none(), "what cannot be is nothing, and no panic");
    }
}
