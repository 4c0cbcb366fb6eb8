//! The machine's devices, leased to many tenants.
//!
//! A [`Lease`] reserves its bytes on one device when it is granted, and gives them back when it and everything made with
//! it are gone: the [`Ledger`] is exact at every moment. Time is not reserved but shared by the devices themselves:
//! evenly between tenants, and by weight between the leases of one. The pool never waits: what does not fit is an error
//! that says what would.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::device::{Device, DeviceInfo, Shared, Wait};
use crate::error::{Error, Result};
use crate::heap::Budget;
use crate::run::Cancel;

mod error;
mod host;
mod id;
mod ledger;
mod machine;
mod placement;
mod visible;

pub use error::{PoolError, Room};
pub use host::{HostMemory, host_memory};
pub use id::DeviceId;
pub use ledger::{Account, DeviceLedger, Ledger};
use ledger::{Books, Entry};
pub use machine::machine;

/// Where a lease wants to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// The least loaded device that fits: a real GPU before the CPU, cores that pretend to be a GPU only where there is
    /// nothing else.
    #[default]
    Auto,
    Cpu,
    Gpu,
    /// This one and no other.
    Exactly(DeviceId),
    /// This one, which holds the job's tensors already; if it does not fit or is not there, as for `Auto`.
    Near(DeviceId),
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `auto`, `cpu`, `gpu` or a device as in `gpu:0`")]
pub struct BadWish(String);

impl FromStr for Wish {
    type Err = BadWish;

    fn from_str(text: &str) -> Result<Self, BadWish> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu),
            name => name.parse().map(Self::Exactly).map_err(|_| BadWish(text.chars().take(80).collect())),
        }
    }
}

/// What must stay free on a device after a lease was granted, for others who come later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spare {
    #[default]
    Nothing,
    /// One in so many of the device's bytes.
    OneIn(NonZeroU32),
    Bytes(usize),
}

impl Spare {
    /// In bytes, on a device that has so many.
    fn of(self, capacity: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::OneIn(parts) => capacity / parts.get() as usize,
            Self::Bytes(bytes) => bytes.min(capacity),
        }
    }
}

/// What a tenant asks for.
#[derive(Clone, Debug)]
pub struct Request {
    pub tenant: Arc<str>,
    /// Its share of its tenant's device time, compared with that of the tenant's other leases; at least 1.
    pub weight: u32,
    /// How much device memory it may use; at least 1.
    pub bytes: usize,
    /// How much of the host's memory it will use beside the device's, for copies of what is there.
    pub host: usize,
    pub device: Wish,
    /// What it leaves to others.
    pub spare: Spare,
    /// Stops all that the lease is used for.
    pub cancel: Cancel,
}

impl Request {
    /// A request of weight 1 for any device.
    pub fn new(tenant: impl Into<Arc<str>>, bytes: usize) -> Self {
        let (device, spare, cancel) = (Wish::Auto, Spare::Nothing, Cancel::default());
        Self { tenant: tenant.into(), weight: 1, bytes, host: 0, device, spare, cancel }
    }
}

/// All devices of a machine. Clones are the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    devices: Vec<Slot>,
    books: Mutex<Books>,
    freed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Whose memory it is that devices without memory of their own hand out.
    host: Option<Arc<dyn HostMemory>>,
}

/// One device of the pool.
struct Slot {
    id: DeviceId,
    info: DeviceInfo,
    device: Arc<dyn Shared>,
}

impl Pool {
    /// All of these devices, named `cpu`, `gpu:0`, `gpu:1` and so on in their order.
    pub fn new(devices: Vec<Arc<dyn Shared>>) -> Self {
        Self::with(id::name(devices))
    }

    /// Those devices that a setting lets be seen: `all`, `none`, or a list such as `cpu,gpu:0` of names, or of indices
    /// into `devices`. They keep the names that they have among all; with `gpu:0*2`, that GPU is opened twice and counts as
    /// two, the second named after all others.
    pub fn visible(devices: Vec<Arc<dyn Shared>>, setting: &str) -> Result<Self, PoolError> {
        visible::select(id::name(devices), setting).map(Self::with)
    }

    fn with(devices: Vec<Slot>) -> Self {
        Self::on(devices, None)
    }

    fn on(devices: Vec<Slot>, host: Option<Arc<dyn HostMemory>>) -> Self {
        let books = Mutex::new(Books::new(devices.len()));
        Self(Arc::new(Inner { devices, books, freed: OnceLock::new(), host }))
    }

    /// Has `tell` called whenever bytes have been given back, by whichever thread gave them: it must be quick, and must
    /// not ask for a lease itself. The first one counts.
    pub fn when_freed(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.0.freed.set(Box::new(tell)).ok();
    }

    /// The same devices, before any of them is leased, where those that hand out the host's memory (the cores, and cores
    /// that pretend to be a GPU) ask `host` for all that they hand out.
    pub fn within(self, host: Arc<dyn HostMemory>) -> Self {
        let devices = self.0.devices.iter().map(|slot| {
            let mut info = slot.info.clone();
            if info.kind.is_host() {
                info.memory = info.memory.min(host.limit());
            }
            Slot { id: slot.id, info, device: Arc::clone(&slot.device) }
        });
        Self::on(devices.collect(), Some(host))
    }

    /// What there is, by name.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceId, &DeviceInfo)> {
        self.0.devices.iter().map(|slot| (slot.id, &slot.info))
    }

    /// Reserves the bytes on a device and opens it for the tenant.
    pub fn lease(&self, request: Request) -> Result<Lease, PoolError> {
        let weight = NonZeroU32::new(request.weight).ok_or(PoolError::NoWeight)?;
        if request.bytes == 0 {
            return Err(PoolError::NoBytes);
        }
        let mut failed = None;
        let mut tried = Vec::new();
        // A device that cannot be opened (it is lost, and not yet there again) is passed over, if there are others.
        while let Some((slot, reservation)) = self.reserve(&request, &tried, failed.is_some())? {
            match self.0.devices[slot].device.open(&request.tenant, weight) {
                Ok(handle) => {
                    self.0.lock().open(reservation.number, Arc::clone(&handle));
                    let device = self.0.devices[slot].id;
                    let Request { tenant, cancel, .. } = request;
                    return Ok(Lease(Arc::new(Held { tenant, weight, device, cancel, handle, reservation })));
                }
                Err(error) => failed = Some(error),
            }
            tried.push(slot);
        }
        Err(failed.map_or(PoolError::Empty, PoolError::Device))
    }

    /// Reserves on the best device that was not tried. None is left, or an error if that is for want of room.
    fn reserve(
        &self,
        request: &Request,
        tried: &[usize],
        failed: bool,
    ) -> Result<Option<(usize, Reservation)>, PoolError> {
        let mut books = self.0.lock();
        let host = self.0.host.as_ref();
        let (slot, taken) = loop {
            let free = host.map_or(usize::MAX, |host| host.free());
            let slot = match placement::choose(&self.0.devices, &books, request, tried, free) {
                Ok(slot) => slot,
                Err(_) if failed => return Ok(None),
                Err(error) => return Err(error),
            };
            let Some(host) = host else { break (slot, None) };
            let of_device = if self.0.devices[slot].info.kind.is_host() { request.bytes } else { 0 };
            let bytes = request.host.saturating_add(of_device);
            if host.take(bytes) {
                break (slot, Some(HostTaken { host: Arc::clone(host), bytes }));
            }
            // Somebody else took it in between: there is less of it now.
        };
        let budget = Budget::new(request.bytes);
        let number = books.enter(Entry {
            slot,
            tenant: Arc::clone(&request.tenant),
            bytes: request.bytes,
            weight: request.weight,
            budget: Arc::clone(&budget),
            handle: None,
        });
        Ok(Some((slot, Reservation { pool: Arc::clone(&self.0), number, budget, taken })))
    }

    /// Gives a GPU up and opens it anew: its leases fail, as when a driver resets.
    pub fn reset(&self, device: DeviceId) -> Result<(), PoolError> {
        let slot = self.0.devices.iter().find(|slot| slot.id == device).ok_or_else(|| PoolError::NoSuchDevice {
            wish: Wish::Exactly(device),
            devices: self.devices().map(|(id, _)| id).collect(),
        })?;
        Ok(slot.device.reset()?)
    }

    /// Who has what at this moment.
    pub fn ledger(&self) -> Ledger {
        let books = self.0.lock();
        Ledger { devices: self.0.devices.iter().zip(books.read()).map(|(slot, read)| read.of(slot)).collect() }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a device that are set aside, until dropped.
struct Reservation {
    pool: Arc<Inner>,
    /// In the books.
    number: u64,
    budget: Arc<Budget>,
    taken: Option<HostTaken>,
}

/// Bytes of the host's memory that were taken for a lease, until dropped.
struct HostTaken {
    host: Arc<dyn HostMemory>,
    bytes: usize,
}

impl Drop for HostTaken {
    fn drop(&mut self) {
        self.host.give_back(self.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let entry = self.pool.lock().remove(self.number);
        // The last of the handle may go with it, and closing a device takes locks of its own: not under this one.
        drop(entry);
        // Whoever is told asks at once, and must find the host's bytes free.
        drop(self.taken.take());
        if let Some(tell) = self.pool.freed.get() {
            tell();
        }
    }
}

/// A tenant's part of a device.
pub struct Lease(Arc<Held>);

/// What a lease and its contexts hold together.
pub(crate) struct Held {
    tenant: Arc<str>,
    weight: NonZeroU32,
    device: DeviceId,
    cancel: Cancel,
    handle: Arc<dyn Device>,
    /// Last, so that it goes last.
    reservation: Reservation,
}

impl Held {
    pub(crate) fn handle(&self) -> &Arc<dyn Device> {
        &self.handle
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.reservation.budget
    }
}

impl Lease {
    pub fn tenant(&self) -> &str {
        &self.0.tenant
    }

    pub fn weight(&self) -> u32 {
        self.0.weight.get()
    }

    /// What it may use.
    pub fn bytes(&self) -> usize {
        self.0.budget().limit()
    }

    /// What its contexts use now.
    pub fn used(&self) -> usize {
        self.0.budget().used()
    }

    pub fn device(&self) -> DeviceId {
        self.0.device
    }

    /// Stops all that it is used for.
    pub fn cancel(&self) -> &Cancel {
        &self.0.cancel
    }

    /// Device time that it used.
    pub fn time(&self) -> Duration {
        self.0.handle.time()
    }

    /// The most that its work had to wait for a turn.
    pub fn longest_wait(&self) -> Wait {
        self.0.handle.longest_wait()
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.0
    }
}
