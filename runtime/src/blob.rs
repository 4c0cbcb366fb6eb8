//! Blobs: bytes that never change, under the digest of what they are.
//!
//! They lie in a folder of the data directory, in an S3-compatible bucket, or in memory. A blob is there whole or not at
//! all, and when a publish returns it is durable. Publishing gives a pin ([`Pinned`]): hold it until the record that
//! names the blob is written and its [`Referrer`] knows of it, and nothing is ever removed under your feet.
//!
//! Beside them lie objects by name that are passed on and soon deleted ([`Scratch`]).
//!
//! A blob that is read from beginning to end ([`Blobs::open`]) is checked against its digest; a part of one
//! ([`Blobs::read`], [`Blobs::read_blocking`]) cannot be, and is as good as the disk or the bucket.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;

use crate::digest::Digest;

mod garbage;
mod hashing;
mod local;
mod place;
mod probe;
mod reader;
mod s3;
mod scratch;
mod upload;

pub use garbage::{Pinned, Referrer};
pub use local::publish_file;
pub use place::{BadPlace, BlobPlace};
pub use reader::BlobReader;
pub use s3::{Credentials, Patience, S3};
pub use scratch::{Found, Scratch};

use garbage::Pins;
use s3::Secrets;
use upload::Content;

/// A blob that could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("there is no blob `{0}`")]
    NotFound(Digest),
    #[error("blob `{digest}` is damaged: {why}")]
    Damaged { digest: Digest, why: String },
    #[error("what was to become blob `{claimed}` has the digest `{found}`")]
    Mismatch { claimed: Digest, found: Digest },
    #[error("bytes {}..{} are not in blob `{digest}`, which has {size}", range.start, range.end)]
    OutOfRange { digest: Digest, range: Range<u64>, size: u64 },
    #[error("blob store: {what}: {error}")]
    Io { what: String, error: io::Error },
    #[error("blob store `{place}`: {what}: {why}")]
    Store { place: String, what: String, why: String },
    #[error("blob store `{place}` cannot be used: {why}")]
    Unusable { place: String, why: String },
}

impl BlobError {
    /// Whether it may be gone when it is tried again: the disk is full, or the bucket away.
    pub fn passes(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Store { .. } | Self::Unusable { .. } => true,
            Self::NotFound(_) | Self::Damaged { .. } | Self::Mismatch { .. } | Self::OutOfRange { .. } => false,
        }
    }
}

impl From<BlobError> for io::Error {
    fn from(error: BlobError) -> Self {
        let kind = match &error {
            BlobError::NotFound(_) => io::ErrorKind::NotFound,
            BlobError::Damaged { .. } | BlobError::Mismatch { .. } => io::ErrorKind::InvalidData,
            BlobError::OutOfRange { .. } => io::ErrorKind::UnexpectedEof,
            BlobError::Io { error, .. } => error.kind(),
            BlobError::Store { .. } | BlobError::Unusable { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Where the bytes really are, for what is done differently there.
enum Backend {
    /// Durable by rename and fsync. `staging` is on the same file system.
    Folder {
        root: PathBuf,
        staging: PathBuf,
    },
    Memory,
    /// A bucket that others may write to as well. Requests run on `runtime`, whoever waits for them.
    Shared {
        grace: Duration,
        secrets: Secrets,
        runtime: Handle,
    },
}

/// All blobs of a node.
pub struct Blobs {
    backend: Backend,
    store: Arc<dyn ObjectStore>,
    /// What every key begins with; empty or ending in `/`.
    prefix: String,
    /// As a person would name it.
    place: String,
    pins: Arc<Pins>,
    referrers: OnceLock<Vec<Arc<dyn Referrer>>>,
}

impl Blobs {
    /// Opens what a setting names; `root` and `staging` are for blobs in files. A bucket is tried first, and must belong
    /// to `owner`, or to nobody yet.
    pub async fn start(
        place: &BlobPlace,
        root: PathBuf,
        staging: PathBuf,
        owner: &str,
    ) -> Result<Arc<Self>, BlobError> {
        match place {
            BlobPlace::Folder => Self::folder(root, staging),
            BlobPlace::Memory => Ok(Self::memory()),
            BlobPlace::S3(s3) => {
                let blobs = Self::s3(s3)?;
                blobs.probe().await?;
                blobs.claim(owner).await?;
                Ok(blobs)
            }
        }
    }

    /// Blobs as files below `root`: `ab/cdef…`, by the hexadecimal digits of their digest.
    pub fn folder(root: PathBuf, staging: PathBuf) -> Result<Arc<Self>, BlobError> {
        let place = root.display().to_string();
        let unusable = |why: String| BlobError::Unusable { place: place.clone(), why };
        std::fs::create_dir_all(&root).map_err(|error| unusable(error.to_string()))?;
        let store = LocalFileSystem::new_with_prefix(&root).map_err(|error| unusable(error.to_string()))?;
        Ok(Self::new(Backend::Folder { root, staging }, Arc::new(store), String::new(), place))
    }

    /// Blobs that are gone when the process is.
    pub fn memory() -> Arc<Self> {
        Self::new(Backend::Memory, Arc::new(InMemory::new()), String::new(), "memory:".to_owned())
    }

    /// Blobs in a bucket; nothing is asked of it yet. Must be called on a runtime, which serves [`Blobs::read_blocking`].
    pub fn s3(s3: &S3) -> Result<Arc<Self>, BlobError> {
        let unusable = |why: String| BlobError::Unusable { place: s3.to_string(), why };
        let runtime = Handle::try_current().map_err(|error| unusable(error.to_string()))?;
        let (store, secrets) = s3.connect()?;
        let backend = Backend::Shared { grace: s3.grace, secrets, runtime };
        Ok(Self::new(backend, store, s3.key_prefix(), s3.to_string()))
    }

    fn new(backend: Backend, store: Arc<dyn ObjectStore>, prefix: String, place: String) -> Arc<Self> {
        let (pins, referrers) = (Arc::default(), OnceLock::new());
        Arc::new(Self { backend, store, prefix, place, pins, referrers })
    }

    /// Whether listing is a matter of many requests over a network.
    pub fn is_remote(&self) -> bool {
        matches!(self.backend, Backend::Shared { .. })
    }

    /// Publishes a staged file as the blob `digest`, if that is what it is. Publishing what is there already stores
    /// nothing. The file may be moved away; what is left of it is the caller's to delete.
    pub async fn publish(&self, staged: &Path, digest: &Digest) -> Result<Pinned, BlobError> {
        let pinned = self.pins.pin(*digest).await;
        match &self.backend {
            Backend::Folder { root, .. } => {
                let (staged, place, digest) = (staged.to_owned(), local::path(root, digest), *digest);
                self.blocking("publishing", move || local::publish(&staged, &place, &digest)).await??;
            }
            Backend::Memory | Backend::Shared { .. } => {
                let staged = staged.to_owned();
                let content = self.blocking("opening a staged file", move || Content::file(&staged)).await??;
                self.upload(content, *digest, u64::MAX).await?;
            }
        }
        Ok(pinned)
    }

    /// Publishes what `write` writes, on the caller's thread, without having all of it in memory. It is asked to write the
    /// same again and again: a bucket wants to know what comes before the first byte of it, and gets it piece by piece.
    /// Gives its size, too. `room` is how much memory it may take, as [`Blobs::room_to_write`] says.
    pub async fn publish_written(
        &self,
        write: impl Fn(&mut dyn io::Write) -> io::Result<()> + Sync,
        room: u64,
    ) -> Result<(Pinned, u64), BlobError> {
        let Backend::Folder { root, staging } = &self.backend else {
            let content = Content::written(&write)?;
            let (digest, size) = (content.digest, content.size);
            let pinned = self.pins.pin(digest).await;
            self.upload(Content::Written(content), digest, room).await?;
            return Ok((pinned, size));
        };
        let staged = local::Staged::write(staging, write)?;
        let (digest, size) = (staged.digest, staged.size);
        let pinned = self.pins.pin(digest).await;
        let place = local::path(root, &digest);
        self.blocking("publishing", move || staged.publish(&place)).await??;
        Ok((pinned, size))
    }

    /// Bytes of memory that [`Blobs::publish_written`] takes for a blob of this size: at least the first, and with the
    /// second it is as fast as it can be. Nothing that counts where blobs are files.
    pub fn room_to_write(&self, size: u64) -> (u64, u64) {
        match self.backend {
            Backend::Folder { .. } => (0, 0),
            Backend::Memory | Backend::Shared { .. } => upload::room_for(size),
        }
    }

    /// Publishes bytes that are at hand.
    pub async fn publish_bytes(&self, bytes: Bytes) -> Result<Pinned, BlobError> {
        let hashed = bytes.clone();
        let digest = self.blocking("hashing", move || Digest::of(&hashed)).await?;
        let pinned = self.pins.pin(digest).await;
        match &self.backend {
            Backend::Folder { root, staging } => {
                let (place, staging) = (local::path(root, &digest), staging.clone());
                self.blocking("publishing", move || local::publish_bytes(&bytes, &staging, &place)).await??;
            }
            Backend::Memory | Backend::Shared { .. } => self.upload(Content::Bytes(bytes), digest, u64::MAX).await?,
        }
        Ok(pinned)
    }

    /// Pins a blob that is there, for a new record that will name it as well.
    pub async fn pin(&self, digest: &Digest) -> Result<Pinned, BlobError> {
        let pinned = self.pins.pin(*digest).await;
        self.size(digest).await?;
        Ok(pinned)
    }

    /// Pins blobs that records name, without a look at whether they are there.
    pub async fn pin_all(&self, digests: impl IntoIterator<Item = Digest>) -> Vec<Pinned> {
        let mut pins = Vec::new();
        for digest in digests {
            pins.push(self.pins.pin(digest).await);
        }
        pins
    }

    /// Reads a blob from its beginning. What was read is right once its end was reached without an error.
    pub async fn open(self: &Arc<Self>, digest: &Digest) -> Result<BlobReader, BlobError> {
        let size = self.size(digest).await?;
        Ok(BlobReader::new(self.clone(), *digest, size))
    }

    /// Reads a part of a blob, which must be within it.
    pub async fn read(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, BlobError> {
        if range.start >= range.end {
            return self.in_range(digest, range).await.map(|()| Bytes::new());
        }
        match self.store.get_range(&self.key(digest), range.clone()).await {
            Ok(bytes) if bytes.len() as u64 == range.end - range.start => Ok(bytes),
            // A store may answer with the part that there is.
            Ok(_) => Err(BlobError::OutOfRange { digest: *digest, range, size: self.size(digest).await? }),
            Err(object_store::Error::NotFound { .. }) => Err(BlobError::NotFound(*digest)),
            Err(error) => {
                self.in_range(digest, range).await?;
                Err(self.failed(&format!("reading `{digest}`"), &error))
            }
        }
    }

    async fn in_range(&self, digest: &Digest, range: Range<u64>) -> Result<(), BlobError> {
        let size = self.size(digest).await?;
        let within = range.start <= range.end && range.end <= size;
        within.then_some(()).ok_or(BlobError::OutOfRange { digest: *digest, range, size })
    }

    /// [`Blobs::read`] for threads that may block and are none of the runtime's. A file is read by the caller itself.
    pub fn read_blocking(self: &Arc<Self>, digest: &Digest, range: Range<u64>) -> io::Result<Bytes> {
        match &self.backend {
            Backend::Folder { root, .. } => Ok(local::read(root, digest, range)?),
            // Nothing in memory is waited for.
            Backend::Memory => match self.read(digest, range).now_or_never() {
                Some(read) => Ok(read?),
                None => Err(io::ErrorKind::WouldBlock.into()),
            },
            Backend::Shared { runtime, .. } => {
                let (sender, receiver) = std::sync::mpsc::sync_channel(1);
                let (blobs, digest) = (self.clone(), *digest);
                runtime.spawn(async move { sender.send(blobs.read(&digest, range).await).ok() });
                Ok(receiver.recv().map_err(|_| io::Error::other("the node is stopping"))??)
            }
        }
    }

    /// How long a blob is; an error if it is not there.
    pub async fn size(&self, digest: &Digest) -> Result<u64, BlobError> {
        self.look(digest).await?.ok_or(BlobError::NotFound(*digest))
    }

    async fn look(&self, digest: &Digest) -> Result<Option<u64>, BlobError> {
        match self.store.head(&self.key(digest)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&format!("looking for `{digest}`"), &error)),
        }
    }

    /// Every blob there is. What is not named like a blob is not one, and is left alone.
    pub async fn list(&self) -> Result<Vec<Digest>, BlobError> {
        self.list_older_than(Duration::ZERO).await
    }

    async fn list_older_than(&self, age: Duration) -> Result<Vec<Digest>, BlobError> {
        if let Backend::Folder { root, .. } = &self.backend {
            let root = root.clone();
            let listed = self.blocking("listing", move || local::list(&root)).await?;
            return listed.map_err(|error| BlobError::Io { what: format!("listing `{}`", self.place), error });
        }
        let now = i64::try_from(crate::clock::unix_ms()).unwrap_or(i64::MAX);
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let old = |meta: &ObjectMeta| age == 0 || now.saturating_sub(meta.last_modified.timestamp_millis()) > age;
        let below = Key::from(self.prefix.as_str());
        let listed: Result<Vec<Option<Digest>>, _> = self
            .store
            .list(Some(&below))
            .map_ok(|meta| self.named(&meta.location).filter(|_| old(&meta)))
            .try_collect()
            .await;
        Ok(listed.map_err(|error| self.failed("listing", &error))?.into_iter().flatten().collect())
    }

    /// The blob that a key is of.
    fn named(&self, key: &Key) -> Option<Digest> {
        let digest: Digest = key.as_ref().strip_prefix(&self.prefix)?.replace('/', "").parse().ok()?;
        (self.key(&digest) == *key).then_some(digest)
    }

    /// Removes a blob whatever refers to it; [`Blobs::collect`] is for whoever shares. Removing what is not there does
    /// nothing.
    pub async fn delete(&self, digest: &Digest) -> Result<(), BlobError> {
        match self.store.delete(&self.key(digest)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&format!("deleting `{digest}`"), &error)),
        }
    }

    fn key(&self, digest: &Digest) -> Key {
        let hex = digest.hex();
        Key::from(format!("{}{}/{}", self.prefix, &hex[..2], &hex[2..]))
    }

    /// What went wrong, in words that hold no secret.
    fn failed(&self, what: &str, error: &object_store::Error) -> BlobError {
        let why = match &self.backend {
            Backend::Shared { secrets, .. } => secrets.conceal(s3::explain(error)),
            Backend::Folder { .. } | Backend::Memory => error.to_string(),
        };
        BlobError::Store { place: self.place.clone(), what: what.to_owned(), why }
    }

    /// Runs `work` where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BlobError> {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| BlobError::Io { what: what.to_owned(), error: io::Error::other(error) })
    }
}
