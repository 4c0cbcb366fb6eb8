//! Tests of data sets that need more than one crate.

mod data {
    mod batches;
}
