//! The threads of a call: what each of them does until no tile is left.
//!
//! Loom explores this source too (`gpu-bridge/loom`): in all orders in which threads can meet, each tile is run exactly
//! once, and whoever waits is woken.

use std::ops::Range;
use std::sync::PoisonError;

use super::busy::{Busy, Count, wait_for_others};
use super::{Cancel, Stint, Turn};
use crate::error::{Error, Result};
use crate::threads::{AtomicUsize, Mutex, Ordering, SHARES};

/// Says that a thread works on tiles, until dropped.
struct Working<'a> {
    turn: &'a dyn Turn,
    worker: usize,
    stint: Stint,
}

impl<'a> Working<'a> {
    fn new(turn: &'a dyn Turn, worker: usize) -> Self {
        Self { turn, worker, stint: turn.enter(worker) }
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.turn.leave(self.worker, &mut self.stint);
    }
}

/// How many operations a thread does in a long tile before it looks up from its work: about a millisecond.
pub const STRETCH: usize = 1 << 22;

/// How many elements [`Pace::pieces`] hands out at a time. A multiple of every block in which kernels sum.
pub const PIECE: usize = 1 << 18;

/// One thread's way through the tiles of a call.
///
/// Most kernels cut their work into tiles of well under a millisecond. Where a tile can be longer, because of a large
/// attribute or a long row that must be summed in order, its kernel says with [`Pace::step`] how much it is about to do:
/// so it can be cancelled and gives way to others in the middle of a tile too.
pub struct Pace<'a> {
    cancel: &'a Cancel,
    turn: Option<&'a dyn Turn>,
    worker: usize,
    /// None before the thread has entered its turn, or where there is none to take.
    working: Option<Working<'a>>,
    /// Operations until the thread looks up next.
    left: usize,
}

impl<'a> Pace<'a> {
    fn new(cancel: &'a Cancel, turn: Option<&'a dyn Turn>, worker: usize) -> Self {
        Self { cancel, turn, worker, working: None, left: STRETCH }
    }

    /// Which of the call's threads it is: nobody else has this number meanwhile.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// To be called before so many operations. Every few million it looks at the cancel flag and gives way to others.
    #[inline(always)]
    pub fn step(&mut self, operations: usize) -> Result<()> {
        match self.left.checked_sub(operations) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.look_up(),
        }
    }

    /// Runs `body` for consecutive ranges that cover `0..count`, and steps before each. Where there is one piece only it
    /// does not step: that is for the tile to do.
    #[inline(always)]
    pub fn pieces(&mut self, count: usize, mut body: impl FnMut(Range<usize>)) -> Result<()> {
        if count <= PIECE {
            body(0..count);
            return Ok(());
        }
        for start in (0..count).step_by(PIECE) {
            let end = count.min(start + PIECE);
            self.step(end - start)?;
            body(start..end);
        }
        Ok(())
    }

    /// Like [`Self::pieces`] where nobody else steps: it steps before a single piece too.
    #[inline(always)]
    pub fn stepped(&mut self, count: usize, mut body: impl FnMut(Range<usize>)) -> Result<()> {
        if count <= PIECE {
            self.step(1 + count)?;
            body(0..count);
            return Ok(());
        }
        self.pieces(count, body)
    }

    /// Sets all elements, in pieces.
    pub fn fill<T: Copy>(&mut self, slice: &mut [T], value: T) -> Result<()> {
        self.pieces(slice.len(), |range| slice[range].fill(value))
    }

    /// One that only looks at the flag.
    #[cfg(test)]
    pub(crate) fn alone(cancel: &'a Cancel) -> Self {
        Self { cancel, turn: None, worker: 0, working: None, left: STRETCH }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self) -> Result<()> {
        self.enter();
        self.pass()
    }

    /// Takes part in the turn of the call from now on.
    fn enter(&mut self) {
        if self.working.is_none() {
            self.working = self.turn.map(|turn| Working::new(turn, self.worker));
        }
    }

    /// Stops here if the call is cancelled, waits if it is not its turn.
    fn pass(&mut self) -> Result<()> {
        self.left = STRETCH;
        self.cancel.check()?;
        self.working.as_mut().map_or(Ok(()), |working| working.turn.pass(&mut working.stint))
    }
}

/// Runs all tiles on the caller's thread.
pub fn alone<'a>(
    cancel: &'a Cancel,
    turn: Option<&'a dyn Turn>,
    tiles: usize,
    body: impl Fn(&mut Pace<'_>, usize) -> Result<()>,
) -> Result<()> {
    let mut pace = Pace::new(cancel, turn, 0);
    // Most calls of one tile are over before anybody could want them to give way: such a call takes part in its turn once
    // it has turned out to be long.
    if tiles > 1 {
        pace.enter();
    }
    for tile in 0..tiles {
        pace.pass()?;
        body(&mut pace, tile)?;
    }
    Ok(())
}

/// A call of several threads.
pub struct Workers<'a, F> {
    cancel: &'a Cancel,
    turn: Option<&'a dyn Turn>,
    length: Tiles,
    body: F,
    shares: Shares,
    first_failed: AtomicUsize,
    failure: Mutex<Option<(usize, Error)>>,
    busy: [Count; SHARES],
}

impl<'a, F: Fn(&mut Pace<'_>, usize) -> Result<()> + Sync> Workers<'a, F> {
    pub fn new(
        cancel: &'a Cancel,
        turn: Option<&'a dyn Turn>,
        threads: usize,
        tiles: usize,
        length: Tiles,
        body: F,
    ) -> Self {
        Self {
            cancel,
            turn,
            length,
            body,
            shares: Shares::new(tiles, threads),
            first_failed: AtomicUsize::new(tiles),
            failure: Mutex::new(None),
            busy: Default::default(),
        }
    }

    /// What each thread does; 0 is the caller.
    pub fn work(&self, worker: usize) {
        let mut pace = Pace::new(self.cancel, self.turn, worker);
        pace.enter();
        loop {
            // Before a tile is taken: one that waits has none in hand that others would have to wait for.
            let passed = pace.pass();
            let _busy = (self.length == Tiles::Long).then(|| Busy::new(&self.busy[worker % SHARES].0));
            let Some(tile) = self.shares.next(worker) else { break };
            // No tile after one that failed can be the first to fail.
            if tile > self.first_failed.load(Ordering::Relaxed) {
                continue;
            }
            if let Err(error) = passed.and_then(|()| (self.body)(&mut pace, tile)) {
                self.first_failed.fetch_min(tile, Ordering::Relaxed);
                let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(earlier, _)| tile < *earlier) {
                    *first = Some((tile, error));
                }
            }
        }
        if worker == 0 {
            wait_for_others(&self.busy, || pace.pass());
        }
    }

    /// The error of the first tile that failed, once all threads are done.
    pub fn result(self) -> Result<()> {
        match self.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

/// Whether the bodies of tiles step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tiles {
    Short,
    Long,
}

/// The tiles of a call, shared out between its threads.
///
/// Each thread starts with a share of its own, the same part of every call: what it wrote in one, it mostly reads in the
/// next, and it is still in its core's cache. Who has finished takes from the others.
struct Shares {
    tiles: usize,
    count: usize,
    /// How many tiles of each share are taken.
    taken: [Count; SHARES],
}

impl Shares {
    fn new(tiles: usize, threads: usize) -> Self {
        Self { tiles, count: threads.clamp(1, SHARES), taken: Default::default() }
    }

    fn share(&self, index: usize) -> Range<usize> {
        // Shares differ by one at most.
        let (each, more) = (self.tiles / self.count, self.tiles % self.count);
        let start = index * each + index.min(more);
        start..start + each + usize::from(index < more)
    }

    /// The next tile for a thread.
    fn next(&self, worker: usize) -> Option<usize> {
        (0..self.count).map(|other| (worker + other) % self.count).find_map(|index| {
            let share = self.share(index);
            let taken = &self.taken[index].0;
            // Most shares that others look at are empty, and looking does not take the line from its owner.
            if taken.load(Ordering::Relaxed) >= share.len() {
                return None;
            }
            let tile = taken.fetch_add(1, Ordering::Relaxed);
            (tile < share.len()).then(|| share.start + tile)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_tiles() {
        for threads in 1..20 {
            for tiles in 0..40 {
                let shares = Shares::new(tiles, threads);
                let all: Vec<usize> = (0..shares.count).flat_map(|index| shares.share(index)).collect();
                assert_eq!(all, (0..tiles).collect::<Vec<_>>());
            }
        }
    }
}
