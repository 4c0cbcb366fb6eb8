//! Training jobs: a trainer, a data set, and workers that come and go.
//!
//! - [`spec`]: what can be asked for
//! - [`record`]: what is kept and told
//! - [`learning`]: goals, early stopping, the learning rate; pure
//! - [`events`]: what followers are told
//! - [`live`]: all jobs of a node, in memory as on disk
//! - `submit`, `probe`: how a job comes in, and whether its trainer takes its data set
//! - [`queue`]: which job may run; pure
//! - `run`: what starts jobs, and one from its start to its end
//! - `orders`, `infer`: what else can be asked of a node about a job
//! - `keep`: what a job comes to is kept
//! - [`engine`]: one running job: rounds, merges, validation, checkpoints
//! - [`team`]: its workers, as [`sync`](crate::sync) wants them
//! - [`worker`], `desk`: one worker's thread, and what it works with
//! - `common`, `fan`: what all workers of a job have in common, and the functions that a step is fanned out to
//! - [`model`]: the model in the host's memory, between rounds
//! - [`checkpoint`]: everything that a continuation with the same bits needs, as one blob
//! - [`cost`]: what was used becomes money
//!
//! What workers exchange, and when, is decided in [`sync`](crate::sync); here is what does it.

pub mod checkpoint;
pub mod common;
pub mod cost;
mod desk;
pub mod engine;
pub mod events;
mod fan;
mod infer;
mod keep;
pub mod learning;
pub mod live;
pub mod model;
mod orders;
mod probe;
pub mod queue;
pub mod record;
mod run;
pub mod spec;
mod submit;
pub mod team;
pub mod worker;

pub use crate::sync::Rule;
pub use events::EventBook;
pub use live::{Jobs, Live};
pub use record::{EpochRecord, Job, JobEvent, Progress, Spending, Stages, State};
pub use spec::{BadSpec, JobSpec};

/// Why a job was not done what was asked.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("there is no job `{0}`")]
    NotFound(String),
    #[error("there is a job `{0}` already; choose another name, or delete it first")]
    Exists(String),
    /// What is wrong with which word.
    #[error(transparent)]
    Bad(#[from] BadSpec),
    /// The trainer and the data set do not fit together.
    #[error("{0}")]
    Refused(String),
    #[error("the Idempotency-Key was used for another request (job `{0}`)")]
    OtherRequest(String),
    #[error("job `{name}` is {state}: {problem}")]
    Wrong { name: String, state: &'static str, problem: &'static str },
    #[error("{what} would exceed the tenant's `{name}` of {limit}")]
    Quota { name: &'static str, limit: u64, what: String },
    #[error("the node is stopping")]
    Stopping,
    #[error("the tenant was deleted meanwhile")]
    TenantDeleted,
    #[error(transparent)]
    Registry(#[from] crate::registry::RegistryError),
    #[error(transparent)]
    Catalog(#[from] crate::catalog::CatalogError),
    #[error(transparent)]
    Invoke(#[from] crate::node::InvokeFailure),
    #[error("no device: {0}")]
    Device(#[from] weft_gpu::pool::PoolError),
    #[error(transparent)]
    Meta(#[from] crate::meta::MetaError),
    #[error(transparent)]
    Blob(#[from] crate::blob::BlobError),
    #[error(transparent)]
    Storage(#[from] crate::tenant::StorageFull),
    #[error("no randomness for a seed: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("{what}: {error}")]
    Io { what: &'static str, error: std::io::Error },
}

impl JobError {
    fn wrong(job: &Job, problem: &'static str) -> Self {
        Self::Wrong { name: job.name.to_string(), state: job.state.word(), problem }
    }
}
