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

use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The layout that this version writes and reads.
pub const FORMAT: u32 = 1;

/// What a node makes in its directory.
const OURS: [&str; 7] = ["lock", "format", "meta.redb", "blobs", "artifacts", "params", "staging"];
/// The permissions of everybody but the owner.
const OTHERS: u32 = 0o077;

/// Lets only the owner see what this process writes from now on: functions, data and the hashes of keys are in it.
pub fn keep_others_out() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(OTHERS));
}

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
        directory.make_private().map_err(failed("its permissions cannot be changed"))?;
        Ok(directory)
    }

    /// What is in it is for its owner alone, also where an earlier version or somebody's `mkdir` was less careful. The
    /// directory itself may be somebody else's to change, so that is only told.
    fn make_private(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours = OURS.iter().any(|ours| name == *ours);
            let mode = entry.metadata()?.permissions().mode();
            if is_ours && mode & OTHERS != 0 {
                fs::set_permissions(entry.path(), Permissions::from_mode(mode & !OTHERS))?;
            }
        }
        if fs::metadata(&self.root)?.permissions().mode() & OTHERS != 0 {
            let path = self.root.display();
            tracing::warn!(%path, "others may look into the data directory: `chmod 700` keeps them out");
        }
        Ok(())
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
    fn what_others_could_read_becomes_private() {
        let folder = tempfile::tempdir().unwrap();
        let open_to_all = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        drop(DataDir::open(folder.path()).unwrap());
        let (blobs, format, other) =
            (folder.path().join("blobs"), folder.path().join("format"), folder.path().join("notes"));
        fs::write(&other, "not ours").unwrap();
        open_to_all(&blobs, 0o755);
        open_to_all(&format, 0o644);
        open_to_all(&other, 0o644);
        drop(DataDir::open(folder.path()).unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&blobs), mode(&format), mode(&other)), (0o700, 0o600, 0o644));
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
