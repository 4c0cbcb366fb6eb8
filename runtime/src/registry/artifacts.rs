//! Compiled components: files named by the digest of what they were compiled from, for one engine.
//!
//! An artifact is native code, so it is only ever run if its own digest is the one that was recorded when this node's
//! compiler wrote it. One that is missing, damaged, or for another engine is compiled again from the uploaded bytes.
//! Loaded ones are kept in memory up to a bound; the ones unused for longest go first.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

use serde::{Deserialize, Serialize};
use tempfile::TempPath;
use tokio::io::AsyncWriteExt;

use crate::blob::{BlobError, Blobs, publish_file};
use crate::digest::Digest;
use crate::locks::{Lock, SharedLock};
use crate::meta::{Batch, MetaError, Metadata, Record};
use crate::sandbox::{CompileError, Compiler, LoadError, Loaded, Sandbox};
use crate::tenant::{Account, Charge, OverLimit, TenantId};

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error(transparent)]
    NoMemory(#[from] OverLimit),
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
}

/// What was compiled: component, engine, and the digest of the result.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ArtifactRecord {
    engine: String,
    component: Digest,
    artifact: Digest,
}

impl Record for ArtifactRecord {
    const TABLE: &'static str = "artifacts";

    fn key(&self) -> String {
        artifact_key(&self.engine, &self.component)
    }
}

fn artifact_key(engine: &str, component: &Digest) -> String {
    format!("{engine}/{}", component.hex())
}

/// A component that was compiled and is not published yet.
pub struct Compiled {
    pub loaded: Arc<Loaded>,
    path: TempPath,
    artifact: Digest,
}

/// How much of what is loaded is kept, and whose memory it is.
#[derive(Clone, Debug)]
pub struct LoadedLimits {
    /// Bytes of components that are kept loaded although nobody runs them.
    pub keep_bytes: u64,
    /// All that is loaded is charged to it, for as long as anybody uses it.
    pub memory: Arc<Account>,
}

struct Cached {
    loaded: Arc<Loaded>,
    last_used: AtomicU64,
}

pub struct Artifacts {
    metadata: Arc<Metadata>,
    sandbox: Arc<Sandbox>,
    compiler: Compiler,
    /// This engine's artifacts.
    folder: PathBuf,
    staging: PathBuf,
    engine: String,
    records: RwLock<HashMap<Digest, Digest>>,
    cache: RwLock<HashMap<Digest, Cached>>,
    uses: AtomicU64,
    limits: LoadedLimits,
    /// Components that are being fetched, so that a hundred requests for one compile it once.
    fetching: Mutex<HashMap<Digest, Arc<tokio::sync::Mutex<()>>>>,
}

fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> ArtifactError {
    move |error| ArtifactError::Io { what: what.to_owned(), error }
}

async fn hash(path: &Path) -> Result<Digest, ArtifactError> {
    let path = path.to_owned();
    let digest = tokio::task::spawn_blocking(move || Digest::of_file(&path)).await;
    digest.map_err(io::Error::other).flatten().map_err(io_error("hashing a file"))
}

impl Artifacts {
    /// Opens the artifacts of this engine and deletes those of any other.
    pub fn load(
        metadata: &Arc<Metadata>,
        sandbox: Arc<Sandbox>,
        compiler: Compiler,
        root: PathBuf,
        staging: PathBuf,
        limits: LoadedLimits,
    ) -> Result<Self, ArtifactError> {
        let engine = sandbox.compatibility();
        let folder = root.join(&engine);
        std::fs::create_dir_all(&folder).map_err(io_error("creating the artifact folder"))?;
        for entry in std::fs::read_dir(&root).map_err(io_error("reading the artifact folder"))? {
            let path = entry.map_err(io_error("reading the artifact folder"))?.path();
            if path != folder && path.is_dir() {
                std::fs::remove_dir_all(&path).map_err(io_error("deleting artifacts of another engine"))?;
            }
        }
        let (ours, others): (Vec<ArtifactRecord>, Vec<ArtifactRecord>) =
            metadata.all::<ArtifactRecord>()?.into_iter().partition(|record| record.engine == engine);
        let stale = others.iter().fold(Batch::default(), |batch, record| batch.delete::<ArtifactRecord>(record.key()));
        metadata.commit_blocking(stale)?;
        let records = ours.into_iter().map(|record| (record.component, record.artifact)).collect();
        Ok(Self {
            metadata: metadata.clone(),
            sandbox,
            compiler,
            folder,
            staging,
            engine,
            records: RwLock::new(records),
            cache: RwLock::default(),
            uses: AtomicU64::new(0),
            limits,
            fetching: Mutex::default(),
        })
    }

    /// How many are loaded, in how many bytes.
    pub fn loaded(&self) -> (usize, u64) {
        let cache = self.cache.reading();
        (cache.len(), cache.values().map(|cached| cached.loaded.bytes() as u64).sum())
    }

    pub fn cached(&self, component: &Digest) -> Option<Arc<Loaded>> {
        let cache = self.cache.reading();
        let cached = cache.get(component)?;
        cached.last_used.store(self.uses.fetch_add(1, Relaxed), Relaxed);
        Some(cached.loaded.clone())
    }

    /// Loads a component that is not cached, compiling it again if it must be.
    pub async fn fetch(
        &self,
        blobs: &Arc<Blobs>,
        tenant: TenantId,
        component: &Digest,
    ) -> Result<Arc<Loaded>, ArtifactError> {
        let alone = {
            let mut fetching = self.fetching.locked();
            fetching.entry(*component).or_default().clone()
        };
        let result = {
            let patience = self.compiler.patience();
            match tokio::time::timeout(patience, alone.lock()).await {
                Ok(_alone) => self.fetch_alone(blobs, tenant, component).await,
                // Whoever came before goes on compiling it.
                Err(_) => Err(CompileError::QueueTimeout { name: "queue_timeout", limit: patience }.into()),
            }
        };
        let mut fetching = self.fetching.locked();
        if Arc::strong_count(&alone) <= 2 {
            fetching.remove(component);
        }
        result
    }

    async fn fetch_alone(
        &self,
        blobs: &Arc<Blobs>,
        tenant: TenantId,
        component: &Digest,
    ) -> Result<Arc<Loaded>, ArtifactError> {
        if let Some(loaded) = self.cached(component) {
            return Ok(loaded);
        }
        let recorded = self.records.reading().get(component).copied();
        if let Some(artifact) = recorded
            && let Some(loaded) = self.load_file(&self.path(component), artifact).await?
        {
            self.cache(*component, loaded.clone());
            return Ok(loaded);
        }
        tracing::info!(component = %component, "compiling again: no usable artifact");
        let staged = self.staged()?;
        let mut file = tokio::fs::File::create(&staged).await.map_err(io_error("staging a component"))?;
        let mut blob = blobs.open(component).await?;
        // Fails at its end if it is not what was uploaded.
        tokio::io::copy(&mut blob, &mut file).await.map_err(io_error("reading a component"))?;
        file.flush().await.map_err(io_error("staging a component"))?;
        let path = self.staged()?;
        self.compiler.compile_for_call(tenant, &staged, &path).await?;
        let compiled = self.compiled(path, *component).await?;
        let loaded = compiled.loaded.clone();
        let batch = self.publish(component, compiled)?;
        self.metadata.commit(batch).await?;
        Ok(loaded)
    }

    fn staged(&self) -> Result<TempPath, ArtifactError> {
        let file = tempfile::Builder::new().prefix("artifact-").tempfile_in(&self.staging);
        Ok(file.map_err(io_error("staging"))?.into_temp_path())
    }

    fn path(&self, component: &Digest) -> PathBuf {
        self.folder.join(component.hex())
    }

    /// `None` if the file is not there or not what was recorded.
    async fn load_file(&self, path: &Path, artifact: Digest) -> Result<Option<Arc<Loaded>>, ArtifactError> {
        let size = match tokio::fs::metadata(path).await {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("reading an artifact")(error)),
        };
        // Twice: the file's bytes, and the code that they become.
        let mut charge = self.room_for(size.saturating_mul(2))?;
        let bytes = match tokio::fs::read(path).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("reading an artifact")(error)),
        };
        let sandbox = self.sandbox.clone();
        let load = move || -> Result<Option<Loaded>, LoadError> {
            if Digest::of(&bytes) != artifact {
                return Ok(None);
            }
            // SAFETY: the bytes are those whose digest was recorded when our compiler had written them.
            let loaded = unsafe { sandbox.load(&bytes) }?;
            drop(bytes);
            charge.shrink(size);
            Ok(Some(loaded.charged(charge)))
        };
        let loaded = tokio::task::spawn_blocking(load).await.map_err(io::Error::other);
        Ok(loaded.map_err(io_error("loading an artifact"))??.map(Arc::new))
    }

    /// Compiles the file `wasm` and makes sure that the result can run here.
    pub async fn compile(&self, tenant: TenantId, wasm: &Path, component: Digest) -> Result<Compiled, ArtifactError> {
        let path = self.staged()?;
        self.compiler.compile(tenant, wasm, &path).await?;
        self.compiled(path, component).await
    }

    async fn compiled(&self, path: TempPath, component: Digest) -> Result<Compiled, ArtifactError> {
        let artifact = hash(&path).await?;
        let loaded = self.load_file(&path, artifact).await?;
        let loaded = loaded.ok_or_else(|| CompileError::Failed(format!("the artifact of `{component}` vanished")))?;
        Ok(Compiled { loaded, path, artifact })
    }

    /// Puts a compiled component in its place; the record goes with the returned batch.
    pub fn publish(&self, component: &Digest, compiled: Compiled) -> Result<Batch, ArtifactError> {
        let Compiled { loaded, path, artifact } = compiled;
        publish_file(&path, &self.path(component)).map_err(io_error("publishing an artifact"))?;
        self.records.writing().insert(*component, artifact);
        self.cache(*component, loaded);
        let record = ArtifactRecord { engine: self.engine.clone(), component: *component, artifact };
        Ok(Batch::default().put(&record)?)
    }

    /// Every component that has an artifact or a record of one.
    pub fn list(&self) -> Result<Vec<Digest>, ArtifactError> {
        let records = self.records.reading();
        let mut components: Vec<Digest> = records.keys().copied().collect();
        for entry in std::fs::read_dir(&self.folder).map_err(io_error("reading the artifact folder"))? {
            let name = entry.map_err(io_error("reading the artifact folder"))?.file_name();
            components.extend(name.to_string_lossy().parse::<Digest>());
        }
        components.sort();
        components.dedup();
        Ok(components)
    }

    pub fn delete(&self, component: &Digest, batch: Batch) -> Batch {
        self.records.writing().remove(component);
        self.cache.writing().remove(component);
        if let Err(error) = std::fs::remove_file(self.path(component))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%component, %error, "an artifact could not be deleted");
        }
        batch.delete::<ArtifactRecord>(artifact_key(&self.engine, component))
    }

    fn cache(&self, component: Digest, loaded: Arc<Loaded>) {
        let mut cache = self.cache.writing();
        let last_used = AtomicU64::new(self.uses.fetch_add(1, Relaxed));
        cache.insert(component, Cached { loaded, last_used });
        let mut bytes: u64 = cache.values().map(|cached| cached.loaded.bytes() as u64).sum();
        while bytes > self.limits.keep_bytes && cache.len() > 1 {
            let Some(evicted) = take_oldest(&mut cache) else { break };
            bytes -= evicted.loaded.bytes() as u64;
        }
    }

    /// Room for code that is about to be loaded. What is loaded and not used makes room, the oldest first.
    fn room_for(&self, bytes: u64) -> Result<Charge, OverLimit> {
        let mut charge = Charge::none(self.limits.memory.clone());
        loop {
            match charge.grow(bytes) {
                Ok(()) => return Ok(charge),
                Err(over) => {
                    let evicted = take_oldest(&mut self.cache.writing());
                    drop(evicted.ok_or(over)?);
                }
            }
        }
    }
}

/// Takes the one out that was unused for longest.
fn take_oldest(cache: &mut HashMap<Digest, Cached>) -> Option<Cached> {
    let oldest = cache.iter().min_by_key(|(_, cached)| cached.last_used.load(Relaxed)).map(|(digest, _)| *digest);
    oldest.and_then(|digest| cache.remove(&digest))
}
