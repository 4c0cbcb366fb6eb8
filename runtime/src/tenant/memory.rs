//! Counting bytes before they are allocated.
//!
//! Linear memory, bodies in flight, parameters and records of jobs are charged to an [`Account`]: one of the tenant's, whose
//! parent is the node's. A charge that does not fit is refused before anything is allocated, and is given back when its
//! [`Charge`] is dropped.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A budget of bytes, perhaps within a larger one.
#[derive(Debug)]
pub struct Account {
    name: &'static str,
    used: AtomicU64,
    limit: AtomicU64,
    parent: Option<Arc<Account>>,
}

/// The account that had no room, how much it may hold, and how much it was to hold for this alone as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct OverLimit {
    pub name: &'static str,
    pub limit: u64,
    pub wanted: u64,
}

impl OverLimit {
    /// Whether there would be no room even if nothing else was held: to try again is of no use.
    pub fn never_fits(&self) -> bool {
        self.wanted > self.limit
    }
}

impl fmt::Display for OverLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, limit, wanted } = self;
        match self.never_fits() {
            true => write!(formatter, "this takes {wanted} bytes, and `{name}` is {limit}"),
            false => write!(formatter, "no room within `{name}` of {limit} bytes"),
        }
    }
}

impl Account {
    /// What somebody else who counts for this account has refused.
    pub fn refused_elsewhere(&self) -> OverLimit {
        OverLimit { name: self.name, limit: self.limit(), wanted: 0 }
    }

    pub fn new(name: &'static str, limit: u64, parent: Option<Arc<Account>>) -> Arc<Self> {
        Arc::new(Self { name, used: AtomicU64::new(0), limit: AtomicU64::new(limit), parent })
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// A new limit; what is already charged stays.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    /// What could be charged now.
    pub fn free(&self) -> u64 {
        let own = self.limit().saturating_sub(self.used());
        self.parent.as_ref().map_or(own, |parent| own.min(parent.free()))
    }

    pub(crate) fn take(&self, bytes: u64) -> Result<(), OverLimit> {
        self.take_here(bytes)?;
        if let Some(parent) = &self.parent {
            parent.take(bytes).inspect_err(|_| {
                self.used.fetch_sub(bytes, Relaxed);
            })?;
        }
        Ok(())
    }

    fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
        if let Some(parent) = &self.parent {
            parent.force(bytes);
        }
    }

    /// The same, of this account alone.
    fn take_here(&self, bytes: u64) -> Result<(), OverLimit> {
        let limit = self.limit.load(Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|&total| total <= limit);
        self.used.fetch_update(Relaxed, Relaxed, fits).map_err(|_| OverLimit {
            name: self.name,
            limit,
            wanted: bytes,
        })?;
        Ok(())
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        if let Some(parent) = &self.parent {
            parent.give_back(bytes);
        }
    }
}

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: u64,
    /// Whether the accounts above count the same bytes already.
    counted_above: bool,
}

impl Charge {
    pub fn none(account: Arc<Account>) -> Self {
        Self { account, bytes: 0, counted_above: false }
    }

    /// For bytes that the accounts above this one count already.
    pub fn counted_above(account: Arc<Account>) -> Self {
        Self { account, bytes: 0, counted_above: true }
    }

    /// For what is there already, after a restart with a lower limit say.
    pub fn whatever_the_limit(account: Arc<Account>, bytes: u64) -> Self {
        account.force(bytes);
        Self { account, bytes, counted_above: false }
    }

    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub fn grow(&mut self, bytes: u64) -> Result<(), OverLimit> {
        let taken = match self.counted_above {
            true => self.account.take_here(bytes),
            false => self.account.take(bytes),
        };
        taken.map_err(|over| OverLimit { wanted: self.bytes.saturating_add(bytes), ..over })?;
        self.bytes += bytes;
        Ok(())
    }

    /// For what can be done without: half of the account is left to what cannot. Whether there was room.
    pub fn grow_if_plenty(&mut self, bytes: u64) -> bool {
        let account = &self.account;
        account.used().saturating_add(bytes) <= account.limit() / 2 && self.grow(bytes).is_ok()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives some of it back.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.give_back(bytes);
        self.bytes -= bytes;
    }

    fn give_back(&self, bytes: u64) {
        match self.counted_above {
            true => drop(self.account.used.fetch_sub(bytes, Relaxed)),
            false => self.account.give_back(bytes),
        }
    }

    fn force(&self, bytes: u64) {
        match self.counted_above {
            true => drop(self.account.used.fetch_add(bytes, Relaxed)),
            false => self.account.force(bytes),
        }
    }

    /// Charges so many bytes in all, more or fewer than before. For little that has a bound of its own, and that is better
    /// over a limit than lost.
    pub fn set_whatever_the_limit(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.force(more),
            None => self.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes != 0 {
            self.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_given_back_when_dropped() {
        let node = Account::new("max_memory", 100, None);
        let tenant = Account::new("memory", 60, Some(node.clone()));
        let mut charge = Charge::none(tenant.clone());
        charge.grow(60).unwrap();
        assert_eq!((tenant.used(), node.used()), (60, 60));
        drop(charge);
        assert_eq!((tenant.used(), node.used()), (0, 0));
    }

    #[test]
    fn a_charge_grows_and_shrinks_with_what_is_kept() {
        let node = Account::new("max_memory", 100, None);
        let tenant = Account::new("job_bytes", 60, Some(node.clone()));
        let mut charge = Charge::none(tenant.clone());
        charge.set_whatever_the_limit(70);
        assert_eq!((tenant.used(), node.used()), (70, 70));
        charge.set_whatever_the_limit(10);
        charge.shrink(4);
        assert_eq!((tenant.used(), node.used(), charge.bytes()), (6, 6, 6));
        charge.shrink(7);
        assert_eq!((tenant.used(), node.used(), charge.bytes()), (0, 0, 0));
    }

    #[test]
    fn what_is_counted_above_is_charged_once_there() {
        let node = Account::new("max_memory", 100, None);
        let (one, other) =
            (Account::new("memory", 60, Some(node.clone())), Account::new("memory", 60, Some(node.clone())));
        let mut code = Charge::none(node.clone());
        code.grow(50).unwrap();
        let mut uses = [Charge::counted_above(one.clone()), Charge::counted_above(other.clone())];
        uses.iter_mut().for_each(|charge| charge.grow(50).unwrap());
        assert_eq!((one.used(), other.used(), node.used()), (50, 50, 50));
        assert_eq!(uses[0].grow(11), Err(OverLimit { name: "memory", limit: 60, wanted: 61 }));
        uses[0].shrink(20);
        assert_eq!((one.used(), node.used()), (30, 50));
        drop(uses);
        assert_eq!((one.used(), other.used(), node.used()), (0, 0, 50));
    }

    #[test]
    fn a_refused_charge_names_the_limit_and_leaves_no_trace() {
        let node = Account::new("max_memory", 50, None);
        let tenant = Account::new("memory", 60, Some(node.clone()));
        let mut charge = Charge::none(tenant.clone());
        assert_eq!(charge.grow(61), Err(OverLimit { name: "memory", limit: 60, wanted: 61 }));
        assert_eq!(charge.grow(55), Err(OverLimit { name: "max_memory", limit: 50, wanted: 55 }));
        assert_eq!(charge.grow(u64::MAX), Err(OverLimit { name: "memory", limit: 60, wanted: u64::MAX }));
        assert_eq!((tenant.used(), node.used(), charge.bytes()), (0, 0, 0));
    }

    #[test]
    fn a_refusal_says_whether_it_would_ever_fit() {
        let tenant = Account::new("memory", 60, None);
        let (mut other, mut charge) = (Charge::none(tenant.clone()), Charge::none(tenant.clone()));
        other.grow(30).unwrap();
        charge.grow(20).unwrap();
        let later = charge.grow(20).unwrap_err();
        assert!(!later.never_fits(), "it fits when the other has left");
        assert_eq!(later.to_string(), "no room within `memory` of 60 bytes");
        let never = charge.grow(41).unwrap_err();
        assert!(never.never_fits(), "what is held already counts");
        assert_eq!(never.to_string(), "this takes 61 bytes, and `memory` is 60");
    }
}
