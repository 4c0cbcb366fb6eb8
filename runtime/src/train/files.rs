//! A data set of this process's own: made of files, its blocks in a folder.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::catalog::spec::DataSetSpec;
use crate::catalog::{CatalogError, open_sources};
use crate::dataset::blocks::{Blocks, CACHE_BYTES, Cache};
use crate::dataset::build::{BlockSink, Builder};
use crate::dataset::read::Watch;
use crate::dataset::{BlockRef, Manifest};
use crate::digest::Digest;

/// A data set that goes when this is dropped.
pub struct LocalDataSet {
    pub manifest: Manifest,
    pub blocks: Arc<dyn Blocks>,
}

impl LocalDataSet {
    /// Reads the files that a spec names by their paths.
    pub fn make(spec: &DataSetSpec) -> Result<Self, CatalogError> {
        let folder = tempfile::tempdir().map_err(|error| CatalogError::io("a folder for blocks", error))?;
        let mut options = spec.building()?;
        let place = |file: &crate::catalog::spec::FileSpec| Ok(PathBuf::from(&file.upload));
        let sources = open_sources(spec, &place, None, folder.path(), Watch::default(), &mut options)?;
        let mut blocks = Folder(folder);
        let manifest = Builder::new(options, &mut blocks).build(sources)?;
        Ok(Self { manifest, blocks: Arc::new(Cache::new(Arc::new(blocks), CACHE_BYTES)) })
    }
}

struct Folder(tempfile::TempDir);

impl BlockSink for Folder {
    fn write(&mut self, bytes: Vec<u8>) -> io::Result<Digest> {
        let digest = Digest::of(&bytes);
        fs::write(self.0.path().join(digest.hex()), bytes)?;
        Ok(digest)
    }
}

impl Blocks for Folder {
    fn read(&self, block: &BlockRef, range: Range<u64>) -> io::Result<Bytes> {
        let mut file = File::open(self.0.path().join(block.digest.hex()))?;
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = vec![0; usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?];
        file.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}
