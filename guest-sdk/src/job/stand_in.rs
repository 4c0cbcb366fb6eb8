//! The host's side of `job` for tests that run natively.

use std::cell::Cell;

use super::Level;
use crate::Result;

thread_local! {
    // Per thread, and so per test: what one test draws does not shift the numbers of another.
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

pub fn log(level: Level, message: &str) {
    let level = match level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    };
    eprintln!("{level}: {message}");
}

pub fn id() -> String {
    "native".to_owned()
}

pub fn function_name() -> String {
    "native".to_owned()
}

pub fn function_version() -> String {
    format!("sha256:{:064}", 0)
}

pub fn seed() -> u64 {
    0
}

/// SplitMix64: a few operations, and good enough for a test.
pub fn random_u64() -> u64 {
    let drawn = DRAWN.get().wrapping_add(1);
    DRAWN.set(drawn);
    let mut bits = drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[expect(clippy::unnecessary_wraps, reason = "the host can refuse")]
pub fn random_bytes(length: u32) -> Result<Vec<u8>> {
    Ok((0..length).map(|_| random_u64() as u8).collect())
}

pub fn time_left() -> u64 {
    u64::MAX
}

pub fn should_stop() -> bool {
    false
}

pub fn step() -> u64 {
    0
}

pub fn epoch() -> u64 {
    0
}

pub fn learning_rate() -> f32 {
    0.0
}

pub fn worker() -> u32 {
    0
}

pub fn workers() -> u32 {
    1
}
