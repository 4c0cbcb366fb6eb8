//! What a node has for its jobs, so that no job needs to know a node.
//!
//! Everything here is made by the node, which shares it with other work; jobs make none of it. A
//! [`Workshop`](super::workshop::Workshop) is what one job gets of it.

use std::sync::Arc;

use weft_core::plan::prices::PriceTable;

use crate::blob::Blobs;
use crate::catalog::Catalog;
use crate::data_dir::DataDir;
use crate::dataset::blocks::Blocks;
use crate::devices::Devices;
use crate::logs::Logs;
use crate::metrics::ExchangeCounters;
use crate::params::ParamStore;
use crate::places::Places;
use crate::registry::Registry;
use crate::tenant::Tenants;
use crate::train::worker::FunctionHost;

/// Parts of a node that its jobs use.
pub struct Facilities {
    pub tenants: Arc<Tenants>,
    pub registry: Arc<Registry>,
    pub catalog: Arc<Catalog>,
    pub blobs: Arc<Blobs>,
    /// Blocks of data sets, through a cache that all workers share.
    pub blocks: Arc<dyn Blocks>,
    pub params: Arc<dyn ParamStore>,
    pub logs: Arc<Logs>,
    pub devices: Arc<Devices>,
    pub places: Arc<Places>,
    /// What runs functions, and says when the node begins to stop.
    pub host: FunctionHost,
    /// What all jobs together exchange.
    pub exchange: ExchangeCounters,
    pub rules: OperatorRules,
    /// Where the node keeps everything. It stays locked until the last job has come to rest.
    pub directory: Arc<DataDir>,
}

/// What the operator has set for jobs.
#[derive(Clone, Debug)]
pub struct OperatorRules {
    /// Functions of all jobs that compute at once.
    pub max_workers: u32,
    /// Cores that a function may compute on for each GiB of its memory; 0 for no cap.
    pub cores_per_gib: f64,
    /// What things cost here.
    pub prices: Arc<PriceTable>,
}
