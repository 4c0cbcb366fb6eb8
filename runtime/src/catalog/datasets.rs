//! Files become data sets, and data sets grow.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tempfile::TempPath;

use super::building::{BuildEnd, Sink};
use super::looking::ReadManifest;
use super::shelf::{Shelved, key};
use super::spec::{DataSetSpec, FileSpec, SampleSpec, SourceSpec};
use super::{Catalog, CatalogError};
use crate::blob::{Blobs, Pinned};
use crate::clock::unix_ms;
use crate::dataset::blocks::Blocks;
use crate::dataset::build::{BuildError, Builder, Options, Sources};
use crate::dataset::read::{self, Half, Source, Watch};
use crate::dataset::sampled::Sampled;
use crate::dataset::synth::Synthetic;
use crate::dataset::{BlockRef, Features, Manifest, Samples, digits};
use crate::digest::Digest;
use crate::meta::{Batch, Record};
use crate::names::Name;
use crate::tenant::{Reservation, Tenant, TenantId};

/// Versions that one data set may have.
const MAX_VERSIONS: usize = 1_000;

/// A data set of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DataSet {
    pub tenant: TenantId,
    pub name: Name,
    pub created_ms: u64,
    /// Oldest first. Each is what it was: a new one shares the blocks of the one before.
    pub versions: Vec<Version>,
    /// The blocks of all versions.
    pub blocks: Vec<Digest>,
    /// Bytes of all blocks and manifests.
    pub stored_bytes: u64,
}

/// What a data set was at one time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    /// Of the manifest, which is a blob.
    pub digest: Digest,
    pub manifest_bytes: u64,
    pub created_ms: u64,
    pub train: u64,
    pub test: u64,
}

impl Record for DataSet {
    const TABLE: &'static str = "datasets";

    fn key(&self) -> String {
        key(self.tenant, self.name.as_str())
    }
}

impl Shelved for DataSet {
    fn tenant(&self) -> TenantId {
        self.tenant
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}

impl DataSet {
    pub(super) fn digests(&self) -> impl Iterator<Item = Digest> {
        self.versions.iter().map(|version| version.digest).chain(self.blocks.iter().copied())
    }

    /// The newest version.
    pub fn latest(&self) -> Option<&Version> {
        self.versions.last()
    }
}

/// Blocks, which are blobs.
pub struct BlobBlocks(pub Arc<Blobs>);

impl Blocks for BlobBlocks {
    fn read(&self, block: &BlockRef, range: Range<u64>) -> io::Result<Bytes> {
        self.0.read_blocking(&block.digest, range)
    }
}

/// What a build leaves.
struct Built {
    manifest: Manifest,
    sink: Sink,
}

impl Catalog {
    pub fn dataset(&self, tenant: TenantId, name: &str) -> Result<Arc<DataSet>, CatalogError> {
        self.shown.datasets.get(tenant, name).ok_or_else(|| CatalogError::not_found("data set", name))
    }

    /// A tenant's data sets, by name.
    pub fn datasets(&self, tenant: TenantId) -> Vec<Arc<DataSet>> {
        self.shown.datasets.of(tenant)
    }

    /// Makes a data set.
    pub async fn create_dataset(
        &self,
        tenant: &Tenant,
        name: Name,
        spec: &DataSetSpec,
        end: &BuildEnd,
    ) -> Result<Arc<DataSet>, CatalogError> {
        self.check_new(tenant, &name)?;
        let built = self.build(tenant, None, spec, end).await?;
        let dataset = DataSet {
            tenant: tenant.id,
            name,
            created_ms: unix_ms(),
            versions: Vec::new(),
            blocks: Vec::new(),
            stored_bytes: 0,
        };
        self.add_version(tenant, dataset, built, spec).await
    }

    /// Adds samples: a new version that shares the blocks of the old one.
    pub async fn append_dataset(
        &self,
        tenant: &Tenant,
        name: &str,
        spec: &DataSetSpec,
        end: &BuildEnd,
    ) -> Result<Arc<DataSet>, CatalogError> {
        let dataset = self.dataset(tenant.id, name)?;
        if dataset.versions.len() >= MAX_VERSIONS {
            let what = format!("another version of `{name}`");
            return Err(CatalogError::Quota { name: "versions", limit: MAX_VERSIONS as u64, what });
        }
        // The charge is kept for as long as that takes: it has room for the new manifest too.
        let read = self.latest_manifest(tenant, &dataset).await?;
        let built = self.build(tenant, Some((&dataset, read.manifest)), spec, end).await?;
        self.add_version(tenant, DataSet::clone(&dataset), built, spec).await
    }

    pub async fn delete_dataset(&self, tenant: &Tenant, name: &str) -> Result<(), CatalogError> {
        let _changing = self.changing.write().await;
        let dataset = self.dataset(tenant.id, name)?;
        self.metadata.commit(Batch::default().delete::<DataSet>(dataset.key())).await?;
        self.shown.datasets.remove(tenant.id, name);
        self.changed();
        tenant.storage.release(dataset.stored_bytes);
        self.collect(dataset.digests()).await
    }

    fn check_new(&self, tenant: &Tenant, name: &Name) -> Result<(), CatalogError> {
        if self.shown.datasets.get(tenant.id, name.as_str()).is_some() {
            return Err(CatalogError::Exists { what: "data set", name: name.to_string() });
        }
        let limit = tenant.quota().datasets;
        if self.shown.datasets.of(tenant.id).len() >= limit as usize {
            let what = format!("a data set `{name}`");
            return Err(CatalogError::Quota { name: "datasets", limit: limit.into(), what });
        }
        Ok(())
    }

    /// Reads the files of a spec into blocks. Nothing of it is visible yet.
    async fn build(
        &self,
        tenant: &Tenant,
        old: Option<(&DataSet, Manifest)>,
        spec: &DataSetSpec,
        end: &BuildEnd,
    ) -> Result<Built, CatalogError> {
        let mut files = HashMap::new();
        for digest in spec.uploads()? {
            files.insert(digest, end.within(self.spool(tenant, &digest)).await?);
        }
        let origin = match &spec.sample {
            Some(sample) => Some(self.origin(tenant, sample, spec, old.is_some()).await?),
            None => None,
        };
        let (known, manifest) = match old {
            Some((dataset, manifest)) => (dataset.blocks.iter().copied().collect(), Some(manifest)),
            None => Default::default(),
        };
        let mut sink = Sink::new(self.blobs.clone(), known, tenant.storage.reserve(0)?, end.clone());
        let watch = end.watch(tenant.storage.reserve(0)?);
        let (spec, end, staging) = (spec.clone(), end.clone(), self.staging.clone());
        let blocks: Arc<dyn Blocks> = Arc::new(BlobBlocks(self.blobs.clone()));
        let work = move || {
            let mut make = || -> Result<Manifest, CatalogError> {
                let mut options = spec.building()?;
                let place = |file: &FileSpec| {
                    let path: Option<&TempPath> = files.get(&file.digest()?);
                    path.map(|path| path.to_path_buf()).ok_or_else(|| CatalogError::not_found("upload", &file.upload))
                };
                let sources = match (&origin, &spec.sample) {
                    (Some(origin), Some(sample)) => draw(&origin.manifest, sample, &blocks, &watch, &mut options),
                    _ => open(&spec, &place, manifest.as_ref(), &staging, watch.clone(), &mut options)?,
                };
                let mut go_on = |_| match end.is_not_yet() {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                };
                let builder = Builder::new(options, &mut sink).watch(&mut go_on);
                let built = match &manifest {
                    Some(old) => builder.append(old, sources),
                    None => builder.build(sources),
                };
                match built {
                    Err(BuildError::Cancelled) => Err(end.is_not_yet().err().unwrap_or(CatalogError::Stopping)),
                    built => Ok(built?),
                }
            };
            (make(), sink)
        };
        let done = tokio::task::spawn_blocking(work).await;
        match done.map_err(|error| CatalogError::io("building a data set", io::Error::other(error)))? {
            (Ok(manifest), sink) => Ok(Built { manifest, sink }),
            (Err(error), sink) => {
                self.discard(sink.into_parts().1).await;
                Err(error)
            }
        }
    }

    /// What samples are drawn from. What comes back has its charge with it.
    async fn origin(
        &self,
        tenant: &Tenant,
        sample: &SampleSpec,
        spec: &DataSetSpec,
        appends: bool,
    ) -> Result<ReadManifest, CatalogError> {
        let invalid = |text: &str| Err(CatalogError::Invalid(text.to_owned()));
        if appends {
            return invalid("`sample` makes a data set of its own: it cannot be appended");
        }
        if !spec.train.is_empty() || !spec.test.is_empty() || spec.synthetic.is_some() || spec.shipped.is_some() {
            return invalid("give one of: files (`train`, `test`), `synthetic`, `sample`, `shipped`");
        }
        if !(sample.part > 0.0 && sample.part <= 1.0) {
            return Err(CatalogError::Invalid(format!("`part` is {}: it is to be above 0 and at most 1", sample.part)));
        }
        let dataset = self.dataset(tenant.id, &sample.of)?;
        self.latest_manifest(tenant, &dataset).await
    }

    /// Makes what was built a version, and lets its uploads go.
    async fn add_version(
        &self,
        tenant: &Tenant,
        dataset: DataSet,
        built: Built,
        spec: &DataSetSpec,
    ) -> Result<Arc<DataSet>, CatalogError> {
        let Built { manifest, sink } = built;
        let (reserved, mut pins) = sink.into_parts();
        let dataset = match self.record_version(tenant, dataset, &manifest, reserved, &mut pins).await {
            Ok(dataset) => dataset,
            Err(error) => {
                self.discard(pins).await;
                return Err(error);
            }
        };
        for digest in spec.uploads()? {
            match self.delete_upload(tenant, &digest).await {
                Ok(()) | Err(CatalogError::NotFound { .. }) => {}
                Err(error) => tracing::warn!(%error, "an upload that became a data set stays until it expires"),
            }
        }
        Ok(dataset)
    }

    /// The one transaction that makes a version visible. `pins` keep what it needs until it is.
    async fn record_version(
        &self,
        tenant: &Tenant,
        mut dataset: DataSet,
        manifest: &Manifest,
        mut reserved: Reservation,
        pins: &mut Vec<Pinned>,
    ) -> Result<Arc<DataSet>, CatalogError> {
        let bytes = manifest.to_bytes();
        let manifest_bytes = bytes.len() as u64;
        reserved.grow(manifest_bytes)?;
        let pin = self.blobs.publish_bytes(bytes.into()).await?;
        let digest = pin.digest();
        pins.push(pin);
        let _changing = self.changing.write().await;
        Self::check_alive(tenant)?;
        match self.shown.datasets.get(tenant.id, dataset.name.as_str()) {
            // What was built on must be what is there now.
            Some(now) => {
                let same = |a: &DataSet, b: &DataSet| a.latest().map(|v| v.digest) == b.latest().map(|v| v.digest);
                if dataset.versions.is_empty() {
                    return Err(CatalogError::Exists { what: "data set", name: dataset.name.to_string() });
                }
                if !same(&now, &dataset) || now.created_ms != dataset.created_ms {
                    return Err(CatalogError::Changed { what: "data set", name: dataset.name.to_string() });
                }
            }
            None if dataset.versions.is_empty() => self.check_new(tenant, &dataset.name)?,
            None => return Err(CatalogError::not_found("data set", dataset.name.as_str())),
        }
        let (train, test) = (manifest.train.count, manifest.test.count);
        dataset.versions.push(Version { digest, manifest_bytes, created_ms: unix_ms(), train, test });
        let blocks = manifest.train.blocks.iter().chain(&manifest.test.blocks).map(|block| block.digest);
        dataset.blocks = blocks.chain(dataset.blocks).collect::<HashSet<_>>().into_iter().collect();
        dataset.blocks.sort_unstable();
        dataset.stored_bytes += reserved.bytes();
        let batch = Batch::default().put(&dataset)?;
        *pins = self.commit(batch, std::mem::take(pins)).await?;
        reserved.keep();
        let dataset = self.shown.datasets.put(dataset);
        self.changed();
        pins.clear();
        Ok(dataset)
    }
}

/// A part of another data set's samples to train on, and all to test with; what is done to them is what is done there.
fn draw(
    origin: &Manifest,
    sample: &SampleSpec,
    blocks: &Arc<dyn Blocks>,
    watch: &Watch,
    options: &mut Options,
) -> Sources {
    options.transform.get_or_insert(origin.transform);
    if options.class_names.is_empty() {
        options.class_names.clone_from(&origin.class_names);
    }
    let train = Sampled::new(origin, &origin.train, blocks.clone(), sample.part, sample.seed).watched(watch.clone());
    let test: Vec<Box<dyn Samples>> = match origin.test.count {
        0 => Vec::new(),
        _ => vec![Box::new(Sampled::new(origin, &origin.test, blocks.clone(), 1.0, 0).watched(watch.clone()))],
    };
    Sources { train: vec![Box::new(train)], test }
}

/// Where the file is that a spec names.
type Place<'a> = &'a dyn Fn(&FileSpec) -> Result<PathBuf, CatalogError>;

/// Opens everything that a spec names.
pub(crate) fn open(
    spec: &DataSetSpec,
    place: Place<'_>,
    old: Option<&Manifest>,
    staging: &Path,
    watch: Watch,
    options: &mut Options,
) -> Result<Sources, CatalogError> {
    let kinds = [!spec.train.is_empty() || !spec.test.is_empty(), spec.synthetic.is_some(), spec.shipped.is_some()];
    if kinds.iter().filter(|&&given| given).count() != 1 {
        let text = "give one of: files (`train`, `test`), `synthetic`, `sample` (on a node), `shipped`";
        return Err(CatalogError::Invalid(text.to_owned()));
    }
    if let Some(synthetic) = &spec.synthetic {
        let kind = synthetic.kind()?;
        let end = synthetic.train.checked_add(synthetic.test);
        let end = end.ok_or_else(|| CatalogError::Invalid("too many samples".to_owned()))?;
        let train = Synthetic::new(kind, synthetic.seed, 0..synthetic.train);
        options.synthetic = Some(train.rule());
        let test = Synthetic::new(kind, synthetic.seed, synthetic.train..end);
        let test: Vec<Box<dyn Samples>> = if synthetic.test > 0 { vec![Box::new(test)] } else { Vec::new() };
        return Ok(Sources { train: vec![Box::new(train)], test });
    }
    if let Some(shipped) = &spec.shipped {
        return open_shipped(shipped, staging, options);
    }
    let mut reading = spec.reading(Half::Train)?;
    reading.spool_in = Some(staging.to_owned());
    reading.watch = watch;
    if let Some(old) = old {
        follow(&mut reading, &old.features, Some(&old.class_names));
    }
    let mut sources = Sources::default();
    for source in &spec.train {
        let samples = open_source(source, place, &reading)?;
        // What the first file says holds for all that follow.
        follow(&mut reading, samples.features(), samples.class_names());
        reading.index_base = reading.index_base.or(samples.index_base());
        sources.train.push(samples);
    }
    reading.arrays.part = Some(Half::Test);
    for source in &spec.test {
        sources.test.push(open_source(source, place, &reading)?);
    }
    Ok(sources)
}

/// Reads the next file like the one before: the same classes, at least as many columns.
fn follow(reading: &mut read::Options, features: &Features, class_names: Option<&[String]>) {
    if let Features::Sparse { columns } = features {
        reading.columns = reading.columns.max(Some(*columns));
    }
    if let Some(names) = class_names.filter(|names| !names.is_empty()) {
        reading.classes = Some(names.to_vec());
    }
}

fn open_source(
    source: &SourceSpec,
    place: Place<'_>,
    reading: &read::Options,
) -> Result<Box<dyn Samples>, CatalogError> {
    let place = |file: &FileSpec| -> Result<Source, CatalogError> {
        Ok(Source { name: file.name.chars().take(200).collect(), path: place(file)? })
    };
    let labels = source.labels.as_ref().map(place).transpose()?;
    Ok(read::open(&place(&source.features)?, labels.as_ref(), reading)?)
}

fn open_shipped(name: &str, staging: &Path, options: &mut Options) -> Result<Sources, CatalogError> {
    if name != "digits" {
        let text = format!("no data set `{}` comes with Weft: there is `digits`", name.escape_debug());
        return Err(CatalogError::Invalid(text));
    }
    let staged = |error| CatalogError::io("staging", error);
    let file = tempfile::Builder::new().suffix(".csv.gz").tempfile_in(staging).map_err(staged)?;
    std::fs::write(file.path(), digits::CSV_GZ).map_err(staged)?;
    let source = Source { name: "digits.csv.gz".to_owned(), path: file.path().to_owned() };
    let samples = read::open(&source, None, &read::Options { header: read::Header::No, ..Default::default() })?;
    options.shape.get_or_insert(digits::SHAPE.to_vec());
    options.split.get_or_insert(digits::SPLIT);
    // The file is open: its name is not needed any more.
    drop(file);
    Ok(Sources { train: vec![samples], test: Vec::new() })
}
