//! The data directory: what lies where, whose it is, and which version wrote it.
//!
//! ```text
//! format          the version of this layout
//! lock            held by the node that is running
//! meta.redb       records: tenants, keys, functions, usage, logs
//! blobs/          components as they were uploaded, unless they are in a bucket
//! params/         the parameter store: its snapshot and journal, or what is known of the Redis that it is in
//! artifacts/      the same, compiled for this machine; can be deleted at any time while no node runs
//! staging/        files in the making; emptied at start
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The layout that this version writes and reads.
pub const FORMAT: u32 = 1;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("data directory `{}`: {what}: {error}", path.display())]
    Io { path: PathBuf, what: &'static str, error: io::Error },
    #[error("data directory `{}` is in use by another node; stop that one or name another with `--data-dir`", .0.display())]
    InUse(PathBuf),
    #[error(
        "data directory `{}` has format {found:?}, this version reads {FORMAT}: use the version of weft that wrote it, \
         or restore a backup into a new directory", path.display()
    )]
    Format { path: PathBuf, found: String },
}

/// A data directory that this process owns until it is dropped.
pub struct DataDir {
    root: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Opens or creates it, takes its lock, checks its format, and empties staging.
    pub fn open(root: &Path) -> Result<Self, DataDirError> {
        let failed = |what| move |error| DataDirError::Io { path: root.to_owned(), what, error };
        create_private(root).map_err(failed("cannot be created"))?;
        let lock = File::options().create(true).append(true).open(root.join("lock")).map_err(failed("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => DataDirError::InUse(root.to_owned()),
            TryLockError::Error(error) => failed("lock")(error),
        })?;
        match fs::read_to_string(root.join("format")) {
            Ok(found) if found.trim() == FORMAT.to_string() => {}
            Ok(found) => {
                let found = found.trim().chars().take(20).collect();
                return Err(DataDirError::Format { path: root.to_owned(), found });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !root.join("meta.redb").exists() => {
                write_format(root).map_err(failed("format"))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DataDirError::Format { path: root.to_owned(), found: "unknown".to_owned() });
            }
            Err(error) => return Err(failed("format")(error)),
        }
        let directory = Self { root: root.to_owned(), _lock: lock };
        if directory.staging().exists() {
            fs::remove_dir_all(directory.staging()).map_err(failed("staging"))?;
        }
        for folder in [directory.staging(), directory.blobs(), directory.artifacts(), directory.params()] {
            fs::create_dir_all(folder).map_err(failed("cannot be created"))?;
        }
        Ok(directory)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn metadata(&self) -> PathBuf {
        self.root.join("meta.redb")
    }

    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    pub fn params(&self) -> PathBuf {
        self.root.join("params")
    }

    pub fn artifacts(&self) -> PathBuf {
        self.root.join("artifacts")
    }

    pub fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }
}

fn create_private(root: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    // Function code and key hashes are nobody else's business.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(root)
}

fn write_format(root: &Path) -> io::Result<()> {
    let staged = root.join("format.new");
    fs::write(&staged, format!("{FORMAT}\n"))?;
    crate::blob::publish_file(&staged, &root.join("format"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataDir::open(folder.path()).unwrap();
        assert!(matches!(DataDir::open(folder.path()), Err(DataDirError::InUse(_))));
        drop(first);
        assert!(DataDir::open(folder.path()).is_ok());
    }

    #[test]
    fn another_format_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("format"), "99\n").unwrap();
        let error = DataDir::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("\"99\""), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join("format")).unwrap(), "99\n");
    }

    #[test]
    fn metadata_without_a_format_is_not_taken_for_a_new_directory() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("meta.redb"), "").unwrap();
        assert!(matches!(DataDir::open(folder.path()), Err(DataDirError::Format { .. })));
    }

    #[test]
    fn unfinished_files_are_cleared_away() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDir::open(folder.path()).unwrap();
        fs::write(directory.staging().join("half"), "…").unwrap();
        drop(directory);
        assert!(!DataDir::open(folder.path()).unwrap().staging().join("half").exists());
    }
}
