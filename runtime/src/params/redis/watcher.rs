//! News of changes: one connection of its own listens for all spaces.
//!
//! What is missed while it is broken is made up for by looking again from time to time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::redis as client;
use futures_util::StreamExt;
use tokio::sync::watch;

use super::Link;
use crate::locks::Lock;

/// What scripts publish to.
const CHANNEL: &str = "weft:changed";

/// Before it is tried again.
const PAUSE: Duration = Duration::from_millis(500);

type Senders = HashMap<String, watch::Sender<u64>>;

/// Listens until it is dropped.
pub struct News {
    senders: Arc<Mutex<Senders>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for News {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl News {
    pub fn listen(link: &Link) -> Self {
        let senders = Arc::<Mutex<Senders>>::default();
        let (servers, told) = (link.listen.clone(), senders.clone());
        let task = tokio::spawn(async move {
            for server in servers.iter().cycle() {
                // Whoever waits looks again in any case.
                follow(server, &told).await.ok();
                tell_all(&told);
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { senders, task }
    }

    /// Changes of the space whose heads have this key.
    pub fn of(&self, heads: String) -> watch::Receiver<u64> {
        let mut senders = self.senders.locked();
        // Those that nobody waits for any more.
        senders.retain(|_, sender| sender.receiver_count() > 0);
        senders.entry(heads).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }
}

async fn follow(server: &client::Client, told: &Mutex<Senders>) -> Result<(), client::RedisError> {
    let mut messages = server.get_async_pubsub().await?;
    messages.subscribe(CHANNEL).await?;
    // What happened while nobody listened.
    tell_all(told);
    let mut messages = messages.into_on_message();
    while let Some(message) = messages.next().await {
        let heads: String = message.get_payload()?;
        if let Some(sender) = told.locked().get(&heads) {
            sender.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
    Ok(())
}

fn tell_all(told: &Mutex<Senders>) {
    told.locked().values().for_each(|sender| sender.send_modify(|count| *count = count.wrapping_add(1)));
}
