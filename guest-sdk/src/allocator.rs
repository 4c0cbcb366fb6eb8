//! Memory for a function that lives for one call.
//!
//! Rust's own allocator begins by growing linear memory, and a grown memory costs the host two changes of page protection
//! per call, which every core of the node has to be told of. So the first allocations come from an arena that is part of
//! the memory's initial size. Nothing in it is reused, but for what was allocated last: the instance is gone after the
//! call. Once the arena is used up, Rust's own allocator takes over.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};

/// Untouched pages of it cost nothing.
const ARENA: usize = 128 << 10;

#[repr(align(16))]
struct Bytes(UnsafeCell<[u8; ARENA]>);

struct Allocator {
    arena: Bytes,
    used: Cell<usize>,
}

// SAFETY: a component has one thread.
unsafe impl Sync for Allocator {}

impl Allocator {
    fn start(&self) -> *mut u8 {
        self.arena.0.get().cast()
    }

    /// Where in the arena a pointer is, if it is there.
    fn offset(&self, pointer: *mut u8) -> Option<usize> {
        (pointer as usize).checked_sub(self.start() as usize).filter(|&offset| offset < ARENA)
    }

    /// Room in the arena for the layout, from `from` on.
    fn fit(&self, from: usize, layout: Layout) -> Option<usize> {
        let begin = (self.start() as usize + from).checked_next_multiple_of(layout.align())? - self.start() as usize;
        let end = begin.checked_add(layout.size()).filter(|&end| end <= ARENA)?;
        self.used.set(end);
        Some(begin)
    }
}

// SAFETY: blocks of the arena do not overlap, because `used` never goes below the end of a live one: only the block that
// ends at `used` is ever given back or resized in place. Everything else is the system's allocator.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.fit(self.used.get(), layout) {
            // SAFETY: `fit` answers offsets within the arena.
            Some(offset) => unsafe { self.start().add(offset) },
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match self.offset(pointer) {
            Some(offset) if offset + layout.size() == self.used.get() => self.used.set(offset),
            Some(_) => {}
            // SAFETY: not from the arena, so the system's allocator made it, with the same layout.
            None => unsafe { System.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(offset) = self.offset(pointer) else {
            // SAFETY: as in `dealloc`.
            return unsafe { System.realloc(pointer, layout, size) };
        };
        if size <= layout.size() {
            return pointer;
        }
        let is_last = offset + layout.size() == self.used.get();
        if is_last && offset.checked_add(size).is_some_and(|end| end <= ARENA) {
            self.used.set(offset + size);
            return pointer;
        }
        // SAFETY: the caller promises that `size`, rounded up to the alignment, does not overflow.
        let grown = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !grown.is_null() {
            // SAFETY: a new block of `size` > `layout.size()` bytes, apart from the old one.
            unsafe { std::ptr::copy_nonoverlapping(pointer, grown, layout.size()) };
        }
        grown
    }
}

impl Allocator {
    const fn new() -> Self {
        Self { arena: Bytes(UnsafeCell::new([0; ARENA])), used: Cell::new(0) }
    }
}

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new();

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    fn blocks_are_aligned_and_apart() {
        let allocator = Box::new(Allocator::new());
        // SAFETY: sizes are not 0, and each block is given back with its own layout or not at all.
        unsafe {
            let odd = allocator.alloc(Layout::from_size_align(3, 1).unwrap());
            let aligned = allocator.alloc(layout(8));
            assert_eq!(aligned as usize % 8, 0);
            assert!(aligned as usize >= odd as usize + 3);
        }
    }

    #[test]
    fn the_last_block_is_resized_in_place_and_given_back() {
        let allocator = Box::new(Allocator::new());
        // SAFETY: as above.
        unsafe {
            let block = allocator.alloc(layout(8));
            assert_eq!(allocator.realloc(block, layout(8), 64), block);
            allocator.dealloc(block, layout(64));
            assert_eq!(allocator.alloc(layout(16)), block);
        }
    }

    #[test]
    fn a_block_that_is_not_the_last_moves_with_its_contents() {
        let allocator = Box::new(Allocator::new());
        // SAFETY: as above; the first block's 8 bytes are written before they are read.
        unsafe {
            let first = allocator.alloc(layout(8));
            first.write_bytes(7, 8);
            allocator.alloc(layout(8));
            let moved = allocator.realloc(first, layout(8), 32);
            assert_ne!(moved, first);
            assert_eq!(std::slice::from_raw_parts(moved, 8), [7; 8]);
        }
    }

    #[test]
    fn what_does_not_fit_comes_from_the_system() {
        let allocator = Box::new(Allocator::new());
        // SAFETY: as above.
        unsafe {
            let large = allocator.alloc(layout(ARENA + 1));
            assert_eq!(allocator.offset(large), None);
            let larger = allocator.realloc(large, layout(ARENA + 1), 2 * ARENA);
            allocator.dealloc(larger, layout(2 * ARENA));
            let all = allocator.alloc(layout(ARENA));
            assert_eq!(allocator.offset(all), Some(0));
            let next = allocator.alloc(layout(1));
            assert_eq!(allocator.offset(next), None);
            allocator.dealloc(next, layout(1));
        }
    }
}
