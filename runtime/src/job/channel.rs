//! Through what contributions travel from worker to worker: names are slots, values are messages.
//!
//! No worker ever waits on a channel. The coordinator knows what has been put where and says so to whoever needs it, so a
//! channel only puts, gets and deletes. What is not there, or is damaged, is told to the coordinator, which has it made
//! again.
//!
//! - [`message`]: what a slot holds, and how it is written down
//! - [`memory`]: a map in this process, without copies
//! - [`store`]: the tenant's parameter store
//! - [`blobs`]: the node's blob store
//! - [`link`]: another channel behind slow links, for benchmarks and tests

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Instant;

use async_trait::async_trait;
use weft_core::sync::Slot;

pub mod blobs;
pub mod link;
pub mod memory;
pub mod message;
pub mod store;

pub use blobs::BlobsChannel;
pub use link::{LinkChannel, Speed};
pub use memory::MemoryChannel;
pub use message::{BadMessage, Content, Message};
pub use store::StoreChannel;

pub use super::numbers::Numbers;

use crate::blob::BlobError;
use crate::params::ParamError;
use crate::tenant::StorageFull;

/// For [`Channel::forget`], once a run of a job is over: nothing is taken any more.
pub const EVERY_ROUND: u64 = u64::MAX;

/// The way between the workers of one job. A channel belongs to one run of the job: what an earlier run has left is never
/// found, and [`Channel::clear`] deletes it.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Puts a message where others find it when this has returned. What was there before is replaced. Whoever comes too
    /// late, with a round that is forgotten, puts nothing.
    async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError>;

    /// The message of a slot; `None` if it is not there.
    async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError>;

    /// Deletes all slots of rounds up to this one, whoever has put them there, and takes no more of them.
    async fn forget(&self, up_to_round: u64) -> Result<(), ChannelError>;

    /// Deletes everything of the job, of earlier runs too.
    async fn clear(&self) -> Result<(), ChannelError>;

    /// What has gone through so far.
    fn traffic(&self) -> ChannelTraffic;
}

/// What has gone through a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChannelTraffic {
    pub puts: u64,
    /// Those that found something.
    pub gets: u64,
    /// Bytes of the numbers that were put.
    pub bytes_out: u64,
    /// Bytes of the numbers that were got.
    pub bytes_in: u64,
    /// Time that puts and gets took, added up over all that were under way at once.
    pub seconds: f64,
}

/// Why a channel did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("the message in slot `{slot}` is damaged: {why}")]
    Damaged { slot: Slot, why: String },
    #[error("a message of {bytes} bytes is larger than {most}, the most that this job's messages have")]
    TooLarge { bytes: u64, most: u64 },
    /// Jobs say to their tenants why they wait: not where the store is.
    #[error("parameter store: {}", .0.told())]
    Params(#[from] ParamError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Storage(#[from] StorageFull),
}

impl ChannelError {
    /// Whether it may be gone when it is tried again: a Redis or a bucket that is away, a disk that is full.
    pub fn passes(&self) -> bool {
        match self {
            Self::Params(error) => error.passes(),
            Self::Blob(error) => error.passes(),
            Self::Damaged { .. } | Self::TooLarge { .. } | Self::Storage(_) => false,
        }
    }

    /// Whether what was wanted can be made again: for whoever asked, it is as if the slot were empty.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::TooLarge { .. })
    }
}

/// Where messages are kept. [`Kept`] makes a channel of it.
#[async_trait]
trait Backend: Send + Sync {
    async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError>;

    async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError>;

    async fn delete(&self, slot: Slot) -> Result<(), ChannelError>;

    /// Of this run.
    async fn delete_up_to(&self, round: u64) -> Result<(), ChannelError>;

    /// Of all runs.
    async fn clear(&self) -> Result<(), ChannelError>;
}

/// A channel over a backend: it counts what goes through, and keeps out whoever comes too late.
struct Kept<B> {
    backend: B,
    meter: Meter,
    forgotten: Forgotten,
}

impl<B: Backend> Kept<B> {
    fn new(backend: B) -> Self {
        Self { backend, meter: Meter::default(), forgotten: Forgotten::default() }
    }

    async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError> {
        if self.forgotten.has(slot.round) {
            return Ok(());
        }
        let (bytes, began) = (message.byte_count(), Instant::now());
        self.backend.put(slot, message).await?;
        self.meter.put(bytes, began);
        // Forgotten meanwhile: whoever deletes the round may have been here before this came.
        if self.forgotten.has(slot.round) {
            self.backend.delete(slot).await?;
        }
        Ok(())
    }

    async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError> {
        if self.forgotten.has(slot.round) {
            return Ok(None);
        }
        let began = Instant::now();
        let found = self.backend.get(slot).await?;
        self.meter.got(found.as_ref(), began);
        Ok(found)
    }

    async fn forget(&self, up_to_round: u64) -> Result<(), ChannelError> {
        // Before anything is deleted: see `put`.
        self.forgotten.add(up_to_round);
        self.backend.delete_up_to(up_to_round).await
    }
}

/// Makes a channel of a struct that holds [`Kept`].
macro_rules! channel_over_kept {
    ($channel:ty) => {
        #[async_trait::async_trait]
        impl $crate::job::channel::Channel for $channel {
            async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError> {
                self.0.put(slot, message).await
            }

            async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError> {
                self.0.get(slot).await
            }

            async fn forget(&self, up_to_round: u64) -> Result<(), ChannelError> {
                self.0.forget(up_to_round).await
            }

            async fn clear(&self) -> Result<(), ChannelError> {
                self.0.backend.clear().await
            }

            fn traffic(&self) -> $crate::job::channel::ChannelTraffic {
                self.0.meter.traffic()
            }
        }
    };
}

use channel_over_kept;

/// The rounds that are forgotten: all before this one.
#[derive(Debug, Default)]
struct Forgotten(AtomicU64);

impl Forgotten {
    fn add(&self, up_to_round: u64) {
        self.0.fetch_max(up_to_round.saturating_add(1), SeqCst);
    }

    fn has(&self, round: u64) -> bool {
        let first_kept = self.0.load(SeqCst);
        round < first_kept || first_kept == u64::MAX
    }
}

/// Counts what goes through.
#[derive(Debug, Default)]
struct Meter {
    puts: AtomicU64,
    gets: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Meter {
    fn put(&self, bytes: u64, began: Instant) {
        self.puts.fetch_add(1, Relaxed);
        self.bytes_out.fetch_add(bytes, Relaxed);
        self.took(began);
    }

    fn got(&self, found: Option<&Message>, began: Instant) {
        if let Some(message) = found {
            self.gets.fetch_add(1, Relaxed);
            self.bytes_in.fetch_add(message.byte_count(), Relaxed);
        }
        self.took(began);
    }

    fn took(&self, began: Instant) {
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    fn traffic(&self) -> ChannelTraffic {
        ChannelTraffic {
            puts: self.puts.load(Relaxed),
            gets: self.gets.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            seconds: self.nanoseconds.load(Relaxed) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests;
