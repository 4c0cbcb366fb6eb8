//! A space as its users see it: values, and what workers do together with them.
//!
//! Rounds, barriers and waits are made from what every backend does, so that they mean the same on all of them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::summing::{self, Place, Spent};
use super::{
    Change, Changed, Entry, Expect, Fence, Head, Key, ParamError, ParamStore, Space, Value, Watch, Write, counted_bytes,
};
use crate::names::Name;
use crate::tenant::{Account, Charge, Tenant};

/// How long what belongs to a round is kept, if nobody says otherwise: whoever has not fetched it by then is gone.
pub const ROUND_KEPT: Duration = Duration::from_secs(3_600);

/// Names in one call.
pub const MAX_KEYS: usize = 4_096;

/// Workers of one round or barrier.
pub const MAX_WORKERS: u32 = 4_096;

/// The most that one page of a list holds.
pub const MAX_PAGE: usize = 1_000;

/// How often it is tried to take values that others replace or take meanwhile.
pub const TAKES: usize = 256;

/// How a value is to be kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keeping {
    pub expires: Option<Duration>,
    pub durable: bool,
}

/// What became of a contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contributed {
    Counted,
    /// This worker had contributed already: the first one counts.
    Already,
    /// The round is merged.
    Closed,
}

/// Names of a space, in order.
#[derive(Clone, Debug)]
pub struct Page {
    pub items: Vec<(Key, Head)>,
    /// To be given as `after` for the next page.
    pub next: Option<Key>,
}

/// A space, who pays for it, and perhaps in whose name it is written.
#[derive(Clone)]
pub struct Bucket {
    store: Arc<dyn ParamStore>,
    space: Space,
    account: Arc<Account>,
    fence: Option<Fence>,
    /// Is told what sums took.
    spent: Option<Spent>,
}

impl Bucket {
    pub fn new(store: Arc<dyn ParamStore>, space: Space, account: Arc<Account>) -> Self {
        Self { store, space, account, fence: None, spent: None }
    }

    /// The same, and this is told of the CPU time that sums took.
    pub fn telling(self, spent: Spent) -> Self {
        Self { spent: Some(spent), ..self }
    }

    /// The values of a tenant's job, or those that belong to none.
    pub fn of(store: Arc<dyn ParamStore>, tenant: &Tenant, job: Option<Name>) -> Self {
        Self::new(store, Space { tenant: tenant.store.clone(), job }, tenant.params.clone())
    }

    /// Takes a claim: whoever had it before can write no more, and what is written through the result is refused once
    /// somebody else takes it.
    pub async fn claimed(&self, claim: &Key) -> Result<Self, ParamError> {
        let epoch = self.store.claim(&self.space, &self.account, claim).await?;
        Ok(self.fenced(Fence { claim: claim.clone(), epoch }))
    }

    /// The same space, written in the name of a claim.
    pub fn fenced(&self, fence: Fence) -> Self {
        Self { fence: Some(fence), ..self.clone() }
    }

    pub fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    pub async fn get(&self, key: &Key) -> Result<Option<Entry>, ParamError> {
        Ok(self.get_many(std::slice::from_ref(key)).await?.pop().flatten())
    }

    /// All as of one moment.
    pub async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, ParamError> {
        few("names in one call", keys.len(), MAX_KEYS)?;
        self.store.read(&self.space, &self.account, keys).await
    }

    pub async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<Entry>, ParamError> {
        self.store.read_range(&self.space, &self.account, key, range).await
    }

    /// The entry, if it is newer than the version that is known; `None` also where there is none.
    pub async fn get_if_newer(&self, key: &Key, known: u64) -> Result<Option<Entry>, ParamError> {
        match self.head(key).await? {
            Some(head) if head.version > known => Ok(self.get(key).await?.filter(|entry| entry.version > known)),
            _ => Ok(None),
        }
    }

    pub async fn head(&self, key: &Key) -> Result<Option<Head>, ParamError> {
        Ok(self.store.heads(&self.space, std::slice::from_ref(key)).await?.pop().flatten())
    }

    /// Waits for an entry that is newer than the version that is known; 0 is any.
    pub async fn wait_newer(&self, key: &Key, known: u64, at_most: Duration) -> Result<Entry, ParamError> {
        let began = Instant::now();
        loop {
            self.wait_head(key, known, at_most.saturating_sub(began.elapsed())).await?;
            // It may have been deleted since.
            if let Some(entry) = self.get(key).await?.filter(|entry| entry.version > known) {
                return Ok(entry);
            }
        }
    }

    /// The same, without its bytes.
    pub async fn wait_head(&self, key: &Key, known: u64, at_most: Duration) -> Result<Head, ParamError> {
        let mut waiting = Waiting::new(self.store.watch(&self.space), at_most);
        loop {
            if let Some(head) = self.head(key).await?.filter(|head| head.version > known) {
                return Ok(head);
            }
            waiting.more(|| format!("`{key}` to be newer than version {known}")).await?;
        }
    }

    pub async fn set(&self, key: Key, value: Value, keeping: Keeping) -> Result<u64, ParamError> {
        Ok(self.set_many(vec![(key, value)], keeping).await?.pop().unwrap_or_default())
    }

    /// All or none. Gives their versions.
    pub async fn set_many(&self, values: Vec<(Key, Value)>, keeping: Keeping) -> Result<Vec<u64>, ParamError> {
        let Keeping { expires, durable } = keeping;
        let changes = values.into_iter().map(|(key, value)| (key, Change::Set { value, expires })).collect();
        let changed = self.write(Write { changes, durable, ..Write::default() }).await?;
        Ok(changed.into_iter().map(|changed| changed.version).collect())
    }

    /// Sets a value if its name is as it is expected to be.
    pub async fn compare_and_set(
        &self,
        key: Key,
        expect: Expect,
        value: Value,
        keeping: Keeping,
    ) -> Result<u64, ParamError> {
        let change = Change::Set { value, expires: keeping.expires };
        let write = Write {
            checks: vec![(key.clone(), expect)],
            changes: vec![(key, change)],
            durable: keeping.durable,
            fence: None,
        };
        Ok(self.write_one(write).await?.version)
    }

    /// Adds to a counter, and gives what it then is.
    pub async fn increment(&self, key: Key, by: i64) -> Result<i64, ParamError> {
        let changes = vec![(key, Change::Add(by))];
        let changed = self.write_one(Write { changes, ..Write::default() }).await?;
        Ok(changed.entry.and_then(|entry| entry.value.count()).unwrap_or_default())
    }

    /// Says how many there were.
    pub async fn delete(&self, keys: &[Key]) -> Result<usize, ParamError> {
        let changes = keys.iter().map(|key| (key.clone(), Change::Delete)).collect();
        let changed = self.write(Write { changes, ..Write::default() }).await?;
        Ok(changed.into_iter().filter(|changed| changed.found).count())
    }

    /// Deletes, and gives what there was: nothing that is written meanwhile is lost or seen twice. All of them go in one
    /// step, after they were read and counted, so what cannot be read stays.
    pub async fn take(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, ParamError> {
        let mut further_tries = 1..TAKES;
        loop {
            let found = self.get_many(keys).await?;
            let there = keys.iter().zip(&found).filter_map(|(key, entry)| Some((key.clone(), entry.as_ref()?.version)));
            match self.delete_unchanged(there.collect()).await {
                Err(ParamError::Conflict { .. }) if further_tries.next().is_some() => {}
                deleted => return deleted.map(|()| found),
            }
        }
    }

    /// Deletes values if all of them are still at these versions, else ends with [`ParamError::Conflict`].
    pub async fn delete_unchanged(&self, values: Vec<(Key, u64)>) -> Result<(), ParamError> {
        // With nothing to delete there is still a claim that may be over.
        if values.is_empty() && self.fence.is_none() {
            return Ok(());
        }
        let changes = values.iter().map(|(key, _)| (key.clone(), Change::Delete)).collect();
        let checks = values.into_iter().map(|(key, version)| (key, Expect::Version(version))).collect();
        self.write(Write { checks, changes, ..Write::default() }).await.map(drop)
    }

    /// Says how many there are.
    pub async fn expire(&self, keys: &[Key], after: Option<Duration>) -> Result<usize, ParamError> {
        let changes = keys.iter().map(|key| (key.clone(), Change::Expire(after))).collect();
        let changed = self.write(Write { changes, ..Write::default() }).await?;
        Ok(changed.into_iter().filter(|changed| changed.found).count())
    }

    /// The store's own names are not among them.
    pub async fn list(&self, prefix: &str, after: Option<&Key>, at_most: usize) -> Result<Page, ParamError> {
        let at_most = at_most.clamp(1, MAX_PAGE);
        let mut items = self.store.list(&self.space, prefix, after, at_most + 1).await?;
        // They come last in order.
        items.retain(|(key, _)| !key.is_own());
        let more = items.len() > at_most;
        items.truncate(at_most);
        let next = if more { items.last().map(|(key, _)| key.clone()) } else { None };
        Ok(Page { items, next })
    }

    /// Names of what workers of a job exchange, which begin so, in order.
    pub(crate) async fn list_exchanged(&self, prefix: &str, at_most: usize) -> Result<Vec<Key>, ParamError> {
        let prefix = Key::exchanged(prefix);
        let listed = self.store.list(&self.space, prefix.as_str(), None, at_most.clamp(1, MAX_PAGE)).await?;
        Ok(listed.into_iter().map(|(key, _)| key).collect())
    }

    /// A worker's part of a round: the first one counts, however often it is sent.
    pub async fn contribute(
        &self,
        round: &Key,
        worker: u32,
        value: Value,
        keeping: Keeping,
    ) -> Result<Contributed, ParamError> {
        let own = Key::contribution(round, worker);
        let write = Write {
            checks: vec![(own.clone(), Expect::Absent), (round.clone(), Expect::Absent)],
            changes: vec![(own, Change::Set { value, expires: Some(keeping.expires.unwrap_or(ROUND_KEPT)) })],
            durable: keeping.durable,
            fence: None,
        };
        match self.write(write).await {
            Ok(_) => Ok(Contributed::Counted),
            Err(ParamError::Conflict { key, .. }) if key == *round => Ok(Contributed::Closed),
            Err(ParamError::Conflict { .. }) => Ok(Contributed::Already),
            Err(error) => Err(error),
        }
    }

    /// The sum of what workers 0 to `workers` contributed, in this order, as soon as all of it is there. Whoever comes
    /// first computes it and leaves it under the round's name for the others; the parts are then gone.
    pub async fn merged(&self, round: &Key, workers: u32, at_most: Duration) -> Result<Entry, ParamError> {
        few("workers of a round", workers as usize, MAX_WORKERS as usize)?;
        let parts: Vec<Key> = (0..workers).map(|worker| Key::contribution(round, worker)).collect();
        let mut waiting = Waiting::new(self.store.watch(&self.space), at_most);
        loop {
            if let Some(entry) = self.get(round).await? {
                return Ok(entry);
            }
            let heads = self.store.heads(&self.space, &parts).await?;
            let there = heads.iter().flatten().count();
            if there == parts.len() {
                let place = Place::of(&self.space.tenant);
                let Ok(place) = tokio::time::timeout(waiting.left(), place).await else {
                    return Err(waiting.over(format!("round `{round}`, which could not be summed yet")));
                };
                match self.merge(round, &parts, place).await {
                    Ok(Some(entry)) => return Ok(entry),
                    // Somebody else was faster.
                    Ok(None) | Err(ParamError::Conflict { .. }) => continue,
                    Err(error) => return Err(error),
                }
            }
            waiting.more(|| format!("round `{round}`, of whose {workers} parts {there} are there")).await?;
        }
    }

    /// The sum of whatever was contributed until now, which is taken away: for those that do not wait for all. How many
    /// parts there were comes with it. Parts that cannot be summed stay.
    pub async fn drain(&self, round: &Key, workers: u32) -> Result<Option<(Value, usize)>, ParamError> {
        few("workers of a round", workers as usize, MAX_WORKERS as usize)?;
        let parts: Vec<Key> = (0..workers).map(|worker| Key::contribution(round, worker)).collect();
        let mut further_tries = 1..TAKES;
        let place = Place::of(&self.space.tenant).await;
        loop {
            let entries = self.get_many(&parts).await?;
            let found: Vec<(Key, Entry)> =
                parts.iter().cloned().zip(entries).filter_map(|(key, entry)| Some((key, entry?))).collect();
            let there: Vec<(Key, u64)> = found.iter().map(|(key, entry)| (key.clone(), entry.version)).collect();
            let count = found.len();
            let sum = match count {
                0 => None,
                _ => Some((self.counted_sum(found, &place).await?, count)),
            };
            match self.delete_unchanged(there).await {
                Err(ParamError::Conflict { .. }) if further_tries.next().is_some() => {}
                deleted => return deleted.map(|()| sum),
            }
        }
    }

    async fn merge(&self, round: &Key, parts: &[Key], place: Arc<Place>) -> Result<Option<Entry>, ParamError> {
        // Many may have waited for a place, and one of them has made the sum.
        if let Some(entry) = self.get(round).await? {
            return Ok(Some(entry));
        }
        let entries: Option<Vec<Entry>> = self.get_many(parts).await?.into_iter().collect();
        let Some(entries) = entries else { return Ok(None) };
        let found: Vec<_> = parts.iter().cloned().zip(entries.iter().cloned()).collect();
        // The place is kept until the sum is stored: whoever has it next finds that.
        let value = if self.store.is_remote() {
            self.counted_sum(found, &place).await?
        } else {
            // Counted before it is made; from then on the store counts it.
            let _room = self.room_for_sum(&found)?;
            summing::sum(found, place.clone(), self.spent.clone()).await?
        };
        let mut checks = vec![(round.clone(), Expect::Absent)];
        checks.extend(parts.iter().cloned().zip(entries.iter().map(|entry| Expect::Version(entry.version))));
        let mut changes = vec![(round.clone(), Change::Set { value: value.clone(), expires: Some(ROUND_KEPT) })];
        changes.extend(parts.iter().map(|part| (part.clone(), Change::Delete)));
        let changed = self.write_one(Write { checks, changes, ..Write::default() }).await?;
        Ok(Some(Entry { version: changed.version, value, expires: None }))
    }

    /// The sum of parts, counted before it is made and for as long as somebody holds it.
    async fn counted_sum(&self, parts: Vec<(Key, Entry)>, place: &Arc<Place>) -> Result<Value, ParamError> {
        let room = self.room_for_sum(&parts)?;
        let sum = summing::sum(parts, place.clone(), self.spent.clone()).await?;
        Ok(Value { data: counted_bytes(sum.data, room), ..sum })
    }

    /// A sum is as large as each of its parts.
    fn room_for_sum(&self, parts: &[(Key, Entry)]) -> Result<Charge, ParamError> {
        let mut room = Charge::none(self.account.clone());
        room.grow(parts.first().map_or(0, |(_, entry)| entry.value.data.len() as u64))?;
        Ok(room)
    }

    /// Waits until workers 0 to `workers` have come to the barrier of this name, which is for one time.
    pub async fn barrier(&self, name: &Key, worker: u32, workers: u32, at_most: Duration) -> Result<(), ParamError> {
        few("workers of a barrier", workers as usize, MAX_WORKERS as usize)?;
        let here = Change::Set { value: Value::bytes(Vec::new()), expires: Some(ROUND_KEPT) };
        let changes = vec![(Key::arrival(name, worker), here)];
        let mut waiting = Waiting::new(self.store.watch(&self.space), at_most);
        self.write(Write { changes, ..Write::default() }).await?;
        let all: Vec<Key> = (0..workers).map(|worker| Key::arrival(name, worker)).collect();
        loop {
            let there = self.store.heads(&self.space, &all).await?.iter().flatten().count();
            if there == all.len() {
                return Ok(());
            }
            waiting.more(|| format!("barrier `{name}`, to which {there} of {workers} have come")).await?;
        }
    }

    /// Replaces what a peer has said last.
    pub async fn publish(&self, topic: &Key, peer: u32, value: Value, keeping: Keeping) -> Result<u64, ParamError> {
        self.set(Key::latest(topic, peer), value, keeping).await
    }

    /// What each peer has said last, in their order.
    pub async fn latest(&self, topic: &Key) -> Result<Vec<(u32, Entry)>, ParamError> {
        let prefix = Key::latest_prefix(topic);
        let keys: Vec<Key> =
            self.store.list(&self.space, &prefix, None, MAX_KEYS).await?.into_iter().map(|(key, _)| key).collect();
        let entries = self.get_many(&keys).await?;
        Ok(keys.iter().zip(entries).filter_map(|(key, entry)| Some((key.peer()?, entry?))).collect())
    }

    /// Deletes everything; says how many values there were.
    pub async fn clear(&self) -> Result<u64, ParamError> {
        self.store.clear(&self.space).await
    }

    /// Changes as the store makes them, in the name of this bucket's claim.
    pub async fn write(&self, write: Write) -> Result<Vec<Changed>, ParamError> {
        few("names in one call", write.changes.len().max(write.checks.len()), MAX_KEYS + 1)?;
        self.store.write(&self.space, &self.account, Write { fence: self.fence.clone(), ..write }).await
    }

    async fn write_one(&self, write: Write) -> Result<Changed, ParamError> {
        let changed = self.write(write).await?.into_iter().next();
        changed.ok_or_else(|| ParamError::Damaged("an answer without the change".to_owned()))
    }
}

fn few(what: &'static str, given: usize, most: usize) -> Result<(), ParamError> {
    if given <= most { Ok(()) } else { Err(ParamError::TooMany { what, given: given as u64, most: most as u64 }) }
}

/// Looks again whenever something changed, until it has taken too long.
struct Waiting {
    watch: Watch,
    began: Instant,
    at_most: Duration,
}

impl Waiting {
    /// Before the first look.
    fn new(mut watch: Watch, at_most: Duration) -> Self {
        watch.mark();
        Self { watch, began: Instant::now(), at_most }
    }

    /// Until it is worth to look again.
    async fn more(&mut self, what: impl FnOnce() -> String) -> Result<(), ParamError> {
        let left = self.left();
        if left.is_zero() {
            return Err(self.over(what()));
        }
        self.watch.changed(left).await;
        Ok(())
    }

    fn left(&self) -> Duration {
        self.at_most.saturating_sub(self.began.elapsed())
    }

    fn over(&self, what: String) -> ParamError {
        ParamError::TimedOut { what, waited: self.began.elapsed() }
    }
}
