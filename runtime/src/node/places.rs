//! Places for what takes a thread, a connection or memory for longer than a moment: so many on the node, and so many for one
//! tenant. Whoever finds none waits for `queue_timeout`, tenants in turn.

use std::sync::Arc;

use super::{InvokeFailure, Node};
use crate::catalog::CatalogError;
use crate::registry::Upload;
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

/// The gates of a node, but for that of instances.
pub(super) struct Places {
    uploads: Arc<Gate>,
    builds: Arc<Gate>,
    /// Requests that follow a log.
    followers: Arc<Gate>,
    /// Requests that wait for values.
    waits: Arc<Gate>,
    trials: Arc<Gate>,
    inferences: Arc<Gate>,
    exports: Arc<Gate>,
    openings: Arc<Gate>,
    answers: Arc<Gate>,
}

impl Places {
    pub(super) fn new(max_connections: u32) -> Self {
        let gate =
            |places, waiting_per_tenant| Gate::new(GateLimits { places, waiting: MAX_UPLOADS, waiting_per_tenant });
        // Whoever does not fit among those that hold a connection is told so at once. They have at most half of the
        // connections.
        let at_once = |places| Gate::new(GateLimits { places, waiting: 0, waiting_per_tenant: 0 });
        let most_followers = (max_connections / 2).max(1);
        Self {
            uploads: gate(MAX_UPLOADS, 64),
            builds: gate(MAX_BUILDS, 16),
            followers: at_once(most_followers),
            waits: at_once((most_followers / 2).max(1)),
            trials: gate(MAX_TRIALS, 64),
            inferences: gate(MAX_INFERENCES, 64),
            exports: gate(MAX_EXPORTS, 64),
            openings: gate(MAX_OPENINGS, 64),
            answers: gate(MAX_ANSWERS, 64),
        }
    }
}

impl Node {
    /// A place for a component to arrive in; waits while too many others do.
    pub async fn begin_upload(&self, tenant: &Tenant) -> Result<(Upload, Permit), InvokeFailure> {
        if self.is_draining() {
            return Err(InvokeFailure::Draining);
        }
        let permit = self.pass_gate(&self.places.uploads, tenant, MAX_UPLOADS_PER_TENANT).await?;
        let upload = self.registry.begin_upload(tenant.quota().upload_bytes).await?;
        Ok((upload, permit))
    }

    /// A place among those who follow a log.
    pub async fn begin_following(&self, tenant: &Tenant) -> Result<Permit, GateFull> {
        self.places.followers.enter(tenant.id, MAX_FOLLOWERS).await
    }

    /// A place among the requests that wait for values: a quarter of the connections, and half of that for one tenant.
    pub async fn begin_waiting(&self, tenant: &Tenant) -> Result<Permit, GateFull> {
        self.places.waits.enter(tenant.id, self.most_waiting()).await
    }

    /// Requests of one tenant that may wait for values at once.
    pub fn most_waiting(&self) -> u32 {
        (self.settings.max_connections / 8).clamp(1, MAX_PARAM_WAITS)
    }

    /// A place for an instance.
    pub(super) async fn enter(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(self.sandbox.gate(), tenant, tenant.quota().instances).await
    }

    /// A place and a thread to try a trainer out.
    pub(crate) async fn place_for_trial(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(&self.places.trials, tenant, MAX_TRIALS_PER_TENANT).await
    }

    /// A place and a thread for inference.
    pub(crate) async fn place_for_inference(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(&self.places.inferences, tenant, MAX_INFERENCES_PER_TENANT).await
    }

    /// A place and a thread to write a model in another format.
    pub(crate) async fn place_for_export(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(&self.places.exports, tenant, MAX_EXPORTS_PER_TENANT).await
    }

    /// A place and a thread to write a long answer.
    pub(crate) async fn place_for_answer(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(&self.places.answers, tenant, MAX_ANSWERS_PER_TENANT).await
    }

    /// A place and a thread to read the head of a model, or a manifest.
    pub(crate) async fn place_for_opening(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(&self.places.openings, tenant, MAX_OPENINGS_PER_TENANT).await
    }

    /// A place to make a data set or a model in.
    pub(super) async fn place_for_build(&self, tenant: &Tenant) -> Result<Permit, CatalogError> {
        let limit = self.settings.queue_timeout.0;
        let place = self.places.builds.enter_within(limit, tenant.id, MAX_BUILDS_PER_TENANT).await;
        Ok(place.ok_or(CatalogError::QueueTimeout(limit.as_millis()))??)
    }

    async fn pass_gate(&self, gate: &Arc<Gate>, tenant: &Tenant, allowed: u32) -> Result<Permit, InvokeFailure> {
        let limit = self.settings.queue_timeout.0;
        let place = gate.enter_within(limit, tenant.id, allowed).await;
        Ok(place.ok_or(InvokeFailure::QueueTimeout(limit.as_millis()))??)
    }
}
