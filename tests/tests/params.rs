//! The parameter store: one suite for all backends, concurrency against a model, crashes.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod params {
    mod backends;
    mod concurrent;
    mod crashes;
    mod model;
    mod redis;
    mod sending;
    mod snapshots;
    mod suite;
}
