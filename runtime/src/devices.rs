//! The node's devices: opened when a function first needs one, and leased call by call.
//!
//! - `line`: calls that wait for room; pure
//! - `memory`: what devices take of the machine's memory

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OnceCell, oneshot, watch};
use weft_gpu::pool::{PoolError, Spare, machine};
use weft_gpu::share::Owner;
use weft_gpu::{Context, Crew, Lease, Pool, Request};

use crate::locks::Lock;
use crate::sandbox::GateFull;
use crate::tenant::{Tenant, TenantId};

mod line;
mod memory;

use line::{Line, Waiting};
pub use memory::DeviceMemory;

/// Operations that one call may record: the tape's length.
pub const TAPE_NODES: usize = 1 << 20;

/// How soon whoever waits is looked at again, whether or not a lease was given back: a lost device may be there again, and
/// the machine's memory is given back by others too, who tell nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Why a call has no device.
#[derive(Debug, thiserror::Error)]
pub enum NoDevice {
    #[error("{0}")]
    Busy(#[from] GateFull),
    #[error("no device had room within `queue_timeout` = {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("no device: {0}")]
    Pool(#[from] PoolError),
}

/// Whether devices are only busy, or lost for the moment: what does not fit now fits when others have gone.
pub fn is_busy(error: &PoolError) -> bool {
    match error {
        PoolError::NothingFits { wanted, largest, .. } => wanted <= largest,
        PoolError::Device(_) => true,
        _ => false,
    }
}

/// Who waits, and how it is told what became of it.
struct Waiter {
    owner: Owner,
    told: oneshot::Sender<Result<DevicePart, PoolError>>,
}

pub struct Devices {
    /// Which of them may be used.
    visible: String,
    pool: OnceCell<Pool>,
    crew: Arc<Crew>,
    /// How often memory of a device was given back.
    freed: Arc<watch::Sender<u64>>,
    line: Arc<Mutex<Line<Waiter>>>,
    /// The longest that a call waits for room.
    patience: Duration,
    /// Where the machine's memory is counted.
    memory: Arc<DeviceMemory>,
}

impl Devices {
    /// `visible` is `all`, `none`, or names such as `cpu,gpu:0`, see [`Pool::visible`]; `threads` work on one operation where
    /// cores compute. So many calls may wait for room, of all tenants and of one, and so long. What devices hand out of the
    /// machine's memory is counted in `memory`.
    pub fn new(
        visible: &str,
        threads: usize,
        waiting: u32,
        waiting_per_tenant: u32,
        patience: Duration,
        memory: DeviceMemory,
    ) -> Self {
        let (crew, freed) = (Arc::new(Crew::new(threads)), Arc::new(watch::channel(0).0));
        let line = Arc::new(Mutex::new(Line::new(waiting, waiting_per_tenant)));
        let memory = Arc::new(memory);
        Self { visible: visible.to_owned(), pool: OnceCell::new(), crew, freed, line, patience, memory }
    }

    /// A part of a device for one call of a tenant's.
    pub async fn lease(&self, tenant: &Arc<Tenant>) -> Result<Leased, NoDevice> {
        let part = self.part(tenant, tenant.quota().device_memory).await?;
        let context = Context::leased(&part.lease, self.crew.clone(), TAPE_NODES);
        Ok(Leased { context, part, tenant: tenant.clone() })
    }

    /// So many bytes of a device for a tenant; waits its turn where there is no room.
    pub async fn part(&self, tenant: &Tenant, bytes: u64) -> Result<DevicePart, NoDevice> {
        let pool = self.open().await?;
        let (owner, allowed) = (tenant.owner.clone(), tenant.quota().call_memory);
        let (passes, has_more) = {
            let mut line = self.line.locked();
            let has_more = line.holds(tenant.id);
            (line.passes(tenant.id, bytes, allowed), has_more)
        };
        if passes {
            let held = self.held(tenant.id, bytes);
            match pool.lease(request(owner.clone(), bytes, has_more)) {
                Ok(lease) => return Ok(DevicePart { lease, _held: held }),
                Err(error) if may_pass(&error, has_more) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (told, turn) = oneshot::channel();
        let call = Waiting { bytes, allowed, waiter: Waiter { owner, told } };
        self.line.locked().join(tenant.id, call, |waiter| waiter.told.is_closed())?;
        // Something may have been given back between the two looks.
        self.freed.send_modify(|times| *times += 1);
        match tokio::time::timeout(self.patience, turn).await {
            Ok(Ok(part)) => Ok(part?),
            // Whoever tells stays in line until it has told.
            Ok(Err(_)) | Err(_) => Err(NoDevice::TimedOut(self.patience)),
        }
    }

    fn held(&self, tenant: TenantId, bytes: u64) -> Held {
        Held { tenant, bytes, line: self.line.clone(), freed: self.freed.clone() }
    }

    /// The devices; opening them takes a moment, the first time.
    pub async fn open(&self) -> Result<&Pool, PoolError> {
        let open = || async {
            let pool = open(self.visible.clone()).await?.within(self.memory.clone());
            let freed = self.freed.clone();
            pool.when_freed(move || freed.send_modify(|times| *times += 1));
            tokio::spawn(serve(pool.clone(), self.line.clone(), self.freed.clone()));
            Ok(pool)
        };
        self.pool.get_or_try_init(open).await
    }

    /// The devices, if some function has needed one.
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.get()
    }

    /// Changes whenever memory of a device is given back; counts how often.
    pub fn freed(&self) -> watch::Receiver<u64> {
        self.freed.subscribe()
    }
}

/// A tenant that has a part already leaves as much again to others, so that none has a whole device.
fn request(owner: Owner, bytes: u64, has_more: bool) -> Request {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let spare = if has_more { Spare::Bytes(bytes) } else { Spare::Nothing };
    Request { spare, ..Request::new(owner, bytes) }
}

/// Whether a call may find room later. One whose tenant has a part already leaves something to others, and may fit where it
/// need not any more.
fn may_pass(error: &PoolError, has_more: bool) -> bool {
    is_busy(error) || (has_more && matches!(error, PoolError::NothingFits { .. }))
}

/// Gives what becomes free to those that wait, for as long as the node runs.
async fn serve(pool: Pool, line: Arc<Mutex<Line<Waiter>>>, freed: Arc<watch::Sender<u64>>) {
    let mut changes = freed.subscribe();
    loop {
        let someone_waits = !line.locked().is_empty();
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK_AGAIN), if someone_waits => {}
        }
        let mut tried = HashSet::new();
        loop {
            let next = line.locked().next(&tried);
            let Some((tenant, call, has_more)) = next else { break };
            let held = Held { tenant, bytes: call.bytes, line: line.clone(), freed: freed.clone() };
            if call.waiter.told.is_closed() {
                continue;
            }
            match pool.lease(request(call.waiter.owner.clone(), call.bytes, has_more)) {
                // One that has gone in this moment gives it back at once.
                Ok(lease) => drop(call.waiter.told.send(Ok(DevicePart { lease, _held: held }))),
                Err(error) if may_pass(&error, has_more) => {
                    held.forget();
                    line.locked().put_back(tenant, call);
                    tried.insert(tenant);
                }
                Err(error) => drop(call.waiter.told.send(Err(error))),
            }
        }
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

/// What a call of a tenant's holds in the line's books, until dropped.
struct Held {
    tenant: TenantId,
    bytes: u64,
    line: Arc<Mutex<Line<Waiter>>>,
    freed: Arc<watch::Sender<u64>>,
}

impl Held {
    /// It is put back in line, which takes it out of the books as well.
    fn forget(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.line.locked().end(self.tenant, self.bytes);
            // Another call of this tenant's may be allowed now.
            self.freed.send_modify(|times| *times += 1);
        }
    }
}

/// A part of a device that a call was given.
pub struct DevicePart {
    pub lease: Lease,
    _held: Held,
}

/// A lease whose time is charged to its tenant, however the call ends. What still computes then is stopped.
pub struct Leased {
    pub context: Context,
    part: DevicePart,
    tenant: Arc<Tenant>,
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.part.lease.cancel().cancel();
        self.tenant.ledger.charge_device(self.part.lease.time());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Batch, Metadata};
    use crate::tenant::{Account, Quota, Tenants};

    #[tokio::test]
    async fn a_later_tenant_of_a_name_is_not_taken_for_the_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Metadata::open(&folder.path().join("meta.redb")).unwrap();
        let memory = Account::new("max_memory", 1 << 30, None);
        let tenants = Tenants::load(metadata, memory.clone()).unwrap();
        let devices = Devices::new("cpu", 1, 4, 4, Duration::from_secs(1), DeviceMemory::within(&memory));
        let create = || tenants.create("ada".parse().unwrap(), Quota::default(), None);

        let (first, _) = create().await.unwrap();
        let held = devices.part(&first, 1 << 20).await.unwrap();
        tenants.delete("ada", Batch::default()).await.unwrap();
        let (second, _) = create().await.unwrap();
        let also_held = devices.part(&second, 1 << 20).await.unwrap();

        let ledger = devices.pool().unwrap().ledger();
        let accounts = &ledger.devices[0].tenants;
        let leases = |tenant: &Tenant| accounts.get(&tenant.owner).map(|account| account.leases);
        assert_eq!((accounts.len(), leases(&first), leases(&second)), (2, Some(1), Some(1)), "{ledger:?}");
        drop((held, also_held));
        assert!(devices.pool().unwrap().ledger().is_zero());
    }
}
