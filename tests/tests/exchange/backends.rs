//! The channels, each as a fresh place for one test.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use weft::blob::Blobs;
use weft::job::channel::{BlobsChannel, Channel, LinkChannel, MemoryChannel, Speed, StoreChannel};
use weft::params::embedded::Embedded;
use weft::params::redis::{Incarnations, Link, Redis};
use weft::params::{Bucket, ParamStore, Space};
use weft::tenant::{Account, Storage, StoreId};
use weft_tests::redis::{RedisServer, shared_server};
use weft_tests::s3;

/// What a tenant may hold in these tests.
pub const LIMIT: u64 = 1 << 30;

/// Bytes of the largest message.
pub const MOST: u64 = 64 << 20;

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A job of a tenant of its own, and what its channels go through.
pub struct Place {
    pub way: Way,
    _held: Held,
}

pub enum Way {
    /// One channel for all runs, which must not meet in it either.
    Memory(Arc<dyn Channel>),
    Store {
        bucket: Bucket,
        store: Arc<dyn ParamStore>,
        tenant: StoreId,
        account: Arc<Account>,
    },
    Blobs {
        blobs: Arc<Blobs>,
        storage: Arc<Storage>,
    },
}

/// What goes when the test is over.
enum Held {
    None,
    Redis { _server: Arc<RedisServer> },
    Folder { _folder: TempDir },
    S3 { _server: Box<s3::Server> },
}

impl Place {
    pub async fn memory() -> Result<Self> {
        Ok(Self { way: Way::Memory(Arc::new(MemoryChannel::new())), _held: Held::None })
    }

    /// A fast link before memory: it must be a channel like any other.
    pub async fn link() -> Result<Self> {
        let speed = Speed { bytes_per_second: 1e10, latency: Duration::from_micros(10) };
        let linked = LinkChannel::new(Arc::new(MemoryChannel::new()), speed);
        Ok(Self { way: Way::Memory(Arc::new(linked)), _held: Held::None })
    }

    fn store(store: Arc<dyn ParamStore>, held: Held) -> Result<Self> {
        let (tenant, account) = (StoreId::random()?, Account::new("params_bytes", LIMIT, None));
        let space = Space::of_job(tenant.clone(), "job".parse()?);
        let bucket = Bucket::new(store.clone(), space, account.clone());
        Ok(Self { way: Way::Store { bucket, store, tenant, account }, _held: held })
    }

    pub async fn embedded() -> Result<Self> {
        Self::store(Embedded::in_memory(), Held::None)
    }

    pub async fn redis() -> Result<Self> {
        let server = shared_server()?;
        Self::store(connect(&server.address(), PATIENCE).await?, Held::Redis { _server: server })
    }

    fn blobs(blobs: Arc<Blobs>, held: Held) -> Self {
        Self { way: Way::Blobs { blobs, storage: Storage::new(LIMIT) }, _held: held }
    }

    pub async fn files() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (root, staging) = (folder.path().join("blobs"), folder.path().join("staging"));
        std::fs::create_dir(&staging)?;
        Ok(Self::blobs(Blobs::folder(root, staging)?, Held::Folder { _folder: folder }))
    }

    pub async fn blob_memory() -> Result<Self> {
        Ok(Self::blobs(Blobs::memory(), Held::None))
    }

    pub async fn bucket() -> Result<Self> {
        let server = Box::new(s3::Server::start()?);
        Ok(Self::blobs(Blobs::s3(&server.place("node"))?, Held::S3 { _server: server }))
    }

    /// The channel of one run of the job.
    pub fn channel(&self, run: u64) -> Arc<dyn Channel> {
        match &self.way {
            Way::Memory(channel) => channel.clone(),
            Way::Store { bucket, .. } => Arc::new(StoreChannel::new(bucket.clone(), run)),
            Way::Blobs { blobs, storage } => {
                Arc::new(BlobsChannel::new(blobs.scratch("tenant/job"), storage.clone(), run, MOST))
            }
        }
    }

    /// Whether a second run has a channel of its own.
    pub fn has_runs(&self) -> bool {
        !matches!(self.way, Way::Memory(_))
    }

    /// Whether nothing is stored, and nothing is counted.
    pub async fn must_be_empty(&self) -> Result<()> {
        match &self.way {
            Way::Memory(_) => {}
            Way::Store { store, tenant, account, .. } => {
                ensure!(store.spaces(tenant).await?.is_empty(), "values are left");
                ensure!(store.used(tenant).await? == 0 && account.used() == 0, "{} bytes are counted", account.used());
            }
            Way::Blobs { blobs, storage } => {
                ensure!(blobs.scratch("tenant/job").list().await?.is_empty(), "objects are left");
                ensure!(storage.used() == 0, "{} bytes are counted", storage.used());
            }
        }
        Ok(())
    }
}

pub async fn connect(address: &str, patience: Duration) -> Result<Arc<Redis>> {
    Ok(Redis::connect(Link::open(address, None, patience).await?, Incarnations::in_memory()).await?)
}

/// Runs a test on threads of its own, so that it can be concurrent.
pub fn run<F: Future<Output = Result<()>>>(test: F) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?.block_on(test)
}

/// Makes a test of each of these functions of a place, on each channel.
macro_rules! on_all_channels {
    (@on $channel:ident $($test:ident,)+) => {
        mod $channel {
            $(#[test] fn $test() -> anyhow::Result<()> {
                use $crate::exchange::backends::{Place, run};
                run(async { super::$test(Place::$channel().await?).await })
            })+
        }
    };
    ($($test:ident,)+) => {
        on_all_channels! { @on memory $($test,)+ }
        on_all_channels! { @on link $($test,)+ }
        on_all_channels! { @on embedded $($test,)+ }
        on_all_channels! { @on redis $($test,)+ }
        on_all_channels! { @on files $($test,)+ }
        on_all_channels! { @on blob_memory $($test,)+ }
        on_all_channels! { @on bucket $($test,)+ }
    };
}

pub(crate) use on_all_channels;
