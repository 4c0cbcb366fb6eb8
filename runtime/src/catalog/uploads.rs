//! Files that arrive in parts. An upload is named by the digest of the whole file, so that whoever was interrupted begins
//! it again and is told what is still missing; each part is a blob, charged to its tenant as it comes.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tempfile::TempPath;
use tokio::io::AsyncReadExt;

use super::shelf::{Shelved, key};
use super::{Catalog, CatalogError};
use crate::blob::BlobError;
use crate::clock::unix_ms;
use crate::digest::{Digest, Hasher};
use crate::meta::{Batch, Record};
use crate::tenant::{Reservation, Tenant, TenantId};

/// Bytes of a part, but for the last one.
pub const PART_BYTES: u64 = 8 << 20;
/// Uploads that one tenant may have begun.
pub const MAX_UPLOADS: usize = 64;
/// The most bytes of one file: its parts are a list in one record.
pub const MAX_FILE_BYTES: u64 = 100_000 * PART_BYTES;
/// An upload that nobody has sent a part of for so long is given up.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// A file on its way in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Upload {
    pub tenant: TenantId,
    /// Of the whole file, as its sender says.
    pub digest: Digest,
    pub size: u64,
    /// The parts that have come.
    pub parts: Vec<Option<Digest>>,
    pub touched_ms: u64,
}

impl Record for Upload {
    const TABLE: &'static str = "uploads";

    fn key(&self) -> String {
        key(self.tenant, &self.name())
    }
}

impl Shelved for Upload {
    fn tenant(&self) -> TenantId {
        self.tenant
    }

    fn name(&self) -> String {
        self.digest.hex()
    }
}

impl Upload {
    /// Bytes of a part: all are alike but for the last.
    pub fn part_bytes(&self, index: usize) -> u64 {
        PART_BYTES.min(self.size.saturating_sub(index as u64 * PART_BYTES))
    }

    /// The parts that have not come.
    pub fn missing(&self) -> Vec<usize> {
        (0..self.parts.len()).filter(|&index| self.parts[index].is_none()).collect()
    }

    /// Whether so many bytes can be this part.
    fn check_part(&self, index: usize, bytes: u64) -> Result<(), CatalogError> {
        if index >= self.parts.len() {
            return Err(CatalogError::Invalid(format!("part {index} of an upload that has {}", self.parts.len())));
        }
        let expected = self.part_bytes(index);
        if bytes != expected {
            return Err(CatalogError::Invalid(format!("part {index} has {bytes} bytes where {expected} belong")));
        }
        Ok(())
    }

    pub(super) fn stored_bytes(&self) -> u64 {
        (0..self.parts.len()).filter(|&index| self.parts[index].is_some()).map(|index| self.part_bytes(index)).sum()
    }

    pub(super) fn digests(&self) -> impl Iterator<Item = Digest> {
        self.parts.iter().flatten().copied()
    }
}

impl Catalog {
    /// Begins an upload, or finds it as far as it has come.
    pub async fn begin_upload(&self, tenant: &Tenant, digest: Digest, size: u64) -> Result<Arc<Upload>, CatalogError> {
        if size == 0 || size > MAX_FILE_BYTES {
            return Err(CatalogError::Invalid(format!("a file of {size} bytes: send 1 to {MAX_FILE_BYTES}")));
        }
        let _changing = self.changing.write().await;
        Self::check_alive(tenant)?;
        if let Some(upload) = self.shown.uploads.get(tenant.id, &digest.hex()) {
            if upload.size != size {
                let text =
                    format!("upload `{digest}` has {} bytes, not {size}: that cannot be the same file", upload.size);
                return Err(CatalogError::Invalid(text));
            }
            return Ok(upload);
        }
        if self.shown.uploads.of(tenant.id).len() >= MAX_UPLOADS {
            let what = "another upload".to_owned();
            return Err(CatalogError::Quota { name: "uploads", limit: MAX_UPLOADS as u64, what });
        }
        // A first look: what counts is each part.
        drop(tenant.storage.reserve(size)?);
        let parts = vec![None; size.div_ceil(PART_BYTES) as usize];
        let upload = Upload { tenant: tenant.id, digest, size, parts, touched_ms: unix_ms() };
        self.metadata.commit(Batch::default().put(&upload)?).await?;
        Ok(self.shown.uploads.put(upload))
    }

    pub fn upload(&self, tenant: TenantId, digest: &Digest) -> Result<Arc<Upload>, CatalogError> {
        let found = self.shown.uploads.get(tenant, &digest.hex());
        found.ok_or_else(|| CatalogError::not_found("upload", &digest.to_string()))
    }

    /// A part has come, with the digest that it should have if that was said. Sending it again does nothing.
    pub async fn add_part(
        &self,
        tenant: &Tenant,
        digest: &Digest,
        index: usize,
        bytes: Bytes,
        claimed: Option<Digest>,
    ) -> Result<Arc<Upload>, CatalogError> {
        let (upload, size) = (self.upload(tenant.id, digest)?, bytes.len() as u64);
        upload.check_part(index, size)?;
        // What is there already is paid for.
        let mut reserved = tenant.storage.reserve(if upload.parts[index].is_some() { 0 } else { size })?;
        let pin = self.blobs.publish_bytes(bytes).await?;
        if let Some(claimed) = claimed.filter(|claimed| *claimed != pin.digest()) {
            let found = pin.digest();
            self.discard(vec![pin]).await;
            let text = format!("part {index} was damaged on its way: it has the digest `{found}`, not `{claimed}`");
            return Err(CatalogError::Invalid(text));
        }
        let changing = self.changing.write().await;
        // Another request may have done anything meanwhile.
        let look = |reserved: &mut Reservation| -> Result<Arc<Upload>, CatalogError> {
            Self::check_alive(tenant)?;
            let upload = self.upload(tenant.id, digest)?;
            upload.check_part(index, size)?;
            match upload.parts[index] {
                Some(_) => reserved.shrink_to(0),
                None => reserved.grow(size - reserved.bytes())?,
            }
            Ok(upload)
        };
        let shown = match look(&mut reserved) {
            Ok(upload) => upload,
            Err(error) => {
                drop(changing);
                self.discard(vec![pin]).await;
                return Err(error);
            }
        };
        let before = shown.parts[index];
        if before == Some(pin.digest()) {
            return Ok(shown);
        }
        let mut upload = Upload::clone(&shown);
        upload.parts[index] = Some(pin.digest());
        upload.touched_ms = unix_ms();
        let pins = self.commit(Batch::default().put(&upload)?, vec![pin]).await?;
        reserved.keep();
        let upload = self.shown.uploads.put(upload);
        drop((pins, changing));
        self.collect(before).await?;
        Ok(upload)
    }

    /// Gives an upload up, with what has come of it.
    pub async fn delete_upload(&self, tenant: &Tenant, digest: &Digest) -> Result<(), CatalogError> {
        let _changing = self.changing.write().await;
        let upload = self.upload(tenant.id, digest)?;
        self.remove_upload(tenant, &upload).await
    }

    async fn remove_upload(&self, tenant: &Tenant, upload: &Upload) -> Result<(), CatalogError> {
        self.metadata.commit(Batch::default().delete::<Upload>(upload.key())).await?;
        self.shown.uploads.remove(tenant.id, &upload.name());
        tenant.storage.release(upload.stored_bytes());
        self.collect(upload.digests()).await
    }

    /// Gives up the uploads that were forgotten.
    pub async fn expire_uploads(&self, tenant: &Tenant) -> Result<(), CatalogError> {
        let old = unix_ms().saturating_sub(KEEP.as_millis() as u64);
        let _changing = self.changing.write().await;
        for upload in self.shown.uploads.of(tenant.id) {
            if upload.touched_ms < old {
                self.remove_upload(tenant, &upload).await?;
            }
        }
        Ok(())
    }

    /// Whether an upload is still what it was.
    fn is_shown(&self, upload: &Upload) -> bool {
        self.shown.uploads.get(upload.tenant, &upload.name()).is_some_and(|now| now.parts == upload.parts)
    }

    /// The whole file of an upload, checked against its digest.
    pub(super) async fn spool(&self, tenant: &Tenant, digest: &Digest) -> Result<TempPath, CatalogError> {
        let upload = self.upload(tenant.id, digest)?;
        let missing = upload.missing().len();
        if missing > 0 {
            return Err(CatalogError::Incomplete { digest: *digest, missing, parts: upload.parts.len() });
        }
        let staging = self.staging.clone();
        let staged = |error| CatalogError::io("staging an upload", error);
        let (mut file, path) =
            tempfile::Builder::new().prefix("file-").tempfile_in(staging).map_err(staged)?.into_parts();
        let mut hasher = Hasher::default();
        for part in upload.digests() {
            let mut bytes = Vec::new();
            let mut reader = match self.blobs.open(&part).await {
                // Another request has used the upload up, or replaced the part.
                Err(BlobError::NotFound(_)) if !self.is_shown(&upload) => {
                    return Err(CatalogError::Changed { what: "upload", name: digest.to_string() });
                }
                opened => opened?,
            };
            reader.read_to_end(&mut bytes).await.map_err(staged)?;
            let write = move || {
                hasher.update(&bytes);
                file.write_all(&bytes).map(|()| (hasher, file))
            };
            (hasher, file) =
                tokio::task::spawn_blocking(write).await.map_err(std::io::Error::other).flatten().map_err(staged)?;
        }
        let found = hasher.finish();
        if found != *digest {
            self.delete_upload(tenant, digest).await?;
            return Err(CatalogError::Mismatch { claimed: *digest, found });
        }
        Ok(path)
    }
}
