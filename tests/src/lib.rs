//! What the end-to-end tests and benchmarks share: nodes that are really started, clients that really connect, components
//! that are really built.
//!
//! - [`node`]: a `weft serve` process on a free port with a data directory of its own
//! - [`http`]: requests to it
//! - [`wire`]: connections to it, byte by byte
//! - [`jobs`]: training jobs on it
//! - [`bbob`]: functions to minimise, on which tuners are compared
//! - [`browser`]: a real browser that opens a page of the test's
//! - [`command`]: the command line
//! - [`held`]: requests that are given up before they are answered
//! - [`components`]: functions and guests of this repository, built once per test run
//! - [`exchange`]: workers that exchange without functions
//! - [`guests`]: components that no compiler would make
//! - [`python`]: a Python with numpy and its friends
//! - [`redis`]: real Redis servers
//! - [`s3`]: a real S3 server that can be made to misbehave
//! - [`sandbox`]: the sandbox without a server around it
//! - [`training`]: trainers without a server around them
//! - [`tunes`]: studies on a node

pub mod bbob;
pub mod browser;
pub mod command;
pub mod components;
pub mod exchange;
pub mod guests;
pub mod held;
pub mod http;
pub mod jobs;
pub mod node;
pub mod python;
pub mod redis;
pub mod s3;
pub mod sandbox;
pub mod training;
pub mod tunes;
pub mod wire;
