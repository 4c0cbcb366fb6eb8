//! How one call is run: on how many threads, with which memory to work in, and until when.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use crate::crew::Crew;
use crate::error::Result;
use crate::heap::{Block, Heap};

mod busy;
mod cancel;
mod turn;
mod workers;

pub use cancel::{Cancel, Listener};
pub use turn::{Stint, Turn};
pub use workers::{PIECE, Pace};
use workers::{Tiles, Workers};

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
    /// Where the call shares its device with others. It is the device that sets this.
    pub turn: Option<&'a dyn Turn>,
}

impl Run<'_> {
    /// Runs `body` for each tile, on all threads where there is more than one tile.
    pub fn each(&self, tiles: usize, body: impl Fn(usize) + Sync) -> Result<()> {
        self.try_each(tiles, |tile| {
            body(tile);
            Ok(())
        })
    }

    /// Like [`Self::each`] with a body that can fail. The error of the first tile that failed is returned.
    pub fn try_each(&self, tiles: usize, body: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        self.workers(tiles, Tiles::Short, |_, tile| body(tile))
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

    /// Sets all elements.
    pub fn fill<T: Copy + Send + Sync>(&self, data: &mut [T], value: T) -> Result<()> {
        self.chunks(data, PIECE, |_, piece| piece.fill(value))
    }

    /// Like [`Self::each`]; every thread has `floats` of its own to work in, which hold anything at first.
    pub fn each_with(&self, tiles: usize, floats: usize, body: impl Fn(usize, &mut [f32]) + Sync) -> Result<()> {
        self.with_scratch(tiles, Tiles::Short, floats, |_, tile, scratch| {
            body(tile, scratch);
            Ok(())
        })
    }

    /// Like [`Self::try_each`] for tiles that may be long: their bodies step.
    pub fn paced(&self, tiles: usize, body: impl Fn(&mut Pace<'_>, usize) -> Result<()> + Sync) -> Result<()> {
        self.workers(tiles, Tiles::Long, body)
    }

    /// Like [`Self::ranges`] for ranges that may be long: their bodies step.
    pub fn paced_ranges(
        &self,
        count: usize,
        grain: usize,
        body: impl Fn(&mut Pace<'_>, Range<usize>) -> Result<()> + Sync,
    ) -> Result<()> {
        let grain = grain.max(1);
        self.paced(count.div_ceil(grain), |pace, tile| body(pace, tile * grain..count.min((tile + 1) * grain)))
    }

    /// Like [`Self::chunks`] for pieces that may be long: their bodies step.
    pub fn paced_chunks<T: Send>(
        &self,
        data: &mut [T],
        size: usize,
        body: impl Fn(&mut Pace<'_>, usize, &mut [T]) -> Result<()> + Sync,
    ) -> Result<()> {
        let parts = Parts::new(data);
        self.paced_ranges(parts.len(), size, |pace, range| {
            let index = range.start / size.max(1);
            // SAFETY: the ranges of different tiles do not overlap.
            body(pace, index, unsafe { parts.part(range) })
        })
    }

    /// Like [`Self::each_with`] for tiles that may be long: their bodies step.
    pub fn paced_with(
        &self,
        tiles: usize,
        floats: usize,
        body: impl Fn(&mut Pace<'_>, usize, &mut [f32]) -> Result<()> + Sync,
    ) -> Result<()> {
        self.with_scratch(tiles, Tiles::Long, floats, body)
    }

    fn with_scratch(
        &self,
        tiles: usize,
        length: Tiles,
        floats: usize,
        body: impl Fn(&mut Pace<'_>, usize, &mut [f32]) -> Result<()> + Sync,
    ) -> Result<()> {
        if tiles == 0 {
            return Ok(());
        }
        let workers = self.threads.clamp(1, tiles);
        // Threads must not write to one cache line.
        let stride = floats.next_multiple_of(16);
        let mut scratch = self.scratch(workers * stride)?;
        let parts = Parts::new(scratch.floats());
        self.workers(tiles, length, |pace, tile| {
            let start = pace.worker() * stride;
            // SAFETY: a worker has its index to itself, and runs one tile at a time.
            body(pace, tile, unsafe { parts.part(start..start + floats) })
        })
    }

    /// Memory to work in, counted like any other.
    pub fn scratch(&self, floats: usize) -> Result<Scratch> {
        self.heap.take(floats.saturating_mul(4)).map(|block| Scratch { block, floats })
    }

    /// Bodies run no tiles of their own: a thread has its place in one call only.
    fn workers(
        &self,
        tiles: usize,
        length: Tiles,
        body: impl Fn(&mut Pace<'_>, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let threads = self.threads.min(tiles);
        if threads <= 1 {
            return workers::alone(self.cancel, self.turn, tiles, body);
        }
        let workers = Workers::new(self.cancel, self.turn, threads, tiles, length, body);
        self.crew.run(threads, &|worker| workers.work(worker))?;
        if let Some(turn) = self.turn {
            turn.gathered();
        }
        workers.result()
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::workers::STRETCH;
    use super::*;
    use crate::device::cpu::Cpu;
    use crate::error::Error;
    use crate::threads::thread_time;

    /// Runs tiles on so many threads; the second failure of `wrong` is to lose against the first.
    fn run(threads: usize, tiles: usize, wrong: &[usize]) -> (Vec<usize>, Result<()>) {
        let (crew, cancel) = (Crew::new(threads), Cancel::default());
        let heap = Heap::new(Arc::new(Cpu::new()), 1 << 20);
        let run = Run { crew: &crew, threads, cancel: &cancel, heap: &heap, turn: None };
        let seen = Mutex::new(Vec::new());
        let result = run.try_each(tiles, |tile| {
            seen.lock().unwrap().push(tile);
            match wrong.contains(&tile) {
                true => Err(Error::argument("tile", format!("{tile}"))),
                false => Ok(()),
            }
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        (seen, result)
    }

    #[test]
    fn every_tile_is_run_once_however_many_threads_share_them() {
        for threads in [1, 2, 3, 4, 5, 12] {
            for tiles in [0, 1, 2, 3, 7, 64, 101] {
                let (seen, result) = run(threads, tiles, &[]);
                assert!(result.is_ok());
                assert_eq!(seen, (0..tiles).collect::<Vec<_>>(), "{threads} threads");
            }
        }
    }

    /// Counts what a call does with its turn.
    #[derive(Default)]
    struct Counted {
        entered: AtomicUsize,
        passed: AtomicUsize,
        left: AtomicUsize,
    }

    impl Turn for Counted {
        fn enter(&self, _: usize) -> Stint {
            self.entered.fetch_add(1, Ordering::SeqCst);
            Stint { time: thread_time(), since: Instant::now() }
        }

        fn pass(&self, _: &mut Stint) -> Result<()> {
            self.passed.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }

        fn leave(&self, _: usize, _: &mut Stint) {
            self.left.fetch_add(1, Ordering::SeqCst);
        }

        fn gathered(&self) {}
    }

    /// What one tile of so many steps, each of a whole stretch, does with its turn.
    fn one_tile(steps: usize) -> [usize; 3] {
        let (crew, cancel, turn) = (Crew::new(1), Cancel::default(), Counted::default());
        let heap = Heap::new(Arc::new(Cpu::new()), 1 << 20);
        let run = Run { crew: &crew, threads: 1, cancel: &cancel, heap: &heap, turn: Some(&turn) };
        run.paced(1, |pace, _| (0..steps).try_for_each(|_| pace.step(STRETCH))).unwrap();
        [&turn.entered, &turn.passed, &turn.left].map(|count| count.load(Ordering::SeqCst))
    }

    #[test]
    fn a_call_of_one_tile_takes_part_in_its_turn_only_if_it_is_long() {
        assert_eq!(one_tile(1), [0, 0, 0]);
        let [entered, passed, left] = one_tile(10);
        assert_eq!((entered, left), (1, 1));
        assert!(passed >= 4, "it gave way {passed} times");
    }

    #[test]
    fn a_tile_ends_in_the_middle_when_it_is_cancelled() {
        for threads in [1, 2] {
            let (crew, cancel) = (Crew::new(threads), Cancel::default());
            let heap = Heap::new(Arc::new(Cpu::new()), 1 << 20);
            let run = Run { crew: &crew, threads, cancel: &cancel, heap: &heap, turn: None };
            let steps = AtomicUsize::new(0);
            let result = run.paced(threads, |pace, _| {
                loop {
                    // Without an end unless it is stopped.
                    if steps.fetch_add(1, Ordering::SeqCst) == 100 {
                        cancel.cancel();
                    }
                    pace.step(STRETCH / 4)?;
                }
            });
            assert_eq!(result, Err(Error::Cancelled));
        }
    }

    #[test]
    fn pieces_cover_all_elements() {
        let cancel = Cancel::default();
        for count in [0, 1, PIECE, PIECE + 1, 3 * PIECE] {
            let mut next = 0;
            let mut pace = Pace::alone(&cancel);
            pace.pieces(count, |range| {
                assert_eq!(range.start, next);
                next = range.end;
            })
            .unwrap();
            assert_eq!(next, count);
        }
    }

    #[test]
    fn the_first_tile_that_fails_is_the_one_that_is_told() {
        for threads in 1..=4 {
            for _ in 0..50 {
                let (_, result) = run(threads, 60, &[7, 31, 45, 59]);
                let told = result.unwrap_err().to_string();
                assert!(told.contains('7'), "{threads} threads: {told}");
            }
        }
    }
}
