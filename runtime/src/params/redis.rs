//! The store in Redis or Valkey, alone or a cluster: what several nodes share.
//!
//! All heads of a tenant are in one slot, so that a script sees and changes any of them in one step; see `prelude.lua` for
//! what a head is. Values that are not small are cut into chunks, spread over all slots under keys that are never written
//! twice: room is reserved for them before any is sent, a head that names them is put in place after they are, and chunks
//! that no head names any more stay for a minute, so a reader sees whole values only. Chunks of a change that was refused
//! go at once. What a script answered is kept for a while under the request's number: a request that is sent again for
//! want of an answer is not done twice.
//!
//! A server that was emptied is told by its incarnation, which this node remembers: that is lost state, and an error.

//!
//! - `store`: what a store does, as any other does it
//! - `writing`: changes, and the chunks that are sent ahead; `reservation` is the room for these
//! - `requests`: answers that are kept, and those that need not be any more
//! - `ending`: what expires, what nobody needs, and the end of a tenant
//! - `scripts`, `answer`, `head`, `keys`, `chunks`: what is said to a server, and how it is read
//! - `link`, `watcher`, `incarnation`: connections, news of changes, and whether a server is what it was

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Entry, Key, ParamError, Space, counted_bytes};
use crate::tenant::Charge;

mod answer;
mod chunks;
mod ending;
pub mod head;
mod incarnation;
mod keys;
mod link;
mod requests;
mod reservation;
mod scripts;
mod store;
mod watcher;
mod writing;

pub use incarnation::Incarnations;
pub use link::{ConnectError, Link};
pub use requests::MAX_KEPT_ANSWERS;

use answer::Answer;
use head::StoredHead;
use keys::Keys;
use requests::Requests;
use scripts::Script;
use watcher::News;

/// Values up to this are part of their head.
const INLINE: usize = 64 << 10;

/// How long chunks that are being sent are waited for before they are garbage, and how often more time is asked for in this
/// time.
const SENDING: Duration = Duration::from_secs(300);
const RENEWALS: u32 = 5;

/// Bytes of values that may come with their heads, before they are counted.
const COME_ALONG: usize = INLINE;

/// Bytes of values in one answer.
const ANSWERED: u64 = 1 << 20;

/// Names that one script looks at to list them, and to delete them.
const LISTED: usize = 250;
const CLEARED: usize = 1_000;

/// How long a server remembers that a tenant is gone: longer than anything is under way.
const ENDED_KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// How often values are looked for again that were replaced while they were read.
const READS: usize = 16;

/// Expired values and chunks that one script takes away.
const COLLECTED: usize = 1_000;

/// How long a server that does not answer is asked again.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where waits look again, should news of a change be lost with a connection.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Clones are the same store.
#[derive(Clone)]
pub struct Redis {
    link: Arc<Link>,
    incarnations: Arc<Incarnations>,
    news: Arc<News>,
    requests: Arc<Requests>,
    /// How long the server waits for chunks unless it is asked for more time.
    sending: Duration,
}

impl Redis {
    /// `incarnations` is what this node remembers of the server.
    pub async fn connect(link: Link, incarnations: Incarnations) -> Result<Arc<Self>, ConnectError> {
        Self::connect_to_send_within(link, incarnations, SENDING).await
    }

    /// The same, with another time after which chunks are garbage if the node that sends them does not ask for more.
    pub async fn connect_to_send_within(
        link: Link,
        incarnations: Incarnations,
        sending: Duration,
    ) -> Result<Arc<Self>, ConnectError> {
        link.check().await?;
        let news = Arc::new(News::listen(&link));
        let (link, incarnations, requests) = (Arc::new(link), Arc::new(incarnations), Arc::default());
        Ok(Arc::new(Self { link, incarnations, news, requests, sending }))
    }

    /// Runs a script on a space; the answer is what comes after the incarnation.
    async fn run(
        &self,
        script: &Script,
        space: &Space,
        further_key: Option<String>,
        arguments: Vec<Bytes>,
    ) -> Result<Answer, ParamError> {
        let keys = Keys::of(space);
        let known = self.incarnations.of(&space.tenant);
        let mut all = keys.all();
        all.extend(further_key);
        // What a store that has no incarnation becomes.
        let may_begin = known.is_none() && !script.is_housekeeping;
        let candidate = if may_begin { incarnation::random()? } else { String::new() };
        let mut given =
            vec![Bytes::from(known.clone().unwrap_or_default()), Bytes::from(candidate), Bytes::from(keys.job)];
        given.extend(arguments);
        let reply = self.link.script(script, &all, &given).await?;
        let answer = Answer::read(reply)?;
        match &answer {
            Answer::Ended => Err(ParamError::Ended),
            Answer::Lost => Err(ParamError::Lost(format!(
                "the server at {} was emptied since this node used it; after `weft params delete --all` the store of `{}` \
                 begins anew",
                self.link.name(),
                space.tenant.as_str()
            ))),
            Answer::Done { incarnation, .. } if may_begin => {
                self.incarnations.learn(&space.tenant, incarnation).map_err(ParamError::Unavailable)?;
                self.link.add_tenant(&space.tenant).await?;
                Ok(answer)
            }
            _ => Ok(answer),
        }
    }

    /// The heads of these names, with so many bytes of the values that are in them.
    async fn stored(&self, space: &Space, keys: &[&Key], bytes: u64) -> Result<Vec<Option<StoredHead>>, ParamError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut arguments = vec![number(bytes)];
        arguments.extend(keys.iter().map(|key| text(key.as_str())));
        let parts = self.run(&scripts::READ, space, None, arguments).await?.done()?;
        parts.into_iter().map(StoredHead::read_optional).collect()
    }

    /// Fetches bytes that are in heads and did not come with them, a bounded answer at a time. `false` if one of the values
    /// was replaced meanwhile.
    async fn complete(
        &self,
        space: &Space,
        keys: &[Key],
        found: &mut [Option<StoredHead>],
    ) -> Result<bool, ParamError> {
        let lacking: Vec<usize> =
            (0..found.len()).filter(|&index| found[index].as_ref().is_some_and(StoredHead::lacks_bytes)).collect();
        for batch in lacking.chunks(ANSWERED as usize / INLINE) {
            let wanted: Vec<&Key> = batch.iter().map(|&index| &keys[index]).collect();
            for (&index, come) in batch.iter().zip(self.stored(space, &wanted, ANSWERED).await?) {
                let version = found[index].as_ref().map(StoredHead::version);
                if come.as_ref().map(StoredHead::version) != version {
                    return Ok(false);
                }
                found[index] = come;
            }
        }
        Ok(true)
    }

    /// The values, whose bytes are counted before they come. `None` if one of them was replaced meanwhile.
    async fn filled(
        &self,
        space: &Space,
        found: Vec<Option<StoredHead>>,
        charges: Vec<Charge>,
    ) -> Result<Option<Vec<Option<Entry>>>, ParamError> {
        let mut entries = Vec::with_capacity(found.len());
        for (head, charge) in found.into_iter().zip(charges) {
            let Some(head) = head else {
                entries.push(None);
                continue;
            };
            let data = match &head.chunks {
                None => head.inline()?,
                Some(chunks) => match chunks.get(&self.link, &space.tenant, 0..head.frame.bytes).await? {
                    Some(data) => data,
                    None => return Ok(None),
                },
            };
            entries.push(Some(head.entry(counted_bytes(data, charge))?));
        }
        Ok(Some(entries))
    }
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn number(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}
