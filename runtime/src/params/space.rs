//! Where a value is: tenant, job, name. A guest only ever gives the last of them. The tenant is its id, which no other
//! tenant ever has, not its name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::names::Name;
use crate::tenant::StoreId;

/// How long the name of a value may be.
pub const MAX_KEY: usize = 200;

/// What the store's own names have beside the name they are made from.
const OWN_BYTES: usize = 16;

/// The names of one job, or those that a tenant's tasks share. No operation leaves it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Space {
    pub tenant: StoreId,
    pub job: Option<Name>,
}

impl Space {
    /// What stands for the space that belongs to no job; no job can have this name.
    pub const SHARED: &str = "-";

    pub fn of_tenant(tenant: StoreId) -> Self {
        Self { tenant, job: None }
    }

    pub fn of_job(tenant: StoreId, job: Name) -> Self {
        Self { tenant, job: Some(job) }
    }

    pub fn job_name(&self) -> &str {
        self.job.as_ref().map_or(Self::SHARED, Name::as_str)
    }
}

impl fmt::Display for Space {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.tenant.as_str(), self.job_name())
    }
}

/// The name of a value within its space. Cloning it shares the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(Arc<str>);

/// What is not the name of a value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not the name of a value: use 1 to {MAX_KEY} letters, digits, `.`, `_`, `-` and `/`, with something other \
     than `.` or `..` between slashes"
)]
pub struct BadKey(String);

impl Key {
    /// Begins the names that the store itself uses: nobody else can write one.
    const OWN: char = '~';

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What one worker gave to a round.
    pub(super) fn contribution(round: &Self, worker: u32) -> Self {
        Self(format!("{}c/{round}/{worker:08}", Self::OWN).into())
    }

    /// Who has come to a barrier.
    pub(super) fn arrival(barrier: &Self, worker: u32) -> Self {
        Self(format!("{}b/{barrier}/{worker:08}", Self::OWN).into())
    }

    /// The latest of one peer.
    pub(super) fn latest(topic: &Self, peer: u32) -> Self {
        Self(format!("{}p/{topic}/{peer:08}", Self::OWN).into())
    }

    /// All of [`Key::latest`].
    pub(super) fn latest_prefix(topic: &Self) -> String {
        format!("{}p/{topic}/", Self::OWN)
    }

    /// The peer of a [`Key::latest`].
    pub(super) fn peer(&self) -> Option<u32> {
        self.0.rsplit('/').next()?.parse().ok()
    }

    /// What begins the names of what workers of a job exchange.
    const EXCHANGED: &str = "~x/";

    /// What workers of a job exchange. The rest of the name is the job's business.
    pub(crate) fn exchanged(name: &str) -> Self {
        Self(format!("{}{name}", Self::EXCHANGED).into())
    }

    /// The rest of the name, if it is what workers of a job exchange.
    pub(crate) fn exchanged_name(&self) -> Option<&str> {
        self.0.strip_prefix(Self::EXCHANGED)
    }

    /// Whether the store itself uses it.
    pub fn is_own(&self) -> bool {
        self.0.starts_with(Self::OWN)
    }

    /// A name that a store had written, of either kind. Its own are a little longer than what they are made from.
    pub(super) fn stored(text: &str) -> Result<Self, BadKey> {
        match text.starts_with(Self::OWN) && text.len() <= MAX_KEY + OWN_BYTES {
            true => Ok(Self(text.into())),
            false => text.parse(),
        }
    }
}

impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        let fits = text.len() <= MAX_KEY
            && text.bytes().all(allowed)
            && text.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if fits { Ok(Self(text.into())) } else { Err(BadKey(text.chars().take(80).collect())) }
    }
}

impl TryFrom<String> for Key {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Self, BadKey> {
        Self::stored(&text)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0.as_ref().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_lead_elsewhere_are_refused() {
        for good in ["w", "layer.0/weight", "A_b-c.9"] {
            assert_eq!(good.parse::<Key>().map(String::from), Ok(good.to_owned()));
        }
        let long = "x".repeat(MAX_KEY + 1);
        for bad in ["", "/", "a//b", "/a", "a/", "../b", "a/./b", "~c/r/0", "a b", "a:b", "{a}", "a\0", "ä", &long] {
            assert!(bad.parse::<Key>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_store_wrote_is_read_again() {
        let round: Key = "x".repeat(MAX_KEY).parse().unwrap();
        let own = Key::contribution(&round, 7);
        assert_eq!(Key::stored(own.as_str()), Ok(own.clone()));
        assert!(own.is_own());
        assert_eq!(Key::latest(&round, 12).peer(), Some(12));
    }

    #[test]
    fn what_workers_exchange_is_under_names_that_nobody_else_can_write() {
        let own = Key::exchanged("1/2/0.3.7.1");
        assert!(own.is_own() && own.as_str().parse::<Key>().is_err());
        assert_eq!(own.exchanged_name(), Some("1/2/0.3.7.1"));
        assert_eq!(Key::stored(own.as_str()), Ok(own));
        // A contribution of a task has a prefix of its own, whatever the round is called.
        let round: Key = "x/1".parse().unwrap();
        assert_eq!(Key::contribution(&round, 2).exchanged_name(), None);
    }
}
