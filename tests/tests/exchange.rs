//! What workers exchange: one suite for all channels, and all-reduces over each of them.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod exchange {
    mod backends;
    mod faults;
    mod reduce;
    mod suite;
}
