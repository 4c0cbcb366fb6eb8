//! The threads of a call, what stops it, its place among others, and a caller that waits for its crew.

#[path = "../../src/run/busy.rs"]
mod busy;
#[path = "../../src/run/cancel.rs"]
mod cancel;
#[path = "../../src/run/turn.rs"]
mod turn;
#[path = "../../src/run/workers.rs"]
mod workers;

pub use cancel::{Cancel, Listener};
pub use turn::{Stint, Turn};
pub use workers::{PIECE, Pace, STRETCH, Tiles, Workers, alone};
