//! Which node this is, among those that keep their blobs in one bucket. A backup carries it, so that a restored node
//! finds its own blobs.

use serde::{Deserialize, Serialize};

use crate::digest::hex;
use crate::meta::{Batch, Entry, MetaError, Metadata, Record};

/// The name that a data directory got when it was new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub id: String,
}

impl Record for Identity {
    const TABLE: &'static str = "identity";

    fn key(&self) -> String {
        "node".to_owned()
    }
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("no randomness for the node's identity: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error(transparent)]
    Meta(#[from] MetaError),
}

impl Identity {
    fn random() -> Result<Self, IdentityError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self { id: hex(&bytes) })
    }

    /// The one that is recorded; a new one if there is none.
    pub fn load(metadata: &Metadata) -> Result<Self, IdentityError> {
        if let Some(known) = metadata.all::<Self>()?.pop() {
            return Ok(known);
        }
        let identity = Self::random()?;
        metadata.commit_blocking(Batch::default().put(&identity)?)?;
        Ok(identity)
    }

    /// The one among the records of a backup, which gets one if it has none.
    pub fn in_records(records: &mut Vec<Entry>) -> Result<Self, IdentityError> {
        let known = records.iter().find(|entry| entry.table == Self::TABLE).and_then(|entry| entry.value.clone());
        if let Some(known) = known.and_then(|value| serde_json::from_value(value).ok()) {
            return Ok(known);
        }
        let identity = Self::random()?;
        let value = Some(serde_json::to_value(&identity).map_err(MetaError::from)?);
        records.push(Entry { table: Self::TABLE.to_owned(), key: identity.key(), value });
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_keeps_its_identity() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Metadata::open(&folder.path().join("meta.redb")).unwrap();
        let first = Identity::load(&metadata).unwrap();
        assert_eq!(Identity::load(&metadata).unwrap(), first);
    }

    #[test]
    fn a_backup_carries_it_and_an_old_one_gets_one() {
        let mut records = Vec::new();
        let made = Identity::in_records(&mut records).unwrap();
        assert_eq!(Identity::in_records(&mut records).unwrap(), made);
        assert_eq!(records.len(), 1);
    }
}
