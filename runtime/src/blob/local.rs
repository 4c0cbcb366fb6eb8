//! Blobs as files: `blobs/ab/cdef…`, by the hexadecimal digits of their digest.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tokio::io::AsyncRead;

use super::{BlobError, BlobStore};
use crate::digest::Digest;

/// A folder of blobs, on the same file system as the staging folder.
pub struct LocalBlobs {
    root: PathBuf,
}

impl LocalBlobs {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn path(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        let (first, rest) = hex.split_at(2);
        self.root.join(first).join(rest)
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BlobError {
    let what = format!("{what} `{}`", path.display());
    move |error| BlobError::Io { what, error }
}

/// Moves a finished file to its place so that it is there, whole, after a crash too.
pub fn publish_file(staged: &Path, place: &Path) -> io::Result<()> {
    File::open(staged)?.sync_all()?;
    let folder = place.parent().unwrap_or(Path::new("."));
    if !folder.is_dir() {
        std::fs::create_dir_all(folder)?;
        if let Some(above) = folder.parent() {
            File::open(above)?.sync_all()?;
        }
    }
    std::fs::rename(staged, place)?;
    File::open(folder)?.sync_all()
}

/// Whatever is not named like a blob is not one, and is left alone.
fn list(root: &Path) -> io::Result<Vec<Digest>> {
    let mut digests = Vec::new();
    for folder in std::fs::read_dir(root)? {
        let folder = folder?;
        if !folder.file_type()?.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(folder.path())? {
            let hex = [folder.file_name(), file?.file_name()].map(|part| part.to_string_lossy().into_owned()).concat();
            digests.extend(hex.parse::<Digest>());
        }
    }
    Ok(digests)
}

#[async_trait]
impl BlobStore for LocalBlobs {
    async fn publish(&self, staged: &Path, digest: &Digest) -> Result<(), BlobError> {
        let (staged, place) = (staged.to_owned(), self.path(digest));
        let shown = place.clone();
        let publish = tokio::task::spawn_blocking(move || publish_file(&staged, &place));
        publish.await.map_err(io::Error::other).flatten().map_err(io_error("publishing", &shown))
    }

    async fn open(&self, digest: &Digest) -> Result<Box<dyn AsyncRead + Send + Unpin>, BlobError> {
        let path = self.path(digest);
        match tokio::fs::File::open(&path).await {
            Ok(file) => Ok(Box::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(BlobError::NotFound(*digest)),
            Err(error) => Err(io_error("opening", &path)(error)),
        }
    }

    async fn size(&self, digest: &Digest) -> Result<u64, BlobError> {
        let path = self.path(digest);
        match tokio::fs::metadata(&path).await {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(BlobError::NotFound(*digest)),
            Err(error) => Err(io_error("looking at", &path)(error)),
        }
    }

    async fn list(&self) -> Result<Vec<Digest>, BlobError> {
        let root = self.root.clone();
        let list = tokio::task::spawn_blocking(move || list(&root));
        list.await.map_err(io::Error::other).flatten().map_err(io_error("listing", &self.root))
    }

    async fn delete(&self, digest: &Digest) -> Result<(), BlobError> {
        let path = self.path(digest);
        match tokio::fs::remove_file(&path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("deleting", &path)(error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_published_blob_is_read_back_until_it_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = LocalBlobs::new(folder.path().join("blobs"));
        let digest = Digest::of(b"weft");
        assert!(matches!(blobs.open(&digest).await.err(), Some(BlobError::NotFound(_))));
        for _ in 0..2 {
            let staged = folder.path().join("staged");
            std::fs::write(&staged, b"weft").unwrap();
            blobs.publish(&staged, &digest).await.unwrap();
            assert!(!staged.exists());
        }
        let mut bytes = Vec::new();
        blobs.open(&digest).await.unwrap().read_to_end(&mut bytes).await.unwrap();
        assert_eq!((bytes.as_slice(), blobs.size(&digest).await.unwrap()), (b"weft".as_slice(), 4));
        blobs.delete(&digest).await.unwrap();
        blobs.delete(&digest).await.unwrap();
        assert!(blobs.size(&digest).await.is_err());
    }
}
