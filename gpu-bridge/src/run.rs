//! How one call is run: on how many threads, with which memory to work in, and until when.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::crew::Crew;
use crate::error::{Error, Result};
use crate::heap::{Block, Heap};

/// A flag that stops work: kernels look at it per tile.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets work go on.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// What a kernel gets from its caller.
///
/// Work is cut into tiles by its size alone, never by the number of threads, and each tile is computed by one thread
/// from start to end: so the same inputs give the same bits however many threads there are.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub crew: &'a Crew,
    /// How many threads may work on this call, the caller's own among them.
    pub threads: usize,
    pub cancel: &'a Cancel,
    pub heap: &'a Arc<Heap>,
}

impl Run<'_> {
    /// Runs `body` for each tile, on all threads where there is more than one tile.
    pub fn each(&self, tiles: usize, body: impl Fn(usize) + Sync) -> Result<()> {
        self.workers(tiles, |_, tile| {
            body(tile);
            Ok(())
        })
    }

    /// Like [`Self::each`] with a body that can fail. The error of the first tile that failed is returned.
    pub fn try_each(&self, tiles: usize, body: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        self.workers(tiles, |_, tile| body(tile))
    }

    /// Runs `body` for consecutive ranges of at most `grain` out of `0..count`.
    pub fn ranges(&self, count: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) -> Result<()> {
        let grain = grain.max(1);
        self.each(count.div_ceil(grain), |tile| body(tile * grain..count.min((tile + 1) * grain)))
    }

    /// Runs `body` for consecutive pieces of `data`, each `size` long but for the last.
    pub fn chunks<T: Send>(&self, data: &mut [T], size: usize, body: impl Fn(usize, &mut [T]) + Sync) -> Result<()> {
        let parts = Parts::new(data);
        self.ranges(parts.len(), size, |range| {
            let index = range.start / size.max(1);
            // SAFETY: the ranges of different tiles do not overlap.
            body(index, unsafe { parts.part(range) });
        })
    }

    /// Like [`Self::each`]; every thread has `floats` of its own to work in, which hold anything at first.
    pub fn each_with(&self, tiles: usize, floats: usize, body: impl Fn(usize, &mut [f32]) + Sync) -> Result<()> {
        if tiles == 0 {
            return Ok(());
        }
        let workers = self.threads.clamp(1, tiles);
        // Threads must not write to one cache line.
        let stride = floats.next_multiple_of(16);
        let mut scratch = self.scratch(workers * stride)?;
        let parts = Parts::new(scratch.floats());
        self.workers(tiles, |worker, tile| {
            // SAFETY: a worker has its index to itself, and runs one tile at a time.
            body(tile, unsafe { parts.part(worker * stride..worker * stride + floats) });
            Ok(())
        })
    }

    /// Memory to work in, counted like any other.
    pub fn scratch(&self, floats: usize) -> Result<Scratch> {
        self.heap.take(floats * 4).map(|block| Scratch { block, floats })
    }

    fn workers(&self, tiles: usize, body: impl Fn(usize, usize) -> Result<()> + Sync) -> Result<()> {
        let threads = self.threads.min(tiles);
        if threads <= 1 {
            for tile in 0..tiles {
                self.cancel.check()?;
                body(0, tile)?;
            }
            return Ok(());
        }
        let next = AtomicUsize::new(0);
        let failure: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        self.crew.run(threads, &|worker| {
            loop {
                let tile = next.fetch_add(1, Ordering::Relaxed);
                if tile >= tiles {
                    return;
                }
                if let Err(error) = self.cancel.check().and_then(|()| body(worker, tile)) {
                    let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    if first.as_ref().is_none_or(|(earlier, _)| tile < *earlier) {
                        *first = Some((tile, error));
                    }
                    // No tile after this one can be the first to fail.
                    next.store(tiles, Ordering::Relaxed);
                }
            }
        })?;
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

/// Memory that a kernel works in, given back when dropped.
pub struct Scratch {
    block: Block,
    floats: usize,
}

impl Scratch {
    /// What it holds at first is undefined.
    pub fn floats(&mut self) -> &mut [f32] {
        crate::device::cpu::scratch_floats(&mut self.block, self.floats)
    }
}

/// A slice that several threads write to, each its own part.
pub struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are only handed out under the contract of `part`, which forbids overlap.
unsafe impl<T: Send> Sync for Parts<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub fn new(data: &'a mut [T]) -> Self {
        Self { start: data.as_mut_ptr(), len: data.len(), borrowed: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where an element lies, for writing to rows that interleave with those of other threads.
    ///
    /// # Safety
    /// What is written through it overlaps with no part and no other pointer's writes.
    pub unsafe fn pointer(&self, index: usize) -> *mut T {
        assert!(index < self.len, "an element lies inside its slice");
        // SAFETY: within bounds.
        unsafe { self.start.add(index) }
    }

    /// One part.
    ///
    /// # Safety
    /// No two parts that overlap live at the same time.
    #[expect(clippy::mut_from_ref, reason = "that is what parts are for; see the contract")]
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part lies inside its slice");
        // SAFETY: within bounds, just asserted; no overlap, by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
