//! The store in Redis or Valkey, alone or a cluster: what several nodes share.
//!
//! All heads of a tenant are in one slot, so that a script sees and changes any of them in one step; see `prelude.lua` for
//! what a head is. Values that are not small are cut into chunks, spread over all slots under keys that are never written
//! twice: room is reserved for them before any is sent, a head that names them is put in place after they are, and chunks
//! that no head names any more stay for a minute, so a reader sees whole values only. Chunks of a change that was refused
//! go at once. What a script answered is kept for a while under the request's number: a request
//! that is sent again for want of an answer is not done twice.
//!
//! A server that was emptied is told by its incarnation, which this node remembers: that is lost state, and an error.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ::redis as client;
use async_trait::async_trait;
use bytes::Bytes;
use client::Value as Reply;

use super::{
    Change, Changed, Entry, Expect, Form, Head, Key, MAX_CLAIMS, ParamError, ParamStore, Space, Value, Watch, Write,
    counted, counted_bytes,
};
use crate::tenant::{Account, Charge, OverLimit, StoreId};

mod answer;
mod chunks;
mod head;
mod incarnation;
mod link;
mod reservation;
mod scripts;
mod watcher;

pub use incarnation::Incarnations;
pub use link::{ConnectError, Link};

use answer::Answer;
use head::StoredHead;
use reservation::Reservation;
use scripts::Script;
use watcher::News;

/// Values up to this are part of their head.
const INLINE: usize = 64 << 10;

/// How long an answer is kept for who asks again: longer than anybody does.
const ANSWERS_KEPT: Duration = Duration::from_secs(60);

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
    /// How long the server waits for chunks unless it is asked for more time.
    sending: Duration,
}

/// What one collection did.
struct Collected {
    /// Values that expired.
    expired: u64,
    /// Whether there was more to delete than there was time for.
    is_cut_short: bool,
}

/// The keys of a space. All but the tenant's own are those of its job.
struct Keys {
    prefix: String,
    job: String,
}

impl Keys {
    fn of(space: &Space) -> Self {
        Self { prefix: Self::prefix(&space.tenant), job: space.job_name().to_owned() }
    }

    fn prefix(tenant: &StoreId) -> String {
        format!("weft:{{{}}}", tenant.as_str())
    }

    /// In the order in which scripts know them.
    fn all(&self) -> Vec<String> {
        let Self { prefix, job } = self;
        let of_job = |kind: &str| format!("{prefix}:{kind}:{job}");
        let of_tenant = |kind: &str| format!("{prefix}:{kind}");
        vec![
            of_job("h"),
            of_job("z"),
            of_tenant("u"),
            of_job("e"),
            of_tenant("x"),
            of_tenant("g"),
            of_tenant("i"),
            of_tenant("j"),
            of_job("n"),
            of_tenant("r"),
        ]
    }

    /// Where the answer to a request is kept for whoever asks again.
    fn answer(tenant: &StoreId) -> Result<String, ParamError> {
        Ok(format!("{}:o:{}", Self::prefix(tenant), incarnation::random()?))
    }

    /// Chunks that are being deleted.
    fn doomed(tenant: &StoreId) -> String {
        format!("{}:d", Self::prefix(tenant))
    }

    fn heads(&self) -> String {
        format!("{}:h:{}", self.prefix, self.job)
    }
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
        Ok(Arc::new(Self { link: Arc::new(link), incarnations: Arc::new(incarnations), news, sending }))
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

    /// The arguments of the script, whose large values were sent ahead.
    fn arguments(account: &Account, write: &Write, sent: Vec<chunks::Sent>) -> Result<Vec<Bytes>, ParamError> {
        let mut sent = sent.into_iter();
        let milliseconds = |span: Option<Duration>| {
            number(span.map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 50)))
        };
        let mut arguments = vec![number(account.limit())];
        match &write.fence {
            Some(fence) => arguments.extend([text(fence.claim.as_str()), number(fence.epoch)]),
            None => arguments.extend([Bytes::new(), number(0)]),
        }
        arguments.push(number(ANSWERS_KEPT.as_millis() as u64));
        arguments.push(number(write.checks.len() as u64));
        for (key, expected) in &write.checks {
            arguments.push(text(key.as_str()));
            arguments.push(match expected {
                Expect::Absent => Bytes::from_static(b"-"),
                Expect::Version(version) => number(*version),
            });
        }
        arguments.push(number(write.changes.len() as u64));
        for (key, change) in &write.changes {
            match change {
                Change::Set { value, expires } => {
                    let sent = if value.data.len() > INLINE { sent.next() } else { None };
                    let (frame, body) = head::body(value, sent.as_ref())?;
                    let (reference, chunks) = sent.map_or(("-".to_owned(), 0), |sent| (sent.reference, sent.count));
                    let count = value.count().map_or_else(|| "-".to_owned(), |count| count.to_string());
                    arguments.extend([Bytes::from_static(b"S"), text(key.as_str())]);
                    arguments.extend([
                        number(counted(key, value.stored_bytes())),
                        Bytes::from(reference),
                        number(chunks),
                    ]);
                    arguments.extend([Bytes::from(count), milliseconds(*expires), number(frame), body]);
                }
                Change::Add(by) => {
                    let (frame, body) = head::body(&Value::counter(0), None)?;
                    arguments.extend([Bytes::from_static(b"A"), text(key.as_str()), Bytes::from(by.to_string())]);
                    arguments.extend([number(counted(key, 8)), number(frame), body]);
                }
                Change::Delete => arguments.extend([Bytes::from_static(b"D"), text(key.as_str())]),
                Change::Expire(span) => {
                    arguments.extend([Bytes::from_static(b"X"), text(key.as_str()), milliseconds(*span)]);
                }
            }
        }
        Ok(arguments)
    }

    /// Reserves room for large values, given as the bytes of each and the bytes that count.
    async fn reserve(
        self,
        space: Space,
        account: Arc<Account>,
        epoch: u64,
        values: Vec<(u64, u64)>,
    ) -> Result<Reservation, ParamError> {
        let mut arguments = vec![number(account.limit()), number(values.len() as u64)];
        arguments.extend([epoch, self.sending.as_millis() as u64, ANSWERS_KEPT.as_millis() as u64].map(number));
        for &(bytes, counted) in &values {
            arguments.extend([number(chunks::count(bytes)), number(counted)]);
        }
        let answer = self.run(&scripts::RESERVE, &space, Some(Keys::answer(&space.tenant)?), arguments).await?;
        if let Answer::Limit = answer {
            return Err(OverLimit { name: account.name(), limit: account.limit() }.into());
        }
        let mut parts = answer.done()?.into_iter();
        let is_crowded = answer::text(parts.next().unwrap_or(Reply::Nil))? == "1";
        let references: Vec<String> = parts.map(answer::text).collect::<Result<_, _>>()?;
        let places =
            references.iter().zip(&values).map(|(reference, &(bytes, _))| chunks::named(reference, bytes)).collect();
        let reservation = Reservation::new(self.clone(), space, places);
        if is_crowded {
            // More that was replaced is kept for its readers than the tenant may have: it goes now. What is left when the
            // time is over goes with the next collection.
            self.collect_of(&reservation.space().tenant).await?;
        }
        Ok(reservation)
    }

    /// Puts large values where no head names them yet.
    async fn send(&self, reservation: &Reservation, write: &Write) -> Result<Vec<chunks::Sent>, ParamError> {
        let tenant = &reservation.space().tenant;
        let is_stopped = AtomicBool::new(false);
        let sending = async {
            let mut sent = Vec::new();
            for (reference, (_, value)) in reservation.references().zip(large_values(write)) {
                let data = value.data.clone();
                sent.push(chunks::put(&self.link, tenant, reference.to_owned(), data, &is_stopped).await?);
            }
            Ok(sent)
        };
        let mut sending = std::pin::pin!(sending);
        tokio::select! {
            sent = &mut sending => sent,
            error = self.renew(reservation) => {
                // Those under way are waited for: a chunk that arrives after the others were deleted would stay for ever.
                is_stopped.store(true, Relaxed);
                sending.await.ok();
                Err(error)
            }
        }
    }

    /// Sends large values, and makes the changes. `None` if sending took longer than the chunks are kept for.
    async fn send_and_change(
        self,
        reservation: Reservation,
        account: Arc<Account>,
        write: Write,
        answer_key: String,
    ) -> Result<Option<Vec<Changed>>, ParamError> {
        let sent = match self.send(&reservation, &write).await {
            Ok(sent) => sent,
            Err(error) => {
                reservation.abandon().await;
                return Err(error);
            }
        };
        let arguments = Self::arguments(&account, &write, sent)?;
        let answer = self.run(&scripts::WRITE, reservation.space(), Some(answer_key), arguments).await;
        // Only where it is certain that the change was not made: an answer may be lost and the change done.
        match &answer {
            Ok(Answer::Done { .. }) | Err(ParamError::Unavailable(_) | ParamError::Damaged(_)) => reservation.keep(),
            _ => reservation.abandon().await,
        }
        match answer? {
            Answer::Late => Ok(None),
            answer => changed(&account, write, answer).map(Some),
        }
    }

    /// Asks for more time to send, again and again, until that is refused.
    async fn renew(&self, reservation: &Reservation) -> ParamError {
        loop {
            tokio::time::sleep(self.sending / RENEWALS).await;
            let mut arguments = vec![number(self.sending.as_millis() as u64)];
            arguments.extend(reservation.places().iter().map(|place| text(place)));
            match self.run(&scripts::RENEW, reservation.space(), None, arguments).await {
                Ok(Answer::Late) => {
                    return ParamError::Unavailable("a value took too long to send".to_owned());
                }
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }

    /// Deletes what was sent for a change that is not made. What cannot be deleted now is collected later.
    async fn abandon(&self, space: &Space, places: &[String]) {
        if places.is_empty() {
            return;
        }
        let abandoned = async {
            let arguments = places.iter().map(|place| text(place)).collect();
            let doomed = Some(Keys::doomed(&space.tenant));
            self.run(&scripts::RELEASE, space, doomed, arguments).await?.done()?;
            // Also those that were collected already: some of their chunks may have come after that.
            self.delete_chunks(space, places).await
        };
        if let Err(error) = abandoned.await {
            tracing::warn!(%error, "chunks of a refused value are left to be collected");
        }
    }

    /// Deletes chunks that no head can name any more, and counts them no longer.
    async fn delete_chunks(&self, space: &Space, places: &[String]) -> Result<(), ParamError> {
        if places.is_empty() {
            return Ok(());
        }
        chunks::delete(&self.link, &space.tenant, places).await?;
        let arguments = places.iter().map(|place| text(place)).collect();
        let doomed = Some(Keys::doomed(&space.tenant));
        self.run(&scripts::FORGET, space, doomed, arguments).await?.done().map(drop)
    }
}

/// Values that are cut into chunks.
fn large_values(write: &Write) -> impl Iterator<Item = (&Key, &Value)> {
    write.changes.iter().filter_map(|(key, change)| match change {
        Change::Set { value, .. } if value.data.len() > INLINE => Some((key, value)),
        _ => None,
    })
}

/// Goes on with it to its end, also if whoever waits for it goes away.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ParamError>> + Send + 'static,
) -> Result<T, ParamError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| Err(ParamError::Unavailable(format!("a write was interrupted: {error}"))))
}

/// What the script said to the changes.
fn changed(account: &Account, write: Write, answer: Answer) -> Result<Vec<Changed>, ParamError> {
    match answer {
        Answer::Limit => Err(OverLimit { name: account.name(), limit: account.limit() }.into()),
        Answer::Fenced { newest } => match write.fence {
            Some(fence) => Err(ParamError::Fenced { claim: fence.claim, epoch: fence.epoch, newest }),
            None => Err(ParamError::Damaged("a fence that was not given".to_owned())),
        },
        Answer::Conflict { key, found } => {
            let expected = write.checks.iter().find(|(checked, _)| *checked == key);
            let expected = expected.map_or(Expect::Absent, |(_, expected)| *expected);
            Err(ParamError::Conflict { key, found, expected })
        }
        Answer::Form { key, found } => {
            Err(ParamError::WrongForm { key, found: found.to_string(), wanted: "a counter".to_owned() })
        }
        Answer::Overflow { key } => Err(ParamError::Overflow(key)),
        answer => answer.done()?.into_iter().map(head::read_changed).collect(),
    }
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn number(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

#[async_trait]
impl ParamStore for Redis {
    async fn read(
        &self,
        space: &Space,
        account: &Arc<Account>,
        keys: &[Key],
    ) -> Result<Vec<Option<Entry>>, ParamError> {
        let mut before: Option<Vec<Option<(u64, Form)>>> = None;
        let names: Vec<&Key> = keys.iter().collect();
        for _ in 0..READS {
            let mut found = self.stored(space, &names, COME_ALONG as u64).await?;
            let seen: Vec<Option<(u64, Form)>> =
                found.iter().map(|head| head.as_ref().map(|head| (head.version(), head.frame.form.clone()))).collect();
            // Counted before they come.
            let mut charges = Vec::with_capacity(found.len());
            for head in &found {
                let mut charge = Charge::none(account.clone());
                charge.grow(head.as_ref().map_or(0, |head| head.frame.bytes))?;
                charges.push(charge);
            }
            if self.complete(space, keys, &mut found).await?
                && let Some(entries) = self.filled(space, found, charges).await?
            {
                return Ok(entries);
            }
            if before.as_ref() == Some(&seen) {
                let what = format!("chunks of `{space}` are missing at {}", self.link.name());
                return Err(ParamError::Lost(what));
            }
            before = Some(seen);
        }
        Err(ParamError::Unavailable(format!("values of `{space}` were replaced faster than they could be read")))
    }

    async fn read_range(
        &self,
        space: &Space,
        account: &Arc<Account>,
        key: &Key,
        range: Range<u64>,
    ) -> Result<Option<Entry>, ParamError> {
        let mut before = None;
        for _ in 0..READS {
            let Some(head) = self.stored(space, &[key], INLINE as u64).await?.pop().flatten() else {
                return Ok(None);
            };
            let bytes = head.frame.bytes;
            if range.start > range.end || range.end > bytes {
                return Err(ParamError::BadRange { key: key.clone(), range, bytes });
            }
            let mut charge = Charge::none(account.clone());
            charge.grow(range.end - range.start)?;
            let data = match &head.chunks {
                None => Some(head.inline()?.slice(range.start as usize..range.end as usize)),
                Some(chunks) => chunks.get(&self.link, &space.tenant, range.clone()).await?,
            };
            if let Some(data) = data {
                let Head { version, expires, .. } = head.head();
                let value = Value { form: Form::Bytes, data: counted_bytes(data, charge) };
                return Ok(Some(Entry { version, expires, value }));
            }
            if before.as_ref() == Some(&head) {
                return Err(ParamError::Lost(format!("chunks of `{key}` are missing at {}", self.link.name())));
            }
            before = Some(head);
        }
        Err(ParamError::Unavailable(format!("`{key}` was replaced faster than it could be read")))
    }

    async fn heads(&self, space: &Space, keys: &[Key]) -> Result<Vec<Option<Head>>, ParamError> {
        let found = self.stored(space, &keys.iter().collect::<Vec<_>>(), 0).await?;
        Ok(found.into_iter().map(|head| head.map(|head| head.head())).collect())
    }

    async fn write(&self, space: &Space, account: &Arc<Account>, write: Write) -> Result<Vec<Changed>, ParamError> {
        write.check()?;
        let answer_key = Keys::answer(&space.tenant)?;
        let large: Vec<(u64, u64)> = large_values(&write)
            .map(|(key, value)| (value.data.len() as u64, counted(key, value.stored_bytes())))
            .collect();
        if large.is_empty() {
            let arguments = Self::arguments(account, &write, Vec::new())?;
            let answer = self.run(&scripts::WRITE, space, Some(answer_key), arguments).await?;
            return changed(account, write, answer);
        }
        let epoch = write.fence.as_ref().map_or(0, |fence| fence.epoch);
        loop {
            // What is reserved or sent must be used or deleted, also if the caller goes away. Until room is reserved the
            // values stay with the caller, so that what such callers leave in memory is within the tenant's limit.
            let reserving = self.clone().reserve(space.clone(), account.clone(), epoch, large.clone());
            let reservation = to_its_end(reserving).await?;
            let sending = self.clone().send_and_change(reservation, account.clone(), write.clone(), answer_key.clone());
            // Chunks that took longer to send than they are kept for are sent once more.
            if let Some(changed) = to_its_end(sending).await? {
                return Ok(changed);
            }
        }
    }

    async fn list(
        &self,
        space: &Space,
        prefix: &str,
        after: Option<&Key>,
        at_most: usize,
    ) -> Result<Vec<(Key, Head)>, ParamError> {
        let mut first = match after {
            Some(after) if after.as_str() >= prefix => format!("({after}"),
            _ => format!("[{prefix}"),
        };
        // No name has a byte as large as this.
        let last = Bytes::from([b"[", prefix.as_bytes(), b"\xff"].concat());
        let mut listed = Vec::new();
        while listed.len() < at_most {
            // A whole page, however few are wanted: most of its names may have expired.
            let arguments = vec![Bytes::from(first), last.clone(), number(LISTED as u64)];
            let mut parts = self.run(&scripts::LIST, space, None, arguments).await?.done()?.into_iter();
            let rest = answer::text(parts.next().unwrap_or(Reply::Nil))?;
            for part in parts {
                listed.push(head::read_listed(part)?);
            }
            if rest.is_empty() {
                break;
            }
            first = format!("({rest}");
        }
        listed.truncate(at_most);
        Ok(listed)
    }

    async fn claim(&self, space: &Space, account: &Arc<Account>, claim: &Key) -> Result<u64, ParamError> {
        let (most, limit) = (MAX_CLAIMS as u64, account.limit());
        let arguments = vec![text(claim.as_str()), number(counted(claim, 0)), number(most), number(limit)];
        match self.run(&scripts::CLAIM, space, None, arguments).await? {
            Answer::Claims => {
                Err(ParamError::TooMany { what: "claims of a job (`max_claims`)", given: most + 1, most })
            }
            Answer::Limit => Err(OverLimit { name: account.name(), limit }.into()),
            answer => answer.one_number(),
        }
    }

    fn watch(&self, space: &Space) -> Watch {
        Watch::new(self.news.of(Keys::of(space).heads()), Some(LOOK_AGAIN))
    }

    async fn spaces(&self, tenant: &StoreId) -> Result<Vec<Space>, ParamError> {
        let all = self.all_spaces(tenant).await?;
        Ok(all.into_iter().filter(|(_, has_values)| *has_values).map(|(space, _)| space).collect())
    }

    async fn clear(&self, space: &Space) -> Result<u64, ParamError> {
        let (mut gone, mut after) = (0, String::new());
        loop {
            let arguments = vec![Bytes::from(after), number(CLEARED as u64)];
            let mut parts = self.run(&scripts::CLEAR, space, None, arguments).await?.done()?.into_iter();
            gone += answer::number(parts.next().unwrap_or(Reply::Nil))?;
            after = answer::text(parts.next().unwrap_or(Reply::Nil))?;
            if after.is_empty() {
                return Ok(gone);
            }
        }
    }

    async fn end(&self, tenant: &StoreId) -> Result<(), ParamError> {
        match self.delete_all_of(tenant).await {
            // The server was emptied, or the store has begun anew for somebody else: nothing of this one is left.
            Err(ParamError::Lost(_)) => {}
            deleted => deleted?,
        }
        self.incarnations.forget(tenant).map_err(ParamError::Unavailable)
    }

    async fn used(&self, tenant: &StoreId) -> Result<u64, ParamError> {
        let mut command = client::cmd("HGET");
        command.arg(format!("{}:u", Keys::prefix(tenant))).arg("bytes");
        let reply = self.link.run(&command).await?;
        if reply == Reply::Nil { Ok(0) } else { answer::number(reply) }
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn accept_loss(&self, tenant: &StoreId) -> Result<(), ParamError> {
        self.incarnations.forget(tenant).map_err(ParamError::Unavailable)?;
        match self.begin(tenant).await? {
            Answer::Ending => {
                // Whoever deleted the tenant elsewhere has not come to the end of it.
                self.end(tenant).await?;
                self.begin(tenant).await?.done().map(drop)
            }
            answer => answer.done().map(drop),
        }
    }

    async fn collect(&self) -> Result<u64, ParamError> {
        let mut gone = 0;
        for tenant in self.link.tenants().await? {
            let Ok(tenant) = tenant.parse::<StoreId>() else { continue };
            gone += self.collect_of(&tenant).await?.expired;
        }
        Ok(gone)
    }
}

impl Redis {
    /// Goes on with a store that was ended, if it was.
    async fn begin(&self, tenant: &StoreId) -> Result<Answer, ParamError> {
        let arguments = vec![Bytes::from(incarnation::random()?)];
        self.run(&scripts::BEGIN, &Space::of_tenant(tenant.clone()), None, arguments).await
    }

    async fn delete_all_of(&self, tenant: &StoreId) -> Result<(), ParamError> {
        let space = Space::of_tenant(tenant.clone());
        self.run(&scripts::END, &space, None, vec![number(0)]).await?.done()?;
        for (space, _) in self.all_spaces(tenant).await? {
            self.clear(&space).await?;
        }
        // As long as something is left, the tenant is among those that are collected for, and its end is to be tried again.
        if self.collect_of(tenant).await?.is_cut_short {
            return Err(ParamError::Unavailable(format!(
                "chunks of `{}` at {} are still being deleted",
                tenant.as_str(),
                self.link.name()
            )));
        }
        // Before the last step, after which the tenant may begin anew elsewhere and is to be collected for again.
        self.link.remove_tenant(tenant).await?;
        let kept = number(ENDED_KEPT.as_millis() as u64);
        self.run(&scripts::END, &space, None, vec![kept]).await?.done().map(drop)
    }

    /// All spaces in which a tenant has something, each with whether that is values.
    async fn all_spaces(&self, tenant: &StoreId) -> Result<Vec<(Space, bool)>, ParamError> {
        let of_tenant = Space::of_tenant(tenant.clone());
        let (mut spaces, mut cursor) = (BTreeMap::new(), "0".to_owned());
        loop {
            let arguments = vec![Bytes::from(cursor), Bytes::from(Keys::prefix(tenant))];
            let mut parts = self.run(&scripts::SPACES, &of_tenant, None, arguments).await?.done()?.into_iter();
            cursor = answer::text(parts.next().unwrap_or(Reply::Nil))?;
            for part in parts {
                let mut part = answer::list(part)?.into_iter();
                let job = answer::text(part.next().unwrap_or(Reply::Nil))?;
                let has_values = answer::number(part.next().unwrap_or(Reply::Nil))? != 0;
                let job = if job == Space::SHARED { None } else { job.parse().ok() };
                spaces.insert(Space { tenant: tenant.clone(), job }, has_values);
            }
            if cursor == "0" {
                return Ok(spaces.into_iter().collect());
            }
        }
    }

    /// Deletes what expired and what is garbage, until nothing of it is left or the time is over.
    async fn collect_of(&self, tenant: &StoreId) -> Result<Collected, ParamError> {
        let mut collected = Collected { expired: 0, is_cut_short: false };
        let space = Space::of_tenant(tenant.clone());
        let end = Instant::now() + self.link.patience();
        loop {
            let arguments = vec![number(COLLECTED as u64), Bytes::from(Keys::prefix(tenant))];
            let answer = self.run(&scripts::COLLECT, &space, Some(Keys::doomed(tenant)), arguments).await;
            let mut parts = match answer {
                // Nothing to collect from what is lost.
                Err(ParamError::Lost(_)) => return Ok(collected),
                answer => answer?.done()?.into_iter(),
            };
            let expired = answer::number(parts.next().unwrap_or(Reply::Nil))?;
            collected.expired += expired;
            let references = answer::texts(parts.next().unwrap_or(Reply::Nil))?;
            self.delete_chunks(&space, &references).await?;
            collected.is_cut_short = expired as usize >= COLLECTED || references.len() >= COLLECTED;
            if !collected.is_cut_short || Instant::now() > end {
                return Ok(collected);
            }
        }
    }
}
