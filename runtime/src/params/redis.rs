//! The store in Redis or Valkey, alone or a cluster: what several nodes share.
//!
//! All heads of a tenant are in one slot, so that a script sees and changes any of them in one step; see `prelude.lua` for
//! what a head is. Values that are not small are cut into chunks, spread over all slots under keys that are never written
//! twice: a head that names them is put in place after they are, and chunks that no head names any more stay for a minute,
//! so a reader sees whole values only. What a script answered is kept for a while under the request's number: a request
//! that is sent again for want of an answer is not done twice.
//!
//! A server that was emptied is told by its incarnation, which this node remembers: that is lost state, and an error.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis as client;
use async_trait::async_trait;
use bytes::Bytes;
use client::Value as Reply;

use super::{
    Change, Changed, Entry, Expect, Form, Head, Key, ParamError, ParamStore, Space, Value, Watch, Write, counted,
};
use crate::names::Name;
use crate::tenant::{Account, OverLimit};

mod answer;
mod chunks;
mod head;
mod incarnation;
mod link;
mod scripts;
mod watcher;

pub use incarnation::Incarnations;
pub use link::{ConnectError, Link};

use answer::Answer;
use head::StoredHead;
use scripts::Script;
use watcher::News;

/// Values up to this are part of their head.
const INLINE: usize = 64 << 10;

/// How long an answer is kept for who asks again: longer than anybody does.
const ANSWERS_KEPT: Duration = Duration::from_secs(60);

/// How long chunks may take to be sent before they are garbage.
const SENDING: Duration = Duration::from_secs(3_600);

/// How often values are looked for again that were replaced while they were read.
const READS: usize = 16;

/// Expired values and chunks that one script takes away.
const COLLECTED: usize = 1_000;

/// How long a server that does not answer is asked again.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where waits look again, should news of a change be lost with a connection.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub struct Redis {
    link: Link,
    incarnations: Incarnations,
    news: News,
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

    fn prefix(tenant: &Name) -> String {
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
        ]
    }

    fn heads(&self) -> String {
        format!("{}:h:{}", self.prefix, self.job)
    }
}

impl Redis {
    /// `incarnations` is what this node remembers of the server.
    pub async fn connect(link: Link, incarnations: Incarnations) -> Result<Arc<Self>, ConnectError> {
        link.check().await?;
        let news = News::listen(&link);
        Ok(Arc::new(Self { link, incarnations, news }))
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
        let candidate = if known.is_none() { incarnation::random()? } else { String::new() };
        let mut given =
            vec![Bytes::from(known.clone().unwrap_or_default()), Bytes::from(candidate), Bytes::from(keys.job)];
        given.extend(arguments);
        let reply = self.link.script(script, &all, &given).await?;
        let answer = Answer::read(reply)?;
        match &answer {
            Answer::Lost => Err(ParamError::Lost(format!(
                "the server at {} was emptied since this node used it; after `weft params delete --all` the store of `{}` \
                 begins anew",
                self.link.name(),
                space.tenant.as_str()
            ))),
            Answer::Done { incarnation, .. } if known.is_none() => {
                self.incarnations.learn(&space.tenant, incarnation).map_err(ParamError::Unavailable)?;
                self.link.add_tenant(&space.tenant).await?;
                Ok(answer)
            }
            _ => Ok(answer),
        }
    }

    async fn stored(&self, space: &Space, keys: &[Key], whole: bool) -> Result<Vec<Option<StoredHead>>, ParamError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut arguments = vec![Bytes::from_static(if whole { b"1" } else { b"0" })];
        arguments.extend(keys.iter().map(|key| Bytes::copy_from_slice(key.as_str().as_bytes())));
        let parts = self.run(&scripts::READ, space, None, arguments).await?.done()?;
        parts.into_iter().map(StoredHead::read_optional).collect()
    }

    /// The values, of which `range` says what is wanted. `None` if one of them was replaced meanwhile.
    async fn filled(
        &self,
        space: &Space,
        found: Vec<Option<StoredHead>>,
    ) -> Result<Option<Vec<Option<Entry>>>, ParamError> {
        let mut entries = Vec::with_capacity(found.len());
        for head in found {
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
            entries.push(Some(head.entry(data)?));
        }
        Ok(Some(entries))
    }

    /// Sends what is large ahead, and makes the arguments of the script.
    async fn arguments(&self, space: &Space, account: &Arc<Account>, write: &Write) -> Result<Vec<Bytes>, ParamError> {
        let epoch = write.fence.as_ref().map_or(0, |fence| fence.epoch);
        let large: Vec<&Bytes> = write
            .changes
            .iter()
            .filter_map(|(_, change)| match change {
                Change::Set { value, .. } if value.data.len() > INLINE => Some(&value.data),
                _ => None,
            })
            .collect();
        let mut sent = self.send(space, epoch, &large).await?.into_iter();
        let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let number = |number: u64| Bytes::from(number.to_string());
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
                        number(counted(key, value.data.len() as u64)),
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
                Change::Take => arguments.extend([Bytes::from_static(b"T"), text(key.as_str())]),
                Change::Expire(span) => {
                    arguments.extend([Bytes::from_static(b"X"), text(key.as_str()), milliseconds(*span)]);
                }
            }
        }
        Ok(arguments)
    }

    /// Puts large values where no head names them yet.
    async fn send(&self, space: &Space, epoch: u64, values: &[&Bytes]) -> Result<Vec<chunks::Sent>, ParamError> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let number = |number: u64| Bytes::from(number.to_string());
        let mut arguments = vec![number(values.len() as u64), number(epoch), number(SENDING.as_millis() as u64)];
        arguments.extend(values.iter().map(|value| number(chunks::count(value.len() as u64))));
        let references = self.run(&scripts::RESERVE, space, None, arguments).await?.done()?;
        let mut sent = Vec::with_capacity(values.len());
        for (reference, value) in references.into_iter().zip(values) {
            let reference = answer::text(reference)?;
            sent.push(chunks::put(&self.link, &space.tenant, reference, (*value).clone()).await?);
        }
        Ok(sent)
    }
}

#[async_trait]
impl ParamStore for Redis {
    async fn read(&self, space: &Space, keys: &[Key]) -> Result<Vec<Option<Entry>>, ParamError> {
        let mut before: Option<Vec<Option<StoredHead>>> = None;
        for _ in 0..READS {
            let found = self.stored(space, keys, true).await?;
            if let Some(entries) = self.filled(space, found.clone()).await? {
                return Ok(entries);
            }
            if before.as_ref() == Some(&found) {
                let what = format!("chunks of `{space}` are missing at {}", self.link.name());
                return Err(ParamError::Lost(what));
            }
            before = Some(found);
        }
        Err(ParamError::Unavailable(format!("values of `{space}` were replaced faster than they could be read")))
    }

    async fn read_range(&self, space: &Space, key: &Key, range: Range<u64>) -> Result<Option<Entry>, ParamError> {
        let mut before = None;
        for _ in 0..READS {
            let Some(head) = self.stored(space, std::slice::from_ref(key), true).await?.pop().flatten() else {
                return Ok(None);
            };
            let bytes = head.frame.bytes;
            if range.start > range.end || range.end > bytes {
                return Err(ParamError::BadRange { key: key.clone(), range, bytes });
            }
            let data = match &head.chunks {
                None => Some(head.inline()?.slice(range.start as usize..range.end as usize)),
                Some(chunks) => chunks.get(&self.link, &space.tenant, range.clone()).await?,
            };
            if let Some(data) = data {
                let Head { version, expires, .. } = head.head();
                return Ok(Some(Entry { version, expires, value: Value { form: Form::Bytes, data } }));
            }
            if before.as_ref() == Some(&head) {
                return Err(ParamError::Lost(format!("chunks of `{key}` are missing at {}", self.link.name())));
            }
            before = Some(head);
        }
        Err(ParamError::Unavailable(format!("`{key}` was replaced faster than it could be read")))
    }

    async fn heads(&self, space: &Space, keys: &[Key]) -> Result<Vec<Option<Head>>, ParamError> {
        let found = self.stored(space, keys, false).await?;
        Ok(found.into_iter().map(|head| head.map(|head| head.head())).collect())
    }

    async fn write(&self, space: &Space, account: &Arc<Account>, write: Write) -> Result<Vec<Changed>, ParamError> {
        write.check()?;
        let answer_key = format!("{}:o:{}", Keys::prefix(&space.tenant), incarnation::random()?);
        loop {
            let arguments = self.arguments(space, account, &write).await?;
            let answer = self.run(&scripts::WRITE, space, Some(answer_key.clone()), arguments).await?;
            return match answer {
                // Chunks took longer to send than they are kept for: once more.
                Answer::Late => continue,
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
                answer => self.changed(space, answer.done()?).await,
            };
        }
    }

    async fn list(
        &self,
        space: &Space,
        prefix: &str,
        after: Option<&Key>,
        at_most: usize,
    ) -> Result<Vec<(Key, Head)>, ParamError> {
        let first = match after {
            Some(after) if after.as_str() >= prefix => format!("({after}"),
            _ => format!("[{prefix}"),
        };
        // No name has a byte as large as this.
        let last = [b"[", prefix.as_bytes(), b"\xff"].concat();
        let arguments = vec![Bytes::from(first), Bytes::from(last), Bytes::from(at_most.to_string())];
        let parts = self.run(&scripts::LIST, space, None, arguments).await?.done()?;
        parts.into_iter().map(head::read_listed).collect()
    }

    async fn claim(&self, space: &Space, claim: &Key) -> Result<u64, ParamError> {
        let arguments = vec![Bytes::copy_from_slice(claim.as_str().as_bytes())];
        self.run(&scripts::CLAIM, space, None, arguments).await?.one_number()
    }

    fn watch(&self, space: &Space) -> Watch {
        Watch::new(self.news.of(Keys::of(space).heads()), Some(LOOK_AGAIN))
    }

    async fn spaces(&self, tenant: &Name) -> Result<Vec<Space>, ParamError> {
        let mut spaces = Vec::new();
        for job in self.link.members(&format!("{}:j", Keys::prefix(tenant))).await? {
            let job = if job == Space::SHARED { None } else { job.parse().ok() };
            let space = Space { tenant: tenant.clone(), job };
            if !self.list(&space, "", None, 1).await?.is_empty() {
                spaces.push(space);
            }
        }
        spaces.sort();
        Ok(spaces)
    }

    async fn clear(&self, space: &Space) -> Result<u64, ParamError> {
        self.run(&scripts::CLEAR, space, None, Vec::new()).await?.one_number()
    }

    async fn used(&self, tenant: &Name) -> Result<u64, ParamError> {
        let mut command = client::cmd("HGET");
        command.arg(format!("{}:u", Keys::prefix(tenant))).arg("bytes");
        let reply = self.link.run(&command).await?;
        if reply == Reply::Nil { Ok(0) } else { answer::number(reply) }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn accept_loss(&self, tenant: &Name) -> Result<(), ParamError> {
        self.incarnations.forget(tenant).map_err(ParamError::Unavailable)
    }

    async fn collect(&self) -> Result<u64, ParamError> {
        let mut gone = 0;
        for tenant in self.link.tenants().await? {
            let Ok(name) = tenant.parse::<Name>() else { continue };
            gone += self.collect_of(&name).await?;
        }
        Ok(gone)
    }
}

impl Redis {
    async fn changed(&self, space: &Space, parts: Vec<Reply>) -> Result<Vec<Changed>, ParamError> {
        let mut changed = Vec::with_capacity(parts.len());
        for part in parts {
            let (version, found, head) = head::read_changed(part)?;
            let entry = match head {
                // Chunks of what was taken are still there for a while.
                Some(head) => match self.filled(space, vec![Some(head)]).await? {
                    Some(mut entries) => entries.pop().flatten(),
                    None => return Err(ParamError::Lost(format!("chunks of `{space}` are missing"))),
                },
                None => None,
            };
            changed.push(Changed { version, found, entry });
        }
        Ok(changed)
    }

    async fn collect_of(&self, tenant: &Name) -> Result<u64, ParamError> {
        let mut gone = 0;
        let space = Space::of_tenant(tenant.clone());
        let prefix = Keys::prefix(tenant);
        let doomed = format!("{prefix}:d");
        let end = Instant::now() + PATIENCE;
        loop {
            let arguments = vec![Bytes::from(COLLECTED.to_string()), Bytes::from(prefix.clone())];
            let answer = self.run(&scripts::COLLECT, &space, Some(doomed.clone()), arguments).await;
            let mut parts = match answer {
                // Nothing to collect from what is lost.
                Err(ParamError::Lost(_)) => return Ok(gone),
                answer => answer?.done()?.into_iter(),
            };
            let expired = answer::number(parts.next().unwrap_or(Reply::Nil))?;
            gone += expired;
            let references = answer::texts(parts.next().unwrap_or(Reply::Nil))?;
            for reference in &references {
                chunks::delete(&self.link, tenant, reference).await?;
                let mut command = client::cmd("ZREM");
                command.arg(&doomed).arg(reference);
                self.link.run(&command).await?;
            }
            let more = expired as usize >= COLLECTED || references.len() >= COLLECTED;
            if !more || Instant::now() > end {
                return Ok(gone);
            }
        }
    }
}
