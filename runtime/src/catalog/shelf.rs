//! Things of tenants, by name: in memory as on disk.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock};

use crate::locks::SharedLock;
use crate::meta::{Batch, MetaError, Metadata, Record};
use crate::tenant::TenantId;

/// A record that belongs to a tenant and has a name there.
pub(super) trait Shelved: Record {
    fn tenant(&self) -> TenantId;

    fn name(&self) -> String;
}

/// The key of such a record.
pub(super) fn key(tenant: TenantId, name: &str) -> String {
    format!("{}/{name}", tenant.key())
}

type Things<T> = HashMap<TenantId, BTreeMap<String, Arc<T>>>;

/// All records of one kind.
pub(super) struct Shelf<T>(RwLock<Things<T>>);

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Shelved> Shelf<T> {
    pub(super) fn load(metadata: &Metadata) -> Result<Self, MetaError> {
        let shelf = Self::default();
        for thing in metadata.all::<T>()? {
            shelf.put(thing);
        }
        Ok(shelf)
    }

    /// Shows a record that was written.
    pub(super) fn put(&self, thing: T) -> Arc<T> {
        let thing = Arc::new(thing);
        self.0.writing().entry(thing.tenant()).or_default().insert(thing.name(), thing.clone());
        thing
    }

    pub(super) fn get(&self, tenant: TenantId, name: &str) -> Option<Arc<T>> {
        self.0.reading().get(&tenant)?.get(name).cloned()
    }

    /// Takes away a record that was deleted.
    pub(super) fn remove(&self, tenant: TenantId, name: &str) {
        if let Some(things) = self.0.writing().get_mut(&tenant) {
            things.remove(name);
        }
    }

    /// A tenant's things, by name.
    pub(super) fn of(&self, tenant: TenantId) -> Vec<Arc<T>> {
        self.0.reading().get(&tenant).map(|things| things.values().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn each(&self, tell: impl FnMut(&Arc<T>)) {
        self.0.reading().values().flat_map(BTreeMap::values).for_each(tell);
    }

    pub(super) fn deletion_of(&self, tenant: TenantId) -> Batch {
        self.of(tenant).iter().fold(Batch::default(), |batch, thing| batch.delete::<T>(thing.key()))
    }

    pub(super) fn forget(&self, tenant: TenantId) -> Vec<Arc<T>> {
        self.0.writing().remove(&tenant).map(|things| things.into_values().collect()).unwrap_or_default()
    }
}
