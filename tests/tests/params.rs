//! The parameter store: one suite for all backends, concurrency against a model, crashes.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

#[path = "data/memory.rs"]
mod memory;

mod params {
    mod backends;
    mod concurrent;
    mod crashes;
    mod held;
    mod model;
    mod redis;
    mod sending;
    mod snapshots;
    mod suite;
}
