//! The registry: uploaded components become versions of functions, compiled once and ready to run.
//!
//! A version is the digest of the uploaded bytes. What a function runs is a pointer to one of its versions, so that a
//! rollback only moves the pointer. An upload is staged and compiled first; what makes it visible is one metadata
//! transaction, after its bytes are durable. Whoever holds a [`Loaded`] keeps it, whatever happens to the function.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use serde::{Deserialize, Serialize};

use crate::blob::{BlobError, Blobs, Referrer};
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::locks::SharedLock;
use crate::meta::{Batch, MetaError, Metadata, Record};
use crate::names::Name;
use crate::sandbox::{CompileError, Compiler, LoadError, Loaded, Sandbox};
use crate::tenant::{OverLimit, StorageFull, Tenant, TenantId};

mod artifacts;
mod upload;
mod uses;

pub use artifacts::LoadedLimits;
use artifacts::{ArtifactError, Artifacts};
pub use upload::Upload;
use uses::Uses;

/// Versions that one function may have; past this, old ones must be deleted.
pub const MAX_VERSIONS: usize = 500;
/// How many activations a function remembers, for rollbacks.
const MAX_HISTORY: usize = 100;

/// One uploaded component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub digest: Digest,
    pub size: u64,
    /// Bytes of the native code that it was compiled to; 0 if it was deployed by a version of weft that did not count them.
    #[serde(default)]
    pub native: u64,
    pub deployed_ms: u64,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
}

impl Version {
    fn stored_bytes(&self) -> u64 {
        self.size.saturating_add(self.native)
    }
}

/// A deployed function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    pub tenant: TenantId,
    pub name: Name,
    pub created_ms: u64,
    pub updated_ms: u64,
    /// The version that runs.
    pub active: Digest,
    /// Versions that ran before, latest last.
    pub history: Vec<Digest>,
    /// In the order they were first deployed.
    pub versions: Vec<Version>,
}

impl Record for Function {
    const TABLE: &'static str = "functions";

    fn key(&self) -> String {
        function_key(self.tenant, &self.name)
    }
}

fn function_key(tenant: TenantId, name: &Name) -> String {
    format!("{}/{name}", tenant.key())
}

impl Function {
    pub fn stored_bytes(&self) -> u64 {
        self.versions.iter().map(Version::stored_bytes).sum()
    }

    fn version(&self, digest: &Digest) -> Option<&Version> {
        self.versions.iter().find(|version| version.digest == *digest)
    }

    fn activate(&mut self, digest: Digest) {
        let before = std::mem::replace(&mut self.active, digest);
        self.history.retain(|old| *old != before && *old != digest);
        self.history.push(before);
        if self.history.len() > MAX_HISTORY {
            self.history.remove(0);
        }
        self.updated_ms = unix_ms();
    }
}

/// What a deploy did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployed {
    /// The function is new.
    Created,
    /// The function runs another version now.
    Updated,
    /// It was running these bytes already.
    Unchanged,
}

/// Why the registry did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("there is no function `{0}`")]
    NotFound(String),
    #[error("function `{function}` has no version `{version}`; `weft function versions {function}` lists them")]
    NoSuchVersion { function: Name, version: String },
    #[error("function `{function}` has several versions that begin with `{version}`; give more digits")]
    Ambiguous { function: Name, version: String },
    #[error("function `{0}` has no earlier version to go back to")]
    NoEarlierVersion(Name),
    #[error("version `{version}` of function `{function}` is running; roll back or deploy another one first")]
    VersionActive { function: Name, version: Digest },
    #[error("{what} would exceed the tenant's `{name}` of {limit}")]
    Quota { name: &'static str, limit: u64, what: String },
    #[error(transparent)]
    Storage(#[from] StorageFull),
    #[error("there is no memory for the function's code: {0}")]
    NoMemory(OverLimit),
    #[error("the tenant was deleted meanwhile")]
    TenantDeleted,
    #[error("the component was refused: {0}")]
    Refused(String),
    #[error(transparent)]
    Compile(CompileError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error("registry: {what}: {error}")]
    Io { what: String, error: std::io::Error },
}

impl RegistryError {
    /// Whether it may be gone when it is tried again, whatever the function is.
    pub fn passes(&self) -> bool {
        match self {
            Self::Blob(error) => error.passes(),
            Self::Compile(error) => error.passes(),
            Self::NoMemory(over) => !over.never_fits(),
            Self::Meta(_) | Self::Io { .. } => true,
            Self::NotFound(_)
            | Self::NoSuchVersion { .. }
            | Self::Ambiguous { .. }
            | Self::NoEarlierVersion(_)
            | Self::VersionActive { .. }
            | Self::Quota { .. }
            | Self::Storage(_)
            | Self::TenantDeleted
            | Self::Refused(_) => false,
        }
    }
}

impl From<CompileError> for RegistryError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Refused(reason) => Self::Refused(reason),
            other => Self::Compile(other),
        }
    }
}

impl From<LoadError> for RegistryError {
    fn from(error: LoadError) -> Self {
        Self::Refused(error.to_string())
    }
}

type Functions = HashMap<TenantId, HashMap<Name, Arc<Function>>>;

/// Every function, as readers see it.
#[derive(Default)]
struct Shown(RwLock<Functions>);

impl Referrer for Shown {
    fn keep(&self, candidates: &mut HashSet<Digest>) {
        let functions = self.0.reading();
        for version in functions.values().flat_map(HashMap::values).flat_map(|function| &function.versions) {
            candidates.remove(&version.digest);
        }
    }
}

pub struct Registry {
    metadata: Arc<Metadata>,
    blobs: Arc<Blobs>,
    artifacts: Artifacts,
    uses: Uses,
    staging: PathBuf,
    shown: Arc<Shown>,
    /// One change at a time, from its last check to its last file: so that nothing that a change relies on is collected
    /// meanwhile. A backup holds it for reading.
    changing: Arc<tokio::sync::RwLock<()>>,
}

impl Registry {
    pub async fn load(
        metadata: Arc<Metadata>,
        blobs: Arc<Blobs>,
        sandbox: Arc<Sandbox>,
        compiler: Compiler,
        artifacts: PathBuf,
        staging: PathBuf,
        loaded: LoadedLimits,
    ) -> Result<Self, RegistryError> {
        let artifacts = Artifacts::load(&metadata, sandbox, compiler, artifacts, staging.clone(), loaded)?;
        let mut functions = Functions::default();
        for function in metadata.all::<Function>()? {
            functions.entry(function.tenant).or_default().insert(function.name.clone(), Arc::new(function));
        }
        let shown = Arc::new(Shown(RwLock::new(functions)));
        let registry =
            Self { metadata, blobs, artifacts, uses: Uses::default(), staging, shown, changing: Arc::default() };
        registry.sweep_artifacts().await?;
        Ok(registry)
    }

    fn functions(&self) -> RwLockReadGuard<'_, Functions> {
        self.shown.0.reading()
    }

    /// Who tells which blobs functions need.
    pub fn referrer(&self) -> Arc<dyn Referrer> {
        self.shown.clone()
    }

    fn show(&self, function: Function) -> Arc<Function> {
        let function = Arc::new(function);
        let mut functions = self.shown.0.writing();
        functions.entry(function.tenant).or_default().insert(function.name.clone(), function.clone());
        function
    }

    pub fn get(&self, tenant: TenantId, name: &str) -> Result<Arc<Function>, RegistryError> {
        let functions = self.functions();
        let function = functions.get(&tenant).and_then(|functions| functions.get(name));
        function.cloned().ok_or_else(|| RegistryError::NotFound(name.chars().take(80).collect()))
    }

    /// A tenant's functions, by name.
    pub fn list(&self, tenant: TenantId) -> Vec<Arc<Function>> {
        let mut functions: Vec<_> =
            self.functions().get(&tenant).map(|functions| functions.values().cloned().collect()).unwrap_or_default();
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        functions
    }

    /// Bytes that the records of a tenant's functions name.
    pub fn stored_bytes(&self, tenant: TenantId) -> u64 {
        self.list(tenant).iter().map(|function| function.stored_bytes()).sum()
    }

    /// How many functions there are, and how many components are loaded, in how many bytes.
    pub fn occupancy(&self) -> (usize, usize, u64) {
        let (loaded, bytes) = self.artifacts.loaded();
        (self.functions().values().map(HashMap::len).sum(), loaded, bytes)
    }

    /// The running version of a function, ready to be instantiated.
    pub async fn ready(&self, tenant: &Tenant, name: &str) -> Result<(Arc<Function>, Arc<Loaded>), RegistryError> {
        let function = self.get(tenant.id, name)?;
        let loaded = self.ready_version(tenant, &function.active).await?;
        Ok((function, loaded))
    }

    /// A version that is known to be there, whether it runs or not.
    /// Charged to the tenant for as long as it is used.
    pub async fn ready_version(&self, tenant: &Tenant, version: &Digest) -> Result<Arc<Loaded>, RegistryError> {
        let cached = self.artifacts.cached(version);
        if let Some(used) = self.uses.find(tenant, version) {
            return Ok(used);
        }
        let loaded = match cached {
            Some(loaded) => loaded,
            None => self.artifacts.fetch(&self.blobs, tenant.id, version).await?,
        };
        self.uses.begin(tenant, version, &loaded).map_err(RegistryError::NoMemory)
    }

    /// A place for an upload to arrive in, of at most `limit` bytes.
    pub async fn begin_upload(&self, limit: u64) -> Result<Upload, RegistryError> {
        Upload::begin(&self.staging, limit).await
    }

    /// Makes an upload what `name` runs.
    pub async fn deploy(
        &self,
        tenant: &Tenant,
        name: Name,
        upload: Upload,
    ) -> Result<(Arc<Function>, Deployed), RegistryError> {
        let staged = upload.finish().await?;
        if let Some(done) = self.deploy_known(tenant, &name, &staged.digest).await? {
            return Ok(done);
        }
        // A first look before the expensive part; what counts is the second, with changes held off.
        self.check_quota(tenant, &name)?;
        let mut reservation = tenant.storage.reserve(staged.size)?;
        let compiled = self.artifacts.compile(tenant.id, &staged.path, staged.digest).await?;
        let native = compiled.loaded.bytes() as u64;
        reservation.grow(native)?;
        // Before changes are held off: a store may be far away, and the pin keeps what is there.
        let pinned = self.blobs.publish(&staged.path, &staged.digest).await?;
        let _changing = self.changing.write().await;
        let allowed = match tenant.is_deleted() {
            true => Err(RegistryError::TenantDeleted),
            false => self.check_quota(tenant, &name),
        };
        if let Err(refused) = allowed {
            drop(pinned);
            self.collect(&[staged.digest]).await?;
            return Err(refused);
        }
        let version = Version {
            digest: staged.digest,
            size: staged.size,
            native,
            deployed_ms: unix_ms(),
            imports: compiled.loaded.imports().to_vec(),
        };
        let (mut function, deployed) = match self.get(tenant.id, name.as_str()) {
            Ok(known) => (Function::clone(&known), Deployed::Updated),
            Err(_) => (new_function(tenant.id, name, &version), Deployed::Created),
        };
        // Not if somebody has deployed the same to the same name meanwhile.
        let is_new = function.version(&version.digest).is_none();
        if is_new {
            function.versions.push(version);
        }
        if deployed == Deployed::Updated {
            function.activate(staged.digest);
        }
        let batch = self.artifacts.publish(&staged.digest, compiled)?;
        if let Err(error) = self.metadata.commit(batch.put(&function)?).await {
            pinned.until_restart();
            return Err(error.into());
        }
        if is_new {
            reservation.keep();
        }
        Ok((self.show(function), deployed))
    }

    /// Deploys a version that the function has already: nothing is compiled and nothing is stored.
    async fn deploy_known(
        &self,
        tenant: &Tenant,
        name: &Name,
        digest: &Digest,
    ) -> Result<Option<(Arc<Function>, Deployed)>, RegistryError> {
        let _changing = self.changing.write().await;
        let Ok(function) = self.get(tenant.id, name.as_str()) else { return Ok(None) };
        if function.active == *digest {
            return Ok(Some((function, Deployed::Unchanged)));
        }
        if function.version(digest).is_none() {
            return Ok(None);
        }
        Ok(Some((self.activate(&function, *digest).await?, Deployed::Updated)))
    }

    async fn activate(&self, function: &Function, digest: Digest) -> Result<Arc<Function>, RegistryError> {
        let mut function = function.clone();
        function.activate(digest);
        self.metadata.commit(Batch::default().put(&function)?).await?;
        Ok(self.show(function))
    }

    fn check_quota(&self, tenant: &Tenant, name: &Name) -> Result<(), RegistryError> {
        let quota = tenant.quota();
        let functions = self.list(tenant.id);
        let known = functions.iter().find(|function| function.name == *name);
        if known.is_none() && functions.len() >= quota.functions as usize {
            let what = format!("a function `{name}`");
            return Err(RegistryError::Quota { name: "functions", limit: quota.functions.into(), what });
        }
        if known.is_some_and(|function| function.versions.len() >= MAX_VERSIONS) {
            let what = format!("another version of `{name}`");
            return Err(RegistryError::Quota { name: "versions", limit: MAX_VERSIONS as u64, what });
        }
        Ok(())
    }

    /// Goes back to the version that ran before, or to the one whose digest begins with `to`.
    pub async fn rollback(
        &self,
        tenant: TenantId,
        name: &str,
        to: Option<&str>,
    ) -> Result<Arc<Function>, RegistryError> {
        let _changing = self.changing.write().await;
        let function = self.get(tenant, name)?;
        let digest = match to {
            Some(prefix) => find_version(&function, prefix)?.digest,
            None => *function.history.last().ok_or_else(|| RegistryError::NoEarlierVersion(function.name.clone()))?,
        };
        if digest == function.active {
            return Ok(function);
        }
        self.activate(&function, digest).await
    }

    /// Deletes a version that is not running.
    pub async fn delete_version(
        &self,
        tenant: &Tenant,
        name: &str,
        version: &str,
    ) -> Result<Arc<Function>, RegistryError> {
        let _changing = self.changing.write().await;
        let mut function = Function::clone(&*self.get(tenant.id, name)?);
        let found = find_version(&function, version)?;
        let (digest, stored) = (found.digest, found.stored_bytes());
        if digest == function.active {
            return Err(RegistryError::VersionActive { function: function.name, version: digest });
        }
        function.versions.retain(|version| version.digest != digest);
        function.history.retain(|old| *old != digest);
        self.metadata.commit(Batch::default().put(&function)?).await?;
        let function = self.show(function);
        tenant.storage.release(stored);
        self.collect(&[digest]).await?;
        Ok(function)
    }

    pub async fn delete(&self, tenant: &Tenant, name: &str) -> Result<(), RegistryError> {
        let _changing = self.changing.write().await;
        let function = self.get(tenant.id, name)?;
        self.metadata.commit(Batch::default().delete::<Function>(function.key())).await?;
        if let Some(functions) = self.shown.0.writing().get_mut(&tenant.id) {
            functions.remove(name);
        }
        tenant.storage.release(function.stored_bytes());
        let digests: Vec<Digest> = function.versions.iter().map(|version| version.digest).collect();
        self.collect(&digests).await
    }

    /// The records of a tenant's functions as deletions, for the transaction that deletes the tenant.
    pub fn deletion_of(&self, tenant: TenantId) -> Batch {
        let functions = self.list(tenant);
        functions.iter().fold(Batch::default(), |batch, function| batch.delete::<Function>(function.key()))
    }

    /// Holds every change off until the result is dropped.
    pub async fn pause(&self) -> tokio::sync::OwnedRwLockWriteGuard<()> {
        self.changing.clone().write_owned().await
    }

    /// Forgets a tenant whose records are gone; changes have been held off since before they were looked up.
    pub async fn forget(
        &self,
        tenant: TenantId,
        _paused: tokio::sync::OwnedRwLockWriteGuard<()>,
    ) -> Result<(), RegistryError> {
        let gone = self.shown.0.writing().remove(&tenant);
        let functions = gone.unwrap_or_default();
        let digests: Vec<Digest> =
            functions.values().flat_map(|function| &function.versions).map(|version| version.digest).collect();
        self.collect(&digests).await
    }

    /// Keeps everything that is stored now until the result is dropped.
    pub async fn hold(&self) -> tokio::sync::OwnedRwLockReadGuard<()> {
        self.changing.clone().read_owned().await
    }

    /// Every version of every function.
    pub fn all_digests(&self) -> Vec<Digest> {
        let functions = self.functions();
        let versions = functions.values().flat_map(HashMap::values).flat_map(|function| &function.versions);
        let mut digests: Vec<Digest> = versions.map(|version| version.digest).collect();
        digests.sort();
        digests.dedup();
        digests
    }

    /// Deletes those of `digests` that no function has any more. Called while changes are held off.
    async fn collect(&self, digests: &[Digest]) -> Result<(), RegistryError> {
        self.collect_artifacts(digests).await?;
        if let Err(error) = self.blobs.collect_soon(digests).await {
            // What was asked for is done; the next sweep takes what is left.
            tracing::warn!(%error, "components that nobody needs could not be deleted");
        }
        Ok(())
    }

    async fn collect_artifacts(&self, digests: &[Digest]) -> Result<(), RegistryError> {
        let mut unused: HashSet<Digest> = digests.iter().copied().collect();
        self.shown.keep(&mut unused);
        let batch = unused.iter().fold(Batch::default(), |batch, digest| self.artifacts.delete(digest, batch));
        Ok(self.metadata.commit(batch).await?)
    }

    /// Removes what a node that was killed left behind: artifacts that no function has.
    async fn sweep_artifacts(&self) -> Result<(), RegistryError> {
        let stray = self.artifacts.list()?;
        self.collect_artifacts(&stray).await
    }
}

fn new_function(tenant: TenantId, name: Name, version: &Version) -> Function {
    let now = version.deployed_ms;
    let active = version.digest;
    Function { tenant, name, created_ms: now, updated_ms: now, active, history: Vec::new(), versions: Vec::new() }
}

/// The version whose digest begins with the given digits.
fn find_version<'a>(function: &'a Function, prefix: &str) -> Result<&'a Version, RegistryError> {
    let digits = prefix.strip_prefix("sha256:").unwrap_or(prefix).to_ascii_lowercase();
    let mut found = function.versions.iter().filter(|version| version.digest.hex().starts_with(&digits));
    let (function, version) = (function.name.clone(), prefix.chars().take(80).collect());
    match (found.next(), found.next()) {
        (Some(only), None) if !digits.is_empty() => Ok(only),
        (Some(_), Some(_)) => Err(RegistryError::Ambiguous { function, version }),
        _ => Err(RegistryError::NoSuchVersion { function, version }),
    }
}

impl From<ArtifactError> for RegistryError {
    fn from(error: ArtifactError) -> Self {
        match error {
            ArtifactError::Compile(error) => error.into(),
            ArtifactError::Load(error) => error.into(),
            ArtifactError::Blob(error) => Self::Blob(error),
            ArtifactError::Meta(error) => Self::Meta(error),
            ArtifactError::NoMemory(over) => Self::NoMemory(over),
            ArtifactError::Io { what, error } => Self::Io { what, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(versions: &[&[u8]]) -> Function {
        let version = |bytes: &&[u8]| Version {
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            native: 0,
            deployed_ms: 0,
            imports: Vec::new(),
        };
        let versions: Vec<Version> = versions.iter().map(version).collect();
        let mut function = new_function(TenantId(1), "f".parse().unwrap(), &versions[0]);
        function.versions = versions;
        function
    }

    #[test]
    fn going_back_twice_returns_to_where_one_was() {
        let mut function = function(&[b"a", b"b"]);
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        function.activate(b);
        assert_eq!((function.active, function.history.as_slice()), (b, [a].as_slice()));
        function.activate(a);
        assert_eq!((function.active, function.history.as_slice()), (a, [b].as_slice()));
    }

    #[test]
    fn a_version_is_found_by_the_beginning_of_its_digest() {
        let function = function(&[b"a", b"b"]);
        let digest = Digest::of(b"b");
        assert_eq!(find_version(&function, &digest.hex()[..8]).unwrap().digest, digest);
        assert_eq!(find_version(&function, &digest.to_string()).unwrap().digest, digest);
        assert!(matches!(
            find_version(&function, ""),
            Err(RegistryError::NoSuchVersion { .. } | RegistryError::Ambiguous { .. })
        ));
        assert!(matches!(find_version(&function, "zz"), Err(RegistryError::NoSuchVersion { .. })));
    }
}
