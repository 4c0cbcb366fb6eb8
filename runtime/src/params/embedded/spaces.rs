//! The spaces of all tenants, which are there for as long as they hold something.
//!
//! Nobody creates a space or deletes one: one that is not there is empty. Whoever changes or watches a space has it made, and
//! takes it away again if he leaves it empty. So a name of a job takes memory only while there is something under it that
//! counts for the tenant, or somebody who waits for that.
//!
//! One exception: an empty space stays while the snapshot on disk may still hold values of it. Whoever clears it must find
//! it, so that a crash does not bring these back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

use tokio::sync::watch;

use super::state::State;
use crate::locks::SharedLock;
use crate::names::Name;
use crate::params::{ParamError, Space};
use crate::tenant::StoreId;

/// Parts of the map of tenants, each with a lock of its own.
const SHARDS: usize = 16;

/// The snapshot that was found at the start.
pub const FIRST_SNAPSHOT: u64 = 1;

type Shard = RwLock<HashMap<StoreId, BTreeMap<Option<Name>, Arc<Slot>>>>;

/// A space.
#[derive(Default)]
pub struct Slot {
    pub(super) state: RwLock<State>,
    changes: watch::Sender<u64>,
    /// The last snapshot that holds something of it; 0 if none does.
    held_by: AtomicU64,
}

pub struct Spaces {
    shards: [Shard; SHARDS],
    hasher: RandomState,
    /// Tenants that are gone, since the start.
    ended: RwLock<HashSet<StoreId>>,
    /// The last snapshot that was begun.
    begun: AtomicU64,
    /// The snapshot that is on disk, or one before it.
    on_disk: AtomicU64,
}

impl Slot {
    /// Tells whoever watches that something has changed.
    pub fn tell(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Notes that a snapshot holds something of it.
    pub fn note_snapshot(&self, snapshot: u64) {
        self.held_by.store(snapshot, Relaxed);
    }
}

impl Spaces {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Shard::default()),
            hasher: RandomState::new(),
            ended: RwLock::default(),
            begun: AtomicU64::new(FIRST_SNAPSHOT),
            on_disk: AtomicU64::new(FIRST_SNAPSHOT),
        })
    }

    fn shard(&self, tenant: &StoreId) -> &Shard {
        &self.shards[self.hasher.hash_one(tenant) as usize % SHARDS]
    }

    fn known(&self, space: &Space) -> Option<Arc<Slot>> {
        self.shard(&space.tenant).reading().get(&space.tenant)?.get(&space.job).cloned()
    }

    /// A space that is there, unless its tenant is gone.
    pub fn find(&self, space: &Space) -> Result<Option<Arc<Slot>>, ParamError> {
        match self.known(space) {
            None if self.ended.reading().contains(&space.tenant) => Err(ParamError::Ended),
            found => Ok(found),
        }
    }

    fn find_or_make(&self, space: &Space) -> Result<Arc<Slot>, ParamError> {
        if let Some(slot) = self.known(space) {
            return Ok(slot);
        }
        let mut shard = self.shard(&space.tenant).writing();
        // Looked up while the shard is locked: a tenant that ends is noted first, and then its spaces are taken away.
        if self.ended.reading().contains(&space.tenant) {
            return Err(ParamError::Ended);
        }
        Ok(shard.entry(space.tenant.clone()).or_default().entry(space.job.clone()).or_default().clone())
    }

    /// A space to be changed.
    pub fn visit<'a>(&'a self, space: &'a Space) -> Result<Visit<'a>, ParamError> {
        Ok(Visit { spaces: self, space, slot: self.find_or_make(space)? })
    }

    /// A space to be watched, for as long as the second part is there. The first part must go before it.
    pub fn watch(self: &Arc<Self>, space: &Space) -> Result<(watch::Receiver<u64>, Watched), ParamError> {
        let slot = self.find_or_make(space)?;
        Ok((slot.changes.subscribe(), Watched { spaces: self.clone(), space: space.clone(), slot }))
    }

    /// The spaces of a tenant that are there, in their order.
    pub fn of(&self, tenant: &StoreId) -> Vec<(Space, Arc<Slot>)> {
        self.shard(tenant).reading().get(tenant).map(|jobs| listed(tenant, jobs).collect()).unwrap_or_default()
    }

    /// All spaces that are there, a part of the tenants at a time.
    pub fn all(&self) -> impl Iterator<Item = (Space, Arc<Slot>)> {
        self.shards.iter().flat_map(|shard| {
            let shard = shard.reading();
            shard.iter().flat_map(|(tenant, jobs)| listed(tenant, jobs)).collect::<Vec<_>>()
        })
    }

    /// Takes all spaces of a tenant away for good.
    pub fn end(&self, tenant: &StoreId) -> Vec<Arc<Slot>> {
        self.ended.writing().insert(tenant.clone());
        let gone = self.shard(tenant).writing().remove(tenant);
        gone.map(|jobs| jobs.into_values().collect()).unwrap_or_default()
    }

    /// The number of a snapshot that is about to be made.
    pub fn begin_snapshot(&self) -> u64 {
        self.begun.fetch_add(1, Relaxed) + 1
    }

    /// A snapshot is on disk, in the place of any before it.
    pub fn snapshot_is_on_disk(&self, snapshot: u64) {
        self.on_disk.store(snapshot, Relaxed);
    }

    /// Takes a space away if it is empty, unless somebody has come to it.
    pub fn forget(&self, space: &Space, slot: &Arc<Slot>) {
        if !self.is_unused(slot) {
            return;
        }
        let mut shard = self.shard(&space.tenant).writing();
        let Some(jobs) = shard.get_mut(&space.tenant) else { return };
        let is_shown = jobs.get(&space.job).is_some_and(|shown| Arc::ptr_eq(shown, slot));
        // Two: the map's and ours. Nobody gets another while the map is locked.
        if is_shown && Arc::strong_count(slot) == 2 && self.is_unused(slot) {
            jobs.remove(&space.job);
            if jobs.is_empty() {
                shard.remove(&space.tenant);
            }
        }
    }

    fn is_unused(&self, slot: &Slot) -> bool {
        slot.state.reading().is_empty()
            && slot.changes.receiver_count() == 0
            && slot.held_by.load(Relaxed) < self.on_disk.load(Relaxed)
    }
}

fn listed<'a>(
    tenant: &'a StoreId,
    jobs: &'a BTreeMap<Option<Name>, Arc<Slot>>,
) -> impl Iterator<Item = (Space, Arc<Slot>)> + 'a {
    jobs.iter().map(|(job, slot)| (Space { tenant: tenant.clone(), job: job.clone() }, slot.clone()))
}

/// A space that somebody changes. If it is empty afterwards, it is forgotten.
pub struct Visit<'a> {
    spaces: &'a Spaces,
    space: &'a Space,
    slot: Arc<Slot>,
}

impl Deref for Visit<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.spaces.forget(self.space, &self.slot);
    }
}

/// A space that somebody watches. If it is empty afterwards, it is forgotten.
pub struct Watched {
    spaces: Arc<Spaces>,
    space: Space,
    slot: Arc<Slot>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.spaces.forget(&self.space, &self.slot);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::params::bucket::Keeping;
    use crate::params::embedded::Embedded;
    use crate::params::{Bucket, Expect, Fence, Key, Value};
    use crate::tenant::Account;

    fn key() -> Key {
        "a".parse().unwrap()
    }

    fn bucket(store: &Arc<Embedded>, job: u32, limit: u64) -> Bucket {
        let space = Space::of_job("tenant".parse().unwrap(), format!("job-{job}").parse().unwrap());
        Bucket::new(store.clone(), space, Account::new("params_bytes", limit, None))
    }

    #[tokio::test]
    async fn whoever_leaves_nothing_in_a_space_leaves_no_space() {
        let store = Embedded::in_memory();
        let (value, plain) = (|| Value::bytes(vec![1]), Keeping::default());
        for job in 0..100 {
            let (rich, poor) = (bucket(&store, job, 10_000), bucket(&store, job, 10));
            rich.delete(&[key()]).await.unwrap();
            rich.take(&[key()]).await.unwrap();
            rich.expire(&[key()], None).await.unwrap();
            rich.compare_and_set(key(), Expect::Version(7), value(), plain).await.unwrap_err();
            rich.fenced(Fence { claim: key(), epoch: 7 }).set(key(), value(), plain).await.unwrap_err();
            rich.wait_head(&key(), 0, Duration::ZERO).await.unwrap_err();
            poor.set(key(), value(), plain).await.unwrap_err();
            poor.increment(key(), 1).await.unwrap_err();
            poor.claimed(&key()).await.map(drop).unwrap_err();
            rich.clear().await.unwrap();
            rich.set(key(), value(), plain).await.unwrap();
            rich.delete(&[key()]).await.unwrap();
            rich.claimed(&key()).await.unwrap();
            rich.clear().await.unwrap();
            assert_eq!(store.spaces.all().count(), 0);
        }
    }

    #[tokio::test]
    async fn whoever_watches_an_empty_space_hears_of_its_first_value() {
        let store = Embedded::in_memory();
        let (here, there) = (bucket(&store, 1, 10_000), bucket(&store, 1, 10_000));
        let waiting = tokio::spawn(async move { here.wait_newer(&key(), 0, Duration::from_secs(60)).await });
        while store.spaces.all().count() == 0 {
            tokio::task::yield_now().await;
        }
        // Nobody takes the space away from under whoever watches it.
        there.delete(&[key()]).await.unwrap();
        there.set(key(), Value::bytes(vec![1]), Keeping::default()).await.unwrap();
        waiting.await.unwrap().unwrap();
        there.delete(&[key()]).await.unwrap();
        assert_eq!(store.spaces.all().count(), 0);
    }

    #[tokio::test]
    async fn an_empty_space_stays_until_no_snapshot_holds_values_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let account = Account::new("params_bytes", 10_000, None);
        let store = Embedded::open(folder.path(), |_| Some(account.clone())).unwrap();
        let bucket = bucket(&store, 1, 10_000);
        bucket.set(key(), Value::bytes(vec![1]), Keeping::default()).await.unwrap();
        crate::params::ParamStore::save(&*store).await.unwrap();
        bucket.delete(&[key()]).await.unwrap();
        assert_eq!(store.spaces.all().count(), 1);
        crate::params::ParamStore::save(&*store).await.unwrap();
        crate::params::ParamStore::collect(&*store).await.unwrap();
        assert_eq!(store.spaces.all().count(), 0);
    }
}
