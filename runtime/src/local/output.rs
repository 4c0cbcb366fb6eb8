//! Where a training's files go. The place is looked at before anything is trained, and a file is there whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A place that no model can be written to.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("`{}` is a folder: name a file in it with `--output`", .0.display())]
    Folder(PathBuf),
    #[error("there is no folder `{}` for the model: make it first, or name another file with `--output`", .0.display())]
    NoFolder(PathBuf),
    #[error("cannot write to `{}`: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

/// The files of one training: its model, those of single epochs, and its checkpoint.
#[derive(Clone, Debug)]
pub struct OutputFiles {
    model: PathBuf,
    /// A device or a pipe: written in place, and with no room for other files beside it.
    is_special: bool,
}

impl OutputFiles {
    /// Makes sure that files can be written there.
    pub fn at(model: &Path) -> Result<Self, OutputError> {
        let wrong = |path: &Path| {
            let path = path.to_owned();
            move |error| OutputError::Write { path, error }
        };
        let is_special = match fs::metadata(model) {
            Ok(found) if found.is_dir() => return Err(OutputError::Folder(model.to_owned())),
            Ok(found) => !found.is_file(),
            Err(_) => false,
        };
        // What a link leads to is replaced, not the link.
        let is_link = fs::symlink_metadata(model).is_ok_and(|found| found.is_symlink());
        let linked = if is_link { fs::canonicalize(model).ok() } else { None };
        let model = linked.unwrap_or_else(|| model.to_owned());
        if is_special {
            File::options().write(true).open(&model).map_err(wrong(&model))?;
        } else {
            let folder = folder_of(&model);
            if !folder.is_dir() {
                return Err(OutputError::NoFolder(folder.to_owned()));
            }
            staged(folder).map_err(wrong(folder))?;
        }
        Ok(Self { model, is_special })
    }

    /// The model that is left at the end.
    pub fn model(&self) -> &Path {
        &self.model
    }

    /// A model whose name has something more, as `spot-e3.safetensors`.
    pub fn model_with(&self, suffix: &str) -> PathBuf {
        if suffix.is_empty() || self.is_special {
            return self.model.clone();
        }
        self.beside(suffix, self.model.extension().map(|extension| extension.to_os_string()))
    }

    /// What the training goes on from; none beside a device or a pipe.
    pub fn checkpoint(&self) -> Option<PathBuf> {
        (!self.is_special).then(|| self.beside("", Some("checkpoint".into())))
    }

    fn beside(&self, suffix: &str, extension: Option<std::ffi::OsString>) -> PathBuf {
        let mut name = self.model.file_stem().unwrap_or_default().to_os_string();
        name.push(suffix);
        if let Some(extension) = extension {
            name.push(".");
            name.push(extension);
        }
        self.model.with_file_name(name)
    }

    /// Writes one of these files: whoever is interrupted leaves what was there before, or all of what is there now.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
        let write = || {
            if self.is_special {
                return File::options().write(true).open(path)?.write_all(bytes);
            }
            let folder = folder_of(path);
            let mut staged = staged(folder)?;
            staged.write_all(bytes)?;
            staged.as_file().sync_all()?;
            staged.persist(path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| OutputError::Write { path: path.to_owned(), error })
    }

    /// Deletes one of these files, if it is there.
    pub fn remove(&self, path: &Path) -> Result<(), OutputError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(OutputError::Write { path: path.to_owned(), error })
            }
            _ => Ok(()),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that has no name that lasts, and that others may read as any other file of this user.
fn staged(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".weft-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_names_beside_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let files = OutputFiles::at(&folder.path().join("my.spot.safetensors")).unwrap();
        let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(name(files.model_with("-e3")), "my.spot-e3.safetensors");
        assert_eq!(name(files.checkpoint().unwrap()), "my.spot.checkpoint");
        assert_eq!(files.model_with(""), files.model());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = OutputFiles::at(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("is a folder"), "{refused}");
        let refused = OutputFiles::at(&folder.path().join("no/such/model")).unwrap_err().to_string();
        assert!(refused.contains("there is no folder"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "looking leaves nothing behind");
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (link, place) = (folder.path().join("link"), folder.path().join("place"));
        fs::write(&place, "before").unwrap();
        std::os::unix::fs::symlink(&place, &link).unwrap();
        let files = OutputFiles::at(&link).unwrap();
        files.write(files.model(), b"after").unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"after");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        let files = OutputFiles::at(Path::new("/dev/null")).unwrap();
        assert_eq!(files.checkpoint(), None);
        files.write(files.model(), b"model").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
