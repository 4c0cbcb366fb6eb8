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

use super::hashing::Hashing;
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

/// The room that is needed to send so many bytes, and the room with which that is as fast as it can be.
pub(super) fn room_for(size: u64) -> (u64, u64) {
    let least = size.min(part_of(size));
    (least, size.min(least.saturating_mul(PARALLEL as u64)))
}

/// Bytes of each part of so many.
fn part_of(size: u64) -> u64 {
    PART.max(size.div_ceil(MAX_PARTS))
}

/// What is to be sent.
pub(super) enum Content<'a> {
    File { file: Arc<File>, size: u64 },
    Bytes(Bytes),
    Written(Written<'a>),
}

/// What is written anew for each piece of it that is wanted, the same each time.
pub(super) struct Written<'a> {
    write: &'a (dyn Fn(&mut dyn io::Write) -> io::Result<()> + Sync),
    pub digest: Digest,
    pub size: u64,
}

impl Written<'_> {
    fn piece(&self, start: u64, end: u64) -> io::Result<Bytes> {
        let mut window = Window { start, end, at: 0, bytes: Vec::with_capacity((end - start) as usize) };
        (self.write)(&mut window)?;
        match window.bytes.len() as u64 == end - start {
            true => Ok(window.bytes.into()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Keeps a piece of what is written, and lets the rest go by.
struct Window {
    start: u64,
    end: u64,
    /// How much was written until now.
    at: u64,
    bytes: Vec<u8>,
}

impl io::Write for Window {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let within = |place: u64| place.clamp(self.at, self.at + bytes.len() as u64) - self.at;
        let range = within(self.start) as usize..within(self.end) as usize;
        self.bytes.extend_from_slice(&bytes[range]);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> Content<'a> {
    pub(super) fn file(path: &Path) -> Result<Self, BlobError> {
        let open = || {
            let file = File::open(path)?;
            let size = file.metadata()?.len();
            Ok(Self::File { file: Arc::new(file), size })
        };
        open().map_err(|error| BlobError::Io { what: format!("opening `{}`", path.display()), error })
    }

    /// Finds out what `write` writes.
    pub(super) fn written(
        write: &'a (dyn Fn(&mut dyn io::Write) -> io::Result<()> + Sync),
    ) -> Result<Written<'a>, BlobError> {
        let mut hashing = Hashing::new(io::sink());
        write(&mut hashing).map_err(|error| BlobError::Io { what: "writing a blob".to_owned(), error })?;
        let (digest, size) = hashing.finish();
        Ok(Written { write, digest, size })
    }

    fn size(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Written(written) => written.size,
        }
    }
}

fn read_piece(file: &File, start: u64, end: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; (end - start) as usize];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes.into())
}

impl Blobs {
    /// Puts `content` where the blob `digest` belongs, unless it is there. At most so many bytes of it are copied into
    /// memory at a time, or a single part.
    pub(super) async fn upload(&self, content: Content<'_>, digest: Digest, room: u64) -> Result<(), BlobError> {
        let size = content.size();
        let known = self.look(&digest).await?;
        if known == Some(size) {
            return self.verify(&content, digest).await;
        }
        if size > PART {
            // Parts are put together unconditionally; it is the same bytes that would be replaced.
            return self.upload_parts(&content, digest, room).await;
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

    async fn upload_parts(&self, content: &Content<'_>, digest: Digest, room: u64) -> Result<(), BlobError> {
        let failed = |error| self.failed(&format!("publishing `{digest}` in parts"), &error);
        let upload = self.store.put_multipart(&self.key(&digest)).await.map_err(failed)?;
        let mut unfinished = Unfinished { upload: Some(upload) };
        let Some(upload) = unfinished.upload.as_mut() else { return Ok(()) };
        let part = part_of(content.size());
        let parallel = usize::try_from(room / part).unwrap_or(usize::MAX).clamp(1, PARALLEL);
        let (mut start, mut hasher) = (0, Hasher::default());
        let mut sending = FuturesUnordered::new();
        while start < content.size() {
            // Before the next is made: no more than these are in memory.
            if sending.len() == parallel
                && let Some(sent) = sending.next().await
            {
                Result::map_err(sent, failed)?;
            }
            let end = content.size().min(start + part);
            let (bytes, hashed) = self.piece(content, start, end, hasher).await?;
            (start, hasher) = (end, hashed);
            sending.push(upload.put_part(bytes.into()));
        }
        while let Some(sent) = sending.next().await {
            sent.map_err(failed)?;
        }
        matches(digest, hasher)?;
        match upload.complete().await {
            Ok(_) => {
                unfinished.upload = None;
                Ok(())
            }
            // Only the answer got lost, or somebody else was faster: giving up what is complete does no harm.
            Err(_) if self.look(&digest).await.ok().flatten() == Some(content.size()) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    async fn verify(&self, content: &Content<'_>, digest: Digest) -> Result<(), BlobError> {
        if let Content::Bytes(_) | Content::Written(_) = content {
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

    /// Some bytes, and the hash of everything up to them.
    async fn piece(
        &self,
        content: &Content<'_>,
        start: u64,
        end: u64,
        mut hasher: Hasher,
    ) -> Result<(Bytes, Hasher), BlobError> {
        let what = match content {
            Content::Written(_) => "writing a blob",
            Content::File { .. } | Content::Bytes(_) => "reading a staged file",
        };
        let hashed = |bytes: Bytes| {
            hasher.update(&bytes);
            (bytes, hasher)
        };
        let piece = match content {
            // By whoever publishes it, who has all that it is made of.
            Content::Written(written) => written.piece(start, end).map(hashed),
            Content::Bytes(bytes) => {
                let bytes = bytes.slice(start as usize..end as usize);
                self.blocking(what, move || Ok(hashed(bytes))).await?
            }
            Content::File { file, .. } => {
                let file = file.clone();
                self.blocking(what, move || read_piece(&file, start, end).map(hashed)).await?
            }
        };
        piece.map_err(|error| BlobError::Io { what: what.to_owned(), error })
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn pieces_of_what_is_written_are_the_whole() {
        let all: Vec<u8> = (0..1_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let write = |to: &mut dyn Write| {
            // As it comes: nothing, single bytes, and many at once.
            to.write_all(&[])?;
            all[..3].iter().try_for_each(|byte| to.write_all(&[*byte]))?;
            to.write_all(&all[3..500])?;
            to.write_all(&all[500..])
        };
        let written = Content::written(&write).unwrap();
        assert_eq!((written.digest, written.size), (Digest::of(&all), 1_000));
        for size in [1, 3, 499, 500, 999, 1_000] {
            let pieces = (0..1_000).step_by(size).map(|start| written.piece(start, (start + size as u64).min(1_000)));
            let pieces: Vec<Bytes> = pieces.map(|piece| piece.unwrap()).collect();
            assert!(pieces.iter().all(|piece| piece.len() <= size));
            assert_eq!(pieces.concat(), all, "{size}");
        }
        assert!(written.piece(900, 1_001).is_err(), "there is no more");
    }

    #[test]
    fn a_large_blob_needs_room_for_one_part_and_can_use_that_of_several() {
        assert_eq!(room_for(0), (0, 0));
        assert_eq!(room_for(PART), (PART, PART));
        assert_eq!(room_for(2 * PART), (PART, 2 * PART));
        assert_eq!(room_for(100 * PART), (PART, PARALLEL as u64 * PART));
        let (least, _) = room_for(2 * MAX_PARTS * PART);
        assert_eq!(least, 2 * PART, "no more parts than a store takes");
    }
}
