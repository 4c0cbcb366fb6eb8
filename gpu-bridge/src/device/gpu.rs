//! GPUs, through wgpu: Vulkan, Metal or Direct3D 12.
//!
//! - [`Adapter`]: which GPUs there are
//! - [`Gpu`]: one of them, shared by many owners; opened anew when the driver loses it
//! - `session`: one owner's handle; writes down what is asked for
//! - `engine`, `ring`: the thread that hands it to the GPU by turns, and the buffers it does that with
//! - `slab`, `memory`, `bindings`: buffers cut into regions, and how regions are bound
//! - `pipeline`, `launch`: kernels put together from WGSL, and one use of a kernel
//! - `kernels`: the operations, a folder of Rust and WGSL

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

mod adapter;
mod bindings;
mod engine;
mod kernels;
mod launch;
mod live;
mod memory;
mod pipeline;
mod ring;
mod session;
mod slab;

pub use adapter::Adapter;
pub use engine::IN_FLIGHT;
#[doc(hidden)]
pub use kernels::naive_matmul;

use engine::Engine;
use live::Live;
use session::{Mode, Session};

use super::{Device, DeviceInfo, Shared};
use crate::error::Result;
use crate::share::Owner;

/// What a GPU without memory of its own, or one that does not say, is taken to have.
const MEMORY_UNKNOWN: usize = 4 << 30;

/// A GPU that many owners share.
pub struct Gpu {
    adapter: Adapter,
    cache: Option<PathBuf>,
    engine: Mutex<Arc<Engine>>,
}

/// What a GPU has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Times that work was handed over.
    pub submissions: u64,
    pub dispatches: u64,
    /// Time for encoding it.
    pub encode_nanoseconds: u64,
    /// Bytes of all buffers of tensors.
    pub allocated: u64,
    /// Kernels that were compiled.
    pub pipelines: usize,
    /// Errors that belonged to no call: there should be none.
    pub uncaptured_errors: u64,
}

impl Gpu {
    /// Opens a GPU. In the folder `cache`, if there is one, compiled kernels are kept for the next start.
    pub fn open(adapter: Adapter, cache: Option<PathBuf>) -> Result<Self> {
        let engine = Engine::start(Live::open(&adapter, cache.as_deref())?)?;
        Ok(Self { adapter, cache, engine: Mutex::new(engine) })
    }

    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    pub fn stats(&self) -> Stats {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let (counts, live) = (engine.counts(), engine.live());
        Stats {
            submissions: counts.submissions.load(Ordering::Relaxed),
            dispatches: counts.dispatches.load(Ordering::Relaxed),
            encode_nanoseconds: counts.encode_nanoseconds.load(Ordering::Relaxed),
            allocated: live.slabs.allocated(),
            pipelines: live.pipelines.count(),
            uncaptured_errors: live.faults.uncaptured(),
        }
    }

    /// A handle on which nothing is run: operations only have their kernels compiled, and reads give zeros. A step that is
    /// rehearsed, on a thread of its own, finds everything ready when it is run.
    pub fn rehearsal(&self) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(Session::open(
            &self.engine()?,
            &Owner::from("rehearsal"),
            NonZeroU32::MIN,
            self.info(),
            Mode::Rehearsal,
        )?))
    }

    /// Loses the device, as a driver that resets would: all handles fail from now on, and the next is of a new device.
    pub fn lose(&self) {
        let engine = Arc::clone(&self.engine.lock().unwrap_or_else(PoisonError::into_inner));
        engine.live().device.destroy();
        engine.live().faults.lose("it was given up on request");
        engine.wake();
    }

    /// The engine of a device that is there: a new one if the last was lost.
    fn engine(&self) -> Result<Arc<Engine>> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        if engine.live().faults.is_lost() {
            let cache = self.cache.as_deref();
            let live = Live::open(&self.adapter, cache).or_else(|error| match self.adapter.found_again() {
                Some(adapter) => Live::open(&adapter, cache),
                None => Err(error),
            })?;
            *engine = Engine::start(live)?;
        }
        Ok(Arc::clone(&engine))
    }
}

impl Shared for Gpu {
    fn info(&self) -> DeviceInfo {
        let memory = self.adapter.memory().unwrap_or(MEMORY_UNKNOWN);
        DeviceInfo { name: self.adapter.name().to_owned(), kind: self.adapter.kind(), threads: 1, memory }
    }

    fn open(&self, owner: &Owner, weight: NonZeroU32) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(Session::open(&self.engine()?, owner, weight, self.info(), Mode::Run)?))
    }

    fn again(&self) -> Result<Arc<dyn Shared>> {
        Ok(Arc::new(Self::open(self.adapter.clone(), self.cache.clone())?))
    }

    fn reset(&self) -> Result<()> {
        self.lose();
        self.engine().map(drop)
    }
}
