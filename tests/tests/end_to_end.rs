//! End-to-end tests, one binary: real nodes, real clients, real components.

mod end_to_end {
    mod cancel;
    mod contract;
    mod fairness;
    mod hostile;
    mod soak;
    mod versions;
}
