//! A node: every part put together, and what can be asked of it. Knows nothing of HTTP.
//!
//! The only place that constructs backends. Whatever runs by the clock starts here, and so does the orderly stop.
//!
//! - `making`: uploaded files become data sets and models
//! - `deletion`: the end of a tenant
//! - `periodic`: the ledger and the logs are written, blobs are swept
//! - `parameters`: the parameter store, opened and kept
//! - `identity`, `in_flight`: who this node is, and what it is answering

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::sync::watch;
use weft_core::plan::prices::PriceTable;

use crate::blob::Blobs;
use crate::catalog::{BlobBlocks, Catalog};
use crate::config::Settings;
use crate::data_dir::DataDir;
use crate::dataset::blocks::{CACHE_BYTES, Cache};
use crate::devices::{DeviceMemory, Devices, NoDevice};
use crate::digest::Digest;
use crate::host::Request;
use crate::job::facilities::{Facilities, OperatorRules};
use crate::job::{self, Jobs, Roster, StandingOrders};
use crate::logs::{LogSink, Logs};
use crate::meta::Metadata;
use crate::metrics::{Metrics, Occupancy};
use crate::names::Name;
use crate::params::ParamStore;
use crate::places::{NoPlace, Places};
use crate::registry::{Deployed, Function, LoadedLimits, Registry, RegistryError, Upload};
use crate::resident;
use crate::sandbox::{Answer, Call, Compiler, Facts, InvokeError, Permit, Sandbox};
use crate::seed;
use crate::study::{Studies, StudyRoster};
use crate::tenant::{Account, Charge, Key, Principal, Quota, Spent, Tenant, TenantError, Tenants};
use crate::train::worker::FunctionHost;

mod deletion;
mod identity;
mod in_flight;
mod making;
mod parameters;
mod periodic;

pub use deletion::DeleteError;
pub use identity::{Identity, IdentityError};
pub use in_flight::{ActiveRequest, InFlight};

/// The tenant of a node that runs with `--dev`.
const DEV_TENANT: &str = "dev";

/// Who may call a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Whoever has a key. The first start makes the operator's.
    Keys,
    /// The same, and the operator gets a new one.
    NewOperatorKey,
    /// Whoever can connect: one tenant, who is the operator too.
    Developer,
}

pub struct Node {
    pub settings: Settings,
    pub prices: Arc<PriceTable>,
    pub tenants: Arc<Tenants>,
    pub registry: Arc<Registry>,
    pub catalog: Arc<Catalog>,
    pub jobs: Arc<Jobs>,
    pub studies: Arc<Studies>,
    pub params: Arc<dyn ParamStore>,
    pub logs: Arc<Logs>,
    pub metrics: Metrics,
    pub blobs: Arc<Blobs>,
    pub metadata: Arc<Metadata>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) places: Arc<Places>,
    memory: Arc<Account>,
    developer: Option<Arc<Tenant>>,
    pub(crate) invocations: Arc<AtomicU64>,
    pub(crate) stopping: Arc<AtomicBool>,
    /// One write of the ledger and the logs at a time, and none while a tenant is being deleted.
    flushing: tokio::sync::Mutex<()>,
    draining: watch::Sender<bool>,
    requests: InFlight,
    directory: Arc<DataDir>,
}

/// An answered invocation.
pub struct Invoked {
    pub answer: Answer,
    pub receipt: Receipt,
}

/// What is told of an invocation beside its answer.
#[derive(Clone, Debug)]
pub struct Receipt {
    pub invocation: u64,
    pub version: Digest,
    pub seed: u64,
    pub spent: Spent,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum InvokeFailure {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Place(#[from] NoPlace),
    #[error("the node is stopping")]
    Draining,
    #[error(transparent)]
    Device(#[from] NoDevice),
    #[error("no randomness for a seed: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("{error}")]
    Failed { error: InvokeError, receipt: Box<Receipt> },
}

impl Node {
    /// Opens the data directory and everything in it. The second part is the operator's key, when one was just made.
    pub async fn start(settings: Settings, access: Access) -> anyhow::Result<(Arc<Self>, Option<Key>)> {
        let prices = Arc::new(settings.price_table()?);
        let directory = Arc::new(DataDir::open(&settings.data_dir)?);
        let metadata = Metadata::open(&directory.metadata())?;
        let identity = Identity::load(&metadata)?;
        let blobs = Blobs::start(&settings.blob_place(), directory.blobs(), directory.staging(), &identity.id).await?;
        let sandbox = Arc::new(Sandbox::new(settings.sandbox())?);
        let memory = Account::new("max_memory", settings.memory(), None);
        let tenants = Arc::new(Tenants::load(metadata.clone(), memory.clone())?);
        let params = parameters::open(&settings, &directory, &tenants).await?;
        let compiler = Compiler::new(this_program()?, settings.compile());
        let registry = Registry::load(
            metadata.clone(),
            blobs.clone(),
            sandbox.clone(),
            compiler,
            directory.artifacts(),
            directory.staging(),
            LoadedLimits { keep_bytes: settings.loaded_bytes.0, memory: memory.clone() },
        )
        .await?;
        let registry = Arc::new(registry);
        // Everybody who refers to blobs or stores bytes for a tenant has its line here.
        let catalog = Arc::new(Catalog::load(metadata.clone(), blobs.clone(), directory.staging())?);
        let roster = Roster::load(metadata.clone(), blobs.clone(), settings.max_workers, &tenants)?;
        // A store that is slow or away holds up nobody: what is not known by then is found out while the node serves.
        roster.find_needs(periodic::FIND_NEEDS).await;
        let standing = StandingOrders::load(&metadata, &tenants)?;
        blobs.set_referrers(vec![registry.referrer(), catalog.referrer(), roster.referrer()]);
        for tenant in tenants.list() {
            let (functions, things) = (registry.stored_bytes(tenant.id), catalog.stored_bytes(tenant.id));
            tenant.storage.load(functions + things + roster.stored_bytes(tenant.id));
        }
        if !blobs.is_remote() {
            blobs.sweep().await?;
        }
        // Before any job runs. What cannot be deleted now only takes room until the next start.
        if let Err(error) = blobs.sweep_scratch().await {
            tracing::warn!(%error, "what jobs exchanged before this start could not be deleted");
        }
        let logs = Arc::new(Logs::load(&metadata)?);
        let (developer, key) = match access {
            Access::Developer => (Some(developer(&tenants, &settings.quota).await?), None),
            Access::Keys if tenants.has_operator() => (None, None),
            Access::Keys | Access::NewOperatorKey => (None, Some(tenants.issue_operator_key().await?)),
        };
        let mut start = [0; 8];
        getrandom::fill(&mut start)?;
        let places = Arc::new(Places::new(settings.max_connections, settings.queue_timeout.0));
        let devices = Arc::new(Devices::new(
            &settings.devices,
            settings.sandbox().cores,
            settings.max_waiting,
            settings.max_waiting_per_tenant,
            settings.queue_timeout.0,
            DeviceMemory::within(&memory),
        ));
        let host = FunctionHost {
            sandbox: sandbox.clone(),
            invocations: Arc::new(AtomicU64::new(u64::from_le_bytes(start))),
            stopping: Arc::default(),
        };
        let metrics = Metrics::default();
        let facilities = Facilities {
            tenants: tenants.clone(),
            registry: registry.clone(),
            catalog: catalog.clone(),
            blobs: blobs.clone(),
            blocks: Arc::new(Cache::new(Arc::new(BlobBlocks(blobs.clone())), CACHE_BYTES)),
            params: params.clone(),
            logs: logs.clone(),
            devices: devices.clone(),
            places: places.clone(),
            host: host.clone(),
            exchange: metrics.exchange.clone(),
            rules: OperatorRules {
                max_workers: settings.max_workers,
                cores_per_gib: settings.cores_per_gib,
                prices: prices.clone(),
            },
            directory: directory.clone(),
        };
        let jobs = Arc::new(Jobs::new(roster, standing, facilities));
        let studies = StudyRoster::load(metadata.clone(), &tenants)?;
        let studies = Arc::new(Studies::new(studies, jobs.clone()));
        let node = Arc::new(Self {
            settings,
            prices,
            tenants,
            registry,
            catalog,
            jobs,
            studies,
            params,
            logs,
            metrics,
            blobs,
            metadata,
            sandbox,
            devices,
            places,
            memory,
            developer,
            invocations: host.invocations,
            stopping: host.stopping,
            flushing: tokio::sync::Mutex::default(),
            draining: watch::channel(false).0,
            requests: InFlight::default(),
            directory,
        });
        node.jobs.resume_unfinished().await;
        node.studies.resume_unfinished(|tenant| node.tenants.by_id(tenant));
        tokio::spawn(periodic::flush_periodically(Arc::downgrade(&node)));
        tokio::spawn(periodic::sweep_periodically(Arc::downgrade(&node)));
        tokio::spawn(periodic::find_needs(Arc::downgrade(&node)));
        tokio::spawn(parameters::keep(Arc::downgrade(&node)));
        tokio::spawn(resident::give_back_when_idle(Arc::downgrade(&node)));
        tokio::spawn(job::schedule(Arc::downgrade(&node.jobs)));
        tokio::spawn(job::follow(Arc::downgrade(&node.jobs)));
        tokio::spawn(job::keep_orders(Arc::downgrade(&node.jobs)));
        Ok((node, key))
    }

    /// Who holds this key. With `--dev` it does not matter.
    pub fn authenticate(&self, key: Option<&str>) -> Option<Principal> {
        match &self.developer {
            Some(tenant) => Some(Principal::Developer(tenant.clone())),
            None => self.tenants.authenticate(key?),
        }
    }

    /// Whether it runs with `--dev`, and so asks nobody for a key.
    pub fn is_developers(&self) -> bool {
        self.developer.is_some()
    }

    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Changes to `true` once, when the node begins to stop.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// No new work from here on; functions that ask are told to come to an end.
    pub fn begin_drain(&self) {
        self.stopping.store(true, Relaxed);
        self.draining.send_replace(true);
        self.jobs.roster.pause_all();
    }

    /// Counts a request as in flight until the result is dropped.
    pub fn begin_request(&self) -> ActiveRequest<'_> {
        self.requests.begin()
    }

    /// Waits until no request is in flight and no job runs.
    pub async fn idle(&self) {
        self.requests.none().await;
        self.jobs.roster.at_rest().await;
    }

    /// Whether any function runs, for a call or for a job.
    pub fn computes(&self) -> bool {
        self.sandbox.gate().inside() > 0 || self.jobs.roster.is_running()
    }

    pub fn occupancy(&self) -> Occupancy {
        let (functions, loaded, loaded_bytes) = self.registry.occupancy();
        let tenants = self.tenants.list();
        Occupancy {
            instances: self.sandbox.gate().inside(),
            max_instances: self.settings.max_instances,
            waiting: self.sandbox.gate().waiting(),
            waiting_for_cpu: self.sandbox.turns().waiting(),
            memory: self.memory.used(),
            max_memory: self.settings.memory(),
            tenants: tenants.len(),
            functions,
            loaded,
            loaded_bytes,
            job_bytes: tenants.iter().map(|tenant| tenant.jobs.used()).sum(),
            draining: self.is_draining(),
        }
    }

    /// A place for a component to arrive in; waits while too many others do.
    pub async fn begin_upload(&self, tenant: &Tenant) -> Result<(Upload, Permit), InvokeFailure> {
        if self.is_draining() {
            return Err(InvokeFailure::Draining);
        }
        let permit = self.places.upload(tenant).await?;
        let upload = self.registry.begin_upload(tenant.quota().upload_bytes).await?;
        Ok((upload, permit))
    }

    pub async fn deploy(
        self: &Arc<Self>,
        tenant: Arc<Tenant>,
        name: Name,
        upload: Upload,
    ) -> Result<(Arc<Function>, Deployed), RegistryError> {
        let bytes = upload.size();
        // A task of its own: a caller that goes away after the upload does not stop the deploy half-way.
        let (node, owner) = (self.clone(), tenant.clone());
        let deploy = tokio::spawn(async move { node.registry.deploy(&owner, name, upload).await });
        let deployed = deploy.await.map_err(|error| RegistryError::Io {
            what: "the deploy was interrupted".to_owned(),
            error: std::io::Error::other(error),
        })??;
        tenant.ledger.charge_deploy(bytes);
        self.metrics.count_deploy();
        Ok(deployed)
    }

    /// Runs a function once. `charge` counts the request's bytes.
    pub async fn invoke(
        &self,
        tenant: &Arc<Tenant>,
        name: &str,
        request: Request,
        seed: Option<u64>,
        charge: Charge,
    ) -> Result<Invoked, InvokeFailure> {
        if self.is_draining() {
            return Err(InvokeFailure::Draining);
        }
        let (function, loaded) = self.registry.ready(tenant, name).await?;
        let seed = seed.map_or_else(seed::random, Ok)?;
        let invocation = self.invocations.fetch_add(1, Relaxed);
        let log = LogSink::new(self.logs.book(tenant.id), tenant.clone(), function.name.clone(), invocation);
        let facts = Facts {
            invocation,
            function: function.name.clone(),
            version: function.active,
            seed,
            stopping: self.stopping.clone(),
        };
        let leased = match loaded.needs_device() {
            true => Some(self.devices.lease(tenant).await?),
            false => None,
        };
        // After the device, and never the other way round: whoever has a place waits for nothing but its turn to compute, so
        // places always come free again, and functions that need no device never wait for those that do.
        let permit = self.places.pass(self.sandbox.gate(), tenant, tenant.quota().instances).await?;
        let context = leased.as_ref().map(|leased| leased.context.clone());
        let params = Some(self.params.clone());
        let call = Call { tenant: tenant.clone(), request, charge, facts, log, context, params };
        let finished = self.sandbox.invoke(&loaded, call, permit).await;
        self.metrics.count_invocation(finished.result.as_ref().err(), &finished.spent);
        let receipt = Receipt { invocation, version: function.active, seed, spent: finished.spent };
        match finished.result {
            Ok(answer) => Ok(Invoked { answer, receipt }),
            Err(error) => Err(InvokeFailure::Failed { error, receipt: Box::new(receipt) }),
        }
    }

    pub async fn delete_function(&self, tenant: &Tenant, name: &str) -> Result<(), RegistryError> {
        let function = self.registry.get(tenant.id, name)?;
        self.registry.delete(tenant, name).await?;
        self.logs.forget_function(tenant.id, &function.name);
        Ok(())
    }
}

async fn developer(tenants: &Tenants, quota: &Quota) -> Result<Arc<Tenant>, TenantError> {
    match tenants.get(DEV_TENANT) {
        Ok(tenant) => Ok(tenant),
        Err(_) => {
            let name = DEV_TENANT.parse::<Name>().map_err(|_| TenantError::NotFound(DEV_TENANT.to_owned()))?;
            Ok(tenants.create(name, quota.clone(), None).await?.0)
        }
    }
}

/// The binary that is running, also after it was replaced on disk.
fn this_program() -> std::io::Result<std::path::PathBuf> {
    let running = std::path::Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}
