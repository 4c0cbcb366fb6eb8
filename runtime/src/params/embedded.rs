//! The store in the node's own memory: workers of a node share values without copying them.
//!
//! A space has one lock, held while names are looked up and changed, never while bytes are copied, merged or written.
//! Values are counted until the last reader lets go of them. What is on disk is a snapshot and a journal of what had to
//! be durable since; see [`disk`].
//!
//! A tenant that is deleted leaves nothing: its spaces are closed, so that whoever is in the middle of a change is refused
//! too, and none of its id is opened again. What is on disk of tenants that are gone is dropped at the next start.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::sync::{Mutex, watch};

use super::{
    Change, Changed, Entry, Form, Head, Key, MAX_CLAIMS, Moment, ParamError, ParamStore, Space, Value, Watch, Write,
    counted, counted_bytes,
};
use crate::locks::SharedLock;
use crate::tenant::{Account, Charge, StoreId};

mod copy;
pub mod disk;
pub mod frame;
mod journal;
mod saving;
mod spaces;
mod state;

use disk::Disk;
use frame::Record;
use spaces::{Slot, Spaces};
use state::{Claim, State, Stored};

pub struct Embedded {
    spaces: Arc<Spaces>,
    /// The last version or epoch that was given out.
    clock: AtomicU64,
    /// Whether something changed since the last snapshot began.
    changed: AtomicBool,
    /// Held by whoever saves, until the snapshot is in its place.
    saving: Arc<Mutex<()>>,
    disk: Option<Arc<Disk>>,
    /// The store itself, for work that goes on when whoever asked for it has gone away.
    this: Weak<Self>,
}

impl Embedded {
    /// A store that keeps nothing.
    pub fn in_memory() -> Arc<Self> {
        Self::new().shared()
    }

    /// A store that finds what it had when it was last opened in this folder. `account` says who pays for a tenant; what
    /// belongs to a tenant that is gone is dropped.
    pub fn open(
        folder: &Path,
        account: impl Fn(&StoreId) -> Option<Arc<Account>>,
    ) -> Result<Arc<Self>, disk::DiskError> {
        let (disk, found) = Disk::open(folder)?;
        let store = Self::new();
        let mut dropped = false;
        for (index, record) in found.records.into_iter().enumerate() {
            dropped |= !store.replay(record, index < found.in_snapshot, &account);
        }
        store.clock.store(found.clock, Relaxed);
        // One snapshot is to take the place of the journals, and of what was dropped.
        store.changed.store(found.journals || dropped, Relaxed);
        Ok(Self { disk: Some(Arc::new(disk)), ..store }.shared())
    }

    fn new() -> Self {
        Self {
            spaces: Spaces::new(),
            clock: AtomicU64::new(0),
            changed: AtomicBool::new(false),
            saving: Arc::default(),
            disk: None,
            this: Weak::new(),
        }
    }

    fn shared(self) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { this: this.clone(), ..self })
    }

    /// Applied unless something newer is there: journal and snapshot may both know it. `false` if its tenant is gone.
    fn replay(&self, record: Record, in_snapshot: bool, account: &impl Fn(&StoreId) -> Option<Arc<Account>>) -> bool {
        let space = match &record {
            Record::Put { space, .. }
            | Record::Delete { space, .. }
            | Record::Claim { space, .. }
            | Record::Clear { space, .. } => space,
            Record::Clock { .. } | Record::Begin { .. } => return true,
        };
        let space = space.clone();
        let (Some(account), Ok(slot)) = (account(&space.tenant), self.spaces.visit(&space)) else { return false };
        if in_snapshot {
            slot.note_snapshot(spaces::FIRST_SNAPSHOT);
        }
        let mut state = slot.state.writing();
        match record {
            Record::Claim { claim, epoch, .. } => {
                if state.claims.get(&claim).is_none_or(|known| known.epoch < epoch) {
                    let charge = Charge::whatever_the_limit(account, counted(&claim, 0));
                    state.claims.insert(claim, Claim { epoch, _charge: charge });
                }
            }
            Record::Put { key, mut entry, durable, .. } => {
                if state.get(&key).is_none_or(|stored| stored.entry.version <= entry.version) {
                    let bytes = counted(&key, entry.value.stored_bytes());
                    entry.value.data = counted_bytes(entry.value.data, Charge::whatever_the_limit(account, bytes));
                    state.put(key, Stored { entry, durable });
                }
            }
            Record::Delete { key, version, .. } => {
                if state.get(&key).is_some_and(|stored| stored.entry.version < version) {
                    state.remove(&key);
                }
            }
            Record::Clear { version, .. } => state.clear_up_to(version),
            Record::Clock { .. } | Record::Begin { .. } => {}
        }
        true
    }

    fn next_version(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed) + 1
    }

    /// Waits until what was put into the journal is on disk.
    async fn flushed(&self, pending: Option<journal::Pending>) -> Result<(), ParamError> {
        match pending {
            Some(pending) => pending.await.map_err(|error| ParamError::Unavailable(error.to_string())),
            None => Ok(()),
        }
    }

    fn journal(&self, records: Vec<Record>) -> Option<journal::Pending> {
        let disk = self.disk.as_ref().filter(|_| !records.is_empty())?;
        Some(disk.append(records))
    }
}

/// What a change will be, once every check has held.
enum Planned {
    Put { value: Value, expires: Option<Moment>, told: bool },
    Delete { told: bool },
    Expire(Option<Moment>),
}

#[async_trait]
impl ParamStore for Embedded {
    async fn read(
        &self,
        space: &Space,
        _account: &Arc<Account>,
        keys: &[Key],
    ) -> Result<Vec<Option<Entry>>, ParamError> {
        let Some(slot) = self.spaces.find(space)? else { return Ok(vec![None; keys.len()]) };
        let (state, now) = (slot.state.reading(), Moment::now());
        Ok(keys.iter().map(|key| state.live(key, now).map(|stored| stored.entry.clone())).collect())
    }

    async fn read_range(
        &self,
        space: &Space,
        account: &Arc<Account>,
        key: &Key,
        range: Range<u64>,
    ) -> Result<Option<Entry>, ParamError> {
        let Some(mut entry) = self.read(space, account, std::slice::from_ref(key)).await?.pop().flatten() else {
            return Ok(None);
        };
        let bytes = entry.value.data.len() as u64;
        if range.start > range.end || range.end > bytes {
            return Err(ParamError::BadRange { key: key.clone(), range, bytes });
        }
        entry.value =
            Value { form: Form::Bytes, data: entry.value.data.slice(range.start as usize..range.end as usize) };
        Ok(Some(entry))
    }

    async fn heads(&self, space: &Space, keys: &[Key]) -> Result<Vec<Option<Head>>, ParamError> {
        let Some(slot) = self.spaces.find(space)? else { return Ok(vec![None; keys.len()]) };
        let (state, now) = (slot.state.reading(), Moment::now());
        Ok(keys.iter().map(|key| state.live(key, now).map(|stored| stored.entry.head())).collect())
    }

    async fn write(&self, space: &Space, account: &Arc<Account>, mut write: Write) -> Result<Vec<Changed>, ParamError> {
        write.check()?;
        let now = Moment::now();
        let mut planned = Vec::with_capacity(write.changes.len());
        let mut sums = Vec::new();
        for (key, change) in std::mem::take(&mut write.changes) {
            let moment = |span: Option<std::time::Duration>| span.map(|span| now.after(span));
            let paid = |value: Value| -> Result<Value, ParamError> {
                let mut charge = Charge::none(account.clone());
                charge.grow(counted(&key, value.stored_bytes()))?;
                Ok(Value { data: counted_bytes(value.data, charge), ..value })
            };
            let plan = match change {
                Change::Set { value, expires } => {
                    Planned::Put { value: paid(value)?, expires: moment(expires), told: false }
                }
                Change::Add(by) => {
                    sums.push((planned.len(), by));
                    Planned::Put { value: Value::counter(0), expires: None, told: true }
                }
                Change::Delete => Planned::Delete { told: false },
                Change::Expire(span) => Planned::Expire(moment(span)),
            };
            planned.push((key, plan));
        }
        let (changed, pending) = {
            let slot = self.spaces.visit(space)?;
            let mut state = slot.state.writing();
            state.check(&write, now)?;
            for (index, by) in sums {
                let (key, plan) = &mut planned[index];
                let mut charge = Charge::none(account.clone());
                charge.grow(counted(key, 8))?;
                let counter = Value::counter(state.sum(key, by, now)?);
                let expires = state.live(key, now).and_then(|stored| stored.entry.expires);
                let value = Value { data: counted_bytes(counter.data, charge), ..counter };
                *plan = Planned::Put { value, expires, told: true };
            }
            let applied = self.apply(&mut state, space, planned, write.durable, now);
            drop(state);
            self.changed.store(true, Relaxed);
            slot.tell();
            applied
        };
        self.flushed(pending).await?;
        Ok(changed)
    }

    async fn list(
        &self,
        space: &Space,
        prefix: &str,
        after: Option<&Key>,
        at_most: usize,
    ) -> Result<Vec<(Key, Head)>, ParamError> {
        let Some(slot) = self.spaces.find(space)? else { return Ok(Vec::new()) };
        let (mut found, mut after) = (Vec::new(), after.cloned());
        while found.len() < at_most {
            let listed = slot.state.reading().list(prefix, after.as_ref(), at_most - found.len(), Moment::now());
            found.extend(listed.found);
            after = listed.on;
            if after.is_none() {
                break;
            }
            // Where much has expired, there may be much to look at.
            tokio::task::yield_now().await;
        }
        Ok(found)
    }

    async fn claim(&self, space: &Space, account: &Arc<Account>, claim: &Key) -> Result<u64, ParamError> {
        let (epoch, pending) = {
            let slot = self.spaces.visit(space)?;
            let mut state = slot.state.writing();
            if state.closed {
                return Err(ParamError::Ended);
            }
            // From the clock, so that an epoch never comes again, even if the claims of the space are cleared.
            let epoch = self.next_version();
            match state.claims.get_mut(claim) {
                Some(known) => known.epoch = epoch,
                None => {
                    let given = state.claims.len() + 1;
                    if given > MAX_CLAIMS {
                        let (given, most) = (given as u64, MAX_CLAIMS as u64);
                        return Err(ParamError::TooMany { what: "claims of a job (`max_claims`)", given, most });
                    }
                    let mut charge = Charge::none(account.clone());
                    charge.grow(counted(claim, 0))?;
                    state.claims.insert(claim.clone(), Claim { epoch, _charge: charge });
                }
            }
            (epoch, self.journal(vec![Record::claim(space, claim, epoch)]))
        };
        self.changed.store(true, Relaxed);
        self.flushed(pending).await?;
        Ok(epoch)
    }

    fn watch(&self, space: &Space) -> Watch {
        // Of a tenant that is gone there is no news: the next look will tell.
        match self.spaces.watch(space) {
            Ok((changes, watched)) => Watch::new(changes, None).holding(watched),
            Err(_) => Watch::new(watch::Sender::new(0).subscribe(), None),
        }
    }

    async fn spaces(&self, tenant: &StoreId) -> Result<Vec<Space>, ParamError> {
        let spaces = self.spaces.of(tenant).into_iter();
        Ok(spaces.filter(|(_, slot)| !slot.state.reading().is_empty()).map(|(space, _)| space).collect())
    }

    async fn clear(&self, space: &Space) -> Result<u64, ParamError> {
        // Where there is no space, there is nothing of it on disk either.
        if self.spaces.find(space)?.is_none() {
            return Ok(0);
        }
        let (gone, pending) = {
            let slot = self.spaces.visit(space)?;
            let mut state = slot.state.writing();
            if state.closed {
                return Err(ParamError::Ended);
            }
            let gone = state.clear();
            // Also of what is not durable: the last snapshot may hold it, and a crash must not bring it back.
            let pending = self.journal(vec![Record::Clear { space: space.clone(), version: self.next_version() }]);
            drop(state);
            self.changed.store(true, Relaxed);
            slot.tell();
            (gone, pending)
        };
        let count = gone.values;
        // Millions of values take a while to let go of.
        tokio::task::spawn_blocking(move || drop(gone)).await.ok();
        self.flushed(pending).await?;
        Ok(count)
    }

    async fn end(&self, tenant: &StoreId) -> Result<(), ParamError> {
        let mut gone = Vec::new();
        for slot in self.spaces.end(tenant) {
            let mut state = slot.state.writing();
            gone.push(std::mem::replace(&mut *state, State::closed()));
            drop(state);
            slot.tell();
        }
        self.changed.store(true, Relaxed);
        tokio::task::spawn_blocking(move || drop(gone)).await.ok();
        Ok(())
    }

    async fn used(&self, tenant: &StoreId) -> Result<u64, ParamError> {
        Ok(self.spaces.of(tenant).iter().map(|(_, slot)| slot.state.reading().counted()).sum())
    }

    async fn save(&self) -> Result<(), ParamError> {
        let Some(store) = self.this.upgrade() else { return Ok(()) };
        // A task of its own: a request that is given up does not leave a snapshot half-way.
        let saved = tokio::spawn(async move { store.save_changes().await }).await;
        let saved = saved.unwrap_or_else(|error| Err(disk::DiskError::Ended(error.to_string())));
        saved.map_err(|error| ParamError::Unavailable(error.to_string()))
    }

    async fn save_is_due(&self) {
        match &self.disk {
            Some(disk) => disk.is_long().await,
            None => std::future::pending().await,
        }
    }

    async fn collect(&self) -> Result<u64, ParamError> {
        let (mut gone, mut last) = (0, None);
        for (space, slot) in self.spaces.all().collect::<Vec<_>>() {
            loop {
                let (count, pending) = self.collect_some(&space, &slot);
                last = pending.or(last);
                gone += count;
                if count == 0 {
                    break;
                }
                tokio::task::yield_now().await;
            }
            self.spaces.forget(&space, &slot);
        }
        self.flushed(last).await?;
        Ok(gone)
    }
}

impl Embedded {
    /// Deletes a few values that have expired; says how many.
    fn collect_some(&self, space: &Space, slot: &Slot) -> (u64, Option<journal::Pending>) {
        let now = Moment::now();
        let mut state = slot.state.writing();
        let expired = state.expired(now);
        let count = expired.len() as u64;
        let plans = expired.into_iter().map(|key| (key, Planned::Delete { told: false })).collect();
        (count, self.apply(&mut state, space, plans, false, now).1)
    }

    /// Makes the changes: nothing can fail any more.
    fn apply(
        &self,
        state: &mut State,
        space: &Space,
        planned: Vec<(Key, Planned)>,
        durable: bool,
        now: Moment,
    ) -> (Vec<Changed>, Option<journal::Pending>) {
        let mut records = Vec::new();
        let mut changed = Vec::with_capacity(planned.len());
        for (key, plan) in planned {
            let version = self.next_version();
            let was_durable = state.get(&key).is_some_and(|stored| stored.durable);
            let found = state.live(&key, now).is_some();
            match plan {
                Planned::Put { value, expires, told } => {
                    let entry = Entry { version, value, expires };
                    if durable {
                        records.push(Record::put(space, &key, &entry, true));
                    }
                    changed.push(Changed { version, found, entry: told.then(|| entry.clone()) });
                    state.put(key, Stored { entry, durable: durable || was_durable });
                }
                Planned::Delete { told } => {
                    if durable || was_durable {
                        records.push(Record::delete(space, &key, version));
                    }
                    let gone = state.remove(&key).filter(|stored| told && stored.is_live(now));
                    changed.push(Changed { version, found, entry: gone.map(|stored| stored.entry) });
                }
                Planned::Expire(expires) => match state.live(&key, now).cloned() {
                    Some(mut stored) => {
                        stored.entry.expires = expires;
                        stored.durable |= durable;
                        if stored.durable {
                            records.push(Record::put(space, &key, &stored.entry, true));
                        }
                        changed.push(Changed { version: stored.entry.version, found, entry: None });
                        state.put(key, stored);
                    }
                    None => changed.push(Changed { version, found, entry: None }),
                },
            }
        }
        (changed, self.journal(records))
    }
}
