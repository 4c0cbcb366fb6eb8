//! What this node remembers of the servers that it used: an emptied one must not pass for one that never held anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::locks::Lock;
use crate::params::ParamError;
use crate::tenant::StoreId;

/// The incarnations of tenants' stores, kept in a file.
pub struct Incarnations {
    path: Option<PathBuf>,
    known: Mutex<BTreeMap<StoreId, String>>,
}

impl Incarnations {
    /// Forgotten when the process ends.
    pub fn in_memory() -> Self {
        Self { path: None, known: Mutex::default() }
    }

    pub fn open(path: &Path) -> Result<Self, String> {
        let known = match std::fs::read(path) {
            Ok(bytes) => rmp_serde::from_slice(&bytes).map_err(|error| format!("`{}`: {error}", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(format!("cannot read `{}`: {error}", path.display())),
        };
        Ok(Self { path: Some(path.to_owned()), known: Mutex::new(known) })
    }

    pub fn of(&self, tenant: &StoreId) -> Option<String> {
        self.known.locked().get(tenant).cloned()
    }

    pub fn learn(&self, tenant: &StoreId, incarnation: &str) -> Result<(), String> {
        self.change(|known| {
            known.insert(tenant.clone(), incarnation.to_owned());
        })
    }

    pub fn forget(&self, tenant: &StoreId) -> Result<(), String> {
        self.change(|known| {
            known.remove(tenant);
        })
    }

    /// On disk before it counts.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<StoreId, String>)) -> Result<(), String> {
        let mut known = self.known.locked();
        let mut changed = known.clone();
        change(&mut changed);
        if let Some(path) = &self.path {
            let bytes = rmp_serde::to_vec(&changed).map_err(|error| error.to_string())?;
            let beside = path.with_extension("new");
            let written = std::fs::File::create(&beside).and_then(|mut file| {
                std::io::Write::write_all(&mut file, &bytes)?;
                file.sync_all()?;
                std::fs::rename(&beside, path)
            });
            written.map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
        }
        *known = changed;
        Ok(())
    }
}

/// A name that nobody else has.
pub fn random() -> Result<String, ParamError> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| ParamError::Unavailable(format!("no randomness: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let (path, tenant) = (folder.path().join("incarnations"), "ada".parse().unwrap());
        Incarnations::open(&path).unwrap().learn(&tenant, "one").unwrap();
        let again = Incarnations::open(&path).unwrap();
        assert_eq!(again.of(&tenant).as_deref(), Some("one"));
        again.forget(&tenant).unwrap();
        assert_eq!(Incarnations::open(&path).unwrap().of(&tenant), None);
    }
}
