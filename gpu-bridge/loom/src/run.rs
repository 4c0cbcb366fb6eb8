//! What stops a call, its place among others, and a caller that waits for its crew.

#[path = "../../src/run/busy.rs"]
mod busy;
#[path = "../../src/run/cancel.rs"]
mod cancel;
#[path = "../../src/run/turn.rs"]
mod turn;

pub use cancel::{Cancel, Listener};
pub use turn::{Stint, Turn};

use crate::error::Result;
use busy::{Busy, Count, wait_for_others};

/// The threads of a call that are in a tile.
#[derive(Default)]
pub struct Crowd([Count; 2]);

impl Crowd {
    /// What `Run::workers` has each thread of a call do, for so many tiles each.
    pub fn work(&self, turn: &dyn Turn, cancel: &Cancel, worker: usize, tiles: usize, tile: impl Fn()) -> Result<()> {
        let mut stint = turn.enter(worker);
        let mut result = Ok(());
        for _ in 0..tiles {
            result = cancel.check().and_then(|()| turn.pass(&mut stint));
            let _busy = Busy::new(&self.0[worker].0);
            if result.is_err() {
                break;
            }
            tile();
        }
        if worker == 0 {
            wait_for_others(&self.0, || cancel.check().and_then(|()| turn.pass(&mut stint)));
        }
        turn.leave(worker, &mut stint);
        result
    }
}
