//! Trying a bucket before anything relies on it, and making sure that it is this node's.

use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutMode};

use super::{BlobError, Blobs};
use crate::digest::hex;

/// The object that says whose blobs these are.
const OWNER: &str = "owner";
const TRIED: &[u8] = b"written by weft to see whether it can";

impl Blobs {
    fn unusable(&self, what: &str, error: &object_store::Error) -> BlobError {
        match self.failed(what, error) {
            BlobError::Store { place, what, why } => BlobError::Unusable { place, why: format!("{what}: {why}") },
            other => other,
        }
    }

    /// Whether objects can be written, read and deleted here, and are not overwritten when they must not be.
    pub async fn probe(&self) -> Result<(), BlobError> {
        let mut random = [0; 8];
        let unusable = |why: String| BlobError::Unusable { place: self.place.clone(), why };
        getrandom::fill(&mut random).map_err(|error| unusable(error.to_string()))?;
        let key = Key::from(format!("{}probe-{}", self.prefix, hex(&random)));
        let create = || self.store.put_opts(&key, TRIED.into(), PutMode::Create.into());
        create().await.map_err(|error| self.unusable("writing", &error))?;
        let tried = async {
            match create().await {
                Err(object_store::Error::AlreadyExists { .. }) => {}
                Ok(_) => {
                    return Err(unusable("it ignores `If-None-Match: *`, so that objects can be overwritten".into()));
                }
                Err(error) => return Err(self.unusable("writing twice", &error)),
            }
            let read = self.store.get_range(&key, 0..TRIED.len() as u64).await;
            match read.map_err(|error| self.unusable("reading", &error))? {
                read if read == TRIED => Ok(()),
                _ => Err(unusable("it returns other bytes than were written".into())),
            }
        }
        .await;
        let deleted = self.store.delete(&key).await.map_err(|error| self.unusable("deleting", &error));
        tried.and(deleted)
    }

    /// Takes the place for `owner`. A second node with records of its own would take the first one's blobs for garbage.
    pub async fn claim(&self, owner: &str) -> Result<(), BlobError> {
        let key = Key::from(format!("{}{OWNER}", self.prefix));
        let claimed = self.store.put_opts(&key, owner.to_owned().into(), PutMode::Create.into()).await;
        match claimed {
            Ok(_) => return Ok(()),
            Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(self.unusable("claiming it", &error)),
        }
        let found = self.store.get(&key).await.map_err(|error| self.unusable("reading whose it is", &error))?;
        let found = found.bytes().await.map_err(|error| self.unusable("reading whose it is", &error))?;
        if found == owner.as_bytes() {
            return Ok(());
        }
        let why = format!(
            "it holds the blobs of another node; give each node a prefix of its own. If that node is gone for good, \
             delete the object `{key}` and start again"
        );
        Err(BlobError::Unusable { place: self.place.clone(), why })
    }
}
