//! Training on this machine, without a node: a job of its own, whose keeper writes files.
//!
//! Workers, rounds, goals and checkpoints are those of any [`job`](crate::job); here is what a node does around them:
//!
//! - [`trainer`]: a sandbox, devices, and the trainer, compiled
//! - [`job`]: the job, tried out and then run
//! - [`output`]: where its model goes, and how files are written there
//! - [`keep`]: its epochs, models and checkpoints
//! - [`resume`]: going on from a checkpoint
//!
//! There are no tenants here, no queue, no record of jobs and no parameter store.

pub mod job;
pub mod keep;
pub mod output;
pub mod resume;
pub mod trainer;

pub use job::{LocalJob, PreparedJob};
pub use keep::{FileKeeper, Subject};
pub use output::{OutputError, OutputFiles};
pub use resume::{ResumeError, Resumed};
pub use trainer::{LocalTrainer, Place};
