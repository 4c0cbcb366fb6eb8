//! Objects by name beside the blobs: for what is passed on and soon deleted.
//!
//! They lie below `scratch/` in the same folder or bucket. They are not durable, nothing refers to them, and a node that
//! starts deletes whatever an earlier one has left.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};

use super::{Backend, BlobError, Blobs};

/// What all of their keys begin with, after the store's own prefix.
const SCRATCH: &str = "scratch";
/// Deletions under way at once.
const AT_ONCE: usize = 16;

/// A folder of such objects.
#[derive(Clone)]
pub struct Scratch {
    blobs: Arc<Blobs>,
    /// Below [`SCRATCH`].
    area: String,
}

/// What was found under a name.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Bytes(Bytes),
    /// So many bytes, which were not read: they are more than were asked for.
    TooLarge(u64),
}

impl Blobs {
    /// The objects of an area, such as `tenant/job`.
    pub fn scratch(self: &Arc<Self>, area: &str) -> Scratch {
        Scratch { blobs: self.clone(), area: area.to_owned() }
    }

    /// Deletes all objects of all areas; says how many there were. For the start of a node, before anything uses them.
    pub async fn sweep_scratch(&self) -> Result<usize, BlobError> {
        let below = Key::from(format!("{}{SCRATCH}", self.prefix));
        let count = self.delete_below(&below).await?;
        if let Backend::Folder { root, .. } = &self.backend {
            // With what was being written when the node was killed.
            let folder = root.join(SCRATCH);
            let removed = self.blocking("sweeping", move || std::fs::remove_dir_all(folder)).await?;
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(BlobError::Io { what: format!("sweeping `{SCRATCH}`"), error });
            }
        }
        Ok(count)
    }

    async fn keys_below(&self, below: &Key) -> Result<Vec<Key>, BlobError> {
        let listed = self.store.list(Some(below)).map_ok(|meta| meta.location).try_collect().await;
        listed.map_err(|error| self.failed(&format!("listing `{below}`"), &error))
    }

    async fn delete_below(&self, below: &Key) -> Result<usize, BlobError> {
        let keys = self.keys_below(below).await?;
        let count = keys.len();
        self.delete_keys(keys).await?;
        Ok(count)
    }

    /// Several at a time.
    async fn delete_keys(&self, keys: Vec<Key>) -> Result<(), BlobError> {
        let deletions = stream::iter(keys).map(|key| self.delete_key(key)).buffer_unordered(AT_ONCE);
        deletions.try_collect::<Vec<()>>().await.map(drop)
    }

    async fn delete_key(&self, key: Key) -> Result<(), BlobError> {
        match self.store.delete(&key).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&format!("deleting `{key}`"), &error)),
        }
    }
}

impl Scratch {
    fn below(&self) -> Key {
        Key::from(format!("{}{SCRATCH}/{}", self.blobs.prefix, self.area))
    }

    fn key(&self, name: &str) -> Key {
        Key::from(format!("{}{SCRATCH}/{}/{name}", self.blobs.prefix, self.area))
    }

    /// Puts pieces under a name, one after the other, instead of what was there. It is there whole or not at all.
    pub async fn put(&self, name: &str, pieces: impl IntoIterator<Item = Bytes>) -> Result<(), BlobError> {
        let content = PutPayload::from_iter(pieces);
        let put = self.blobs.store.put(&self.key(name), content).await;
        put.map(drop).map_err(|error| self.blobs.failed(&format!("writing `{name}`"), &error))
    }

    /// What is under a name, unless it is larger than was said.
    pub async fn get(&self, name: &str, at_most: u64) -> Result<Found, BlobError> {
        let failed = |error| self.blobs.failed(&format!("reading `{name}`"), &error);
        let found = match self.blobs.store.get(&self.key(name)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(Found::Nothing),
            Err(error) => return Err(failed(error)),
        };
        let size = found.meta.size;
        if size > at_most {
            return Ok(Found::TooLarge(size));
        }
        found.bytes().await.map(Found::Bytes).map_err(failed)
    }

    /// Deleting what is not there does nothing.
    pub async fn delete(&self, name: &str) -> Result<(), BlobError> {
        self.blobs.delete_key(self.key(name)).await
    }

    /// Deletes several.
    pub async fn delete_all(&self, names: &[String]) -> Result<(), BlobError> {
        self.blobs.delete_keys(names.iter().map(|name| self.key(name)).collect()).await
    }

    /// The names of all objects of the area.
    pub async fn list(&self) -> Result<Vec<String>, BlobError> {
        let keys = self.blobs.keys_below(&self.below()).await?;
        Ok(keys.iter().filter_map(|key| key.filename().map(str::to_owned)).collect())
    }

    /// Deletes the whole area.
    pub async fn clear(&self) -> Result<(), BlobError> {
        self.blobs.delete_below(&self.below()).await?;
        if let Backend::Folder { root, .. } = &self.blobs.backend {
            let (root, area) = (root.join(SCRATCH), self.area.clone());
            let remove = move || {
                // Folders that are empty now; one that is not stays, which is no error.
                let mut folder = root.join(area);
                while folder != root && std::fs::remove_dir(&folder).is_ok() {
                    folder.pop();
                }
            };
            self.blobs.blocking("deleting folders", remove).await?;
        }
        Ok(())
    }
}
