//! Training jobs: a trainer, a data set, and workers that come and go.
//!
//! What can be asked of a job, and all that is decided without doing it, is in [`weft_core`].
//!
//! - [`brief`], [`workshop`]: what a job is, and where it runs
//! - [`record`]: what is kept and told
//! - [`events`]: what followers are told
//! - [`live`], [`roster`]: a job, running or not; all jobs of a node, in memory as on disk; `held`: what is kept for them beside
//!   their records
//! - [`facilities`]: what a node has for its jobs. Nothing here knows a node
//! - `submit`, `room`: how a job comes in, and what is refused because there can never be room for it
//! - `prepare`, `probe`: what it needs is found, and whether its trainer takes its data set is tried out
//! - `apart`: guest code that runs for a request, on threads of its own
//! - `schedule`, `run`: what starts jobs, and one from its start to its end
//! - [`following`]: jobs that wait for their data sets to grow
//! - [`standing`]: jobs that are started whenever a data set has grown
//! - `trial`: what a study asks of jobs that are its trials
//! - `suspects`: which job is on trial, as it may take its node with it
//! - `orders`, `scale`, `infer`: what else can be asked of a job; `planning`: what a node knows when one is planned
//! - `keep`: what a job comes to is kept; `accounting`: what it uses is added up and charged; `meter`: how far it is, and how fast
//! - [`engine`]: one running job: rounds, merges, validation, checkpoints; `reshape`: with other workers than before
//! - `directing`, `free`: what workers are told, with and without a barrier; `merging`, `replica`: what comes of it
//! - [`team`], `silence`: its workers, as [`sync`](weft_core::sync) wants them, and how long nothing was heard of them
//! - [`work_order`], [`contribution`], [`numbers`]: what a worker is told, and what it hands over, in memory and on a wire;
//!   `seam`: how both pass
//! - [`worker`], `worker_loop`, `fan_out`: one worker's thread, and the functions that a step is fanned out to
//! - [`exchange`], `scheme`, `encoding`: a worker's side of the exchange; [`channel`]: through what it goes
//! - [`model`]: the model in the host's memory, between rounds; `host_memory`: what all copies of it take
//! - [`checkpoint`]: everything that a continuation with the same bits needs, as one blob

use std::sync::atomic::Ordering::Relaxed;

mod accounting;
pub(crate) mod apart;
pub mod brief;
pub mod channel;
pub mod checkpoint;
pub mod contribution;
mod directing;
mod encoding;
pub mod engine;
pub mod events;
pub mod exchange;
pub mod facilities;
mod fan_out;
pub mod following;
mod free;
mod held;
mod host_memory;
mod infer;
mod keep;
pub mod live;
mod merging;
pub(crate) mod meter;
pub mod model;
pub mod numbers;
mod orders;
mod outputs;
mod planning;
mod prepare;
pub(crate) mod probe;
pub mod record;
mod replica;
mod reshape;
mod room;
pub mod roster;
mod run;
mod scale;
mod schedule;
mod scheme;
mod seam;
mod silence;
pub mod standing;
mod submit;
mod suspects;
pub mod team;
#[cfg(test)]
mod tests;
mod trial;
pub mod work_order;
pub mod worker;
mod worker_loop;
pub mod workshop;

pub use accounting::{Accounting, costs, total};
pub use events::EventBook;
pub(crate) use following::follow;
pub use live::{Judge, Live};
pub(crate) use prepare::device_and_codec;
pub use record::{EpochRecord, Job, JobEvent, PlanStep, Progress, Reshaped, State, TrialOf};
pub(crate) use room::check_shards;
pub use roster::Roster;
pub(crate) use schedule::schedule;
pub(crate) use standing::keep_orders;
pub use standing::{StandingOrder, StandingOrders};
pub(crate) use submit::made_up_name;
pub(crate) use trial::{AsTrial, tried_by};
pub use weft_core::spec::{BadSpec, JobSpec, RANGES};
pub use weft_core::usage::{Spending, Stages};

use facilities::Facilities;

use crate::devices::{NoDevice, is_busy};

/// The jobs of a node: what they are, and what can be asked of them.
pub struct Jobs {
    pub roster: Roster,
    pub standing: StandingOrders,
    facilities: Facilities,
}

impl Jobs {
    pub fn new(roster: Roster, standing: StandingOrders, facilities: Facilities) -> Self {
        // A job that is over may be one that an order has waited for.
        let standing = standing.woken_by(roster.ended.clone());
        Self { roster, standing, facilities }
    }

    /// Whether the node stops: then no job begins to run.
    fn is_stopping(&self) -> bool {
        self.facilities.host.stopping.load(Relaxed)
    }
}

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
    /// The trainer needs more memory than it was given.
    #[error("{0}")]
    OutOfMemory(String),
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
    Place(#[from] crate::places::NoPlace),
    #[error(transparent)]
    NoDevice(#[from] crate::devices::NoDevice),
    #[error("no device: {0}")]
    Device(#[from] weft_gpu::pool::PoolError),
    #[error(transparent)]
    Meta(#[from] crate::meta::MetaError),
    #[error(transparent)]
    Blob(#[from] crate::blob::BlobError),
    #[error(transparent)]
    Params(#[from] crate::params::ParamError),
    #[error(transparent)]
    Channel(#[from] channel::ChannelError),
    #[error(transparent)]
    Storage(#[from] crate::tenant::StorageFull),
    #[error(transparent)]
    Memory(#[from] crate::tenant::OverLimit),
    #[error("the outputs for these samples take more than `max_payload` = {0} bytes: send fewer samples at once")]
    LargeAnswer(u64),
    #[error("no randomness for a seed: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("{what}: {error}")]
    Io { what: &'static str, error: std::io::Error },
    /// What the node could not do for a trainer just then.
    #[error("{0}")]
    Passing(String),
}

impl JobError {
    /// Whether it may be gone when it is tried again: what was in the way is how the node is now, not the job. A job is not
    /// failed for that. Every error is named here, so that whoever adds one decides.
    pub fn passes(&self) -> bool {
        match self {
            Self::Device(error) | Self::NoDevice(NoDevice::Pool(error)) => is_busy(error),
            Self::Blob(error) => error.passes(),
            Self::Channel(error) => error.passes(),
            Self::Params(error) => error.passes(),
            Self::Registry(error) => error.passes(),
            Self::Catalog(error) => error.passes(),
            // Others may leave, but a limit does not grow by waiting.
            Self::Memory(over) => !over.never_fits(),
            Self::Place(_)
            | Self::NoDevice(NoDevice::Busy(_) | NoDevice::TimedOut(_))
            | Self::Meta(_)
            | Self::Io { .. }
            | Self::Randomness(_)
            | Self::Stopping
            | Self::Passing(_) => true,
            Self::NotFound(_)
            | Self::Exists(_)
            | Self::Bad(_)
            | Self::Refused(_)
            | Self::OutOfMemory(_)
            | Self::OtherRequest(_)
            | Self::Wrong { .. }
            | Self::Quota { .. }
            | Self::TenantDeleted
            | Self::Storage(_)
            | Self::LargeAnswer(_) => false,
        }
    }

    fn wrong(job: &Job, problem: &'static str) -> Self {
        Self::Wrong { name: job.name.to_string(), state: job.state.word(), problem }
    }
}
