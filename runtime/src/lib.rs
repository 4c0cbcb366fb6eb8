//! Weft: a WebAssembly function runtime for serverless machine-learning training.
//!
//! # Layout
//! In the order that a request meets them; `docs/architecture.md` says how they hang together.

pub mod clock;
pub mod digest;
pub mod host;
pub mod logs;
pub mod meta;
pub mod names;
pub mod sandbox;
pub mod tenant;
pub mod blob;
pub mod data_dir;
pub mod registry;
pub mod api;
pub mod config;
pub mod units;
pub mod backup;
pub mod cli;
pub mod server;
