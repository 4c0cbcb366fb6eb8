//! A data set while it is being made: where its blocks go, and what ends it before it is done.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::CatalogError;
use crate::blob::{Blobs, Pinned};
use crate::dataset::build::BlockSink;
use crate::dataset::read::Watch;
use crate::digest::Digest;
use crate::locks::Lock;
use crate::tenant::{Reservation, Tenant};

/// What ends a build before it is done: its deadline, the end of its tenant, the stop of the node.
#[derive(Clone)]
pub struct BuildEnd {
    deadline: Instant,
    limit: Duration,
    tenant: Arc<Tenant>,
    stopping: Arc<AtomicBool>,
}

impl BuildEnd {
    /// Of a build for this tenant that begins now and may take so long.
    pub fn after(limit: Duration, tenant: Arc<Tenant>, stopping: Arc<AtomicBool>) -> Self {
        Self { deadline: Instant::now() + limit, limit, tenant, stopping }
    }

    /// Whether the build may go on, or why not.
    pub(super) fn is_not_yet(&self) -> Result<(), CatalogError> {
        if self.tenant.is_deleted() {
            Err(CatalogError::TenantDeleted)
        } else if self.stopping.load(Relaxed) {
            Err(CatalogError::Stopping)
        } else if Instant::now() >= self.deadline {
            Err(CatalogError::BuildTimeout(self.limit))
        } else {
            Ok(())
        }
    }

    /// Waits for something that a build needs, such as a store that is slow, for as long as the build may go on.
    pub(super) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, CatalogError>>,
    ) -> Result<T, CatalogError> {
        self.is_not_yet()?;
        tokio::select! {
            done = work => done,
            () = tokio::time::sleep_until(self.deadline.into()) => Err(CatalogError::BuildTimeout(self.limit)),
            () = self.tenant.ended() => Err(CatalogError::TenantDeleted),
        }
    }

    /// For those who read its files. What files are expanded to on disk is counted in `spooled` while the build goes on.
    pub(super) fn watch(&self, spooled: Reservation) -> Watch {
        let (end, spooled) = (self.clone(), Mutex::new(spooled));
        Watch::new(move |bytes| {
            end.is_not_yet().map_err(io::Error::other)?;
            match bytes {
                0 => Ok(()),
                bytes => spooled.locked().grow(bytes).map_err(CatalogError::from).map_err(io::Error::other),
            }
        })
    }
}

/// Stores blocks as they fill: counted, then published, then pinned until the record names them.
pub(super) struct Sink {
    blobs: Arc<Blobs>,
    runtime: Handle,
    /// Blocks that the data set has been charged for.
    known: HashSet<Digest>,
    reserved: Reservation,
    pins: Vec<Pinned>,
    end: BuildEnd,
}

impl Sink {
    pub(super) fn new(blobs: Arc<Blobs>, known: HashSet<Digest>, reserved: Reservation, end: BuildEnd) -> Self {
        Self { blobs, runtime: Handle::current(), known, reserved, pins: Vec::new(), end }
    }

    /// What is reserved for the blocks, and what keeps them.
    pub(super) fn into_parts(self) -> (Reservation, Vec<Pinned>) {
        (self.reserved, self.pins)
    }
}

impl BlockSink for Sink {
    fn write(&mut self, bytes: Vec<u8>) -> io::Result<Digest> {
        let size = bytes.len() as u64;
        let stored = || -> Result<Pinned, CatalogError> {
            self.reserved.grow(size)?;
            let publish = async { Ok(self.blobs.publish_bytes(bytes.into()).await?) };
            // A file is written in a moment, and one that was begun is there in the end; a bucket may never answer.
            match self.blobs.is_remote() {
                true => self.runtime.block_on(self.end.within(publish)),
                false => self.runtime.block_on(publish),
            }
        };
        let pin = stored().map_err(io::Error::other)?;
        let digest = pin.digest();
        if !self.known.insert(digest) {
            self.reserved.shrink_to(self.reserved.bytes() - size);
        }
        self.pins.push(pin);
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::dataset::read::{self, Source};
    use crate::tenant::{Account, Quota};

    fn tenant(stored_bytes: u64) -> Arc<Tenant> {
        let quota = Quota { stored_bytes, ..Quota::default() };
        Tenant::unregistered("ada".parse().unwrap(), quota, Account::new("max_memory", u64::MAX, None))
    }

    /// A file that is read here and there, and so is expanded before it is looked at.
    fn compressed(folder: &std::path::Path, bytes: usize) -> Source {
        let mut file = GzEncoder::new(Vec::new(), Compression::fast());
        file.write_all(&vec![0; bytes]).unwrap();
        let path = folder.join("file");
        std::fs::write(&path, file.finish().unwrap()).unwrap();
        Source { name: "a.safetensors.gz".to_owned(), path }
    }

    fn open(source: &Source, watch: Watch) -> Result<(), CatalogError> {
        let options = read::Options { watch, ..read::Options::default() };
        Ok(read::open(source, None, &options).map(drop)?)
    }

    #[test]
    fn what_a_file_expands_to_on_disk_is_counted_while_it_is_there() {
        let (folder, tenant) = (tempfile::tempdir().unwrap(), tenant(1 << 20));
        let end = BuildEnd::after(Duration::from_secs(60), tenant.clone(), Arc::default());
        let watch = end.watch(tenant.storage.reserve(0).unwrap());
        assert!(matches!(open(&compressed(folder.path(), 8 << 20), watch), Err(CatalogError::Storage(_))));
        assert_eq!(tenant.storage.used(), 0, "given back");
    }

    #[test]
    fn no_file_is_read_beyond_the_end_of_a_build() {
        let (folder, tenant) = (tempfile::tempdir().unwrap(), tenant(1 << 30));
        let source = compressed(folder.path(), 8 << 20);
        let end = |limit, stopping: &Arc<AtomicBool>| BuildEnd::after(limit, tenant.clone(), stopping.clone());
        let open = |end: BuildEnd| open(&source, end.watch(tenant.storage.reserve(0).unwrap()));
        let stopping = Arc::default();
        let late = open(end(Duration::ZERO, &stopping));
        assert!(matches!(late, Err(CatalogError::BuildTimeout(limit)) if limit.is_zero()), "{late:?}");
        stopping.store(true, Relaxed);
        let stopped = open(end(Duration::from_secs(60), &stopping));
        assert!(matches!(stopped, Err(CatalogError::Stopping)), "{stopped:?}");
    }

    #[tokio::test]
    async fn a_store_that_does_not_answer_is_waited_for_until_the_end() {
        let end = BuildEnd::after(Duration::from_millis(20), tenant(0), Arc::default());
        let late = end.within(std::future::pending::<Result<(), CatalogError>>()).await;
        assert!(matches!(late, Err(CatalogError::BuildTimeout(_))), "{late:?}");
    }
}
