//! Messages in the tenant's parameter store, embedded or in Redis.
//!
//! They are in the job's own space, under names that neither a function nor a request over HTTP can write or read; whoever
//! deletes all values of the job deletes them too, and then they are made again. They count for the tenant as all of its
//! values do, and expire by themselves should nobody delete them.
//!
//! A message whose numbers are many is two values that are written and read together: the header with the buffers, and
//! the payload by itself. So the embedded store shares the memory of whoever put it with whoever gets it. The store makes
//! sure of the bytes itself, so that the header's checksum covers the header alone.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::sync::Slot;

use super::message::Summed;
use super::{Backend, ChannelError, Kept, Message, channel_over_kept};
use crate::params::bucket::Keeping;
use crate::params::{Bucket, Key, ParamError, Value};

/// How long a message is there if nobody deletes it.
const KEPT: Duration = Duration::from_secs(3_600);

/// Payloads up to this are copied behind their header.
const TOGETHER: usize = 32 << 10;

/// Names that are listed and deleted at once.
const PAGE: usize = 1_000;

/// The channel through the parameter store.
pub struct StoreChannel(Kept<Store>);

channel_over_kept!(StoreChannel);

impl StoreChannel {
    /// `bucket` is the job's own, and `run` is how often the job was started.
    pub fn new(bucket: Bucket, run: u64) -> Self {
        Self(Kept::new(Store { bucket, run }))
    }
}

/// Deletes whatever workers of the job have left in its space, of all runs.
pub async fn clear(bucket: &Bucket) -> Result<(), ParamError> {
    delete(bucket, "", |_| true).await
}

struct Store {
    bucket: Bucket,
    run: u64,
}

impl Store {
    /// What begins the names of this run.
    fn prefix(&self) -> String {
        format!("{:020}/", self.run)
    }

    /// The names of a slot: of its header, and of a payload that lies by itself. Rounds have leading zeros, so that older
    /// ones come first.
    fn names(&self, slot: Slot) -> [Key; 2] {
        let Slot { round, layer, shard, worker, claim } = slot;
        let name = format!("{}{round:020}/{layer}.{shard}.{worker}.{claim}", self.prefix());
        [Key::exchanged(&name), Key::exchanged(&format!("{name}/numbers"))]
    }
}

#[async_trait]
impl Backend for Store {
    async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError> {
        let [header, payload, buffers] = message.to_wire(slot, Summed::Header);
        let [name, numbers] = self.names(slot);
        let values = if payload.len() <= TOGETHER {
            vec![(name, Value::bytes([header, payload, buffers].concat()))]
        } else {
            let header = if buffers.is_empty() { header } else { Bytes::from([header, buffers].concat()) };
            vec![(name, Value::bytes(header)), (numbers, Value::bytes(payload))]
        };
        let keeping = Keeping { expires: Some(KEPT), durable: false };
        self.bucket.set_many(values, keeping).await?;
        Ok(())
    }

    async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError> {
        let damaged = |why: String| ChannelError::Damaged { slot, why };
        let found = match self.bucket.get_many(&self.names(slot)).await {
            // The head is there, and what it names is not.
            Err(error @ (ParamError::Damaged(_) | ParamError::Lost(_))) => return Err(damaged(error.to_string())),
            found => found?,
        };
        let mut found = found.into_iter().map(|entry| entry.map(|entry| entry.value.data));
        let (header, payload) = (found.next().flatten(), found.next().flatten());
        let Some(header) = header else { return Ok(None) };
        // A payload that lies by itself may be left from a larger message that was here before.
        let message = Message::from_parts(slot, header.clone(), None);
        let message = message.or_else(|_| Message::from_parts(slot, header, payload));
        message.map(Some).map_err(|bad| damaged(bad.to_string()))
    }

    async fn delete(&self, slot: Slot) -> Result<(), ChannelError> {
        self.bucket.delete(&self.names(slot)).await?;
        Ok(())
    }

    async fn delete_up_to(&self, round: u64) -> Result<(), ChannelError> {
        let is_old = |name: &str| {
            let found = name.split('/').nth(1).and_then(|round| round.parse::<u64>().ok());
            found.is_some_and(|found| found <= round)
        };
        Ok(delete(&self.bucket, &self.prefix(), is_old).await?)
    }

    async fn clear(&self) -> Result<(), ChannelError> {
        Ok(clear(&self.bucket).await?)
    }
}

/// Deletes what is under the first names that begin so, up to the first one that is not wanted.
async fn delete(bucket: &Bucket, prefix: &str, is_wanted: impl Fn(&str) -> bool) -> Result<(), ParamError> {
    loop {
        let listed = bucket.list_exchanged(prefix, PAGE).await?;
        let count = listed.len();
        let gone: Vec<Key> =
            listed.into_iter().take_while(|key| key.exchanged_name().is_some_and(&is_wanted)).collect();
        if !gone.is_empty() {
            bucket.delete(&gone).await?;
        }
        if gone.len() < PAGE || count < PAGE {
            return Ok(());
        }
    }
}
