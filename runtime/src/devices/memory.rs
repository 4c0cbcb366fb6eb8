//! What devices hand out of the machine's memory, counted with all else that is in it.

use std::sync::Arc;

use weft_gpu::pool::HostMemory;

use crate::tenant::Account;

/// Devices leave one in so many bytes of the machine's memory to everything else: instances, bodies, parameters.
const LEFT_BY_DEVICES: u64 = 8;

/// The part of an account that leases of the cores, and of GPUs without memory of their own, are taken from.
#[derive(Debug)]
pub struct DeviceMemory(Arc<Account>);

impl DeviceMemory {
    pub fn within(machine: &Arc<Account>) -> Self {
        let limit = machine.limit() - machine.limit() / LEFT_BY_DEVICES;
        Self(Account::new(machine.name(), limit, Some(machine.clone())))
    }
}

impl HostMemory for DeviceMemory {
    fn take(&self, bytes: usize) -> bool {
        self.0.take(bytes as u64).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.give_back(bytes as u64);
    }

    fn free(&self) -> usize {
        usize::try_from(self.0.free()).unwrap_or(usize::MAX)
    }

    fn limit(&self) -> usize {
        usize::try_from(self.0.limit()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::Charge;

    #[test]
    fn leases_and_all_else_never_have_more_than_the_machine_together() {
        let machine = Account::new("max_memory", 800, None);
        let devices = DeviceMemory::within(&machine);
        assert_eq!((devices.limit(), devices.free()), (700, 700));
        assert!(!devices.take(701) && devices.take(600));
        let mut instances = Charge::none(machine.clone());
        assert!(instances.grow(201).is_err());
        instances.grow(150).unwrap();
        assert_eq!(devices.free(), 50);
        assert!(!devices.take(51));
        drop(instances);
        assert!(devices.take(100));
        devices.give_back(700);
        assert_eq!((machine.used(), devices.free()), (0, 700));
    }
}
