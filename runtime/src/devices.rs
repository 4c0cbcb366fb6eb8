//! The node's devices: opened when a function first needs one, and leased call by call.

use std::sync::Arc;

use tokio::sync::OnceCell;
use weft_gpu::pool::{PoolError, machine};
use weft_gpu::{Context, Crew, Lease, Pool, Request};

use crate::tenant::Tenant;

/// Operations that one call may record: the tape's length.
pub const TAPE_NODES: usize = 1 << 20;

pub struct Devices {
    /// Which of them may be used.
    visible: String,
    pool: OnceCell<Pool>,
    crew: Arc<Crew>,
}

impl Devices {
    /// `visible` is `all`, `none`, or names such as `cpu,gpu:0`, see [`Pool::visible`]; `threads` work on one operation where cores compute.
    pub fn new(visible: &str, threads: usize) -> Self {
        Self { visible: visible.to_owned(), pool: OnceCell::new(), crew: Arc::new(Crew::new(threads)) }
    }

    /// A part of a device for one call of a tenant's.
    pub async fn lease(&self, tenant: &Arc<Tenant>) -> Result<Leased, PoolError> {
        let pool = self.open().await?;
        let bytes = usize::try_from(tenant.quota().device_memory).unwrap_or(usize::MAX);
        let lease = pool.lease(Request::new(tenant.name.as_str(), bytes))?;
        let context = Context::leased(&lease, self.crew.clone(), TAPE_NODES);
        Ok(Leased { context, lease, tenant: tenant.clone() })
    }

    /// The devices; opening them takes a moment, the first time.
    pub async fn open(&self) -> Result<&Pool, PoolError> {
        self.pool.get_or_try_init(|| open(self.visible.clone())).await
    }

    /// The devices, if some function has needed one.
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.get()
    }
}

async fn open(visible: String) -> Result<Pool, PoolError> {
    // Drivers are asked, and kernels loaded: not on a thread that others need.
    let opened = tokio::task::spawn_blocking(move || Pool::visible(machine(None), &visible)).await;
    opened.unwrap_or_else(|error| {
        tracing::error!(%error, "the devices could not be opened");
        Err(PoolError::Empty)
    })
}

/// A lease whose time is charged to its tenant, however the call ends. What still computes then is stopped.
pub struct Leased {
    pub context: Context,
    lease: Lease,
    tenant: Arc<Tenant>,
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.lease.cancel().cancel();
        self.tenant.ledger.charge_device(self.lease.time());
    }
}
