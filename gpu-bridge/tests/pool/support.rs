//! Pools that must be empty in the end, and devices that pretend.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_gpu::device::cpu::SharedCpu;
use weft_gpu::device::{Device, DeviceInfo, Kind, Memory, Shared, View};
use weft_gpu::op::Op;
use weft_gpu::run::Run;
use weft_gpu::share::Owner;
use weft_gpu::{Context, Crew, Error, Lease, Pool, Request, Result};

pub const MEBIBYTE: usize = 1 << 20;

/// A pool whose ledger must be at zero when it goes.
pub struct Checked(pub Pool);

impl Deref for Checked {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.0
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.ledger().is_zero(), "something was not given back: {:?}", self.0.ledger());
        }
    }
}

pub fn pool(devices: impl IntoIterator<Item = Arc<dyn Shared>>) -> Checked {
    Checked(Pool::new(devices.into_iter().collect()))
}

pub fn lease(pool: &Pool, tenant: &str, weight: u32) -> Lease {
    pool.lease(Request { weight, ..Request::new(tenant, 64 * MEBIBYTE) }).unwrap()
}

/// A context that uses the whole device for each call.
pub fn context(lease: &Lease, threads: usize) -> Context {
    Context::leased(lease, Arc::new(Crew::new(threads)), 1 << 10)
}

/// Waits until something holds, for a while.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}

/// A device of any kind and size, whose work the cores do; it can be lost.
pub struct Pretended {
    info: DeviceInfo,
    cores: SharedCpu,
    losses: Arc<AtomicU64>,
}

impl Pretended {
    pub fn new(kind: Kind, memory: usize) -> Arc<Self> {
        let info = DeviceInfo { name: format!("pretended {kind}"), kind, threads: 1, memory };
        Arc::new(Self { info, cores: SharedCpu::new(), losses: Arc::default() })
    }

    /// Handles that are open now fail from here on.
    pub fn lose(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }
}

impl Shared for Pretended {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn open(&self, owner: &Owner, weight: NonZeroU32) -> Result<Arc<dyn Device>> {
        let (losses, opened) = (Arc::clone(&self.losses), self.losses.load(Ordering::SeqCst));
        Ok(Arc::new(Opened { handle: self.cores.open(owner, weight)?, losses, opened }))
    }

    fn again(&self) -> Result<Arc<dyn Shared>> {
        if self.info.kind.is_gpu() { Ok(Self::new(self.info.kind, self.info.memory)) } else { self.cores.again() }
    }

    fn reset(&self) -> Result<()> {
        self.lose();
        Ok(())
    }
}

struct Opened {
    handle: Arc<dyn Device>,
    losses: Arc<AtomicU64>,
    opened: u64,
}

impl Opened {
    fn device(&self) -> Result<&dyn Device> {
        if self.losses.load(Ordering::SeqCst) > self.opened {
            return Err(Error::DeviceLost { reason: "it was pulled out".into() });
        }
        Ok(&*self.handle)
    }
}

impl Device for Opened {
    fn info(&self) -> DeviceInfo {
        self.handle.info()
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        self.device()?.allocate(bytes)
    }

    fn write(&self, memory: &dyn Memory, offset: usize, bytes: &[u8]) -> Result<()> {
        self.device()?.write(memory, offset, bytes)
    }

    fn read(&self, memory: &dyn Memory, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.device()?.read(memory, offset, bytes)
    }

    fn run(&self, op: &Op, inputs: &[View<'_>], outputs: &[View<'_>], run: &Run<'_>) -> Result<()> {
        self.device()?.run(op, inputs, outputs, run)
    }
}
