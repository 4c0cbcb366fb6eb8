//! Bringing bytes to a store over its own protocol: small ones in one request, large ones in parts.
//!
//! What is being sent is hashed on the way, and only completed if it is what it was said to be.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use object_store::{MultipartUpload, ObjectStoreExt, PutMode};

use super::{BlobError, Blobs};
use crate::digest::{Digest, Hasher};

/// Bytes of one part, at least; what fits into one is sent in one request.
const PART: u64 = 8 << 20;
/// A store takes no more parts than this.
const MAX_PARTS: u64 = 9_000;
/// Parts on their way at once.
const PARALLEL: usize = 3;
/// How often a store may answer that somebody else is just publishing the same blob.
const CONFLICTS: usize = 5;

/// What is to be sent.
pub(super) enum Content {
    File { file: Arc<File>, size: u64 },
    Bytes(Bytes),
}

impl Content {
    pub(super) fn file(path: &Path) -> Result<Self, BlobError> {
        let open = || {
            let file = File::open(path)?;
            let size = file.metadata()?.len();
            Ok(Self::File { file: Arc::new(file), size })
        };
        open().map_err(|error| BlobError::Io { what: format!("opening `{}`", path.display()), error })
    }

    fn size(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Some bytes, and the hash of everything up to them. May block.
    fn piece(&self, start: u64, end: u64, mut hasher: Hasher) -> io::Result<(Bytes, Hasher)> {
        let bytes = match self {
            Self::Bytes(bytes) => bytes.slice(start as usize..end as usize),
            Self::File { file, .. } => {
                let mut bytes = vec![0; (end - start) as usize];
                file.read_exact_at(&mut bytes, start)?;
                bytes.into()
            }
        };
        hasher.update(&bytes);
        Ok((bytes, hasher))
    }
}

impl Blobs {
    /// Puts `content` where the blob `digest` belongs, unless it is there.
    pub(super) async fn upload(&self, content: Content, digest: Digest) -> Result<(), BlobError> {
        let size = content.size();
        let content = Arc::new(content);
        let known = self.look(&digest).await?;
        if known == Some(size) {
            return self.verify(&content, digest).await;
        }
        if size > PART {
            // Parts are put together unconditionally; it is the same bytes that would be replaced.
            return self.upload_parts(&content, digest).await;
        }
        let (bytes, hasher) = self.piece(&content, 0, size, Hasher::default()).await?;
        matches(digest, hasher)?;
        // One of another length is damaged.
        let mode = if known.is_some() { PutMode::Overwrite } else { PutMode::Create };
        self.put(bytes, digest, mode).await
    }

    async fn put(&self, bytes: Bytes, digest: Digest, mode: PutMode) -> Result<(), BlobError> {
        let size = bytes.len() as u64;
        let mut conflicts = 0;
        loop {
            let put = self.store.put_opts(&self.key(&digest), bytes.clone().into(), mode.clone().into()).await;
            let Err(error) = put else { return Ok(()) };
            // Somebody else was first, or the answer got lost.
            match self.look(&digest).await {
                Ok(Some(found)) if found == size => return Ok(()),
                Ok(None) if matches!(error, object_store::Error::AlreadyExists { .. }) && conflicts < CONFLICTS => {
                    conflicts += 1;
                }
                _ => return Err(self.failed(&format!("publishing `{digest}`"), &error)),
            }
        }
    }

    async fn upload_parts(&self, content: &Arc<Content>, digest: Digest) -> Result<(), BlobError> {
        let failed = |error| self.failed(&format!("publishing `{digest}` in parts"), &error);
        let upload = self.store.put_multipart(&self.key(&digest)).await.map_err(failed)?;
        let mut unfinished = Unfinished { upload: Some(upload) };
        let Some(upload) = unfinished.upload.as_mut() else { return Ok(()) };
        let part = PART.max(content.size().div_ceil(MAX_PARTS));
        let (mut start, mut hasher) = (0, Hasher::default());
        let mut sending = FuturesUnordered::new();
        while start < content.size() {
            let end = content.size().min(start + part);
            let (bytes, hashed) = self.piece(content, start, end, hasher).await?;
            (start, hasher) = (end, hashed);
            if sending.len() == PARALLEL
                && let Some(sent) = sending.next().await
            {
                Result::map_err(sent, failed)?;
            }
            sending.push(upload.put_part(bytes.into()));
        }
        while let Some(sent) = sending.next().await {
            sent.map_err(failed)?;
        }
        matches(digest, hasher)?;
        if let Err(error) = upload.complete().await
            // Or else only the answer got lost.
            && self.look(&digest).await.ok().flatten() != Some(content.size())
        {
            return Err(failed(error));
        }
        unfinished.upload = None;
        Ok(())
    }

    async fn verify(&self, content: &Arc<Content>, digest: Digest) -> Result<(), BlobError> {
        if let Content::Bytes(_) = **content {
            // The digest was computed from them.
            return Ok(());
        }
        let (mut start, mut hasher) = (0, Hasher::default());
        while start < content.size() {
            let end = content.size().min(start + PART);
            hasher = self.piece(content, start, end, hasher).await?.1;
            start = end;
        }
        matches(digest, hasher)
    }

    async fn piece(
        &self,
        content: &Arc<Content>,
        start: u64,
        end: u64,
        hasher: Hasher,
    ) -> Result<(Bytes, Hasher), BlobError> {
        let content = content.clone();
        let piece = self.blocking("reading a staged file", move || content.piece(start, end, hasher)).await?;
        piece.map_err(|error| BlobError::Io { what: "reading a staged file".to_owned(), error })
    }
}

fn matches(claimed: Digest, hasher: Hasher) -> Result<(), BlobError> {
    let found = hasher.finish();
    if found == claimed { Ok(()) } else { Err(BlobError::Mismatch { claimed, found }) }
}

/// Parts that have no whole yet. Dropping it tells the store to forget them.
struct Unfinished {
    upload: Option<Box<dyn MultipartUpload>>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(mut upload) = self.upload.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { upload.abort().await.ok() });
        }
    }
}
