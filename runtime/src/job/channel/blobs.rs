//! Messages as objects in the node's blob store: files, a bucket, or memory.
//!
//! Their bytes are reserved in the tenant's storage before they are written, and given back when they are deleted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use weft_core::sync::Slot;

use super::message::{HEADER, Summed};
use super::{Backend, ChannelError, Kept, Message, channel_over_kept};
use crate::blob::{BlobError, Found, Scratch};
use crate::locks::Lock;
use crate::tenant::{Reservation, Storage};

/// The channel through the blob store.
pub struct BlobsChannel(Kept<Objects>);

channel_over_kept!(BlobsChannel);

impl BlobsChannel {
    /// `scratch` is the job's own, `run` is how often the job was started, and no message has more than `most` bytes of
    /// numbers.
    pub fn new(scratch: Scratch, storage: Arc<Storage>, run: u64, most: u64) -> Self {
        let most = most.saturating_add(HEADER as u64);
        Self(Kept::new(Objects { scratch, storage, run, most, reserved: Mutex::default() }))
    }
}

struct Objects {
    scratch: Scratch,
    storage: Arc<Storage>,
    run: u64,
    /// Bytes of the largest object.
    most: u64,
    /// What was put and not deleted.
    reserved: Mutex<HashMap<String, Reservation>>,
}

impl Objects {
    fn prefix(&self) -> String {
        format!("{}.", self.run)
    }

    /// The run and the slot, in one word: a folder for each round would stay when it is empty.
    fn name(&self, slot: Slot) -> String {
        let Slot { round, layer, shard, worker, claim } = slot;
        format!("{}{round}.{layer}.{shard}.{worker}.{claim}", self.prefix())
    }

    async fn delete_all(&self, names: &[String]) -> Result<(), ChannelError> {
        self.scratch.delete_all(names).await?;
        let mut reserved = self.reserved.locked();
        names.iter().for_each(|name| drop(reserved.remove(name)));
        Ok(())
    }
}

#[async_trait]
impl Backend for Objects {
    async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError> {
        let bytes = message.byte_count() + HEADER as u64;
        if bytes > self.most {
            return Err(ChannelError::TooLarge { bytes, most: self.most });
        }
        let name = self.name(slot);
        let reservation = self.storage.reserve(bytes)?;
        // Kept also if the put fails: whether the object is there is not known before it is deleted.
        let _before = self.reserved.locked().insert(name.clone(), reservation);
        // The checksum passes over all of the bytes, where it may take its time.
        let wire = tokio::task::spawn_blocking(move || message.to_wire(slot, Summed::All)).await;
        let wire = wire.map_err(|error| interrupted("summing a message", error))?;
        Ok(self.scratch.put(&name, wire).await?)
    }

    async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError> {
        let damaged = |why: String| ChannelError::Damaged { slot, why };
        match self.scratch.get(&self.name(slot), self.most).await? {
            Found::Nothing => Ok(None),
            Found::TooLarge(bytes) => {
                Err(damaged(format!("it has {bytes} bytes, and no message more than {}", self.most)))
            }
            Found::Bytes(bytes) => {
                let read = tokio::task::spawn_blocking(move || Message::from_wire(slot, bytes)).await;
                let read = read.map_err(|error| interrupted("summing a message", error))?;
                read.map(Some).map_err(|bad| damaged(bad.to_string()))
            }
        }
    }

    async fn delete(&self, slot: Slot) -> Result<(), ChannelError> {
        self.delete_all(&[self.name(slot)]).await
    }

    async fn delete_up_to(&self, round: u64) -> Result<(), ChannelError> {
        let prefix = self.prefix();
        let is_old = |name: &String| {
            let found = name.strip_prefix(&prefix).and_then(|rest| rest.split('.').next()?.parse::<u64>().ok());
            found.is_some_and(|found| found <= round)
        };
        let mut old: Vec<String> = self.scratch.list().await?.into_iter().filter(is_old).collect();
        // Also what could not be put: it may be there and not be listed yet.
        old.extend(self.reserved.locked().keys().filter(|name| is_old(name)).cloned());
        old.sort_unstable();
        old.dedup();
        self.delete_all(&old).await
    }

    async fn clear(&self) -> Result<(), ChannelError> {
        self.scratch.clear().await?;
        self.reserved.locked().clear();
        Ok(())
    }
}

fn interrupted(what: &str, error: tokio::task::JoinError) -> BlobError {
    BlobError::Io { what: what.to_owned(), error: std::io::Error::other(error) }
}
