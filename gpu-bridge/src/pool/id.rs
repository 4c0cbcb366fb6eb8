//! Names of devices: `cpu`, `gpu:0`, `gpu:1`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::Slot;
use crate::device::Shared;

/// The name of a device in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceId {
    /// The machine has one; tests may have more.
    Cpu(usize),
    Gpu(usize),
}

impl fmt::Display for DeviceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(0) => out.write_str("cpu"),
            Self::Cpu(index) => write!(out, "cpu:{index}"),
            Self::Gpu(index) => write!(out, "gpu:{index}"),
        }
    }
}

/// Text that names no device.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no name of a device such as `cpu` or `gpu:0`")]
pub struct BadDeviceId(String);

impl FromStr for DeviceId {
    type Err = BadDeviceId;

    fn from_str(text: &str) -> Result<Self, BadDeviceId> {
        let (class, index) = text.split_once(':').unwrap_or((text, "0"));
        // Only what `Display` writes: no signs, no zeros in front.
        let index: usize = index.parse().map_err(|_| BadDeviceId(text.into()))?;
        let id = match class {
            "cpu" => Self::Cpu(index),
            "gpu" => Self::Gpu(index),
            _ => return Err(BadDeviceId(text.into())),
        };
        if id.to_string() == text { Ok(id) } else { Err(BadDeviceId(text.into())) }
    }
}

/// Names devices in their order.
pub(super) fn name(devices: Vec<Arc<dyn Shared>>) -> Vec<Slot> {
    let (mut cpus, mut gpus) = (0.., 0..);
    let slots = devices.into_iter().filter_map(|device| {
        let info = device.info();
        let id = if info.kind.is_gpu() { gpus.next().map(DeviceId::Gpu) } else { cpus.next().map(DeviceId::Cpu) };
        id.map(|id| Slot { id, info, device })
    });
    slots.collect()
}
