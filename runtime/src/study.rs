//! Studies: many trials of a job, of which the best is looked for.
//!
//! What is tried, paused and stopped is decided by [`weft_core::tune`], which does nothing itself. A trial is a job like any
//! other, marked as a study's. What a study was told is kept before anything is done about it, and what is to be done
//! follows from the study and its jobs as they are: so a node that was killed has the study back from what it was told,
//! looks at the jobs that there are, and goes on.
//!
//! - [`record`]: what is kept and told
//! - [`live`]: a study as everybody may see it; `book`: what its followers are told
//! - [`roster`]: all studies of a node, in memory as on disk
//! - `submit`: how a study comes in, and what is refused; `declared`: the search that a function declares
//! - `driver`: what drives a study: `looking`: how its jobs are; `telling`: what it is told, kept and shown;
//!   `doing`: what is done about it
//! - `orders`: what else can be asked of a study

use std::sync::Arc;

use weft_core::spec::BadSpec;
use weft_core::tune::study::StudyError as NotTold;

use crate::host::bindings::weft::train::training::Description;
use crate::job::{JobError, Jobs};
use crate::meta::MetaError;
use crate::tenant::Tenant;
use weft_core::tune::space::Parameter;

mod book;
mod declared;
mod doing;
mod driver;
pub mod live;
mod looking;
mod orders;
pub mod record;
pub mod roster;
mod submit;
mod telling;

pub use book::StudyBook;
pub use declared::parameters;
pub use live::{LiveStudy, Shown};
pub use orders::{TellWords, Told};
pub use record::{KeptEvent, Outcome, Row, StudyRecord, TrialState, TuneEvent, TuneState};
pub use roster::StudyRoster;
pub use weft_core::tune::spec::TuneSpec;

/// Studies of one tenant.
pub const MAX_STUDIES: usize = 1_000;

/// The studies of a node: what they are, and what can be asked of them.
pub struct Studies {
    pub roster: StudyRoster,
    jobs: Arc<Jobs>,
}

impl Studies {
    pub fn new(roster: StudyRoster, jobs: Arc<Jobs>) -> Self {
        Self { roster, jobs }
    }

    /// The search that a function declares.
    pub async fn declared(&self, tenant: &Arc<Tenant>, function: &str) -> Result<Described, StudyError> {
        let description = self.jobs.describe(tenant, function).await?;
        Ok(Described { search: parameters(&description), description })
    }
}

/// What a function says of itself, and what of that can be searched.
pub struct Described {
    pub description: Description,
    pub search: Vec<Parameter>,
}

/// Why a study was not done what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error("there is no study `{0}`")]
    NotFound(String),
    #[error("study `{study}` has no trial {trial}")]
    NoTrial { study: String, trial: u32 },
    #[error("there is a study `{0}` already; choose another name, or delete it first")]
    Exists(String),
    /// What is wrong with which word.
    #[error(transparent)]
    Bad(#[from] BadSpec),
    #[error("the Idempotency-Key was used for another request (study `{0}`)")]
    OtherRequest(String),
    #[error("study `{name}` is {state}: {problem}")]
    Wrong { name: String, state: &'static str, problem: &'static str },
    #[error("{what} would exceed the tenant's `{name}` of {limit}")]
    Quota { name: &'static str, limit: u64, what: String },
    /// What a loop outside has told cannot be.
    #[error(transparent)]
    NotTold(#[from] NotTold),
    #[error("the tenant was deleted meanwhile")]
    TenantDeleted,
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error("no randomness for a seed: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("the study's driver has gone; the node's log says why")]
    Gone,
}

impl StudyError {
    fn wrong(record: &StudyRecord, problem: &'static str) -> Self {
        Self::Wrong { name: record.name.to_string(), state: record.state.word(), problem }
    }
}
