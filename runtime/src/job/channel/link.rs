//! Another channel behind links that are as slow as one likes. For benchmarks and tests only.
//!
//! Every worker has a link of its own, with one transfer at a time in each direction. A transfer of b bytes takes
//! b / bandwidth + latency, as transfers between a cloud function and its object store do (LambdaML, section 5.3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Mutex;
use weft_core::sync::Slot;

use super::{Channel, ChannelError, ChannelTraffic, Message, Meter};

/// How much earlier than it is due a timer is set: the runtime's timers are late by as much, a sleeping thread is not.
const TIMER: Duration = Duration::from_millis(2);

/// What a link is like.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Infinite if only latency counts.
    pub bytes_per_second: f64,
    /// Of each transfer.
    pub latency: Duration,
}

impl Speed {
    fn takes(&self, bytes: u64) -> Duration {
        let seconds = bytes as f64 / self.bytes_per_second;
        self.latency + Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

/// A channel as one worker sees it through its link.
pub struct LinkChannel {
    inner: Arc<dyn Channel>,
    speed: Speed,
    up: Mutex<()>,
    down: Mutex<()>,
    meter: Meter,
}

impl LinkChannel {
    /// A link of its own to a channel that others have links to as well.
    pub fn new(inner: Arc<dyn Channel>, speed: Speed) -> Self {
        Self { inner, speed, up: Mutex::default(), down: Mutex::default(), meter: Meter::default() }
    }
}

#[async_trait]
impl Channel for LinkChannel {
    async fn put(&self, slot: Slot, message: Message) -> Result<(), ChannelError> {
        let bytes = message.byte_count();
        let _turn = self.up.lock().await;
        let began = Instant::now();
        self.inner.put(slot, message).await?;
        until(began + self.speed.takes(bytes)).await;
        self.meter.put(bytes, began);
        Ok(())
    }

    async fn get(&self, slot: Slot) -> Result<Option<Message>, ChannelError> {
        let _turn = self.down.lock().await;
        let began = Instant::now();
        let found = self.inner.get(slot).await?;
        until(began + self.speed.takes(found.as_ref().map_or(0, Message::byte_count))).await;
        self.meter.got(found.as_ref(), began);
        Ok(found)
    }

    async fn forget(&self, up_to_round: u64) -> Result<(), ChannelError> {
        self.inner.forget(up_to_round).await
    }

    async fn clear(&self) -> Result<(), ChannelError> {
        self.inner.clear().await
    }

    fn traffic(&self) -> ChannelTraffic {
        self.meter.traffic()
    }
}

/// Sleeps until a moment, and hardly longer.
async fn until(moment: Instant) {
    let left = |moment: Instant| moment.saturating_duration_since(Instant::now());
    let most = left(moment).saturating_sub(TIMER);
    if !most.is_zero() {
        tokio::time::sleep(most).await;
    }
    let rest = left(moment);
    if !rest.is_zero() {
        // An error is a runtime that is being shut down.
        tokio::task::spawn_blocking(move || std::thread::sleep(rest)).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_takes_its_bytes_and_its_latency() {
        let speed = Speed { bytes_per_second: 65e6, latency: Duration::from_millis(80) };
        assert_eq!(speed.takes(0), Duration::from_millis(80));
        assert_eq!(speed.takes(65_000_000), Duration::from_millis(1_080));
        let only_latency = Speed { bytes_per_second: f64::INFINITY, latency: Duration::from_millis(1) };
        assert_eq!(only_latency.takes(u64::MAX), Duration::from_millis(1));
    }
}
