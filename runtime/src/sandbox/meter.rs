//! What an instance holds, counted before it is allocated.
//!
//! Linear memory is summed over all memories of an instance and charged to its tenant. Growth that does not fit is
//! refused the way WebAssembly refuses it (`memory.grow` gives -1); what was refused is remembered, because a guest that
//! then gives up did so for that reason.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::{ResourceLimiter, Result};

use super::error::LimitHit;
use super::limits::{MAX_CORE_INSTANCES, MAX_MEMORIES, MAX_TABLE_ELEMENTS, MAX_TABLES};
use crate::tenant::{Charge, Tenant};

pub struct Meter {
    tenant: Arc<Tenant>,
    charge: Charge,
    /// The name and value of what the instance may hold.
    instance_limit: (&'static str, u64),
    table_elements: usize,
    /// Memory over time up to `since`, in byte-nanoseconds.
    byte_ns: u128,
    since: Instant,
    refused: Option<LimitHit>,
}

impl Meter {
    pub fn new(tenant: Arc<Tenant>, instance_limit: (&'static str, u64)) -> Self {
        Self {
            charge: Charge::none(tenant.memory.clone()),
            tenant,
            instance_limit,
            table_elements: 0,
            byte_ns: 0,
            since: Instant::now(),
            refused: None,
        }
    }

    /// What the guest was last refused.
    pub fn refused(&self) -> Option<LimitHit> {
        self.refused
    }

    /// Linear memory held now; it never shrinks, so this is the peak as well.
    pub fn held(&self) -> u64 {
        self.charge.bytes()
    }

    /// Brings memory over time up to now.
    fn accrue(&mut self) {
        let now = Instant::now();
        self.byte_ns += u128::from(self.held()) * now.duration_since(self.since).as_nanos();
        self.since = now;
    }

    fn grow_memory(&mut self, bytes: u64) -> Result<(), LimitHit> {
        let (name, limit) = self.instance_limit;
        if self.held().saturating_add(bytes) > limit {
            return Err(LimitHit::Memory { name, limit });
        }
        self.accrue();
        self.charge.grow(bytes).map_err(|over| LimitHit::Memory { name: over.name, limit: over.limit })
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let grown = self.grow_memory(desired.saturating_sub(current) as u64);
        self.refused = grown.err().or(self.refused);
        Ok(grown.is_ok())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        // The pool gives every table a maximum, at our limit unless the guest's own is lower: only the latter is no
        // refusal of ours.
        if maximum.is_some_and(|maximum| desired > maximum && maximum < MAX_TABLE_ELEMENTS) {
            return Ok(false);
        }
        let elements = self.table_elements.saturating_add(desired.saturating_sub(current));
        if elements > MAX_TABLE_ELEMENTS {
            self.refused = Some(LimitHit::Tables);
            return Ok(false);
        }
        self.table_elements = elements;
        Ok(true)
    }

    fn instances(&self) -> usize {
        MAX_CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        MAX_TABLES as usize
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES as usize
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.accrue();
        self.tenant.ledger.charge_memory(self.byte_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::{Account, Quota};

    fn tenant(memory: u64) -> Arc<Tenant> {
        let node = Account::new("max_memory", u64::MAX, None);
        Tenant::unregistered("a".parse().unwrap(), Quota { memory, ..Quota::default() }, node)
    }

    #[test]
    fn memories_are_summed_and_a_refusal_is_remembered() {
        let tenant = tenant(150);
        let mut meter = Meter::new(tenant.clone(), ("instance_memory", 100));
        assert!(meter.memory_growing(0, 60, None).unwrap());
        assert!(!meter.memory_growing(0, 60, None).unwrap());
        assert_eq!(meter.refused(), Some(LimitHit::Memory { name: "instance_memory", limit: 100 }));
        let mut other = Meter::new(tenant.clone(), ("instance_memory", 100));
        assert!(!other.memory_growing(0, 95, None).unwrap());
        assert_eq!(other.refused(), Some(LimitHit::Memory { name: "memory", limit: 150 }));
        drop((meter, other));
        assert_eq!(tenant.memory.used(), 0);
    }

    #[test]
    fn growth_past_the_guests_own_maximum_is_no_refusal_of_ours() {
        let mut meter = Meter::new(tenant(1_000), ("instance_memory", 1_000));
        assert!(!meter.memory_growing(10, 30, Some(20)).unwrap());
        assert_eq!((meter.refused(), meter.held()), (None, 0));
    }

    #[test]
    fn table_elements_are_summed() {
        let mut meter = Meter::new(tenant(0), ("instance_memory", 0));
        assert!(meter.table_growing(0, MAX_TABLE_ELEMENTS, None).unwrap());
        assert!(!meter.table_growing(0, 1, None).unwrap());
        assert_eq!(meter.refused(), Some(LimitHit::Tables));
    }

    #[test]
    fn growth_past_the_end_of_a_pooled_table_is_a_refusal_of_ours() {
        let mut meter = Meter::new(tenant(0), ("instance_memory", 0));
        assert!(!meter.table_growing(0, 20, Some(10)).unwrap());
        assert_eq!(meter.refused(), None);
        assert!(!meter.table_growing(0, MAX_TABLE_ELEMENTS + 1, Some(MAX_TABLE_ELEMENTS)).unwrap());
        assert_eq!(meter.refused(), Some(LimitHit::Tables));
    }
}
