//! Bind groups that were made before. A training step binds the same regions again and again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::live::Live;
use super::slab::Region;
use crate::error::Result;

/// Past this many, all are forgotten: a step that needs more would not find its own again either.
const MOST: usize = 1 << 14;

/// Part of a buffer as it is bound: buffer, offset, bytes.
type Bound = (u64, u64, u64);

#[derive(Default)]
pub(super) struct Bindings {
    groups: Mutex<HashMap<SmallVec<[Bound; 6]>, wgpu::BindGroup>>,
}

impl Bindings {
    /// The group that binds these regions, each cut into pieces that a binding can hold.
    pub(super) fn group(&self, live: &Live, regions: &[&Region]) -> Result<wgpu::BindGroup> {
        let limit = live.binding_bytes();
        let mut key = SmallVec::new();
        let mut buffers: SmallVec<[&wgpu::Buffer; 6]> = SmallVec::new();
        for region in regions {
            let mut at = 0;
            while at < region.bytes {
                let piece = limit.min(region.bytes - at);
                key.push((region.id, region.offset + at, piece));
                buffers.push(&region.buffer);
                at += piece;
            }
        }
        if let Some(group) = self.lock().get(&key) {
            return Ok(group.clone());
        }
        let entries: SmallVec<[wgpu::BindGroupEntry<'_>; 6]> = key
            .iter()
            .zip(&buffers)
            .enumerate()
            .map(|(binding, (&(_, offset, bytes), buffer))| wgpu::BindGroupEntry {
                binding: binding as u32,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset,
                    size: std::num::NonZeroU64::new(bytes),
                }),
            })
            .collect();
        let layout = live.operand_layout(entries.len())?;
        let group =
            live.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries });
        let mut groups = self.lock();
        if groups.len() >= MOST {
            groups.clear();
        }
        groups.insert(key, group.clone());
        Ok(group)
    }

    /// Forgets what binds a buffer that is gone, so that its memory can go too.
    pub(super) fn forget(&self, buffer: u64) {
        self.lock().retain(|key, _| key.iter().all(|&(id, ..)| id != buffer));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SmallVec<[Bound; 6]>, wgpu::BindGroup>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
