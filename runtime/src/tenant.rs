//! Tenants: who they are, what they may use, what they have used.
//!
//! A tenant has a name that people use and an id that records use, so that a new tenant of a deleted one's name inherits
//! nothing. Everything here is held in memory and written through to the metadata store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

use serde::{Deserialize, Serialize};

use crate::clock::unix_ms;
use crate::locks::{Lock, SharedLock};
use crate::meta::{Batch, MetaError, Metadata, Record};
use crate::names::Name;
use crate::sandbox::Share;

mod key;
mod memory;
mod quota;
mod rate;
mod storage;
mod usage;

pub use key::{Key, KeyHash, KeyId};
pub use memory::{Account, Charge, OverLimit};
pub use quota::{Quota, QuotaPatch};
pub use rate::RateLimiter;
pub use storage::{Reservation, Storage, StorageFull};
pub use usage::{Ledger, Spent, TrainingUse, Usage};

/// What records call a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TenantId(pub u64);

impl TenantId {
    /// As the first part of a record's key: keys of one tenant sort together.
    pub fn key(self) -> String {
        format!("{:016x}", self.0)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct TenantRecord {
    id: TenantId,
    name: Name,
    created_ms: u64,
    quota: Quota,
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

/// Whose key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Owner {
    Operator,
    Tenant(TenantId),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeyRecord {
    id: KeyId,
    hash: KeyHash,
    owner: Owner,
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
    pub created_ms: u64,
    pub ledger: Ledger,
    /// Linear memory and bodies in flight.
    pub memory: Arc<Account>,
    /// What it has in the parameter store.
    pub params: Arc<Account>,
    /// What is stored, whoever stores it.
    pub storage: Arc<Storage>,
    pub rate: RateLimiter,
    /// The usage that is on disk.
    stored_usage: Mutex<Usage>,
    /// Of CPU time, for its invocations.
    pub share: Arc<Share>,
    quota: RwLock<Arc<Quota>>,
    deleted: AtomicBool,
}

impl Tenant {
    fn new(record: TenantRecord, usage: &Usage, node_memory: Arc<Account>) -> Arc<Self> {
        let TenantRecord { id, name, created_ms, quota } = record;
        Arc::new(Self {
            id,
            name,
            created_ms,
            ledger: Ledger::from_usage(usage),
            stored_usage: Mutex::new(usage.clone()),
            params: Account::new("params_bytes", quota.params_bytes, Some(node_memory.clone())),
            memory: Account::new("memory", quota.memory, Some(node_memory)),
            storage: Storage::new(quota.stored_bytes),
            rate: RateLimiter::new(quota.requests_per_second),
            share: Share::of_tenant(),
            quota: RwLock::new(Arc::new(quota)),
            deleted: AtomicBool::new(false),
        })
    }

    /// A tenant that exists only in this process, for benchmarks and tests of the sandbox.
    pub fn unregistered(name: Name, quota: Quota, node_memory: Arc<Account>) -> Arc<Self> {
        Self::new(TenantRecord { id: TenantId(0), name, created_ms: 0, quota }, &Usage::default(), node_memory)
    }

    pub fn quota(&self) -> Arc<Quota> {
        self.quota.reading().clone()
    }

    /// Whether it is gone, for whoever still holds it.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Relaxed)
    }

    fn record(&self) -> TenantRecord {
        TenantRecord {
            id: self.id,
            name: self.name.clone(),
            created_ms: self.created_ms,
            quota: Quota::clone(&self.quota()),
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
        let key = Key::parse(presented)?;
        let directory = self.directory();
        let Some(record) = directory.keys.get(key.id()) else {
            KeyHash::of_nobody().matches(&key);
            return None;
        };
        if !record.hash.matches(&key) {
            return None;
        }
        match record.owner {
            Owner::Operator => Some(Principal::Operator),
            Owner::Tenant(id) => directory.tenants.get(&id).cloned().map(Principal::Tenant),
        }
    }

    pub fn has_operator(&self) -> bool {
        self.directory().keys.values().any(|key| key.owner == Owner::Operator)
    }

    /// Makes an operator key; earlier ones stop working.
    pub async fn issue_operator_key(&self) -> Result<Key, TenantError> {
        let _changing = self.changing.lock().await;
        self.replace_key(Owner::Operator, Batch::default()).await
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

    pub async fn create(&self, name: Name, quota: Quota) -> Result<(Arc<Tenant>, Key), TenantError> {
        let _changing = self.changing.lock().await;
        if self.directory().by_name.contains_key(&name) {
            return Err(TenantError::Exists(name));
        }
        let id = TenantId(self.next_id.fetch_add(1, Relaxed));
        let record = TenantRecord { id, name: name.clone(), created_ms: unix_ms(), quota };
        let key = self.replace_key(Owner::Tenant(id), Batch::default().put(&record)?).await?;
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
        self.replace_key(Owner::Tenant(tenant.id), Batch::default()).await
    }

    pub async fn set_quota(&self, name: &str, patch: &QuotaPatch) -> Result<Arc<Tenant>, TenantError> {
        let _changing = self.changing.lock().await;
        let tenant = self.get(name)?;
        let mut record = tenant.record();
        record.quota.apply(patch);
        self.metadata.commit(Batch::default().put(&record)?).await?;
        tenant.memory.set_limit(record.quota.memory);
        tenant.params.set_limit(record.quota.params_bytes);
        tenant.storage.set_limit(record.quota.stored_bytes);
        *tenant.quota.writing() = Arc::new(record.quota);
        Ok(tenant)
    }

    /// Forgets the tenant and its keys; `others` are further records that go in the same transaction.
    pub async fn delete(&self, name: &str, others: Batch) -> Result<Arc<Tenant>, TenantError> {
        let _changing = self.changing.lock().await;
        let tenant = self.get(name)?;
        let keys = self.keys_of(Owner::Tenant(tenant.id));
        let mut batch = others.delete::<TenantRecord>(tenant.id.key());
        for key in &keys {
            batch = batch.delete::<KeyRecord>(key.as_str().to_owned());
        }
        self.metadata.commit(batch).await?;
        tenant.deleted.store(true, Relaxed);
        self.change(|directory| {
            directory.by_name.remove(&tenant.name);
            directory.tenants.remove(&tenant.id);
            directory.keys.retain(|id, _| !keys.contains(id));
        });
        Ok(tenant)
    }

    /// What has changed in the ledger since the last time, for the next periodic write.
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

    fn keys_of(&self, owner: Owner) -> Vec<KeyId> {
        self.directory().keys.values().filter(|key| key.owner == owner).map(|key| key.id.clone()).collect()
    }

    async fn replace_key(&self, owner: Owner, batch: Batch) -> Result<Key, TenantError> {
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
