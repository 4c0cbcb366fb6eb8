//! What Weft decides about training jobs, without doing any of it.
//!
//! Everything here is a pure function or a state machine: events in, actions out. Nothing waits, reads or writes, and no
//! dependency could: there is no wasmtime, no wgpu, no Redis and no HTTP below this crate. So every decision can be tried
//! by the thousand, with simulated losses, duplicates and clocks.
//!
//! # Layout
//! - [`spec`]: what can be asked of a job
//! - [`learning`]: goals, early stopping, the learning rate
//! - [`usage`], [`cost`]: what training takes, and what that costs
//! - [`plan`]: how many workers, how large, at what price, and why
//! - [`sync`]: how what workers compute becomes one model
//! - [`queue`]: which job may run next; [`tenant`]: whose it is
//! - [`throttle`]: what a function may compute, by its memory
//! - [`stay`]: whether a job that is over stays, or is deleted
//! - [`follow`]: when a job that follows its data set trains again
//! - [`standing`]: what a standing order starts for a data set that has grown
//! - [`suspects`]: which job takes its node with it
//! - [`tune`]: many jobs, one winner: which hyper-parameters to try next, and which trials to go on with
//! - `drawing`: what pictures are made of
//! - [`gaussian`]: what a function that was seen at a few points is likely to be elsewhere

pub mod cost;
mod drawing;
pub mod follow;
pub mod gaussian;
pub mod learning;
pub mod plan;
pub mod queue;
pub mod spec;
pub mod standing;
pub mod stay;
pub mod suspects;
pub mod sync;
pub mod tenant;
pub mod throttle;
pub mod tune;
pub mod usage;
