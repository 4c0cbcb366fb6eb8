//! Memory that tensors hold on a GPU.

use std::any::Any;
use std::sync::Arc;

use super::session::Core;
use super::slab::Region;
use crate::device::Memory;
use crate::error::{Error, Result};

/// A region that belongs to one session until it is dropped.
pub(super) struct GpuMemory {
    region: Region,
    core: Arc<Core>,
}

impl Memory for GpuMemory {}

impl GpuMemory {
    pub(super) fn new(region: Region, core: Arc<Core>) -> Self {
        Self { region, core }
    }

    pub(super) fn of<'a>(memory: &'a dyn Memory, op: &'static str) -> Result<&'a Self> {
        (memory as &dyn Any)
            .downcast_ref()
            .ok_or_else(|| Error::Internal { op, reason: "the memory is of another device".into() })
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        self.core.give(self.region.clone());
    }
}
