//! Models: safetensors files that training, or a person, has left.

use std::fs::File;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::shelf::{Shelved, key};
use super::{Catalog, CatalogError};
use crate::blob::{BlobReader, Blobs};
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::meta::{Batch, Record};
use crate::model::{Model, open_bytes};
use crate::names::Name;
use crate::sandbox::Permit;
use crate::tenant::{Charge, Tenant, TenantId};

/// A model of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredModel {
    pub tenant: TenantId,
    pub name: Name,
    pub created_ms: u64,
    /// Of the file, which is a blob.
    pub digest: Digest,
    pub size: u64,
    pub tensors: usize,
    /// Numbers in all tensors.
    pub parameters: u64,
}

impl Record for StoredModel {
    const TABLE: &'static str = "models";

    fn key(&self) -> String {
        key(self.tenant, self.name.as_str())
    }
}

impl Shelved for StoredModel {
    fn tenant(&self) -> TenantId {
        self.tenant
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}

impl Catalog {
    pub fn model(&self, tenant: TenantId, name: &str) -> Result<Arc<StoredModel>, CatalogError> {
        self.shown.models.get(tenant, name).ok_or_else(|| CatalogError::not_found("model", name))
    }

    /// A tenant's models, by name.
    pub fn models(&self, tenant: TenantId) -> Vec<Arc<StoredModel>> {
        self.shown.models.of(tenant)
    }

    /// Makes an uploaded safetensors file a model.
    pub async fn create_model(
        &self,
        tenant: &Tenant,
        name: Name,
        upload: &Digest,
    ) -> Result<Arc<StoredModel>, CatalogError> {
        self.check_new_model(tenant, &name)?;
        let staged = self.spool(tenant, upload).await?;
        let (path, memory) = (staged.to_path_buf(), tenant.memory.clone());
        let look = move || -> Result<(u64, usize, u64), CatalogError> {
            let mut file = File::open(&path).map_err(|error| CatalogError::io("opening an upload", error))?;
            let size = file.metadata().map_err(|error| CatalogError::io("opening an upload", error))?.len();
            let mut charge = Charge::none(memory);
            charge.grow(open_bytes(&mut file)?)?;
            let model = Model::open(file)?;
            let numbers = |shape: &[usize]| shape.iter().map(|&size| size as u64).product::<u64>();
            Ok((size, model.tensors().len(), model.tensors().map(|tensor| numbers(&tensor.shape)).sum()))
        };
        let looked = tokio::task::spawn_blocking(look).await;
        let (size, tensors, parameters) =
            looked.map_err(|error| CatalogError::io("reading a model", io::Error::other(error)))??;
        let reserved = tenant.storage.reserve(size)?;
        let pin = self.blobs.publish(&staged, upload).await?;
        let changing = self.changing.write().await;
        if let Err(error) = Self::check_alive(tenant).and_then(|()| self.check_new_model(tenant, &name)) {
            drop(changing);
            self.discard(vec![pin]).await;
            return Err(error);
        }
        let model =
            StoredModel { tenant: tenant.id, name, created_ms: unix_ms(), digest: *upload, size, tensors, parameters };
        let pins = self.commit(Batch::default().put(&model)?, vec![pin]).await?;
        reserved.keep();
        let model = self.shown.models.put(model);
        drop((pins, changing));
        match self.delete_upload(tenant, upload).await {
            Ok(()) | Err(CatalogError::NotFound { .. }) => {}
            Err(error) => tracing::warn!(%error, "an upload that became a model stays until it expires"),
        }
        Ok(model)
    }

    /// Keeps a model that training has made, in place of one whose file is among those that are given up for it.
    pub async fn put_model(
        &self,
        tenant: &Tenant,
        name: Name,
        file: bytes::Bytes,
        replaces: &[Digest],
    ) -> Result<Arc<StoredModel>, CatalogError> {
        let size = file.len() as u64;
        let reserved = tenant.storage.reserve(size)?;
        let (tensors, parameters) = {
            let model = Model::open(io::Cursor::new(file.clone()))?;
            let numbers = |shape: &[usize]| shape.iter().map(|&size| size as u64).product::<u64>();
            (model.tensors().len(), model.tensors().map(|tensor| numbers(&tensor.shape)).sum())
        };
        let pin = self.blobs.publish_bytes(file).await?;
        let changing = self.changing.write().await;
        let before = self.shown.models.get(tenant.id, name.as_str());
        let before = before.filter(|before| replaces.contains(&before.digest));
        let fits = Self::check_alive(tenant).and_then(|()| match &before {
            Some(_) => Ok(()),
            None => self.check_new_model(tenant, &name),
        });
        if let Err(error) = fits {
            drop(changing);
            self.discard(vec![pin]).await;
            return Err(error);
        }
        let (digest, created_ms) = (pin.digest(), unix_ms());
        let model = StoredModel { tenant: tenant.id, name, created_ms, digest, size, tensors, parameters };
        let pins = self.commit(Batch::default().put(&model)?, vec![pin]).await?;
        reserved.keep();
        let model = self.shown.models.put(model);
        drop(pins);
        if let Some(before) = before {
            tenant.storage.release(before.size);
            self.collect([before.digest]).await?;
        }
        drop(changing);
        Ok(model)
    }

    pub async fn delete_model(&self, tenant: &Tenant, name: &str) -> Result<(), CatalogError> {
        self.delete_model_if(tenant, name, |_| true).await
    }

    /// Deletes a model if its file is one of these; any other of that name is somebody else's.
    pub async fn delete_model_of(&self, tenant: &Tenant, name: &str, files: &[Digest]) -> Result<(), CatalogError> {
        self.delete_model_if(tenant, name, |model| files.contains(&model.digest)).await
    }

    async fn delete_model_if(
        &self,
        tenant: &Tenant,
        name: &str,
        is_meant: impl Fn(&StoredModel) -> bool,
    ) -> Result<(), CatalogError> {
        let _changing = self.changing.write().await;
        let model = self.model(tenant.id, name)?;
        if !is_meant(&model) {
            return Err(CatalogError::not_found("model", name));
        }
        self.metadata.commit(Batch::default().delete::<StoredModel>(model.key())).await?;
        self.shown.models.remove(tenant.id, name);
        tenant.storage.release(model.size);
        self.collect([model.digest]).await
    }

    /// What `look` makes of a model whose head is read. The charge for the head is to be kept for as long as that: it has
    /// room for what is as large as the head.
    pub async fn look_at_model<T: Send + 'static>(
        &self,
        tenant: &Tenant,
        model: &StoredModel,
        place: Permit,
        look: impl FnOnce(&Model<BlobFile>) -> Result<T, CatalogError> + Send + 'static,
    ) -> Result<(T, Charge), CatalogError> {
        let looked = self.with_model(tenant, model, place, move |model| Ok((look(&model)?, model.into_file().charge)));
        looked.await
    }

    /// A model's file, its head read. What that takes is charged to the tenant for as long as the file is open.
    pub async fn open_model(
        &self,
        tenant: &Tenant,
        model: &StoredModel,
        place: Permit,
    ) -> Result<Model<BlobFile>, CatalogError> {
        self.with_model(tenant, model, place, Ok).await
    }

    /// Opens a model on a thread that may wait, which keeps the place for as long as that takes.
    async fn with_model<T: Send + 'static>(
        &self,
        tenant: &Tenant,
        model: &StoredModel,
        place: Permit,
        then: impl FnOnce(Model<BlobFile>) -> Result<T, CatalogError> + Send + 'static,
    ) -> Result<T, CatalogError> {
        let looked =
            self.with_file(tenant, model.digest, model.size, place, move |file| then(Model::open(file)?)).await;
        looked.map_err(|error| self.unless_model_deleted(model, error))
    }

    /// What `read` makes of a blob that is a model or a checkpoint, on a thread that may wait, which keeps the place for as
    /// long as that takes. The file has a charge for what is kept of its head.
    pub async fn with_file<T: Send + 'static>(
        &self,
        tenant: &Tenant,
        digest: Digest,
        size: u64,
        place: Permit,
        read: impl FnOnce(BlobFile) -> Result<T, CatalogError> + Send + 'static,
    ) -> Result<T, CatalogError> {
        let charge = Charge::none(tenant.memory.clone());
        let mut file = BlobFile { blobs: self.blobs.clone(), digest, size, at: 0, charge };
        let read = move || -> Result<T, CatalogError> {
            let _place = place;
            let bytes = open_bytes(&mut file)?;
            file.charge.grow(bytes)?;
            read(file)
        };
        let done = tokio::task::spawn_blocking(read).await;
        done.map_err(|error| CatalogError::io("reading a model", io::Error::other(error)))?
    }

    /// A model's file from its beginning.
    pub async fn read_model(&self, model: &StoredModel) -> Result<BlobReader, CatalogError> {
        let opened = self.blobs.open(&model.digest).await;
        opened.map_err(|error| self.unless_model_deleted(model, error.into()))
    }

    /// What went wrong with a model that was looked up: perhaps it has been deleted since, and that is all.
    fn unless_model_deleted(&self, model: &StoredModel, error: CatalogError) -> CatalogError {
        match self.shown.models.get(model.tenant, model.name.as_str()) {
            Some(now) if now.digest == model.digest => error,
            _ => CatalogError::not_found("model", model.name.as_str()),
        }
    }

    fn check_new_model(&self, tenant: &Tenant, name: &Name) -> Result<(), CatalogError> {
        if self.shown.models.get(tenant.id, name.as_str()).is_some() {
            return Err(CatalogError::Exists { what: "model", name: name.to_string() });
        }
        let limit = tenant.quota().models;
        if self.shown.models.of(tenant.id).len() >= limit as usize {
            let what = format!("a model `{name}`");
            return Err(CatalogError::Quota { name: "models", limit: limit.into(), what });
        }
        Ok(())
    }
}

/// A blob as a file that can be read from anywhere.
pub struct BlobFile {
    blobs: Arc<Blobs>,
    digest: Digest,
    size: u64,
    at: u64,
    /// For what is kept of its head.
    charge: Charge,
}

impl io::Read for BlobFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = (self.size.saturating_sub(self.at)).min(into.len() as u64);
        if count == 0 {
            return Ok(0);
        }
        let bytes = self.blobs.read_blocking(&self.digest, self.at..self.at + count)?;
        into[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}

impl io::Seek for BlobFile {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let at = match to {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::End(offset) => self.size.checked_add_signed(offset),
            io::SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
