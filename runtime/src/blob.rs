//! Blobs: bytes that never change, under the digest of what they are.
//!
//! A blob is staged as a file first (an upload is written there as it arrives) and published whole or not at all.

use std::path::Path;

use async_trait::async_trait;
use tokio::io::AsyncRead;

use crate::digest::Digest;

mod local;

pub use local::{LocalBlobs, publish_file};

/// A blob that could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("there is no blob `{0}`")]
    NotFound(Digest),
    #[error("blob store: {what}: {error}")]
    Io { what: String, error: std::io::Error },
}

/// Where blobs are kept.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Publishes a staged file as the blob `digest`, which the caller has computed. Publishing what is there already
    /// does nothing. When this returns, the blob is durable.
    async fn publish(&self, staged: &Path, digest: &Digest) -> Result<(), BlobError>;

    /// Reads a blob from its beginning.
    async fn open(&self, digest: &Digest) -> Result<Box<dyn AsyncRead + Send + Unpin>, BlobError>;

    /// How long a blob is; an error if it is not there.
    async fn size(&self, digest: &Digest) -> Result<u64, BlobError>;

    /// Every blob there is.
    async fn list(&self) -> Result<Vec<Digest>, BlobError>;

    /// Removes a blob; removing what is not there does nothing.
    async fn delete(&self, digest: &Digest) -> Result<(), BlobError>;
}
