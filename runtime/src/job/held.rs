//! What is held for a job that waits or runs, beside its record, and whose memory that is: the tenant's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crate::dataset::Manifest;
use crate::digest::Digest;
use crate::locks::Lock;
use crate::tenant::{Account, Charge, TenantId};

/// Something that spares work later, and is kept if there is room for it.
pub(super) struct Spare<T> {
    account: Arc<Account>,
    kept: Mutex<Option<(T, Charge)>>,
}

impl<T: Clone> Spare<T> {
    pub fn of(account: Arc<Account>) -> Self {
        Self { account, kept: Mutex::default() }
    }

    /// Keeps so many bytes of it in place of what was kept before, or nothing if there is no room. Half of all room is left
    /// to what cannot be done without.
    pub fn keep(&self, value: T, bytes: u64) {
        let mut kept = self.kept.locked();
        *kept = None;
        let mut charge = Charge::none(self.account.clone());
        if charge.grow_if_plenty(bytes) {
            *kept = Some((value, charge));
        }
    }

    pub fn forget(&self) {
        *self.kept.locked() = None;
    }

    pub fn get(&self) -> Option<T> {
        self.kept.locked().as_ref().map(|(value, _)| value.clone())
    }
}

/// The blocks of a data set, which must not be deleted. All jobs of a tenant that read them share one list.
pub(super) struct BlockList {
    digests: Vec<Digest>,
    _charge: Charge,
}

impl BlockList {
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }
}

/// The lists that there are, by whose they are and by the digest of the data set's manifest.
#[derive(Default)]
pub(super) struct BlockLists(Mutex<HashMap<(TenantId, Digest), Weak<BlockList>>>);

impl BlockLists {
    /// The list of a manifest. It is charged whatever the limit: without it, nothing at all could be deleted. A tenant that
    /// is over its limit gets no more jobs.
    pub fn of(&self, tenant: TenantId, version: Digest, manifest: &Manifest, account: &Arc<Account>) -> Arc<BlockList> {
        let mut lists = self.0.locked();
        if let Some(list) = lists.get(&(tenant, version)).and_then(Weak::upgrade) {
            return list;
        }
        lists.retain(|_, list| list.strong_count() > 0);
        let blocks = manifest.train.blocks.iter().chain(&manifest.test.blocks);
        let digests: Vec<Digest> = blocks.map(|block| block.digest).collect();
        let charge = Charge::whatever_the_limit(account.clone(), size_of_val(&digests[..]) as u64);
        let list = Arc::new(BlockList { digests, _charge: charge });
        lists.insert((tenant, version), Arc::downgrade(&list));
        list
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::dataset::{BlockRef, Features, Split, Statistics, Transform};

    /// A data set of these blocks.
    pub(in crate::job) fn manifest(blocks: &[Digest]) -> Manifest {
        let blocks = blocks.iter().map(|digest| BlockRef { digest: *digest, count: 1, bytes: 1 }).collect();
        Manifest {
            format: 1,
            features: Features::Sparse { columns: 1 },
            labels: None,
            class_names: Vec::new(),
            transform: Transform::None,
            statistics: Statistics::default(),
            train: Split { blocks, ..Split::default() },
            test: Split::default(),
            synthetic: None,
        }
    }

    #[test]
    fn what_finds_no_room_is_not_kept_and_what_is_forgotten_costs_nothing() {
        let account = Account::new("job_bytes", 200, None);
        let spare = Spare::of(account.clone());
        spare.keep("small", 60);
        assert_eq!((spare.get(), account.used()), (Some("small"), 60));
        spare.keep("other", 70);
        assert_eq!((spare.get(), account.used()), (Some("other"), 70));
        spare.keep("large", 101);
        assert_eq!((spare.get(), account.used()), (None, 0));
        spare.keep("small", 60);
        spare.forget();
        assert_eq!((spare.get(), account.used()), (None, 0));
    }

    #[test]
    fn jobs_of_a_tenant_share_the_list_of_a_data_sets_blocks() {
        let account = Account::new("job_bytes", 1, None);
        let (lists, version) = (BlockLists::default(), Digest::of(b"manifest"));
        let manifest = manifest(&[Digest::of(b"block"); 1_000]);
        let list = |tenant| lists.of(TenantId(tenant), version, &manifest, &account);
        let jobs: Vec<_> = (0..1_000).map(|_| list(1)).collect();
        let once = 1_000 * size_of::<Digest>() as u64;
        assert!((once..once + 1_000).contains(&account.used()), "{} bytes", account.used());
        assert!(jobs.iter().all(|list| Arc::ptr_eq(list, &jobs[0])) && !Arc::ptr_eq(&jobs[0], &list(2)));
        drop(jobs);
        assert_eq!(account.used(), 0);
        drop(list(1));
        assert_eq!(lists.0.locked().len(), 1, "those that nobody has any more are forgotten");
    }
}
