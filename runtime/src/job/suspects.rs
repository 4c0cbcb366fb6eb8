//! Which suspect is on trial, written down: [`weft_core::suspects`] says why.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::live::Live;
use super::roster::Roster;
use crate::clock::unix_ms;
use crate::locks::Lock;
use crate::meta::{Batch, MetaError, Record};
use crate::names::Name;
use crate::tenant::TenantId;

/// How long a suspect's blobs are waited for at first: none of its code runs before it has them, and the others wait.
pub(super) const FIRST_FIND: Duration = Duration::from_secs(5);

/// The suspect that is on trial, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Trial {
    tenant: TenantId,
    job: Name,
    began_ms: u64,
}

/// There is one at a time.
const KEY: &str = "now";

impl Record for Trial {
    const TABLE: &'static str = "trial";

    fn key(&self) -> String {
        KEY.to_owned()
    }
}

/// Nobody is on trial, as a record.
pub(super) fn no_trial() -> Batch {
    Batch::default().delete::<Trial>(KEY.to_owned())
}

impl Roster {
    /// Notes that a suspect is on trial, before any of its code runs.
    pub(super) async fn begin_trial(&self, live: &Live) -> Result<(), MetaError> {
        let job = live.job();
        let trial = Trial { tenant: job.tenant, job: job.name.clone(), began_ms: unix_ms() };
        self.metadata.commit(Batch::default().put(&trial)?).await
    }

    /// Ends a job's trial, if it is the one on trial: the next suspect may start.
    pub(super) async fn end_trial(&self, live: &Live) {
        let job = live.job();
        if !self.queue.locked().is_on_trial(job.tenant, job.name.as_str()) {
            return;
        }
        // On disk first: the next one must not be taken for this one.
        self.forget_trial().await;
        self.queue.locked().end_trial(job.tenant, job.name.as_str());
        self.look_through_queue();
    }

    async fn forget_trial(&self) {
        if let Err(error) = self.metadata.commit(no_trial()).await {
            tracing::error!(%error, "that a suspect's trial is over could not be written");
        }
    }

    /// Who was on trial when the node died.
    pub(super) fn last_trial(&self) -> Option<(TenantId, Name)> {
        let trials = self.metadata.all::<Trial>();
        let trials = trials.inspect_err(|error| tracing::error!(%error, "who was on trial cannot be read"));
        trials.ok()?.pop().map(|trial| (trial.tenant, trial.job))
    }
}
