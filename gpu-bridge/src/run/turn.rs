//! A call's place among others on a shared device.

use std::time::Duration;

use crate::error::Result;
use crate::threads::Instant;

/// A call's place among others on a shared device: it gives way between tiles, and inside long ones.
pub trait Turn: Sync {
    /// A thread starts to work on tiles; 0 is the caller. Waits while it is not the call's turn.
    fn enter(&self, worker: usize) -> Stint;

    /// A thread is between two tiles, or looks up from a long one. Waits while it is not the call's turn.
    fn pass(&self, stint: &mut Stint) -> Result<()>;

    /// A thread finds no more tiles.
    fn leave(&self, worker: usize, stint: &mut Stint);

    /// All threads of the crew have left, and the caller goes on. What it waited for them is not work.
    fn gathered(&self);
}

/// What one thread does for a call, up to where its time was counted.
#[derive(Clone, Copy, Debug)]
pub struct Stint {
    /// The processor time of the thread then.
    pub time: Duration,
    pub since: Instant,
}
