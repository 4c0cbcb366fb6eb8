//! Puts the message of a panic in the function's log.
//!
//! Without it a panic is a bare trap: on wasm32-unknown-unknown the standard library has nowhere to print to. It needs
//! the import `job`; `#[function(silent_panics)]` leaves both out.

use crate::job::{self, Level};

/// Called first in every export. The closure captures nothing, so that this allocates nothing.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| job::log(Level::Error, &panic.to_string())));
}
