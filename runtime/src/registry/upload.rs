//! An upload on its way in: written to a file as it arrives, hashed and counted on the way.

use std::path::Path;

use tempfile::TempPath;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::RegistryError;
use crate::digest::{Digest, Hasher};

/// A component that is arriving. Dropping it deletes the file.
pub struct Upload {
    file: File,
    path: TempPath,
    hasher: Hasher,
    size: u64,
    limit: u64,
}

/// A component that has arrived.
pub(super) struct Staged {
    pub path: TempPath,
    pub digest: Digest,
    pub size: u64,
}

fn io_error(error: std::io::Error) -> RegistryError {
    RegistryError::Io { what: "staging an upload".to_owned(), error }
}

impl Upload {
    pub(super) async fn begin(staging: &Path, limit: u64) -> Result<Self, RegistryError> {
        let staging = staging.to_owned();
        let make = tokio::task::spawn_blocking(move || tempfile::Builder::new().prefix("upload-").tempfile_in(staging));
        let (file, path) = make.await.map_err(std::io::Error::other).flatten().map_err(io_error)?.into_parts();
        Ok(Self { file: File::from_std(file), path, hasher: Hasher::default(), size: 0, limit })
    }

    /// How much has come.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Refuses what would be too much.
    pub fn expect(&self, bytes: u64) -> Result<(), RegistryError> {
        if bytes > self.limit - self.size {
            let what = "this upload".to_owned();
            return Err(RegistryError::Quota { name: "upload_bytes", limit: self.limit, what });
        }
        Ok(())
    }

    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), RegistryError> {
        self.expect(bytes.len() as u64)?;
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        self.file.write_all(bytes).await.map_err(io_error)
    }

    pub(super) async fn finish(mut self) -> Result<Staged, RegistryError> {
        self.file.flush().await.map_err(io_error)?;
        Ok(Staged { path: self.path, digest: self.hasher.finish(), size: self.size })
    }
}
