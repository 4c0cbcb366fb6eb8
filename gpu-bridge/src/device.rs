//! What runs operations.
//!
//! The heart of a [`Device`] is *run this operation on these buffers*. Operations have passed their spec before they
//! come here. A device may run them later than it says so (a GPU's queue), but in order, and [`Device::read`] waits.
//! A [`Shared`] device is one of the machine, of which each owner opens a handle of its own.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::run::Run;
use crate::shape::Layout;
use crate::share::Owner;

pub mod cpu;
pub mod gpu;

/// Memory of a device. Only the device that gave it knows what is inside.
pub trait Memory: Any + Send + Sync {}

/// What class of device one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Cpu,
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the machine's memory.
    Integrated,
    /// A GPU that a hypervisor passes on.
    Virtual,
    /// Cores that pretend to be a GPU.
    Software,
}

impl Kind {
    pub fn is_gpu(self) -> bool {
        self != Self::Cpu
    }

    /// Whether its memory is the machine's.
    pub fn is_host(self) -> bool {
        matches!(self, Self::Cpu | Self::Integrated | Self::Software)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cpu => "cpu",
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Software => "software",
        })
    }
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `cpu`, or what the driver calls the adapter.
    pub name: String,
    pub kind: Kind,
    /// How many threads can work on one call; 1 where the device has its own ways.
    pub threads: usize,
    /// Bytes that can be handed out.
    pub memory: usize,
}

/// One operand: part of some memory.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub memory: &'a dyn Memory,
    pub layout: &'a Layout,
    pub dtype: DType,
}

/// Runs operations on memory of its own.
pub trait Device: Send + Sync {
    fn info(&self) -> DeviceInfo;

    /// Memory that holds zeros. The caller has counted the bytes.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>>;

    fn write(&self, memory: &dyn Memory, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Lets `fill` write so many bytes from `offset` on: in the memory itself where the host can reach it, else in a copy
    /// that is then written. They start aligned for any element and hold what was there, or zeros; `fill` is called once.
    fn write_with(
        &self,
        memory: &dyn Memory,
        offset: usize,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        let mut words = vec![0_u64; bytes.div_ceil(8)];
        let copy = &mut bytemuck::cast_slice_mut(&mut words)[..bytes];
        fill(copy);
        self.write(memory, offset, copy)
    }

    /// Waits for what was run before.
    fn read(&self, memory: &dyn Memory, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Runs one operation. What is written in place comes first among `outputs`, and no output shares memory with
    /// another operand. After an error the outputs hold anything.
    fn run(&self, op: &Op, inputs: &[View<'_>], outputs: &[View<'_>], run: &Run<'_>) -> Result<()>;

    /// The next operation is not to come soon: what is kept for it may go to others.
    fn rest(&self) {}

    /// Whether the device was lost, and with it whatever is held through this handle. Cores never are.
    fn is_lost(&self) -> bool {
        false
    }

    /// Device time that was used through this handle; zero where it is not counted.
    fn time(&self) -> Duration {
        Duration::ZERO
    }

    /// The most that work of this handle had to wait for its turn; zero where nothing waits.
    fn longest_wait(&self) -> Wait {
        Wait::default()
    }
}

/// A wait by the device's own clock, which runs only while the device works: what else the machine does is no part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Device time that was used meanwhile.
    pub time: Duration,
    /// Turns of others meanwhile.
    pub turns: u64,
}

/// A machine's device that many owners share: opened once for each.
pub trait Shared: Send + Sync {
    fn info(&self) -> DeviceInfo;

    /// A handle for one of an owner's leases: its time is counted. Time is shared evenly between owners, and by weight
    /// between the handles of one.
    ///
    /// A handle whose device was lost says so on every further call; opening again gives one of the rebuilt device.
    fn open(&self, owner: &Owner, weight: NonZeroU32) -> Result<Arc<dyn Device>>;

    /// The same device opened once more, to count as another one.
    fn again(&self) -> Result<Arc<dyn Shared>> {
        Err(Error::argument("devices", "only a GPU can be opened more than once"))
    }

    /// Gives the device up and opens it anew: whatever is held on it is lost.
    fn reset(&self) -> Result<()> {
        Err(Error::argument("reset", "only a GPU can be reset"))
    }
}
