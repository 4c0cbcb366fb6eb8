//! The run that a function is part of: its log, its randomness, how long it still has.
//!
//! Each of these is a call to the host. Off wasm, where there is no host, they have plain stand-ins (the log goes to
//! stderr, the generator counts from seed 0, time never runs out), so that a function's own tests run natively.
//!
//! There is no clock here: a run is to give the same answer again with the same seed.

use std::fmt::Arguments;
use std::time::Duration;

use crate::Result;

#[cfg(target_arch = "wasm32")]
use crate::bindings::weft::train::job as host;
#[cfg(not(target_arch = "wasm32"))]
mod stand_in;
#[cfg(not(target_arch = "wasm32"))]
use stand_in as host;

pub use crate::bindings::weft::train::job::Level;

/// Add a line to the function's log; [`info!`](crate::info) and its siblings format one.
pub fn log(level: Level, message: &str) {
    host::log(level, message);
}

/// What the logging macros expand to: text without arguments is passed on without being copied.
#[doc(hidden)]
pub fn log_arguments(level: Level, message: Arguments<'_>) {
    match message.as_str() {
        Some(text) => log(level, text),
        None => log(level, &message.to_string()),
    }
}

/// The id of this invocation, unique on the node.
pub fn id() -> String {
    host::id()
}

/// The name that the function was deployed under.
pub fn function_name() -> String {
    host::function_name()
}

/// The digest of the component that is running, `sha256:…`.
pub fn function_version() -> String {
    host::function_version()
}

/// The seed that all randomness of this run derives from.
pub fn seed() -> u64 {
    host::seed()
}

/// The next number of the run's seeded generator, uniform over all 64 bits.
pub fn random_u64() -> u64 {
    host::random_u64()
}

/// The next number of the run's seeded generator, uniform in `[0, 1)`.
///
/// ```
/// let drawn = weft_sdk::job::random_f64();
/// assert!((0.0..1.0).contains(&drawn));
/// ```
pub fn random_f64() -> f64 {
    unit_interval(random_u64())
}

/// The next `length` bytes of the run's seeded generator; more than the host gives in one call is a
/// [`Error::Quota`](crate::Error::Quota).
pub fn random_bytes(length: u32) -> Result<Vec<u8>> {
    host::random_bytes(length)
}

/// How long until the run is interrupted, by wall clock.
pub fn time_left() -> Duration {
    Duration::from_nanos(host::time_left())
}

/// Whether the caller has gone or the node is stopping. A long computation asks now and then and returns early, with
/// [`Error::Cancelled`](crate::Error::Cancelled) if it has nothing to show.
pub fn should_stop() -> bool {
    host::should_stop()
}

/// Training: how many steps were done before this one.
pub fn step() -> u64 {
    host::step()
}

/// Training: how many epochs were done before this one.
pub fn epoch() -> u64 {
    host::epoch()
}

/// Training: the learning rate of this step. The host applies it; few functions want to know.
pub fn learning_rate() -> f32 {
    host::learning_rate()
}

/// Training: which worker this is, counted from 0.
pub fn worker() -> u32 {
    host::worker()
}

/// Training: how many workers there are.
pub fn workers() -> u32 {
    host::workers()
}

/// As many bits as an `f64` below 1 holds exactly: rounding more of them could give 1 itself.
fn unit_interval(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Log a line at level `debug`, formatted like [`format!`].
#[macro_export]
macro_rules! debug {
    ($($message:tt)+) => {
        $crate::job::log_arguments($crate::job::Level::Debug, ::std::format_args!($($message)+))
    };
}

/// Log a line at level `info`, formatted like [`format!`].
///
/// ```
/// let loss = 0.25;
/// weft_sdk::info!("loss {loss:.3}");
/// ```
#[macro_export]
macro_rules! info {
    ($($message:tt)+) => {
        $crate::job::log_arguments($crate::job::Level::Info, ::std::format_args!($($message)+))
    };
}

/// Log a line at level `warn`, formatted like [`format!`].
#[macro_export]
macro_rules! warn {
    ($($message:tt)+) => {
        $crate::job::log_arguments($crate::job::Level::Warn, ::std::format_args!($($message)+))
    };
}

/// Log a line at level `error`, formatted like [`format!`].
#[macro_export]
macro_rules! error {
    ($($message:tt)+) => {
        $crate::job::log_arguments($crate::job::Level::Error, ::std::format_args!($($message)+))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_numbers_never_reach_one() {
        assert_eq!(unit_interval(0), 0.0);
        assert!(unit_interval(u64::MAX) < 1.0);
    }

    #[test]
    fn the_stand_in_gives_as_many_bytes_as_asked() {
        assert_eq!(random_bytes(13).map(|bytes| bytes.len()), Ok(13));
    }
}
