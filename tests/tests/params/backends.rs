//! The backends, each as a fresh place for one test.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use weft::params::embedded::Embedded;
use weft::params::redis::{Incarnations, Link, Redis};
use weft::params::{Bucket, Key, ParamStore, Space};
use weft::tenant::{Account, StoreId};
use weft_tests::redis::{RedisCluster, RedisServer, shared_cluster, shared_server};

/// A store and a tenant of its own in it.
pub struct Place {
    pub store: Arc<dyn ParamStore>,
    pub tenant: StoreId,
    pub account: Arc<Account>,
    _server: Server,
}

enum Server {
    None,
    Alone { _server: Arc<RedisServer> },
    Cluster { _servers: Arc<RedisCluster> },
}

/// What a tenant may hold in these tests.
pub const LIMIT: u64 = 1 << 30;

pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn account(limit: u64) -> Arc<Account> {
    Account::new("params_bytes", limit, None)
}

pub async fn connect(address: &str) -> Result<Arc<Redis>> {
    Ok(Redis::connect(Link::open(address, None, PATIENCE).await?, Incarnations::in_memory()).await?)
}

impl Place {
    fn new(store: Arc<dyn ParamStore>, server: Server) -> Self {
        let tenant = StoreId::random().expect("randomness");
        Self { store, tenant, account: account(LIMIT), _server: server }
    }

    pub async fn embedded() -> Result<Self> {
        Ok(Self::new(Embedded::in_memory(), Server::None))
    }

    pub async fn redis() -> Result<Self> {
        let server = shared_server()?;
        Ok(Self::new(connect(&server.address()).await?, Server::Alone { _server: server }))
    }

    pub async fn cluster() -> Result<Self> {
        let servers = shared_cluster()?;
        Ok(Self::new(connect(&servers.address()).await?, Server::Cluster { _servers: servers }))
    }

    pub fn space(&self, job: &str) -> Space {
        Space::of_job(self.tenant.clone(), job.parse().expect("a name"))
    }

    pub fn bucket(&self) -> Bucket {
        Bucket::new(self.store.clone(), self.space("job"), self.account.clone())
    }
}

pub fn key(name: &str) -> Key {
    name.parse().expect("a name of a value")
}

/// A generator of no quality. Tests print the seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Runs a test on threads of its own, so that it can be concurrent.
pub fn run<F: Future<Output = Result<()>>>(test: F) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?.block_on(test)
}

/// Makes a test of each of these functions of a place, on each backend.
macro_rules! on_all_backends {
    ($($test:ident,)+) => {
        mod embedded {
            $(#[test] fn $test() -> anyhow::Result<()> {
                $crate::params::backends::run(async { super::$test($crate::params::backends::Place::embedded().await?).await })
            })+
        }

        mod redis {
            $(#[test] fn $test() -> anyhow::Result<()> {
                $crate::params::backends::run(async { super::$test($crate::params::backends::Place::redis().await?).await })
            })+
        }

        mod cluster {
            $(#[test] fn $test() -> anyhow::Result<()> {
                $crate::params::backends::run(async { super::$test($crate::params::backends::Place::cluster().await?).await })
            })+
        }
    };
}

pub(crate) use on_all_backends;
