//! Reading a blob from its beginning, piece by piece, and checking at its end that it was what it is called.
//!
//! Each piece is a request of its own: a reader may take as long as it likes, and holds one piece in memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, ReadBuf};

use super::{BlobError, Blobs};
use crate::digest::{Digest, Hasher};

/// Bytes of one piece: enough that a request's round trip does not count for much.
const PIECE: u64 = 4 << 20;

type Piece = Result<(Bytes, Hasher), BlobError>;

/// A blob that is being read. At its end it is an error ([`io::ErrorKind::InvalidData`]) if the bytes were not those that
/// were published.
pub struct BlobReader {
    blobs: Arc<Blobs>,
    digest: Digest,
    size: u64,
    /// Up to where it was asked for.
    at: u64,
    piece: Bytes,
    coming: Option<BoxFuture<'static, Piece>>,
    /// Of what has come; `None` while a piece is coming, and after the end was checked.
    hasher: Option<Hasher>,
    /// Nothing is read after an error.
    failed: bool,
}

impl BlobReader {
    pub(super) fn new(blobs: Arc<Blobs>, digest: Digest, size: u64) -> Self {
        let hasher = Some(Hasher::default());
        Self { blobs, digest, size, at: 0, piece: Bytes::new(), coming: None, hasher, failed: false }
    }

    /// Bytes of the whole blob.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The most bytes of it that are in memory while it is read.
    pub fn held(&self) -> u64 {
        self.size.min(PIECE)
    }

    /// Whether there is more to take from `piece`.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, BlobError>> {
        while self.piece.is_empty() {
            if let Some(coming) = &mut self.coming {
                let came = ready!(coming.as_mut().poll(context));
                self.coming = None;
                let (piece, hasher) = came?;
                (self.piece, self.hasher) = (piece, Some(hasher));
                continue;
            }
            let Some(hasher) = self.hasher.take() else { return Poll::Ready(Ok(false)) };
            if self.at == self.size {
                return Poll::Ready(self.check(hasher.finish()).map(|()| false));
            }
            let range = self.at..self.size.min(self.at + PIECE);
            self.at = range.end;
            self.coming = Some(Box::pin(fetch(self.blobs.clone(), self.digest, range, hasher)));
        }
        Poll::Ready(Ok(true))
    }

    fn check(&self, found: Digest) -> Result<(), BlobError> {
        if found == self.digest {
            return Ok(());
        }
        let why = format!("its {} bytes have the digest `{found}`", self.size);
        Err(BlobError::Damaged { digest: self.digest, why })
    }
}

async fn fetch(blobs: Arc<Blobs>, digest: Digest, range: std::ops::Range<u64>, mut hasher: Hasher) -> Piece {
    let bytes = match blobs.read(&digest, range).await {
        // It was longer when it was opened.
        Err(BlobError::OutOfRange { size, .. }) => {
            return Err(BlobError::Damaged { digest, why: format!("it was cut to {size} bytes") });
        }
        read => read?,
    };
    let hash = move || {
        hasher.update(&bytes);
        (bytes, hasher)
    };
    blobs.blocking("hashing", hash).await
}

impl AsyncRead for BlobReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.failed {
            return Poll::Ready(Err(io::Error::other("the blob could not be read")));
        }
        match ready!(self.poll_piece(context)) {
            Ok(true) => {
                let count = self.piece.len().min(buffer.remaining());
                buffer.put_slice(&self.piece[..count]);
                self.piece.advance(count);
                Poll::Ready(Ok(()))
            }
            Ok(false) => Poll::Ready(Ok(())),
            Err(error) => {
                self.failed = true;
                Poll::Ready(Err(error.into()))
            }
        }
    }
}
