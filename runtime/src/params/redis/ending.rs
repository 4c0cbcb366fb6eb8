//! What goes away: values that expired, chunks that nobody needs, and all of a tenant that is gone.

use std::collections::BTreeMap;
use std::time::Instant;

use ::redis::Value as Reply;
use bytes::Bytes;

use super::answer::{self, Answer};
use super::keys::Keys;
use super::{COLLECTED, ENDED_KEPT, Redis, incarnation, number, scripts};
use crate::params::{ParamError, ParamStore, Space};
use crate::tenant::StoreId;

/// What one collection did.
pub(super) struct Collected {
    /// Values that expired.
    pub(super) expired: u64,
    /// Whether there was more to delete than there was time for.
    is_cut_short: bool,
}

impl Redis {
    /// Goes on with a store that was ended, if it was.
    pub(super) async fn begin(&self, tenant: &StoreId) -> Result<Answer, ParamError> {
        let arguments = vec![Bytes::from(incarnation::random()?)];
        self.run(&scripts::BEGIN, &Space::of_tenant(tenant.clone()), None, arguments).await
    }

    pub(super) async fn delete_all_of(&self, tenant: &StoreId) -> Result<(), ParamError> {
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
    pub(super) async fn all_spaces(&self, tenant: &StoreId) -> Result<Vec<(Space, bool)>, ParamError> {
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
    pub(super) async fn collect_of(&self, tenant: &StoreId) -> Result<Collected, ParamError> {
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
