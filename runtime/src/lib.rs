//! Weft: a WebAssembly function runtime for serverless machine-learning training.
//!
//! # Layout
//! In the order that a request meets them; `docs/architecture.md` says how they hang together.
//!
//! - [`server`]: sockets, TLS, timeouts, the orderly stop
//! - [`api`]: HTTP in, HTTP out; the only place that names a status
//! - [`node`]: every part put together, and what can be asked of it
//! - [`tenant`]: who is calling, what they may use, what they have used
//! - [`registry`]: uploads become versions of functions, compiled once
//! - [`catalog`]: uploads become data sets and models
//! - [`dataset`]: files in, shards and batches out
//! - [`model`]: what training leaves behind, as files that other tools open
//! - [`params`]: the parameter store: weights by name, exchanged between workers
//! - [`job`]: training jobs: workers, rounds, checkpoints, history
//! - [`study`]: many jobs, of which the best is looked for
//! - [`local`]: the same without a node, with files
//! - `weft-core`, the crate below: what jobs ask for and how what workers compute becomes one model; pure
//! - [`train`]: a trainer, a data set and a device in, a model out
//! - [`devices`]: what is computed on, leased call by call
//! - [`places`]: how many may do at once what takes a thread or a connection
//! - [`sandbox`]: compiled functions in, answers out, every limit in between
//! - [`host`]: the host side of `wit/`, one file per interface
//! - [`logs`], [`metrics`], [`backup`]: what is told, and what is kept
//! - [`meta`], [`blob`], [`data_dir`]: how it is kept
//! - [`config`]: what the operator sets
//! - [`cli`]: the verbs of the `weft` command; [`build`]: a crate becomes a component
//! - [`clock`], [`digest`], `locks`, [`names`], `seed`, `text`, [`units`]: small words used everywhere

pub mod api;
pub mod backup;
pub mod blob;
pub mod build;
pub mod catalog;
pub mod cli;
pub mod clock;
pub mod config;
pub mod data_dir;
pub mod dataset;
pub mod devices;
pub mod digest;
pub mod host;
pub mod job;
pub mod local;
mod locks;
pub mod logs;
pub mod meta;
pub mod metrics;
pub mod model;
pub mod names;
pub mod node;
pub mod params;
pub mod places;
pub mod registry;
pub mod resident;
pub mod sandbox;
mod seed;
pub mod server;
pub mod study;
pub mod tenant;
mod text;
pub mod train;
pub mod units;
