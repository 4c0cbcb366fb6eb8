//! The host in this process: every operation runs at once, on the CPU, by the same crate that a node has.
//!
//! There is one host per thread, and so per test: what one test declares is not seen by another. Nothing is metered, and
//! what `init` declares has its value at once.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::Stream;
use weft_gpu::{Context, Crew, DType, Limits};

use crate::bindings::weft::train::tensor::TensorType;
use crate::{Error, Result, job};

pub mod data;
pub mod kernels;
pub mod model;
pub mod tensor;

thread_local! {
    static HOST: Host = Host::new();
}

struct Host {
    context: Context,
    drawn: Cell<u64>,
    model: RefCell<model::Model>,
    batch: RefCell<data::Batch>,
}

impl Host {
    fn new() -> Self {
        Self {
            context: Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default()),
            drawn: Cell::new(0),
            model: RefCell::default(),
            batch: RefCell::default(),
        }
    }
}

fn context() -> Context {
    HOST.with(|host| host.context.clone())
}

/// Random numbers of their own for every draw.
fn stream() -> Stream {
    let offset = HOST.with(|host| {
        host.drawn.set(host.drawn.get() + 1);
        host.drawn.get()
    });
    Stream { seed: job::seed(), offset }
}

/// While it lives, nothing is recorded.
pub fn no_gradients() -> weft_gpu::NoGrad {
    context().no_grad()
}

fn sizes(dimensions: &[u32]) -> Vec<usize> {
    dimensions.iter().map(|&size| size as usize).collect()
}

fn dtype(ty: TensorType) -> DType {
    match ty {
        TensorType::F32 => DType::F32,
        TensorType::F16 => DType::F16,
        TensorType::U8 => DType::U8,
        TensorType::I32 => DType::I32,
        TensorType::U32 => DType::U32,
    }
}

/// An error of the device in the cases of the contract.
fn refused(error: weft_gpu::Error) -> Error {
    use weft_gpu::Error as E;
    let message = error.to_string();
    match error {
        E::BadShape { .. } | E::BadType { .. } | E::BadArgument { .. } | E::IndexOutOfRange { .. } => {
            Error::BadShape(message)
        }
        E::OutOfMemory { .. } | E::DeviceFull { .. } | E::TooLarge { .. } => Error::OutOfDeviceMemory(message),
        E::TapeFull { .. } => Error::Quota(message),
        E::Cancelled => Error::Cancelled,
        E::DeviceLost { .. } => Error::DeviceLost(message),
        _ => Error::Other(message),
    }
}

fn made(tensor: weft_gpu::Result<weft_gpu::Tensor>) -> Result<tensor::Tensor> {
    tensor.map(tensor::Tensor).map_err(refused)
}
