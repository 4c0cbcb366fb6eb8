//! What a node does by the clock: it writes the ledger and the logs to disk, and sweeps blobs that nobody needs.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Node;
use crate::logs::LINES_AT_A_TIME;
use crate::meta::MetaError;

/// How often the ledger and the logs are written to disk.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How often blobs that nobody needs are looked for: deletions that failed, deploys that did.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
/// How long a start waits until it is known what unfinished jobs need, and how often that is tried again afterwards.
/// Nothing is swept before it is known.
pub(super) const FIND_NEEDS: Duration = Duration::from_secs(10);
const FIND_NEEDS_EVERY: Duration = Duration::from_secs(60);

impl Node {
    /// Writes the ledger and all logs to disk.
    pub async fn flush(self: &Arc<Self>) -> Result<(), MetaError> {
        self.flush_up_to(usize::MAX).await
    }

    /// Writes the ledger and up to `lines` new log lines of each tenant to disk. Runs to its end, also when whoever asked
    /// for it goes away: what was written is noted.
    async fn flush_up_to(self: &Arc<Self>, lines: usize) -> Result<(), MetaError> {
        let node = self.clone();
        let flush = tokio::spawn(async move {
            let _flushing = node.flushing.lock().await;
            let collecting = node.clone();
            let collect = move || {
                let exists = |tenant| collecting.tenants.by_id(tenant).is_some();
                collecting.logs.unstored(lines, exists)
            };
            // Not on a thread that serves: there may be many lines.
            let collected = tokio::task::spawn_blocking(collect).await.unwrap_or(Err(MetaError::Interrupted));
            let written = match collected {
                Ok((batch, storing)) => {
                    let written = node.metadata.commit_with(batch, || node.tenants.usage_batch()).await;
                    storing.done(written.is_ok());
                    written
                }
                Err(error) => Err(error),
            };
            if written.is_err() {
                node.tenants.usage_was_not_written();
            }
            written
        });
        flush.await.unwrap_or(Err(MetaError::Interrupted))
    }
}

pub(super) async fn flush_periodically(node: Weak<Node>) {
    loop {
        tokio::time::sleep(FLUSH_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        if let Err(error) = node.flush_up_to(LINES_AT_A_TIME).await {
            tracing::error!(%error, "the ledger could not be written; trying again");
        }
    }
}

/// Finds out what unfinished jobs need where that could not be done when the node started.
pub(super) async fn find_needs(node: Weak<Node>) {
    loop {
        let Some(node) = node.upgrade().filter(|node| node.jobs.roster.unknown_needs() > 0) else { return };
        let unknown = node.jobs.roster.unknown_needs();
        tracing::warn!(unknown, "what jobs need cannot be read: nothing is swept until it can");
        node.jobs.roster.find_needs(FIND_NEEDS_EVERY).await;
        drop(node);
        tokio::time::sleep(FIND_NEEDS_EVERY).await;
    }
}

pub(super) async fn sweep_periodically(node: Weak<Node>) {
    let mut clock = tokio::time::interval(SWEEP_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is now; what is near was swept before anybody was served.
    if node.upgrade().is_some_and(|node| !node.blobs.is_remote()) {
        clock.tick().await;
    }
    loop {
        clock.tick().await;
        let Some(node) = node.upgrade() else { return };
        for tenant in node.tenants.list() {
            if let Err(error) = node.catalog.expire_uploads(&tenant).await {
                tracing::warn!(%error, "forgotten uploads could not be given up; trying again in an hour");
            }
        }
        match node.blobs.sweep().await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "blobs that nobody needs were deleted"),
            Err(error) => tracing::warn!(%error, "blobs could not be swept; trying again in an hour"),
        }
    }
}
