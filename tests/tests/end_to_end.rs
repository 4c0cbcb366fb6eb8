//! End-to-end tests, one binary: real nodes, real clients, real components.

mod end_to_end {
    mod blobs;
    mod cancel;
    mod command_line;
    mod components;
    mod contract;
    mod data;
    mod devices;
    mod durability;
    mod fairness;
    mod hostile;
    mod jobs;
    mod memory;
    mod operations;
    mod params;
    mod server;
    mod soak;
    mod tenancy;
    mod train_local;
    mod tune;
    mod versions;
}
