//! What is in one space.
//!
//! Everything that changes a value goes through [`State::put`] and [`State::remove`], which keep three things true: what
//! expires is found without looking at what does not, how much is counted is known without adding it up, and a copy that is
//! being taken shows the space as it was when the copy was begun.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};

use super::copy::Copying;
use crate::params::{Entry, Expect, Fence, Head, Key, Moment, ParamError, Write, counted};
use crate::tenant::Charge;

/// The most values that are looked at while a space is locked, by whoever may look at all.
pub const PAGE: usize = 1_024;

#[derive(Default)]
pub struct State {
    entries: BTreeMap<Key, Stored>,
    /// Which of these expire, and when, the soonest first.
    expiries: BTreeSet<(Moment, Key)>,
    pub claims: BTreeMap<Key, Claim>,
    /// What the entries count.
    counted: u64,
    copying: Option<Copying>,
    /// Its tenant is gone.
    pub closed: bool,
}

pub struct Claim {
    pub epoch: u64,
    pub _charge: Charge,
}

#[derive(Clone)]
pub struct Stored {
    pub entry: Entry,
    /// Whether it is in the journal, or one that it has replaced, so that its end must be too.
    pub durable: bool,
}

impl Stored {
    pub fn is_live(&self, now: Moment) -> bool {
        self.entry.expires.is_none_or(|expires| expires > now)
    }
}

/// What was in a space. It may be millions of values, so it is to be let go of where nobody waits.
pub struct Gone {
    pub values: u64,
    _entries: BTreeMap<Key, Stored>,
    _expiries: BTreeSet<(Moment, Key)>,
    _claims: BTreeMap<Key, Claim>,
}

/// A part of a list.
pub struct Listed {
    pub found: Vec<(Key, Head)>,
    /// The last name that was looked at, if there may be more behind it.
    pub on: Option<Key>,
}

impl State {
    /// What there is of a tenant that is gone.
    pub fn closed() -> Self {
        Self { closed: true, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.claims.is_empty()
    }

    pub fn get(&self, key: &Key) -> Option<&Stored> {
        self.entries.get(key)
    }

    pub fn live(&self, key: &Key, now: Moment) -> Option<&Stored> {
        self.entries.get(key).filter(|stored| stored.is_live(now))
    }

    /// What its values and its claims count.
    pub fn counted(&self) -> u64 {
        self.counted + self.claims.keys().map(|claim| counted(claim, 0)).sum::<u64>()
    }

    pub fn put(&mut self, key: Key, stored: Stored) {
        self.note(&key);
        if let Some(expires) = stored.entry.expires {
            self.expiries.insert((expires, key.clone()));
        }
        let expires = stored.entry.expires;
        self.counted += counted(&key, stored.entry.value.stored_bytes());
        if let Some(before) = self.entries.insert(key.clone(), stored) {
            self.forget(&key, &before, expires);
        }
    }

    pub fn remove(&mut self, key: &Key) -> Option<Stored> {
        self.note(key);
        let gone = self.entries.remove(key);
        if let Some(copying) = &mut self.copying {
            copying.is_gone(key);
        }
        let gone = gone?;
        self.forget(key, &gone, None);
        Some(gone)
    }

    /// `gone` is not there any more; what is expires then.
    fn forget(&mut self, key: &Key, gone: &Stored, now_expires: Option<Moment>) {
        self.counted -= counted(key, gone.entry.value.stored_bytes());
        if let Some(expired) = gone.entry.expires.filter(|_| gone.entry.expires != now_expires) {
            self.expiries.remove(&(expired, key.clone()));
        }
    }

    /// A copy that is being taken keeps what is to change.
    fn note(&mut self, key: &Key) {
        if let Some(copying) = &mut self.copying {
            copying.keep(key, || self.entries.get(key).cloned());
        }
    }

    /// The names of a few values that have expired.
    pub fn expired(&self, now: Moment) -> Vec<Key> {
        let expired = self.expiries.iter().take_while(|(expires, _)| *expires <= now);
        expired.take(PAGE).map(|(_, key)| key.clone()).collect()
    }

    /// Takes everything away.
    pub fn clear(&mut self) -> Gone {
        let entries = std::mem::take(&mut self.entries);
        let values = entries.len() as u64;
        self.counted = 0;
        let entries = match &mut self.copying {
            Some(copying) => copying.keep_all(entries),
            None => entries,
        };
        let (_expiries, _claims) = (std::mem::take(&mut self.expiries), std::mem::take(&mut self.claims));
        Gone { values, _entries: entries, _expiries, _claims }
    }

    /// Takes away what has a version up to this.
    pub fn clear_up_to(&mut self, version: u64) {
        let old = self.entries.iter().filter(|(_, stored)| stored.entry.version <= version);
        for key in old.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.remove(&key);
        }
        self.claims.retain(|_, claim| claim.epoch > version);
    }

    /// Names that begin so, after one, among as many as may be looked at.
    pub fn list(&self, prefix: &str, after: Option<&Key>, at_most: usize, now: Moment) -> Listed {
        let from = match after {
            Some(after) if after.as_str() >= prefix => Excluded(after.as_str()),
            _ => Included(prefix),
        };
        let names = self.entries.range::<str, _>((from, Unbounded));
        let mut listed = Listed { found: Vec::new(), on: None };
        let mut looked = 0;
        for (key, stored) in names.take_while(|(key, _)| key.as_str().starts_with(prefix)) {
            if stored.is_live(now) {
                listed.found.push((key.clone(), stored.entry.head()));
            }
            looked += 1;
            if listed.found.len() == at_most {
                break;
            }
            if looked == PAGE {
                listed.on = Some(key.clone());
                break;
            }
        }
        listed
    }

    /// Whether a write may be done.
    pub fn check(&self, write: &Write, now: Moment) -> Result<(), ParamError> {
        if self.closed {
            return Err(ParamError::Ended);
        }
        if let Some(Fence { claim, epoch }) = &write.fence {
            let newest = self.claims.get(claim).map_or(0, |claim| claim.epoch);
            if newest != *epoch {
                return Err(ParamError::Fenced { claim: claim.clone(), epoch: *epoch, newest });
            }
        }
        for (key, expected) in &write.checks {
            let found = self.live(key, now).map(|stored| stored.entry.version);
            let holds = match expected {
                Expect::Absent => found.is_none(),
                Expect::Version(version) => found == Some(*version),
            };
            if !holds {
                return Err(ParamError::Conflict { key: key.clone(), found, expected: *expected });
            }
        }
        Ok(())
    }

    /// What a counter would be.
    pub fn sum(&self, key: &Key, by: i64, now: Moment) -> Result<i64, ParamError> {
        let Some(stored) = self.live(key, now) else { return Ok(by) };
        let count = stored.entry.value.count().ok_or_else(|| ParamError::WrongForm {
            key: key.clone(),
            found: stored.entry.value.form.to_string(),
            wanted: "a counter".to_owned(),
        })?;
        count.checked_add(by).ok_or_else(|| ParamError::Overflow(key.clone()))
    }

    /// Begins a copy of the values, as they are now.
    pub fn begin_copy(&mut self) {
        self.copying = Some(Copying::default());
    }

    /// The next values of the copy, in order, after a look at so many names at most. None is the end, and then the copy is over.
    pub fn copy(&mut self, names: usize) -> Option<Vec<(Key, Stored)>> {
        self.copying.as_mut()?.next(&self.entries, names)
    }

    /// Ends a copy. What it has kept is to be let go of where nobody waits.
    pub fn end_copy(&mut self) -> Option<Copying> {
        self.copying.take()
    }
}

#[cfg(test)]
impl State {
    pub fn entries(&self) -> &BTreeMap<Key, Stored> {
        &self.entries
    }

    /// Whether all that is kept beside the entries agrees with them.
    pub fn agrees(&self) -> bool {
        let expiries = self.entries.iter().filter_map(|(key, stored)| Some((stored.entry.expires?, key.clone())));
        let values = self.entries.iter().map(|(key, stored)| counted(key, stored.entry.value.stored_bytes()));
        self.expiries == expiries.collect() && self.counted == values.sum::<u64>()
    }
}
