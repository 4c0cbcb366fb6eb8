//! Files of data sets, one binary: what real libraries write, what is broken, and what nobody would write.

mod data {
    mod broken;
    mod files;
    mod fuzz;
    mod memory;
    mod round_trips;
}
