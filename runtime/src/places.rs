//! Places for what takes a thread, a connection or memory for longer than a moment: so many on the node, and so many for one
//! tenant. Whoever finds none waits for `queue_timeout`, tenants in turn.

use std::sync::Arc;
use std::time::Duration;

use crate::sandbox::{Gate, GateFull, GateLimits, Permit};
use crate::tenant::Tenant;

/// Uploads on their way in at once, on the node and of one tenant.
const MAX_UPLOADS: u32 = 256;
const MAX_UPLOADS_PER_TENANT: u32 = 4;

/// Data sets that are built at once, on the node and for one tenant: each takes a thread and some megabytes.
const MAX_BUILDS: u32 = 8;
const MAX_BUILDS_PER_TENANT: u32 = 2;

/// Trainers that are tried out at once for submissions, on the node and of one tenant: each has a thread. Further ones are
/// queued untried.
const MAX_TRIALS: u32 = 16;
const MAX_TRIALS_PER_TENANT: u32 = 4;

/// Requests for inference that are computed at once, on the node and of one tenant: each has a thread.
const MAX_INFERENCES: u32 = 32;
const MAX_INFERENCES_PER_TENANT: u32 = 8;

/// Models that are written in another format at once, on the node and for one tenant: each takes a thread for as long as
/// its reader takes.
const MAX_EXPORTS: u32 = 64;
const MAX_EXPORTS_PER_TENANT: u32 = 8;

/// Models whose heads are read at once, and manifests of data sets, on the node and for one tenant: each takes a thread
/// for a moment, and memory.
const MAX_OPENINGS: u32 = 16;
const MAX_OPENINGS_PER_TENANT: u32 = 4;

/// Answers of more than 64 KiB that are written at once, on the node and for one tenant: each takes a thread for some
/// milliseconds.
const MAX_ANSWERS: u32 = 16;
const MAX_ANSWERS_PER_TENANT: u32 = 4;

/// Streams of one tenant's logs at once: each holds a connection for as long as it likes.
pub const MAX_FOLLOWERS: u32 = 64;

/// Requests of one tenant that wait for values at once: each holds a connection for up to a minute.
pub const MAX_PARAM_WAITS: u32 = 64;

/// Why there is no place.
#[derive(Debug, thiserror::Error)]
pub enum NoPlace {
    #[error("{0}")]
    Full(#[from] GateFull),
    #[error("no place became free within `queue_timeout` = {} ms", .0.as_millis())]
    TimedOut(Duration),
}

/// The gates of a node, but for that of instances.
pub struct Places {
    /// The longest that somebody waits for a place.
    patience: Duration,
    uploads: Arc<Gate>,
    builds: Arc<Gate>,
    /// Requests that follow a log.
    followers: Arc<Gate>,
    /// Requests that wait for values, and how many of them one tenant may have.
    waits: Arc<Gate>,
    most_waits: u32,
    trials: Arc<Gate>,
    inferences: Arc<Gate>,
    exports: Arc<Gate>,
    openings: Arc<Gate>,
    answers: Arc<Gate>,
}

impl Places {
    pub fn new(max_connections: u32, patience: Duration) -> Self {
        let gate =
            |places, waiting_per_tenant| Gate::new(GateLimits { places, waiting: MAX_UPLOADS, waiting_per_tenant });
        // Whoever does not fit among those that hold a connection is told so at once. They have at most half of the
        // connections.
        let at_once = |places| Gate::new(GateLimits { places, waiting: 0, waiting_per_tenant: 0 });
        let most_followers = (max_connections / 2).max(1);
        Self {
            patience,
            uploads: gate(MAX_UPLOADS, 64),
            builds: gate(MAX_BUILDS, 16),
            followers: at_once(most_followers),
            waits: at_once((most_followers / 2).max(1)),
            most_waits: (max_connections / 8).clamp(1, MAX_PARAM_WAITS),
            trials: gate(MAX_TRIALS, 64),
            inferences: gate(MAX_INFERENCES, 64),
            exports: gate(MAX_EXPORTS, 64),
            openings: gate(MAX_OPENINGS, 64),
            answers: gate(MAX_ANSWERS, 64),
        }
    }

    /// A place for a component to arrive in.
    pub async fn upload(&self, tenant: &Tenant) -> Result<Permit, NoPlace> {
        self.pass(&self.uploads, tenant, MAX_UPLOADS_PER_TENANT).await
    }

    /// A place to make a data set or a model in.
    pub async fn build(&self, tenant: &Tenant) -> Result<Permit, NoPlace> {
        self.pass(&self.builds, tenant, MAX_BUILDS_PER_TENANT).await
    }

    /// A place among those who follow a log.
    pub async fn follow(&self, tenant: &Tenant) -> Result<Permit, GateFull> {
        self.followers.enter(tenant.id, MAX_FOLLOWERS).await
    }

    /// A place among the requests that wait for values: a quarter of the connections, and half of that for one tenant.
    pub async fn wait(&self, tenant: &Tenant) -> Result<Permit, GateFull> {
        self.waits.enter(tenant.id, self.most_waits).await
    }

    /// Requests of one tenant that may wait for values at once.
    pub fn most_waits(&self) -> u32 {
        self.most_waits
    }

    /// A place and a thread to try a trainer out.
    pub async fn trial(&self, tenant: &Tenant) -> Result<Permit, NoPlace> {
        self.pass(&self.trials, tenant, MAX_TRIALS_PER_TENANT).await
    }

    /// A place and a thread for inference.
    pub async fn inference(&self, tenant: &Tenant) -> Result<Permit, NoPlace> {
        self.pass(&self.inferences, tenant, MAX_INFERENCES_PER_TENANT).await
    }

    /// A place and a thread to write a model in another format.
    pub async fn export(&self, tenant: &Tenant) -> Result<Permit, NoPlace> {
        self.pass(&self.exports, tenant, MAX_EXPORTS_PER_TENANT).await
    }

    /// A place and a thread to write a long answer.
    pub async fn answer(&self, tenant: &Tenant) -> Result<Permit, NoPlace> {
        self.pass(&self.answers, tenant, MAX_ANSWERS_PER_TENANT).await
    }

    /// A place and a thread to read the head of a model, or a manifest.
    pub async fn opening(&self, tenant: &Tenant) -> Result<Permit, NoPlace> {
        self.pass(&self.openings, tenant, MAX_OPENINGS_PER_TENANT).await
    }

    /// A place behind a gate that may be somebody else's, such as that of instances.
    pub async fn pass(&self, gate: &Arc<Gate>, tenant: &Tenant, allowed: u32) -> Result<Permit, NoPlace> {
        let place = gate.enter_within(self.patience, tenant.id, allowed).await;
        Ok(place.ok_or(NoPlace::TimedOut(self.patience))??)
    }
}
