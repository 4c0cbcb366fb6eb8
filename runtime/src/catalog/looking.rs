//! Manifests that are read: to be shown, or to train on.
//!
//! A manifest may have megabytes: a line for each block, a name for each class. So it is read and parsed on a thread that may
//! wait, which keeps the place that let it begin, and its tenant is charged first, for all that becomes of it.

use std::io;
use std::sync::Arc;

use super::{BlobBlocks, Catalog, CatalogError, DataSet, Version};
use crate::blob::Blobs;
use crate::dataset::blocks::read_whole;
use crate::dataset::preview::preview;
use crate::dataset::{BlockRef, Manifest};
use crate::digest::Digest;
use crate::sandbox::Permit;
use crate::tenant::{Charge, ChargedBytes, Tenant};

/// Samples of a preview.
const PREVIEW: usize = 3;
/// Bytes of memory for one of a manifest's, while it is parsed and described: the file, what is read from it as it grows, a
/// description with the same names, and that one written.
const UNPACKED: u64 = 8;
/// The same for a block: as it is stored, and as rows.
const DECODED: u64 = 2;

/// A manifest, and the charge for it.
pub struct ReadManifest {
    pub manifest: Manifest,
    pub charge: Charge,
}

impl Catalog {
    /// What `look` makes of a version's manifest and its first samples as text. The newest version, unless the beginning of
    /// another's digest is given. The charge is to be kept for as long as what `look` made: it has room for what is a few
    /// times as large as the manifest.
    pub async fn look_at_dataset<T: Send + 'static>(
        &self,
        tenant: &Tenant,
        dataset: &DataSet,
        version: Option<&str>,
        place: Permit,
        look: impl FnOnce(&Version, &Manifest, String) -> Result<T, CatalogError> + Send + 'static,
    ) -> Result<(T, Charge), CatalogError> {
        let (version, blobs, charge) =
            (which(dataset, version)?.clone(), self.blobs.clone(), Charge::none(tenant.memory.clone()));
        let read = move || -> Result<(T, Charge), CatalogError> {
            let _place = place;
            let ReadManifest { manifest, mut charge } =
                read_blocking(&blobs, &version.digest, version.manifest_bytes, charge)?;
            let shown = match manifest.train.blocks.first() {
                Some(block) => preview_of(blobs, &manifest, block, &mut charge)?,
                None => String::new(),
            };
            Ok((look(&version, &manifest, shown)?, charge))
        };
        self.blocking("looking at a data set", read).await.map_err(|error| self.unless_deleted(dataset, error))
    }

    /// A block of a version's as it is stored, with its charge.
    pub async fn read_block(
        &self,
        tenant: &Tenant,
        dataset: &DataSet,
        version: Option<&str>,
        digest: Digest,
        place: Permit,
    ) -> Result<ChargedBytes, CatalogError> {
        let (version, blobs, charge) =
            (which(dataset, version)?.clone(), self.blobs.clone(), Charge::none(tenant.memory.clone()));
        let read = move || -> Result<ChargedBytes, CatalogError> {
            let _place = place;
            let ReadManifest { manifest, mut charge } =
                read_blocking(&blobs, &version.digest, version.manifest_bytes, charge)?;
            let unpacked = charge.bytes();
            let mut blocks = manifest.train.blocks.iter().chain(&manifest.test.blocks);
            let Some(block) = blocks.find(|block| block.digest == digest) else {
                return Err(CatalogError::not_found("block", &digest.to_string()));
            };
            charge.grow(block.bytes.saturating_mul(DECODED))?;
            let bytes =
                read_whole(&BlobBlocks(blobs), block).map_err(|error| CatalogError::read("reading a block", error))?;
            let bytes = Vec::from(bytes);
            charge.shrink(unpacked + block.bytes);
            Ok(ChargedBytes::new(bytes, charge))
        };
        self.blocking("reading a block", read).await.map_err(|error| self.unless_deleted(dataset, error))
    }

    /// The manifest of the newest version.
    pub(super) async fn latest_manifest(
        &self,
        tenant: &Tenant,
        dataset: &DataSet,
    ) -> Result<ReadManifest, CatalogError> {
        let version = which(dataset, None)?;
        let read = self.read_manifest(tenant, &version.digest, version.manifest_bytes, None).await;
        read.map_err(|error| self.unless_deleted(dataset, error))
    }

    /// A manifest of so many bytes. A place is kept for as long as it is read. The charge that comes back is for the
    /// manifest alone.
    pub async fn read_manifest(
        &self,
        tenant: &Tenant,
        digest: &Digest,
        bytes: u64,
        place: Option<Permit>,
    ) -> Result<ReadManifest, CatalogError> {
        let (blobs, digest, charge) = (self.blobs.clone(), *digest, Charge::none(tenant.memory.clone()));
        let read = move || -> Result<ReadManifest, CatalogError> {
            let _place = place;
            let mut read = read_blocking(&blobs, &digest, bytes, charge)?;
            read.charge.shrink(read.charge.bytes().saturating_sub(read.manifest.memory()));
            Ok(read)
        };
        self.blocking("reading a manifest", read).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<T, CatalogError> + Send + 'static,
    ) -> Result<T, CatalogError> {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| CatalogError::io(what, io::Error::other(error)))?
    }

    /// What went wrong with a data set that was looked up: perhaps it has been deleted since, and that is all.
    fn unless_deleted(&self, dataset: &DataSet, error: CatalogError) -> CatalogError {
        match self.shown.datasets.get(dataset.tenant, dataset.name.as_str()) {
            Some(now) if now.created_ms == dataset.created_ms => error,
            _ => CatalogError::not_found("data set", dataset.name.as_str()),
        }
    }
}

fn which<'a>(dataset: &'a DataSet, version: Option<&str>) -> Result<&'a Version, CatalogError> {
    let found = match version {
        None => dataset.latest(),
        Some(prefix) => {
            let digits = prefix.strip_prefix("sha256:").unwrap_or(prefix);
            let fits = |version: &&Version| !digits.is_empty() && version.digest.hex().starts_with(digits);
            let mut found = dataset.versions.iter().filter(fits);
            let (first, another) = (found.next(), found.next());
            if another.is_some() {
                let text = format!("`{}` begins the digests of several versions: give more of it", digits);
                return Err(CatalogError::Invalid(text));
            }
            first
        }
    };
    found.ok_or_else(|| CatalogError::not_found("version", version.unwrap_or("latest")))
}

fn read_blocking(
    blobs: &Arc<Blobs>,
    digest: &Digest,
    bytes: u64,
    mut charge: Charge,
) -> Result<ReadManifest, CatalogError> {
    charge.grow(bytes.saturating_mul(UNPACKED))?;
    let read =
        blobs.read_blocking(digest, 0..bytes).map_err(|error| CatalogError::read("reading a manifest", error))?;
    Ok(ReadManifest { manifest: Manifest::parse(&read)?, charge })
}

fn preview_of(
    blobs: Arc<Blobs>,
    manifest: &Manifest,
    block: &BlockRef,
    charge: &mut Charge,
) -> Result<String, CatalogError> {
    let taken = block.bytes.saturating_mul(DECODED);
    charge.grow(taken)?;
    let bytes = read_whole(&BlobBlocks(blobs), block).map_err(|error| CatalogError::read("reading a block", error))?;
    let shown = preview(manifest, block, &bytes, PREVIEW);
    let shown = shown.map_err(|error| CatalogError::io("a damaged block", io::Error::other(error)))?;
    drop(bytes);
    charge.shrink(taken);
    Ok(shown)
}
