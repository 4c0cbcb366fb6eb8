//! The host side of `wit/`: one file per interface.
//!
//! A function reaches exactly what is here and in WASI's clocks, randomness and standard streams, and of those only what
//! it imports.

use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime::{Engine, Result};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::sandbox::{Aside, MAX_HANDLES, Meter, Seat};

pub mod data;
mod job;
mod kernels;
mod model;
pub mod params;
pub mod tensor;
mod wasi;

pub use job::{Facts, JobState};

/// Types and traits generated from `wit/`.
pub mod bindings {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "trainer",
        imports: {
            default: trappable,
        },
        exports: { default: async },
        with: { "weft:train/tensor.tensor": super::tensor::Handle },
    });
}

/// The same for tasks, whose interfaces are those of trainers.
mod task {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "task",
        imports: {
            "weft:train/params.open": trappable,
            "weft:train/params": async | trappable,
            default: trappable,
        },
        exports: { default: async },
        with: {
            "weft:train/params.bucket": crate::params::Bucket,
            "weft:train/types": super::bindings::weft::train::types,
            "weft:train/job": super::bindings::weft::train::job,
            "weft:train/tensor": super::bindings::weft::train::tensor,
            "weft:train/kernels": super::bindings::weft::train::kernels,
        },
    });
}

pub use bindings::weft::train::types::{Error, Request, Response};
pub use bindings::{Trainer, TrainerPre};
pub use task::{Task, TaskPre};

/// What the host keeps for one instance.
pub struct HostState {
    pub meter: Meter,
    pub job: JobState,
    pub compute: tensor::Compute,
    pub training: data::Training,
    /// A trainer has none.
    pub params: Option<params::Params>,
    /// Whose turn is given up while it computes on its device. A guest with one has a thread of its own.
    pub seat: Option<Arc<Seat>>,
    handles: ResourceTable,
    /// Made when a guest first asks for it; most never do.
    wasi: Option<Box<WasiCtx>>,
}

impl HostState {
    pub fn new(meter: Meter, job: JobState) -> Self {
        let mut handles = ResourceTable::new();
        handles.set_max_capacity(MAX_HANDLES);
        Self {
            meter,
            job,
            compute: Default::default(),
            training: Default::default(),
            params: None,
            seat: None,
            handles,
            wasi: None,
        }
    }
}

impl HostState {
    /// The guest is inside a kernel, or waits for its device, until the result is dropped.
    fn aside(&self) -> Option<Aside<'_>> {
        self.seat.as_ref().map(|seat| seat.aside())
    }
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let ctx = self.wasi.get_or_insert_with(|| Box::new(wasi::context(&self.job)));
        WasiCtxView { ctx, table: &mut self.handles }
    }
}

/// Everything that a function can import.
pub fn linker(engine: &Engine) -> Result<Linker<HostState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    Trainer::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    task::weft::train::params::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    Ok(linker)
}

impl bindings::weft::train::types::Host for HostState {}

impl bindings::weft::train::training::Host for HostState {}

impl Error {
    /// The case's name and its text.
    pub fn parts(self) -> (&'static str, String) {
        match self {
            Self::BadInput(text) => ("bad-input", text),
            Self::BadShape(text) => ("bad-shape", text),
            Self::Quota(text) => ("quota", text),
            Self::OutOfDeviceMemory(text) => ("out-of-device-memory", text),
            Self::Cancelled => ("cancelled", "the invocation was cancelled".to_owned()),
            Self::DeviceLost(text) => ("device-lost", text),
            Self::NotFound(text) => ("not-found", text),
            Self::Conflict(text) => ("conflict", text),
            Self::Other(text) => ("other", text),
        }
    }
}
