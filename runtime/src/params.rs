//! The parameter store: named, versioned values through which workers exchange weights.
//!
//! # Layout
//! - [`space`]: tenant, job and name; a guest cannot leave its own.
//! - [`value`]: bytes, tensors, counters, their versions.
//! - [`ParamStore`], here: what a backend does. Few things, each atomic: read, write, list, claim, be told of changes.
//! - [`bucket`]: what users do with a space. Rounds, barriers, peers and waits are made from what backends do, once.
//! - [`merge`]: the sum of what workers contributed. `summing`: who may make one, and when.
//! - [`embedded`]: in the node's memory, with snapshots on its disk. [`redis`]: shared between nodes.
//!
//! It knows nothing of devices or of HTTP.

use std::any::Any;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::tenant::{Account, Charge, OverLimit, StoreId};

mod address;
pub mod bucket;
pub mod embedded;
pub mod merge;
pub mod redis;
pub mod space;
mod summing;
pub mod value;

pub use address::{BadAddress, StoreAddress};
pub use bucket::Bucket;
pub use space::{BadKey, Key, Space};
pub use value::{BadValue, Entry, Form, Head, Moment, Value};

/// What an entry takes beside its name and its bytes, as it is counted. A test measures what it does take.
pub const ENTRY_BYTES: u64 = 512;

/// Claims in one space.
pub const MAX_CLAIMS: usize = 4_096;

/// Why a store did not do what it was asked. Nothing was changed, unless it says otherwise.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ParamError {
    #[error("`{key}` {}, and {expected} was expected", found.map_or("is not there".to_owned(), |found| format!("is at version {found}")))]
    Conflict { key: Key, found: Option<u64>, expected: Expect },
    #[error("the claim `{claim}` of epoch {epoch} is over: epoch {newest} has it")]
    Fenced { claim: Key, epoch: u64, newest: u64 },
    #[error("`{key}` is {found}, and {wanted} was wanted")]
    WrongForm { key: Key, found: String, wanted: String },
    #[error("`{0}` would pass the largest number that a counter holds")]
    Overflow(Key),
    #[error("bytes {} to {} of `{key}` were asked for, which has {bytes}", range.start, range.end)]
    BadRange { key: Key, range: Range<u64>, bytes: u64 },
    #[error("waited {} ms for {what}", waited.as_millis())]
    TimedOut { what: String, waited: Duration },
    #[error("`{0}` is changed twice in one call")]
    Repeated(Key),
    #[error("{what}: {given} is more than {most}")]
    TooMany { what: &'static str, given: u64, most: u64 },
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    #[error(
        "answers to the tenant's other changes take all of `max_kept_answers` = {most} bytes until they have arrived"
    )]
    KeptAnswers { most: u64 },
    #[error("the tenant was deleted, and its values with it")]
    Ended,
    #[error("the store is full: {0}")]
    Full(String),
    #[error("what was stored is lost: {0}")]
    Lost(String),
    #[error("the store cannot be reached: {0}; whether the change was made is not known")]
    Unavailable(String),
    #[error("the store holds what cannot be read: {0}")]
    Damaged(String),
}

impl ParamError {
    /// Whether it may be gone when it is tried again. A store that was emptied begins anew when its tenant says so, and a
    /// full one, or a full node, has room again when something is deleted. A tenant's own limit is not passing.
    pub fn passes(&self) -> bool {
        match self {
            Self::OverLimit(over) => over.name == "max_memory",
            Self::Unavailable(_) | Self::Full(_) | Self::Lost(_) | Self::KeptAnswers { .. } => true,
            Self::Conflict { .. }
            | Self::Fenced { .. }
            | Self::WrongForm { .. }
            | Self::Overflow(_)
            | Self::BadRange { .. }
            | Self::TimedOut { .. }
            | Self::Repeated(_)
            | Self::TooMany { .. }
            | Self::Ended
            | Self::Damaged(_) => false,
        }
    }

    /// What a tenant is told. Where the store is and what its server said are for the operator's log.
    pub fn told(&self) -> String {
        match self {
            Self::Full(_) => "the store is full: it has no room for anybody's values until some are deleted".to_owned(),
            Self::Lost(_) => {
                "what was stored is lost; after `weft params delete --all` the store begins anew".to_owned()
            }
            Self::Unavailable(_) => "the store cannot be reached; whether the change was made is not known".to_owned(),
            Self::Damaged(_) => "the store holds what cannot be read".to_owned(),
            told => told.to_string(),
        }
    }
}

/// What must hold for a write to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Absent,
    Version(u64),
}

impl std::fmt::Display for Expect {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => out.write_str("nothing"),
            Self::Version(version) => write!(out, "version {version}"),
        }
    }
}

/// What is done to one name.
#[derive(Clone, Debug)]
pub enum Change {
    Set {
        value: Value,
        expires: Option<Duration>,
    },
    /// Adds to a counter, which is 0 where there is none. Alone in its write.
    Add(i64),
    Delete,
    /// From now on; `None` is never.
    Expire(Option<Duration>),
}

/// Who writes: a claim can be taken from them, and then their writes are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub claim: Key,
    pub epoch: u64,
}

/// Changes that are made together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Write {
    pub checks: Vec<(Key, Expect)>,
    /// No name twice.
    pub changes: Vec<(Key, Change)>,
    pub fence: Option<Fence>,
    /// Answered only once it would survive a crash.
    pub durable: bool,
}

impl Write {
    /// Refuses what no backend could make sense of.
    pub fn check(&self) -> Result<(), ParamError> {
        let mut seen = HashSet::new();
        if let Some((key, _)) = self.changes.iter().find(|(key, _)| !seen.insert(key)) {
            return Err(ParamError::Repeated(key.clone()));
        }
        let counts = self.changes.iter().any(|(_, change)| matches!(change, Change::Add(_)));
        if counts && self.changes.len() > 1 {
            return Err(ParamError::TooMany {
                what: "changes beside a count",
                given: self.changes.len() as u64,
                most: 1,
            });
        }
        Ok(())
    }
}

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Of the name, from now on; of the change itself where it deleted.
    pub version: u64,
    /// Whether there was something before.
    pub found: bool,
    /// What a count left.
    pub entry: Option<Entry>,
}

/// Told when something in a space may have changed.
#[derive(Debug)]
pub struct Watch {
    changes: watch::Receiver<u64>,
    /// To look again after, where news can be lost.
    at_least_every: Option<Duration>,
    /// What the backend has for as long as somebody watches. It comes last, so that it is dropped last.
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl Watch {
    pub fn new(changes: watch::Receiver<u64>, at_least_every: Option<Duration>) -> Self {
        Self { changes, at_least_every, _held: None }
    }

    /// The same, and this is dropped when nobody watches any more.
    pub fn holding(self, held: impl Any + Send + Sync) -> Self {
        Self { _held: Some(Box::new(held)), ..self }
    }

    /// What has changed until now is seen: to be called before looking.
    pub fn mark(&mut self) {
        self.changes.borrow_and_update();
    }

    /// Until something changed since the mark, or the time is over.
    pub async fn changed(&mut self, at_most: Duration) {
        let span = self.at_least_every.map_or(at_most, |every| every.min(at_most));
        // An error is a store that is gone: the next look will tell.
        if let Ok(Err(_)) = tokio::time::timeout(span, self.changes.changed()).await {
            tokio::time::sleep(span).await;
        }
    }
}

/// A backend. What expired is not there, for any of these.
#[async_trait]
pub trait ParamStore: Send + Sync + 'static {
    /// The values of these names, all as of one moment. Where they are copies, these are counted against the account
    /// before they come, for as long as somebody holds them.
    async fn read(&self, space: &Space, account: &Arc<Account>, keys: &[Key])
    -> Result<Vec<Option<Entry>>, ParamError>;

    /// Some bytes of a value, without the others: the entry that comes has only those. Counted as in [`Self::read`].
    async fn read_range(
        &self,
        space: &Space,
        account: &Arc<Account>,
        key: &Key,
        range: Range<u64>,
    ) -> Result<Option<Entry>, ParamError>;

    async fn heads(&self, space: &Space, keys: &[Key]) -> Result<Vec<Option<Head>>, ParamError>;

    /// Makes all changes in one step, if all checks hold and the fence stands; tells what each did. What is stored more
    /// is counted against the account.
    async fn write(&self, space: &Space, account: &Arc<Account>, write: Write) -> Result<Vec<Changed>, ParamError>;

    /// Names that begin so, in order, after a name.
    async fn list(
        &self,
        space: &Space,
        prefix: &str,
        after: Option<&Key>,
        at_most: usize,
    ) -> Result<Vec<(Key, Head)>, ParamError>;

    /// A new epoch of a claim: writes that carry an older one are refused from now on. No epoch comes twice, whatever was
    /// cleared in between. A claim counts as a value without bytes does, and there are at most [`MAX_CLAIMS`].
    async fn claim(&self, space: &Space, account: &Arc<Account>, claim: &Key) -> Result<u64, ParamError>;

    fn watch(&self, space: &Space) -> Watch;

    /// The spaces of a tenant that hold something: values, or claims alone.
    async fn spaces(&self, tenant: &StoreId) -> Result<Vec<Space>, ParamError>;

    /// Deletes all of a space, claims too; says how many values there were.
    async fn clear(&self, space: &Space) -> Result<u64, ParamError>;

    /// Deletes everything of a tenant for good: whatever is done in its name from now on ends with [`ParamError::Ended`],
    /// also what has begun before. After an error something may be left, and it is to be tried again.
    async fn end(&self, tenant: &StoreId) -> Result<(), ParamError>;

    /// Bytes that count for a tenant.
    async fn used(&self, tenant: &StoreId) -> Result<u64, ParamError>;

    /// Deletes what expired; says how many values that were.
    async fn collect(&self) -> Result<u64, ParamError>;

    /// Makes everything durable that is to be from time to time.
    async fn save(&self) -> Result<(), ParamError> {
        Ok(())
    }

    /// Waits until saving is due before its time.
    async fn save_is_due(&self) {
        std::future::pending().await
    }

    /// Whether what is read is a copy that no account counts.
    fn is_remote(&self) -> bool {
        false
    }

    /// The store of a tenant that lives begins anew, after it was lost or ended elsewhere.
    async fn accept_loss(&self, _tenant: &StoreId) -> Result<(), ParamError> {
        Ok(())
    }
}

/// What an entry counts.
pub fn counted(key: &Key, bytes: u64) -> u64 {
    ENTRY_BYTES + key.as_str().len() as u64 + bytes
}

/// Bytes that count for as long as somebody holds them.
struct Counted {
    data: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

fn counted_bytes(data: Bytes, charge: Charge) -> Bytes {
    Bytes::from_owner(Counted { data, _charge: charge })
}
