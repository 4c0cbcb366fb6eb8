//! What a store does, as any other does it.

use std::ops::Range;
use std::sync::Arc;

use ::redis as client;
use async_trait::async_trait;
use bytes::Bytes;
use client::Value as Reply;

use super::answer::{self, Answer};
use super::keys::Keys;
use super::requests::Requests;
use super::writing::{changed, large_values, to_its_end};
use super::{CLEARED, COME_ALONG, INLINE, LISTED, LOOK_AGAIN, READS, Redis, head, number, scripts, text};
use crate::params::{
    Changed, Entry, Form, Head, Key, MAX_CLAIMS, ParamError, ParamStore, Space, Value, Watch, Write, counted,
    counted_bytes,
};
use crate::tenant::{Account, Charge, StoreId};

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
        let request = Requests::next_id()?;
        let large: Vec<(u64, u64)> = large_values(&write)
            .map(|(key, value)| (value.data.len() as u64, counted(key, value.stored_bytes())))
            .collect();
        if large.is_empty() {
            let arguments = self.arguments(space, &request, account, &write, Vec::new())?;
            let answer = self.change(space, request, arguments).await?;
            return changed(account, write, answer);
        }
        let epoch = write.fence.as_ref().map_or(0, |fence| fence.epoch);
        loop {
            // What is reserved or sent must be used or deleted, also if the caller goes away. Until room is reserved the
            // values stay with the caller, so that what such callers leave in memory is within the tenant's limit.
            let reserving = self.clone().reserve(space.clone(), account.clone(), epoch, large.clone());
            let reservation = to_its_end(reserving).await?;
            let sending = self.clone().send_and_change(reservation, account.clone(), write.clone(), request.clone());
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
            Answer::Limit => Err(account.refused_elsewhere().into()),
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
        self.requests.forget(tenant);
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
