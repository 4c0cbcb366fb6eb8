//! Code that tenants use.
//!
//! What is loaded is the node's, and is there once however many use it. Whoever keeps it from being let go of pays for it:
//! each tenant that has a call or a trainer with it, once, on its own account. The node's has it already.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crate::digest::Digest;
use crate::locks::Lock;
use crate::sandbox::Loaded;
use crate::tenant::{Charge, OverLimit, Tenant, TenantId};

/// Entries that are kept before it is looked which of them nobody uses any more.
const FEW: usize = 256;

#[derive(Default)]
pub struct Uses(Mutex<Known>);

#[derive(Default)]
struct Known {
    uses: HashMap<(TenantId, Digest), Weak<Loaded>>,
    /// How many there may be until then.
    room: usize,
}

impl Uses {
    /// What a tenant uses already.
    pub fn find(&self, tenant: &Tenant, component: &Digest) -> Option<Arc<Loaded>> {
        self.0.locked().uses.get(&(tenant.id, *component))?.upgrade()
    }

    /// The code as a tenant uses it, which is charged to it for as long as anything of it does.
    pub fn begin(&self, tenant: &Tenant, component: &Digest, loaded: &Arc<Loaded>) -> Result<Arc<Loaded>, OverLimit> {
        let mut known = self.0.locked();
        let place = (tenant.id, *component);
        if let Some(used) = known.uses.get(&place).and_then(Weak::upgrade) {
            return Ok(used);
        }
        let mut charge = Charge::counted_above(tenant.memory.clone());
        charge.grow(loaded.bytes() as u64)?;
        let used = Arc::new(Loaded::used(loaded, charge));
        if known.uses.len() >= known.room.max(FEW) {
            known.uses.retain(|_, used| used.strong_count() > 0);
            known.room = 2 * known.uses.len();
        }
        known.uses.insert(place, Arc::downgrade(&used));
        Ok(used)
    }
}
