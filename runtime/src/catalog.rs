//! The catalogue: which data sets and models each tenant has, and files on their way to become one.
//!
//! Everything large is in blobs; here are the records that name them. A thing becomes visible by one metadata transaction
//! after its blobs are durable, and until then pins keep them; what nobody names any more is collected.
//!
//! - [`spec`]: what can be asked for
//! - `uploads`: files that arrive in parts
//! - `datasets`: files become data sets
//! - `looking`: manifests that are read, to be shown or trained on
//! - `building`: where their blocks go meanwhile, and what ends it
//! - `models`: what training leaves behind
//! - `shelf`: things of tenants, by name

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::blob::{BlobError, Blobs, Pinned, Referrer};
use crate::dataset::build::BuildError;
use crate::dataset::manifest::ManifestError;
use crate::dataset::read::ReadError;
use crate::digest::Digest;
use crate::meta::{Batch, MetaError, Metadata};
use crate::model::OpenError;
use crate::places::NoPlace;
use crate::tenant::{OverLimit, StorageFull, Tenant, TenantId};

mod building;
mod datasets;
mod looking;
mod models;
mod shelf;
pub mod spec;
mod uploads;

pub use building::BuildEnd;
pub(crate) use datasets::open as open_sources;
pub use datasets::{BlobBlocks, DataSet, Version};
pub use looking::ReadManifest;
pub use models::{BlobFile, StoredModel};
pub use uploads::{MAX_UPLOADS, PART_BYTES, Upload};

use shelf::Shelf;

/// Why the catalogue did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("there is no {what} `{name}`")]
    NotFound { what: &'static str, name: String },
    #[error("there is a {what} `{name}` already; delete it first, or choose another name")]
    Exists { what: &'static str, name: String },
    #[error("{what} `{name}` changed meanwhile; try again")]
    Changed { what: &'static str, name: String },
    #[error("{what} would exceed the tenant's `{name}` of {limit}")]
    Quota { name: &'static str, limit: u64, what: String },
    #[error(transparent)]
    Storage(#[from] StorageFull),
    #[error("{0}")]
    Invalid(String),
    /// The files were understood, and found wrong.
    #[error("{0}")]
    Refused(String),
    #[error("upload `{digest}` lacks {missing} of {parts} parts; send them first")]
    Incomplete { digest: Digest, missing: usize, parts: usize },
    #[error("upload `{claimed}` has the digest `{found}`: the file changed while it was sent; send it again")]
    Mismatch { claimed: Digest, found: Digest },
    #[error(transparent)]
    Place(#[from] NoPlace),
    #[error(transparent)]
    Memory(#[from] OverLimit),
    #[error("the data set was not made within `build_timeout` = {} ms", .0.as_millis())]
    BuildTimeout(Duration),
    #[error("the tenant was deleted meanwhile")]
    TenantDeleted,
    #[error("the node is stopping")]
    Stopping,
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
}

impl CatalogError {
    /// Whether it may be gone when it is tried again, whatever the data set or the model is.
    pub fn passes(&self) -> bool {
        match self {
            Self::Blob(error) => error.passes(),
            Self::Memory(over) => !over.never_fits(),
            Self::Changed { .. } | Self::Place(_) | Self::Stopping | Self::Meta(_) | Self::Io { .. } => true,
            Self::NotFound { .. }
            | Self::Exists { .. }
            | Self::Quota { .. }
            | Self::Storage(_)
            | Self::Invalid(_)
            | Self::Refused(_)
            | Self::Incomplete { .. }
            | Self::Mismatch { .. }
            | Self::BuildTimeout(_)
            | Self::TenantDeleted => false,
        }
    }

    fn not_found(what: &'static str, name: &str) -> Self {
        Self::NotFound { what, name: name.chars().take(80).collect() }
    }

    pub(crate) fn io(what: &str, error: std::io::Error) -> Self {
        Self::Io { what: what.to_owned(), error }
    }

    /// An error of whoever reads a blob as if it were a file.
    fn read(what: &str, error: std::io::Error) -> Self {
        error.downcast::<BlobError>().map_or_else(|error| Self::io(what, error), Self::Blob)
    }

    /// An error that may be one of these, wrapped on its way through a reader or the builder.
    fn wrapped(what: &str, error: std::io::Error) -> Self {
        error.downcast::<Self>().unwrap_or_else(|error| Self::io(what, error))
    }
}

impl From<ReadError> for CatalogError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Asked(text) => Self::Invalid(text),
            ReadError::Content { .. } => Self::Refused(error.to_string()),
            ReadError::Io { file, cause } => Self::wrapped(&format!("reading `{file}`"), cause),
        }
    }
}

impl From<BuildError> for CatalogError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Cancelled => Self::Stopping,
            BuildError::Read { error: error @ ReadError::Io { .. }, .. } => error.into(),
            BuildError::Write(error) => Self::wrapped("writing a block", error),
            other => Self::Refused(other.to_string()),
        }
    }
}

impl From<ManifestError> for CatalogError {
    fn from(error: ManifestError) -> Self {
        Self::io("a manifest", std::io::Error::other(error))
    }
}

impl From<OpenError> for CatalogError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Io(error) => Self::read("reading a model", error),
            other => Self::Refused(other.to_string()),
        }
    }
}

/// Runs a change to its end, also when whoever asked for it goes away: what is on disk and what is shown would differ.
pub async fn to_the_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, CatalogError>> + Send + 'static,
) -> Result<T, CatalogError> {
    let done = tokio::spawn(change).await;
    done.map_err(|error| CatalogError::io("the work was interrupted", std::io::Error::other(error)))?
}

/// What every record is told of, and who tells which blobs they need.
#[derive(Default)]
struct Shown {
    uploads: Shelf<Upload>,
    datasets: Shelf<DataSet>,
    models: Shelf<StoredModel>,
}

impl Shown {
    /// Every blob that a record names.
    fn each_digest(&self, mut tell: impl FnMut(Digest)) {
        self.uploads.each(|upload| upload.digests().for_each(&mut tell));
        self.datasets.each(|dataset| dataset.digests().for_each(&mut tell));
        self.models.each(|model| tell(model.digest));
    }
}

impl Referrer for Shown {
    fn keep(&self, candidates: &mut HashSet<Digest>) {
        self.each_digest(|digest| {
            candidates.remove(&digest);
        });
    }
}

pub struct Catalog {
    metadata: Arc<Metadata>,
    blobs: Arc<Blobs>,
    staging: PathBuf,
    shown: Arc<Shown>,
    /// Counts what has become of data sets.
    changes: tokio::sync::watch::Sender<u64>,
    /// One change at a time, from its last check to its record. A backup holds it for reading.
    changing: Arc<tokio::sync::RwLock<()>>,
}

impl Catalog {
    pub fn load(metadata: Arc<Metadata>, blobs: Arc<Blobs>, staging: PathBuf) -> Result<Self, MetaError> {
        let shown = Arc::new(Shown {
            uploads: Shelf::load(&metadata)?,
            datasets: Shelf::load(&metadata)?,
            models: Shelf::load(&metadata)?,
        });
        Ok(Self {
            metadata,
            blobs,
            staging,
            shown,
            changes: tokio::sync::watch::channel(0).0,
            changing: Arc::default(),
        })
    }

    /// Who tells which blobs are needed.
    pub fn referrer(&self) -> Arc<dyn Referrer> {
        self.shown.clone()
    }

    /// Changes whenever a data set has grown, has come, or is gone: after that can be seen.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Tells of such a change.
    fn changed(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Every blob that a record names.
    pub fn digests(&self) -> HashSet<Digest> {
        let mut digests = HashSet::new();
        self.shown.each_digest(|digest| {
            digests.insert(digest);
        });
        digests
    }

    /// Bytes that a tenant's records name.
    pub fn stored_bytes(&self, tenant: TenantId) -> u64 {
        let uploads: u64 = self.shown.uploads.of(tenant).iter().map(|upload| upload.stored_bytes()).sum();
        let datasets: u64 = self.shown.datasets.of(tenant).iter().map(|dataset| dataset.stored_bytes).sum();
        let models: u64 = self.shown.models.of(tenant).iter().map(|model| model.size).sum();
        uploads + datasets + models
    }

    /// Holds every change off until the result is dropped.
    pub async fn pause(&self) -> tokio::sync::OwnedRwLockWriteGuard<()> {
        self.changing.clone().write_owned().await
    }

    /// Holds changes off, beside others who do.
    pub async fn hold(&self) -> tokio::sync::OwnedRwLockReadGuard<()> {
        self.changing.clone().read_owned().await
    }

    /// The records of a tenant as deletions, for the transaction that deletes the tenant.
    pub fn deletion_of(&self, tenant: TenantId) -> Batch {
        self.shown
            .uploads
            .deletion_of(tenant)
            .and(self.shown.datasets.deletion_of(tenant))
            .and(self.shown.models.deletion_of(tenant))
    }

    /// Forgets a tenant whose records are gone; changes have been held off since before they were looked up.
    pub async fn forget(
        &self,
        tenant: TenantId,
        _paused: tokio::sync::OwnedRwLockWriteGuard<()>,
    ) -> Result<(), CatalogError> {
        let mut digests = HashSet::new();
        for upload in self.shown.uploads.forget(tenant) {
            digests.extend(upload.digests());
        }
        for dataset in self.shown.datasets.forget(tenant) {
            digests.extend(dataset.digests());
        }
        digests.extend(self.shown.models.forget(tenant).iter().map(|model| model.digest));
        self.collect(digests).await
    }

    /// Removes blobs that nobody names any more.
    async fn collect(&self, digests: impl IntoIterator<Item = Digest>) -> Result<(), CatalogError> {
        let digests: Vec<Digest> = digests.into_iter().collect();
        Ok(self.blobs.collect_soon(&digests).await?)
    }

    /// Lets blobs go that were published for a record that there will not be.
    async fn discard(&self, pins: Vec<Pinned>) {
        let digests: Vec<Digest> = pins.iter().map(Pinned::digest).collect();
        drop(pins);
        if let Err(error) = self.collect(digests).await {
            tracing::warn!(%error, "blobs that nobody needs stay until the next sweep");
        }
    }

    /// Writes records whose blobs are pinned. If it is not known whether they are on disk, the blobs stay until a start
    /// finds out.
    async fn commit(&self, batch: Batch, pins: Vec<Pinned>) -> Result<Vec<Pinned>, CatalogError> {
        match self.metadata.commit(batch).await {
            Ok(()) => Ok(pins),
            Err(error) => {
                pins.into_iter().for_each(Pinned::until_restart);
                Err(error.into())
            }
        }
    }

    fn check_alive(tenant: &Tenant) -> Result<(), CatalogError> {
        if tenant.is_deleted() { Err(CatalogError::TenantDeleted) } else { Ok(()) }
    }
}
