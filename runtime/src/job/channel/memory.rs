//! Messages in a map of this process: whoever gets one shares the memory of whoever put it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use weft_core::sync::Slot;

use super::{Backend, ChannelError, Kept, Message, channel_over_kept};
use crate::locks::Lock;

/// The channel between workers of one process. What it holds is the memory of the workers that put it, which is theirs
/// to account for.
pub struct MemoryChannel(Kept<Memory>);

channel_over_kept!(MemoryChannel);

impl MemoryChannel {
    pub fn new() -> Self {
        Self(Kept::new(Memory::default()))
    }
}

impl Default for MemoryChannel {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Default)]
struct Memory(Mutex<BTreeMap<Slot, Message>>);

#[async_trait]
impl Backend for Memory {
    async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError> {
        // What was there is let go of without the lock.
        let _before = self.0.locked().insert(slot, message);
        Ok(())
    }

    async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError> {
        Ok(self.0.locked().get(&slot).cloned())
    }

    async fn delete(&self, slot: Slot) -> Result<(), ChannelError> {
        let _gone = self.0.locked().remove(&slot);
        Ok(())
    }

    async fn delete_up_to(&self, round: u64) -> Result<(), ChannelError> {
        let _gone = {
            let mut slots = self.0.locked();
            let kept = match round.checked_add(1) {
                Some(next) => slots.split_off(&Slot { round: next, layer: 0, shard: 0, worker: 0, claim: 0 }),
                None => BTreeMap::new(),
            };
            std::mem::replace(&mut *slots, kept)
        };
        Ok(())
    }

    async fn clear(&self) -> Result<(), ChannelError> {
        let _gone = std::mem::take(&mut *self.0.locked());
        Ok(())
    }
}
