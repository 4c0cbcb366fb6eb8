//! The machine's cores, shared by many owners: each opens a handle, and they take turns by weight.
//!
//! A call takes as many cores as it has threads. Calls that fit side by side run side by side; where they do not, turns
//! go to whoever is owed most. A turn outlasts a call, so that many short operations need not queue for each; what is
//! charged is the processor time of all threads that worked. Only the caller and its crew ever wait, and they hold
//! nothing while they do.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Cpu;
use crate::device::{Device, DeviceInfo, Memory, Shared, View, Wait};
use crate::error::Result;
use crate::op::Op;
use crate::run::Run;
use crate::share::{Member, Owner};

mod call;
mod turns;

use call::Call;
use turns::Turns;

/// How long a turn lasts at least, before it goes to another who is owed more.
///
/// It changes hands between two tiles.
pub const QUANTUM: Duration = Duration::from_millis(2);

/// By how much a lease of long operations delays one of short operations at most, in time that the cores work: what is
/// left of its turn, and the tile that it is in (a few milliseconds, see the kernels). For each such lease that is owed
/// as much; one that comes back after idling may be owed [`CREDIT`](crate::share::CREDIT) on top.
pub const LONGEST_DELAY: Duration = Duration::from_millis(12);

/// How long a turn is kept for an owner that is between two calls while others wait. Less would let owners of the same
/// weight alternate with every call; more would leave cores idle.
pub const GRACE: Duration = Duration::from_micros(100);

/// The machine's cores as a device for many owners.
#[derive(Debug)]
pub struct SharedCpu {
    turns: Arc<Turns>,
    info: DeviceInfo,
}

impl SharedCpu {
    /// All cores, and all memory.
    pub fn new() -> Self {
        Self::from_info(Cpu::new().info())
    }

    /// So many cores, and bytes to hand out.
    pub fn with_limits(threads: usize, memory: usize) -> Self {
        Self::from_info(DeviceInfo { threads: threads.max(1), memory, ..Cpu::new().info() })
    }

    fn from_info(info: DeviceInfo) -> Self {
        Self { turns: Arc::new(Turns::new(info.threads)), info }
    }
}

impl Default for SharedCpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared for SharedCpu {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn open(&self, owner: &Owner, weight: NonZeroU32) -> Result<Arc<dyn Device>> {
        let member = self.turns.join(owner, weight);
        Ok(Arc::new(Handle {
            turns: Arc::clone(&self.turns),
            member,
            time: AtomicU64::new(0),
            info: self.info.clone(),
            cpu: Cpu::new(),
        }))
    }
}

/// One owner's way to the cores.
struct Handle {
    turns: Arc<Turns>,
    member: Member,
    /// Nanoseconds that its calls used.
    time: AtomicU64,
    info: DeviceInfo,
    cpu: Cpu,
}

impl Device for Handle {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        self.cpu.allocate(bytes)
    }

    /// Copies in and out are the caller's own time.
    fn write(&self, memory: &dyn Memory, offset: usize, bytes: &[u8]) -> Result<()> {
        self.cpu.write(memory, offset, bytes)
    }

    fn write_with(
        &self,
        memory: &dyn Memory,
        offset: usize,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        self.cpu.write_with(memory, offset, bytes, fill)
    }

    fn read(&self, memory: &dyn Memory, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.cpu.read(memory, offset, bytes)
    }

    fn run(&self, op: &Op, inputs: &[View<'_>], outputs: &[View<'_>], run: &Run<'_>) -> Result<()> {
        let threads = run.threads.clamp(1, self.info.threads);
        let call = Call::begin(self, threads, run.cancel)?;
        self.cpu.run(op, inputs, outputs, &Run { threads, turn: Some(&call), ..*run })
    }

    fn rest(&self) {
        self.turns.rest(self.member);
    }

    fn time(&self) -> Duration {
        Duration::from_nanos(self.time.load(Ordering::Relaxed))
    }

    fn longest_wait(&self) -> Wait {
        self.turns.longest_wait(self.member)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.turns.leave(self.member);
    }
}
