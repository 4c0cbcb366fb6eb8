//! Blobs as files: `blobs/ab/cdef…`, by the hexadecimal digits of their digest.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::BlobError;
use super::hashing::Hashing;
use crate::digest::Digest;

pub(super) fn path(root: &Path, digest: &Digest) -> PathBuf {
    let hex = digest.hex();
    let (first, rest) = hex.split_at(2);
    root.join(first).join(rest)
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

/// A file that is written, and not yet a blob.
pub(super) struct Staged {
    file: tempfile::NamedTempFile,
    pub digest: Digest,
    pub size: u64,
}

impl Staged {
    pub fn write(staging: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Self, BlobError> {
        let stage = || {
            let mut file = tempfile::Builder::new().prefix("blob-").tempfile_in(staging)?;
            let mut hashing = Hashing::new(io::BufWriter::new(file.as_file_mut()));
            write(&mut hashing)?;
            hashing.flush()?;
            let (digest, size) = hashing.finish();
            Ok(Self { file, digest, size })
        };
        stage().map_err(io_error("staging in", staging))
    }

    /// Moves it to its place, unless it is there already.
    pub fn publish(self, place: &Path) -> Result<(), BlobError> {
        let publish = || match is_there(place, self.size)? {
            true => Ok(()),
            false => publish_file(self.file.path(), place),
        };
        publish().map_err(io_error("publishing", place))
    }
}

/// Makes sure that a blob of this size, if it is there, stays there: whoever put it there may not have come to that.
fn is_there(place: &Path, size: u64) -> io::Result<bool> {
    let file = match File::open(place) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() != size {
        return Ok(false);
    }
    file.sync_all()?;
    let folder = place.parent().unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    File::open(folder.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(true)
}

pub(super) fn publish(staged: &Path, place: &Path, digest: &Digest) -> Result<(), BlobError> {
    let found = Digest::of_file(staged).map_err(io_error("reading", staged))?;
    if found != *digest {
        return Err(BlobError::Mismatch { claimed: *digest, found });
    }
    let size = staged.metadata().map_err(io_error("looking at", staged))?.len();
    if is_there(place, size).map_err(io_error("looking at", place))? {
        return Ok(());
    }
    publish_file(staged, place).map_err(io_error("publishing", place))
}

pub(super) fn publish_bytes(bytes: &[u8], staging: &Path, place: &Path) -> Result<(), BlobError> {
    if is_there(place, bytes.len() as u64).map_err(io_error("looking at", place))? {
        return Ok(());
    }
    let stage = || {
        let mut staged = tempfile::Builder::new().prefix("blob-").tempfile_in(staging)?;
        staged.write_all(bytes)?;
        Ok(staged.into_temp_path())
    };
    let staged = stage().map_err(io_error("staging in", staging))?;
    publish_file(&staged, place).map_err(io_error("publishing", place))
}

/// Reads a part of a blob on the caller's thread.
pub(super) fn read(root: &Path, digest: &Digest, range: Range<u64>) -> Result<Bytes, BlobError> {
    let path = path(root, digest);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(BlobError::NotFound(*digest)),
        Err(error) => return Err(io_error("opening", &path)(error)),
    };
    let size = file.metadata().map_err(io_error("looking at", &path))?.len();
    // Before anything is allocated for it.
    if range.start > range.end || range.end > size {
        return Err(BlobError::OutOfRange { digest: *digest, range, size });
    }
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).map_err(io_error("reading", &path))?;
    Ok(bytes.into())
}

pub(super) fn list(root: &Path) -> io::Result<Vec<Digest>> {
    let mut digests = Vec::new();
    for folder in std::fs::read_dir(root)? {
        let folder = folder?;
        if !folder.file_type()?.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(folder.path())? {
            let file = file?;
            let hex = [folder.file_name(), file.file_name()].map(|part| part.to_string_lossy().into_owned()).concat();
            digests.extend(hex.parse().ok().filter(|digest| path(root, digest) == file.path()));
        }
    }
    Ok(digests)
}
