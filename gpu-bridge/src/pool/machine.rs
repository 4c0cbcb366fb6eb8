//! What this machine has.

use std::path::PathBuf;
use std::sync::Arc;

use crate::device::Shared;
use crate::device::cpu::SharedCpu;
use crate::device::gpu::{Adapter, Gpu};

/// The machine's cores and all of its GPUs, in the order in which a pool names them. A GPU that cannot be opened is left
/// out, and the log says why. In the folder `cache`, if there is one, compiled kernels are kept for the next start.
pub fn machine(cache: Option<PathBuf>) -> Vec<Arc<dyn Shared>> {
    let mut devices: Vec<Arc<dyn Shared>> = vec![Arc::new(SharedCpu::new())];
    for adapter in Adapter::all() {
        let name = adapter.name().to_owned();
        match Gpu::open(adapter, cache.clone()) {
            Ok(gpu) => devices.push(Arc::new(gpu)),
            Err(error) => tracing::warn!("{name} is not used: {error}"),
        }
    }
    devices
}
