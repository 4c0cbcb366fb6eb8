//! Tenants: who they are, what they may use, what they have used.
//!
//! A tenant has a name that people use, an id that records use and one that the parameter store uses, so that a new
//! tenant of a deleted one's name inherits nothing. Everything here is held in memory and written through to the metadata
//! store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use weft_gpu::share::Owner;

use crate::clock::unix_ms;
use crate::locks::{Lock, SharedLock};
use crate::meta::{Batch, MetaError, Metadata, Record};
use crate::names::Name;
use crate::sandbox::Share;

mod answering;
mod charged;
mod key;
mod memory;
mod quota;
mod rate;
mod storage;
mod store_id;
mod usage;

pub use answering::{Answering, Requests};
pub use charged::ChargedBytes;
pub use key::{Key, KeyHash, KeyId, Presented};
pub use memory::{Account, Charge, OverLimit};
pub use quota::{Quota, QuotaPatch};
pub use rate::RateLimiter;
pub use storage::{Reservation, Storage, StorageFull};
pub use store_id::{BadStoreId, StoreId};
pub use usage::{Ledger, Spent, TrainingUse, Usage};
pub use weft_core::tenant::TenantId;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct TenantRecord {
    id: TenantId,
    name: Name,
    created_ms: u64,
    quota: Quota,
    /// Records that are older than these ids have none.
    #[serde(default)]
    store: Option<StoreId>,
}

impl Record for TenantRecord {
    const TABLE: &'static str = "tenants";

    fn key(&self) -> String {
        self.id.key()
    }
}

#[derive(Serialize, Deserialize)]
struct UsageRecord {
    tenant: TenantId,
    usage: Usage,
}

impl Record for UsageRecord {
    const TABLE: &'static str = "usage";

    fn key(&self) -> String {
        self.tenant.key()
    }
}

/// Values in the parameter store whose tenant is gone, until they are gone too: whatever happens to the node in between.
#[derive(Serialize, Deserialize)]
struct EndedStore {
    store: StoreId,
}

impl Record for EndedStore {
    const TABLE: &'static str = "ended-stores";

    fn key(&self) -> String {
        self.store.to_string()
    }
}

/// Whose key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KeyOwner {
    Operator,
    Tenant(TenantId),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeyRecord {
    id: KeyId,
    hash: KeyHash,
    owner: KeyOwner,
    created_ms: u64,
}

impl Record for KeyRecord {
    const TABLE: &'static str = "keys";

    fn key(&self) -> String {
        self.id.as_str().to_owned()
    }
}

/// A tenant that is being served.
#[derive(Debug)]
pub struct Tenant {
    pub id: TenantId,
    pub name: Name,
    /// Whom turns, cores and devices know as the owner of its shares and leases: its id, never its name, so that a later
    /// tenant of that name owes nothing of what an earlier one used, and is not taken for it.
    pub owner: Owner,
    /// What it is called in the parameter store.
    pub store: StoreId,
    pub created_ms: u64,
    pub ledger: Ledger,
    /// Linear memory and bodies in flight.
    pub memory: Arc<Account>,
    /// What it has in the parameter store.
    pub params: Arc<Account>,
    /// What is known of its jobs.
    pub jobs: Arc<Account>,
    /// What is stored, whoever stores it.
    pub storage: Arc<Storage>,
    pub rate: RateLimiter,
    /// Those that are being answered.
    pub requests: Requests,
    /// Changes that are under way, whoever waits for them.
    pub changes: Requests,
    /// The usage that is on disk.
    stored_usage: Mutex<Usage>,
    /// Of CPU time, for its invocations.
    pub share: Arc<Share>,
    quota: RwLock<Arc<Quota>>,
    deleted: watch::Sender<bool>,
}

impl Tenant {
    fn new(record: TenantRecord, usage: &Usage, node_memory: Arc<Account>) -> Arc<Self> {
        let owner = Owner::from(record.id.key());
        Self::owning(owner, record, usage, node_memory)
    }

    fn owning(owner: Owner, record: TenantRecord, usage: &Usage, node_memory: Arc<Account>) -> Arc<Self> {
        let TenantRecord { id, name, created_ms, quota, store } = record;
        let share = Share::of_tenant(&owner);
        Arc::new(Self {
            id,
            owner,
            store: store.unwrap_or_else(|| StoreId::of_old_tenant(&name)),
            name,
            created_ms,
            ledger: Ledger::from_usage(usage),
            stored_usage: Mutex::new(usage.clone()),
            params: Account::new("params_bytes", quota.params_bytes, Some(node_memory.clone())),
            jobs: Account::new("job_bytes", quota.job_bytes, Some(node_memory.clone())),
            memory: Account::new("memory", quota.memory, Some(node_memory)),
            storage: Storage::new(quota.stored_bytes),
            rate: RateLimiter::new(quota.requests_per_second),
            requests: Requests::default(),
            changes: Requests::default(),
            share,
            quota: RwLock::new(Arc::new(quota)),
            deleted: watch::Sender::new(false),
        })
    }

    /// A tenant that exists only in this process, for local training, benchmarks and tests of the sandbox. It has no id of
    /// its own, and is known by its name.
    pub fn unregistered(name: Name, quota: Quota, node_memory: Arc<Account>) -> Arc<Self> {
        let owner = Owner::from(name.as_str());
        let record = TenantRecord { id: TenantId(0), name, created_ms: 0, quota, store: None };
        Self::owning(owner, record, &Usage::default(), node_memory)
    }

    pub fn quota(&self) -> Arc<Quota> {
        self.quota.reading().clone()
    }

    /// Whether it is gone, for whoever still holds it.
    pub fn is_deleted(&self) -> bool {
        *self.deleted.borrow()
    }

    /// Waits until the tenant is deleted: whatever is done for it ends then.
    pub async fn ended(&self) {
        // The sender is part of the tenant, so the wait cannot fail.
        self.deleted.subscribe().wait_for(|deleted| *deleted).await.ok();
    }

    /// Its ledger as it is now, for records that must not say more was used than the ledger does. For
    /// [`Metadata::commit_with`], so that an older one never takes its place.
    pub fn ledger_batch(&self) -> Result<Batch, MetaError> {
        Batch::default().put(&UsageRecord { tenant: self.id, usage: self.ledger.usage() })
    }

    fn record(&self) -> TenantRecord {
        TenantRecord {
            id: self.id,
            name: self.name.clone(),
            created_ms: self.created_ms,
            quota: Quota::clone(&self.quota()),
            store: Some(self.store.clone()),
        }
    }
}

/// Who is calling.
#[derive(Clone, Debug)]
pub enum Principal {
    Operator,
    Tenant(Arc<Tenant>),
    /// The only user of a node that runs with `--dev`: tenant and operator in one.
    Developer(Arc<Tenant>),
}

/// Why a change to the tenants was refused.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    #[error("there is no tenant `{0}`")]
    NotFound(String),
    #[error("there is a tenant `{0}` already")]
    Exists(Name),
    #[error("the tenant `{0}` has this `store` already")]
    StoreTaken(Name),
    #[error("the values in the `store` `{0}` are still being deleted, with the tenant that had it: try again later")]
    StoreEnding(StoreId),
    #[error("no randomness for a key: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error(transparent)]
    Meta(#[from] MetaError),
}

#[derive(Default)]
struct Directory {
    tenants: HashMap<TenantId, Arc<Tenant>>,
    by_name: HashMap<Name, TenantId>,
    keys: HashMap<KeyId, KeyRecord>,
}

/// All tenants of the node, and the keys that prove who is calling.
pub struct Tenants {
    metadata: Arc<Metadata>,
    memory: Arc<Account>,
    next_id: AtomicU64,
    directory: RwLock<Directory>,
    /// One change at a time: it is checked, written to disk, and then shown.
    changing: tokio::sync::Mutex<()>,
}

impl Tenants {
    pub fn load(metadata: Arc<Metadata>, memory: Arc<Account>) -> Result<Self, TenantError> {
        let usage: HashMap<TenantId, Usage> =
            metadata.all::<UsageRecord>()?.into_iter().map(|record| (record.tenant, record.usage)).collect();
        let mut directory = Directory::default();
        for record in metadata.all::<TenantRecord>()? {
            let used = usage.get(&record.id).cloned().unwrap_or_default();
            directory.by_name.insert(record.name.clone(), record.id);
            directory.tenants.insert(record.id, Tenant::new(record, &used, memory.clone()));
        }
        for key in metadata.all::<KeyRecord>()? {
            directory.keys.insert(key.id.clone(), key);
        }
        // Ids are never used again, not even a deleted tenant's: usage is kept, and the clock moves on.
        let highest = directory.tenants.keys().chain(usage.keys()).map(|id| id.0).max().unwrap_or(0);
        let next_id = AtomicU64::new(highest.max(unix_ms()) + 1);
        Ok(Self {
            metadata,
            memory,
            next_id,
            directory: RwLock::new(directory),
            changing: tokio::sync::Mutex::default(),
        })
    }

    fn directory(&self) -> std::sync::RwLockReadGuard<'_, Directory> {
        self.directory.reading()
    }

    fn change(&self, change: impl FnOnce(&mut Directory)) {
        change(&mut self.directory.writing());
    }

    /// Who holds this key; `None` for no key of ours.
    pub fn authenticate(&self, presented: &str) -> Option<Principal> {
        let key = Presented::parse(presented)?;
        let directory = self.directory();
        let Some(record) = directory.keys.get(key.id()) else {
            KeyHash::of_nobody().matches(&key);
            return None;
        };
        if !record.hash.matches(&key) {
            return None;
        }
        match record.owner {
            KeyOwner::Operator => Some(Principal::Operator),
            KeyOwner::Tenant(id) => directory.tenants.get(&id).cloned().map(Principal::Tenant),
        }
    }

    pub fn has_operator(&self) -> bool {
        self.directory().keys.values().any(|key| key.owner == KeyOwner::Operator)
    }

    /// Makes an operator key; earlier ones stop working.
    pub async fn issue_operator_key(&self) -> Result<Key, TenantError> {
        let _changing = self.changing.lock().await;
        self.replace_key(KeyOwner::Operator, Batch::default()).await
    }

    pub fn get(&self, name: &str) -> Result<Arc<Tenant>, TenantError> {
        let directory = self.directory();
        let id = directory.by_name.get(name).ok_or_else(|| TenantError::NotFound(name.to_owned()))?;
        directory.tenants.get(id).cloned().ok_or_else(|| TenantError::NotFound(name.to_owned()))
    }

    pub fn by_id(&self, id: TenantId) -> Option<Arc<Tenant>> {
        self.directory().tenants.get(&id).cloned()
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<Arc<Tenant>> {
        let mut tenants: Vec<_> = self.directory().tenants.values().cloned().collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        tenants
    }

    /// Makes a tenant. It shares the values of a tenant on another node if it is given that one's `store`.
    pub async fn create(
        &self,
        name: Name,
        quota: Quota,
        store: Option<StoreId>,
    ) -> Result<(Arc<Tenant>, Key), TenantError> {
        let _changing = self.changing.lock().await;
        if self.directory().by_name.contains_key(&name) {
            return Err(TenantError::Exists(name));
        }
        let store = store.map_or_else(StoreId::random, Ok)?;
        if let Some(owner) = self.directory().tenants.values().find(|tenant| tenant.store == store) {
            return Err(TenantError::StoreTaken(owner.name.clone()));
        }
        // What is still to be deleted for a tenant that is gone would be deleted from under the new one.
        if self.ended_stores()?.contains(&store) {
            return Err(TenantError::StoreEnding(store));
        }
        let id = TenantId(self.next_id.fetch_add(1, Relaxed));
        let record = TenantRecord { id, name: name.clone(), created_ms: unix_ms(), quota, store: Some(store) };
        let key = self.replace_key(KeyOwner::Tenant(id), Batch::default().put(&record)?).await?;
        let tenant = Tenant::new(record, &Usage::default(), self.memory.clone());
        self.change(|directory| {
            directory.by_name.insert(name, id);
            directory.tenants.insert(id, tenant.clone());
        });
        Ok((tenant, key))
    }

    /// A new key; the old one stops working at once.
    pub async fn rotate_key(&self, name: &str) -> Result<Key, TenantError> {
        let _changing = self.changing.lock().await;
        let tenant = self.get(name)?;
        self.replace_key(KeyOwner::Tenant(tenant.id), Batch::default()).await
    }

    pub async fn set_quota(&self, name: &str, patch: &QuotaPatch) -> Result<Arc<Tenant>, TenantError> {
        let _changing = self.changing.lock().await;
        let tenant = self.get(name)?;
        let mut record = tenant.record();
        record.quota.apply(patch);
        self.metadata.commit(Batch::default().put(&record)?).await?;
        tenant.memory.set_limit(record.quota.memory);
        tenant.params.set_limit(record.quota.params_bytes);
        tenant.jobs.set_limit(record.quota.job_bytes);
        tenant.storage.set_limit(record.quota.stored_bytes);
        *tenant.quota.writing() = Arc::new(record.quota);
        Ok(tenant)
    }

    /// Forgets the tenant and its keys, and ends whatever is done for it; `others` are further records that go in the same
    /// transaction. What it has used stays, and with it the knowledge that its id was given.
    pub async fn delete(&self, name: &str, others: Batch) -> Result<Arc<Tenant>, TenantError> {
        let _changing = self.changing.lock().await;
        let tenant = self.get(name)?;
        let keys = self.keys_of(KeyOwner::Tenant(tenant.id));
        let mut batch = others.delete::<TenantRecord>(tenant.id.key());
        batch = batch.put(&EndedStore { store: tenant.store.clone() })?;
        for key in &keys {
            batch = batch.delete::<KeyRecord>(key.as_str().to_owned());
        }
        self.metadata.commit_with(batch, || tenant.ledger_batch()).await?;
        self.change(|directory| {
            directory.by_name.remove(&tenant.name);
            directory.tenants.remove(&tenant.id);
            directory.keys.retain(|id, _| !keys.contains(id));
        });
        tenant.deleted.send_replace(true);
        Ok(tenant)
    }

    /// What deleted tenants may still have in the parameter store.
    pub fn ended_stores(&self) -> Result<Vec<StoreId>, MetaError> {
        Ok(self.metadata.all::<EndedStore>()?.into_iter().map(|ended| ended.store).collect())
    }

    /// Nothing of it is left.
    pub async fn store_is_gone(&self, store: &StoreId) -> Result<(), MetaError> {
        self.metadata.commit(Batch::default().delete::<EndedStore>(store.to_string())).await
    }

    /// What has changed in the ledger since the last time, for the next periodic write. For [`Metadata::commit_with`], as
    /// above.
    pub fn usage_batch(&self) -> Result<Batch, MetaError> {
        self.list().iter().try_fold(Batch::default(), |batch, tenant| {
            let usage = tenant.ledger.usage();
            let mut stored = tenant.stored_usage.locked();
            if *stored == usage {
                return Ok(batch);
            }
            *stored = usage.clone();
            batch.put(&UsageRecord { tenant: tenant.id, usage })
        })
    }

    /// The last batch did not reach the disk: the next one holds everything again.
    pub fn usage_was_not_written(&self) {
        for tenant in self.list() {
            *tenant.stored_usage.locked() = Usage::default();
        }
    }

    fn keys_of(&self, owner: KeyOwner) -> Vec<KeyId> {
        self.directory().keys.values().filter(|key| key.owner == owner).map(|key| key.id.clone()).collect()
    }

    async fn replace_key(&self, owner: KeyOwner, batch: Batch) -> Result<Key, TenantError> {
        let key = Key::generate()?;
        let old = self.keys_of(owner);
        let record = KeyRecord { id: key.id().clone(), hash: key.hash(), owner, created_ms: unix_ms() };
        let mut batch = batch.put(&record)?;
        for id in &old {
            batch = batch.delete::<KeyRecord>(id.as_str().to_owned());
        }
        self.metadata.commit(batch).await?;
        self.change(|directory| {
            directory.keys.retain(|id, _| !old.contains(id));
            directory.keys.insert(record.id.clone(), record);
        });
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_of_an_older_record_keeps_its_values_and_a_new_one_of_its_name_does_not_get_them() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Metadata::open(&folder.path().join("meta.redb")).unwrap();
        let mut old = serde_json::to_value(TenantRecord {
            id: TenantId(7),
            name: "ada".parse().unwrap(),
            created_ms: 0,
            quota: Quota::default(),
            store: None,
        })
        .unwrap();
        old.as_object_mut().unwrap().remove("store");
        let entry = crate::meta::Entry { table: "tenants".to_owned(), key: TenantId(7).key(), value: Some(old) };
        metadata.commit_blocking(vec![entry].into()).unwrap();
        let node = Account::new("max_memory", u64::MAX, None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let tenants = Tenants::load(metadata.clone(), node.clone()).unwrap();
            let first = tenants.get("ada").unwrap();
            assert_eq!(first.store.as_str(), "ada");
            tenants.delete("ada", Batch::default()).await.unwrap();
            first.ended().await;
            assert!(first.is_deleted());
            let (second, _) = tenants.create("ada".parse().unwrap(), Quota::default(), None).await.unwrap();
            assert_ne!(second.store, first.store);
            assert_ne!(second.owner, first.owner);
            assert!(!format!("{:?}{:?}", first.share, second.share).contains("ada"), "shares of CPU time by name");
            assert!(!second.is_deleted());
            // Remembered until it is done, and the id of a deleted tenant is known whatever the clock says.
            let again = Tenants::load(metadata.clone(), node).unwrap();
            assert_eq!(again.ended_stores().unwrap(), std::slice::from_ref(&first.store));
            again.store_is_gone(&first.store).await.unwrap();
            assert!(again.ended_stores().unwrap().is_empty());
            assert_eq!(again.get("ada").unwrap().store, second.store);
        });
    }

    #[test]
    fn a_store_that_is_still_being_deleted_is_not_given_again() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Metadata::open(&folder.path().join("meta.redb")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let tenants = Tenants::load(metadata, Account::new("max_memory", u64::MAX, None)).unwrap();
            let create = |name: &str, store| tenants.create(name.parse().unwrap(), Quota::default(), store);
            let (first, _) = create("ada", None).await.unwrap();
            tenants.delete("ada", Batch::default()).await.unwrap();
            let refused = create("bob", Some(first.store.clone())).await.err().unwrap();
            assert!(matches!(&refused, TenantError::StoreEnding(store) if *store == first.store), "{refused}");
            tenants.store_is_gone(&first.store).await.unwrap();
            assert_eq!(create("bob", Some(first.store.clone())).await.unwrap().0.store, first.store);
        });
    }
}
