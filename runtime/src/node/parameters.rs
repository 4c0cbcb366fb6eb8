//! The node's parameter store: opened, kept, and given to tenants by the bucket.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;

use super::Node;
use crate::config::Settings;
use crate::data_dir::DataDir;
use crate::names::Name;
use crate::params::embedded::{Embedded, disk};
use crate::params::redis::{Incarnations, Link, PATIENCE, Redis};
use crate::params::{Bucket, ParamError, ParamStore};
use crate::tenant::{Account, StoreId, Tenant, Tenants};

/// How often what expired is looked for.
const COLLECT_EVERY: Duration = Duration::from_secs(10);

/// Stores of deleted tenants that are deleted at once: each may take as long as its server's patience.
const ENDED_AT_ONCE: usize = 64;

pub async fn open(settings: &Settings, data: &DataDir, tenants: &Tenants) -> anyhow::Result<Arc<dyn ParamStore>> {
    let Some(address) = settings.params_store.remote() else {
        let accounts: HashMap<StoreId, Arc<Account>> =
            tenants.list().into_iter().map(|tenant| (tenant.store.clone(), tenant.params.clone())).collect();
        return Ok(Embedded::open(&data.params(), |tenant| accounts.get(tenant).cloned())?);
    };
    let incarnations = Incarnations::open(&data.params().join("incarnations")).map_err(anyhow::Error::msg)?;
    let ca = Some(settings.params_ca_cert.as_path()).filter(|path| !path.as_os_str().is_empty());
    let link = Link::open(address, ca, PATIENCE).await;
    let store = Redis::connect(link.context("`params_store`")?, incarnations).await;
    Ok(store.context("`params_store`")?)
}

/// Saves and collects for as long as there is a node.
pub async fn keep(node: Weak<Node>) {
    let Some(every) = node.upgrade().map(|node| node.settings.params_snapshot_every.0) else { return };
    let (mut saving, mut collecting) = (tokio::time::interval(every), tokio::time::interval(COLLECT_EVERY));
    for clock in [&mut saving, &mut collecting] {
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        clock.reset();
    }
    loop {
        let Some(store) = node.upgrade().map(|node| node.params.clone()) else { return };
        let done = tokio::select! {
            _ = saving.tick() => store.save().await,
            () = store.save_is_due() => store.save().await,
            _ = collecting.tick() => {
                let end = async {
                    if let Some(node) = node.upgrade() {
                        node.end_stores().await;
                    }
                };
                // Side by side: what a deleted tenant had may be on a server that does not answer.
                tokio::join!(end, store.collect()).1.map(drop)
            }
        };
        if let Err(error) = done {
            tracing::error!(%error, "the parameter store could not be kept in order; trying again");
        }
    }
}

impl Node {
    /// The values of a job, or those that belong to none.
    pub fn bucket(&self, tenant: &Tenant, job: Option<Name>) -> Bucket {
        Bucket::of(self.params.clone(), tenant, job)
    }

    /// Deletes everything that a tenant has in the store, and accepts what was lost; says how many values there were.
    pub async fn clear_params(&self, tenant: &Tenant) -> Result<u64, ParamError> {
        // Whatever was lost would be gone by now in any case.
        self.params.accept_loss(&tenant.store).await?;
        let mut gone = 0;
        for space in self.params.spaces(&tenant.store).await? {
            gone += self.params.clear(&space).await?;
        }
        Ok(gone)
    }

    /// What was last saved of the node's own store, if it has one.
    pub fn params_snapshot(&self) -> std::io::Result<Option<File>> {
        if self.params.is_remote() {
            return Ok(None);
        }
        match File::open(disk::snapshot_path(&self.directory.params())) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes for good what deleted tenants had in the store. What cannot be deleted now, because a Redis is away say, is
    /// tried again, also after a restart; nobody has its id, so nobody sees it until then.
    async fn end_stores(&self) {
        let ended = match self.tenants.ended_stores() {
            Ok(ended) => ended,
            Err(error) => return tracing::error!(%error, "values of deleted tenants cannot be found"),
        };
        side_by_side(&ended, |store| self.end_store(store)).await;
    }

    /// Deletes for good what one deleted tenant had in the store, or leaves it to [`Self::end_stores`].
    pub(super) async fn end_store(&self, store: &StoreId) {
        if let Err(error) = self.params.end(store).await {
            tracing::error!(%error, %store, "values of a deleted tenant could not be deleted; trying again");
        } else if let Err(error) = self.tenants.store_is_gone(store).await {
            tracing::error!(%error, %store, "values of a deleted tenant are gone, which could not be written down");
        }
    }
}

/// Does the same for each, many at once: what takes long holds up few.
async fn side_by_side<'a, T, F: Future<Output = ()>>(each: &'a [T], work: impl Fn(&'a T) -> F) {
    futures_util::stream::iter(each).for_each_concurrent(ENDED_AT_ONCE, work).await;
}

#[cfg(test)]
mod tests {
    use tokio::sync::Barrier;

    use super::*;

    /// Each waits until all the others have begun: one after the other, none would end.
    #[tokio::test]
    async fn what_takes_long_does_not_hold_up_the_rest() {
        let (stores, all_have_begun) = ([(); ENDED_AT_ONCE], Barrier::new(ENDED_AT_ONCE));
        let work = side_by_side(&stores, |()| async { _ = all_have_begun.wait().await });
        tokio::time::timeout(Duration::from_secs(60), work).await.expect("one waits for the other");
    }
}
