//! Data sets and models, one binary: what real libraries write and read, what is broken, what nobody would write, and
//! batches on devices.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod data {
    mod batches;
    mod broken;
    mod files;
    mod fuzz;
    mod memory;
    mod models;
    mod round_trips;
}
