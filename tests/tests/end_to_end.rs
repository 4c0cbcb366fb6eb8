//! End-to-end tests, one binary: real nodes, real clients, real components.

mod end_to_end {
    mod command_line;
    mod components;
    mod durability;
    mod operations;
    mod server;
    mod tenancy;
}
