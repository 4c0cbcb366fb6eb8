//! Who has what: bytes reserved and in use, leases, and device time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{DeviceId, Slot};
use crate::device::Device;
use crate::heap::Budget;

/// What all devices of a pool are used for at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    pub devices: Vec<DeviceLedger>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLedger {
    pub device: DeviceId,
    pub name: String,
    pub capacity: usize,
    /// Of the capacity, what leases have set aside.
    pub reserved: usize,
    /// The sum of the leases' weights.
    pub weight: u64,
    /// Only those that have a lease.
    pub tenants: BTreeMap<Arc<str>, Account>,
}

/// What a tenant's leases on one device amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub reserved: usize,
    /// Of the reserved bytes, those that are allocated.
    pub used: usize,
    pub leases: usize,
    /// Device time that these leases used so far.
    pub time: Duration,
}

impl Ledger {
    /// Whether nobody has anything.
    pub fn is_zero(&self) -> bool {
        self.devices.iter().all(|device| device.reserved == 0 && device.weight == 0 && device.tenants.is_empty())
    }

    pub fn device(&self, id: DeviceId) -> Option<&DeviceLedger> {
        self.devices.iter().find(|device| device.device == id)
    }
}

/// What the pool writes down.
pub(super) struct Books {
    totals: Vec<Total>,
    entries: BTreeMap<u64, Entry>,
    numbers: u64,
}

/// What is set aside on one device.
#[derive(Clone, Copy, Default)]
struct Total {
    reserved: usize,
    weight: u64,
}

/// One lease, or one that is about to be.
pub(super) struct Entry {
    pub slot: usize,
    pub tenant: Arc<str>,
    pub bytes: usize,
    pub weight: u32,
    pub budget: Arc<Budget>,
    /// Once the device is open.
    pub handle: Option<Arc<dyn Device>>,
}

impl Books {
    pub fn new(devices: usize) -> Self {
        Self { totals: vec![Total::default(); devices], entries: BTreeMap::new(), numbers: 0 }
    }

    pub fn reserved(&self, slot: usize) -> usize {
        self.totals[slot].reserved
    }

    pub fn weight(&self, slot: usize) -> u64 {
        self.totals[slot].weight
    }

    /// Sets the entry's bytes aside. They fit: whoever asks has looked, under the same lock.
    pub fn enter(&mut self, entry: Entry) -> u64 {
        let total = &mut self.totals[entry.slot];
        total.reserved += entry.bytes;
        total.weight += u64::from(entry.weight);
        self.numbers += 1;
        self.entries.insert(self.numbers, entry);
        self.numbers
    }

    pub fn open(&mut self, number: u64, handle: Arc<dyn Device>) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.handle = Some(handle);
        }
    }

    /// Gives the entry's bytes back.
    pub fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(&number)?;
        let total = &mut self.totals[entry.slot];
        total.reserved -= entry.bytes;
        total.weight -= u64::from(entry.weight);
        Some(entry)
    }

    /// What stands there, per device.
    pub fn read(&self) -> Vec<Read> {
        let mut read: Vec<Read> = self.totals.iter().map(|&total| Read { total, tenants: BTreeMap::new() }).collect();
        for entry in self.entries.values() {
            let account: &mut Account = read[entry.slot].tenants.entry(Arc::clone(&entry.tenant)).or_default();
            account.reserved += entry.bytes;
            account.used += entry.budget.used();
            account.leases += 1;
            account.time += entry.handle.as_ref().map_or(Duration::ZERO, |handle| handle.time());
        }
        read
    }
}

/// What stands in the books about one device.
pub(super) struct Read {
    total: Total,
    tenants: BTreeMap<Arc<str>, Account>,
}

impl Read {
    pub fn of(self, slot: &Slot) -> DeviceLedger {
        DeviceLedger {
            device: slot.id,
            name: slot.info.name.clone(),
            capacity: slot.info.memory,
            reserved: self.total.reserved,
            weight: self.total.weight,
            tenants: self.tenants,
        }
    }
}
