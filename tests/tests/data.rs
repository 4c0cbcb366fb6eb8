//! Files of data sets, one binary: what real libraries write, what is broken, and what nobody would write.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod data {
    mod broken;
    mod files;
    mod fuzz;
    mod memory;
    mod round_trips;
}
