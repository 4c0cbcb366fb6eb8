//! The GPU device beside its operations: memory, turns, limits, errors, loss, whole steps. A software GPU will do.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU32;
use std::sync::Arc;

use weft_gpu::device::Shared;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_gpu::{Context, Crew, Limits};

mod large;
mod long;
mod loss;
mod memory;
mod steps;

fn adapter() -> Adapter {
    let first = Adapter::all().into_iter().next();
    first.unwrap_or_else(|| panic!("there is no Vulkan device here; `make setup` installs a software one"))
}

/// A GPU of the test's own, so that what it counts is its own.
fn gpu() -> Gpu {
    Gpu::open(adapter(), None).unwrap()
}

fn context(gpu: &Gpu) -> Context {
    Context::new(gpu.open(&"test".into(), NonZeroU32::MIN).unwrap(), Arc::new(Crew::new(1)), Limits::default())
}

fn cpu() -> Context {
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default())
}
