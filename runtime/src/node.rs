//! A node: every part put together, and what can be asked of it. Knows nothing of HTTP.
//!
//! The only place that constructs backends. Whatever runs by the clock (the ledger's and logs' periodic write) starts
//! here, and so does the orderly stop.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tokio::sync::watch;

use crate::blob::Blobs;
use crate::catalog::spec::DataSetSpec;
use crate::catalog::{BlobBlocks, Catalog, CatalogError, DataSet, StoredModel, to_the_end};
use crate::config::Settings;
use crate::data_dir::DataDir;
use crate::dataset::blocks::{Blocks, CACHE_BYTES, Cache};
use crate::devices::{DeviceMemory, Devices, NoDevice};
use crate::digest::Digest;
use crate::host::Request;
use crate::job::{self, JobError, Jobs};
use crate::logs::{LINES_AT_A_TIME, LogSink, Logs};
use crate::meta::{MetaError, Metadata};
use crate::metrics::{Metrics, Occupancy};
use crate::names::Name;
use crate::params::ParamStore;
use crate::registry::{Deployed, Function, LoadedLimits, Registry, RegistryError, Upload};
use crate::resident;
use crate::sandbox::{Answer, Call, Compiler, Facts, Gate, GateFull, GateLimits, InvokeError, Permit, Sandbox};
use crate::tenant::{Account, Charge, Key, Principal, Quota, Spent, Tenant, TenantError, Tenants};

mod identity;
mod in_flight;
mod parameters;

pub use identity::{Identity, IdentityError};
pub use in_flight::{ActiveRequest, InFlight};

/// How often the ledger and the logs are written to disk.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How often blobs that nobody needs are looked for: deletions that failed, deploys that did.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
/// How long a start waits until it is known what unfinished jobs need, and how often that is tried again afterwards.
/// Nothing is swept before it is known.
const FIND_NEEDS: Duration = Duration::from_secs(10);
const FIND_NEEDS_EVERY: Duration = Duration::from_secs(60);
/// Uploads on their way in at once, on the node and of one tenant.
const MAX_UPLOADS: u32 = 256;
const MAX_UPLOADS_PER_TENANT: u32 = 4;

/// Data sets that are built at once, on the node and for one tenant: each takes a thread and some megabytes.
const MAX_BUILDS: u32 = 8;
const MAX_BUILDS_PER_TENANT: u32 = 2;

/// Trainers that are tried out at once for submissions, on the node and of one tenant: each has a thread. Further ones are
/// queued untried.
const MAX_TRIALS: u32 = 16;
const MAX_TRIALS_PER_TENANT: u32 = 4;

/// Requests for inference that are computed at once, on the node and of one tenant: each has a thread.
const MAX_INFERENCES: u32 = 32;
const MAX_INFERENCES_PER_TENANT: u32 = 8;

/// Models that are written in another format at once, on the node and for one tenant: each takes a thread for as long as
/// its reader takes.
const MAX_EXPORTS: u32 = 64;
const MAX_EXPORTS_PER_TENANT: u32 = 8;

/// Models whose heads are read at once, on the node and for one tenant: each takes a thread for a moment, and memory.
const MAX_OPENINGS: u32 = 16;
const MAX_OPENINGS_PER_TENANT: u32 = 4;

/// Streams of one tenant's logs at once: each holds a connection for as long as it likes.
pub const MAX_FOLLOWERS: u32 = 64;

/// Requests of one tenant that wait for values at once: each holds a connection for up to a minute.
pub const MAX_PARAM_WAITS: u32 = 64;

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
    pub tenants: Tenants,
    pub registry: Registry,
    pub catalog: Catalog,
    pub jobs: Jobs,
    pub params: Arc<dyn ParamStore>,
    pub logs: Logs,
    pub metrics: Metrics,
    pub blobs: Arc<Blobs>,
    pub metadata: Arc<Metadata>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) devices: Devices,
    /// Blocks of data sets, through a cache that all workers share.
    pub(crate) blocks: Arc<dyn Blocks>,
    memory: Arc<Account>,
    uploads: Arc<Gate>,
    builds: Arc<Gate>,
    followers: Arc<Gate>,
    /// Requests that wait for values.
    waits: Arc<Gate>,
    trials: Arc<Gate>,
    inferences: Arc<Gate>,
    exports: Arc<Gate>,
    openings: Arc<Gate>,
    developer: Option<Arc<Tenant>>,
    pub(crate) invocations: Arc<AtomicU64>,
    pub(crate) stopping: Arc<AtomicBool>,
    /// One write of the ledger and the logs at a time, and none while a tenant is being deleted.
    flushing: tokio::sync::Mutex<()>,
    draining: watch::Sender<bool>,
    requests: InFlight,
    data: DataDir,
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
    #[error("{0}")]
    Busy(#[from] GateFull),
    #[error("no place became free within `queue_timeout` = {0} ms")]
    QueueTimeout(u128),
    #[error("the node is stopping")]
    Draining,
    #[error(transparent)]
    Device(#[from] NoDevice),
    #[error("no randomness for a seed: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("{error}")]
    Failed { error: InvokeError, receipt: Box<Receipt> },
}

/// Why a tenant was not deleted, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("the deletion was interrupted: {0}")]
    Interrupted(String),
}

impl Node {
    /// Opens the data directory and everything in it. The second part is the operator's key, when one was just made.
    pub async fn start(settings: Settings, access: Access) -> anyhow::Result<(Arc<Self>, Option<Key>)> {
        let data = DataDir::open(&settings.data_dir)?;
        let metadata = Metadata::open(&data.metadata())?;
        let identity = Identity::load(&metadata)?;
        let blobs = Blobs::start(&settings.blob_place(), data.blobs(), data.staging(), &identity.id).await?;
        let sandbox = Arc::new(Sandbox::new(settings.sandbox())?);
        let memory = Account::new("max_memory", settings.memory(), None);
        let tenants = Tenants::load(metadata.clone(), memory.clone())?;
        let params = parameters::open(&settings, &data, &tenants).await?;
        let compiler = Compiler::new(this_program()?, settings.compile());
        let registry = Registry::load(
            metadata.clone(),
            blobs.clone(),
            sandbox.clone(),
            compiler,
            data.artifacts(),
            data.staging(),
            LoadedLimits { keep_bytes: settings.loaded_bytes.0, memory: memory.clone() },
        )
        .await?;
        // Everybody who refers to blobs or stores bytes for a tenant has its line here.
        let catalog = Catalog::load(metadata.clone(), blobs.clone(), data.staging())?;
        let jobs = Jobs::load(metadata.clone(), blobs.clone(), settings.max_workers, &tenants)?;
        // A store that is slow or away holds up nobody: what is not known by then is found out while the node serves.
        jobs.find_needs(FIND_NEEDS).await;
        blobs.set_referrers(vec![registry.referrer(), catalog.referrer(), jobs.referrer()]);
        for tenant in tenants.list() {
            let (functions, things) = (registry.stored_bytes(tenant.id), catalog.stored_bytes(tenant.id));
            tenant.storage.load(functions + things + jobs.stored_bytes(tenant.id));
        }
        if !blobs.is_remote() {
            blobs.sweep().await?;
        }
        let logs = Logs::load(&metadata)?;
        let (developer, key) = match access {
            Access::Developer => (Some(developer(&tenants, &settings.quota).await?), None),
            Access::Keys if tenants.has_operator() => (None, None),
            Access::Keys | Access::NewOperatorKey => (None, Some(tenants.issue_operator_key().await?)),
        };
        let mut start = [0; 8];
        getrandom::fill(&mut start)?;
        let uploads = Gate::new(GateLimits { places: MAX_UPLOADS, waiting: MAX_UPLOADS, waiting_per_tenant: 64 });
        let builds = Gate::new(GateLimits { places: MAX_BUILDS, waiting: MAX_UPLOADS, waiting_per_tenant: 16 });
        let gate = |places| Gate::new(GateLimits { places, waiting: MAX_UPLOADS, waiting_per_tenant: 64 });
        let (trials, inferences, exports) = (gate(MAX_TRIALS), gate(MAX_INFERENCES), gate(MAX_EXPORTS));
        let openings = gate(MAX_OPENINGS);
        // At most half of the connections, and whoever does not fit is told so at once.
        let places = (settings.max_connections / 2).max(1);
        let followers = Gate::new(GateLimits { places, waiting: 0, waiting_per_tenant: 0 });
        let waits = Gate::new(GateLimits { places: (places / 2).max(1), waiting: 0, waiting_per_tenant: 0 });
        let blocks = Arc::new(Cache::new(Arc::new(BlobBlocks(blobs.clone())), CACHE_BYTES));
        let devices = Devices::new(
            &settings.devices,
            settings.sandbox().cores,
            settings.max_waiting,
            settings.max_waiting_per_tenant,
            settings.queue_timeout.0,
            DeviceMemory::within(&memory),
        );
        let node = Arc::new(Self {
            settings,
            tenants,
            registry,
            catalog,
            jobs,
            params,
            logs,
            metrics: Metrics::default(),
            blobs,
            metadata,
            sandbox,
            devices,
            blocks,
            memory,
            uploads,
            builds,
            followers,
            waits,
            trials,
            inferences,
            exports,
            openings,
            developer,
            invocations: Arc::new(AtomicU64::new(u64::from_le_bytes(start))),
            stopping: Arc::default(),
            flushing: tokio::sync::Mutex::default(),
            draining: watch::channel(false).0,
            requests: InFlight::default(),
            data,
        });
        tokio::spawn(flush_periodically(Arc::downgrade(&node)));
        tokio::spawn(sweep_periodically(Arc::downgrade(&node)));
        tokio::spawn(find_needs(Arc::downgrade(&node)));
        tokio::spawn(parameters::keep(Arc::downgrade(&node)));
        tokio::spawn(resident::give_back_when_idle(Arc::downgrade(&node)));
        tokio::spawn(job::schedule(Arc::downgrade(&node)));
        tokio::spawn({
            let node = node.clone();
            async move { node.resume_unfinished().await }
        });
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
        self.jobs.pause_all();
    }

    /// Counts a request as in flight until the result is dropped.
    pub fn begin_request(&self) -> ActiveRequest<'_> {
        self.requests.begin()
    }

    /// Waits until no request is in flight and no job runs.
    pub async fn idle(&self) {
        self.requests.none().await;
        self.jobs.at_rest().await;
    }

    /// Whether any function runs, for a call or for a job.
    pub fn computes(&self) -> bool {
        self.sandbox.gate().inside() > 0 || *self.jobs.running.borrow() > 0
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
        let permit = self.pass_gate(&self.uploads, tenant, MAX_UPLOADS_PER_TENANT).await?;
        let upload = self.registry.begin_upload(tenant.quota().upload_bytes).await?;
        Ok((upload, permit))
    }

    /// A place among those who follow a log.
    pub async fn begin_following(&self, tenant: &Tenant) -> Result<Permit, GateFull> {
        self.followers.enter(tenant.id, MAX_FOLLOWERS).await
    }

    /// A place among the requests that wait for values: a quarter of the connections, and half of that for one tenant.
    pub async fn begin_waiting(&self, tenant: &Tenant) -> Result<Permit, GateFull> {
        self.waits.enter(tenant.id, self.most_waiting()).await
    }

    /// Requests of one tenant that may wait for values at once.
    pub fn most_waiting(&self) -> u32 {
        (self.settings.max_connections / 8).clamp(1, MAX_PARAM_WAITS)
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
        let permit = self.enter(tenant).await?;
        let seed = seed.map_or_else(random_seed, Ok)?;
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

    async fn enter(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(self.sandbox.gate(), tenant, tenant.quota().instances).await
    }

    /// A place and a thread to try a trainer out.
    pub(crate) async fn place_for_trial(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(&self.trials, tenant, MAX_TRIALS_PER_TENANT).await
    }

    /// A place and a thread for inference.
    pub(crate) async fn place_for_inference(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(&self.inferences, tenant, MAX_INFERENCES_PER_TENANT).await
    }

    /// A place and a thread to write a model in another format.
    pub(crate) async fn place_for_export(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(&self.exports, tenant, MAX_EXPORTS_PER_TENANT).await
    }

    /// A place and a thread to read the head of a model.
    pub(crate) async fn place_for_opening(&self, tenant: &Tenant) -> Result<Permit, InvokeFailure> {
        self.pass_gate(&self.openings, tenant, MAX_OPENINGS_PER_TENANT).await
    }

    /// A place to make a data set or a model in.
    async fn place_for_build(&self, tenant: &Tenant) -> Result<Permit, CatalogError> {
        let limit = self.settings.queue_timeout.0;
        let place = self.builds.enter_within(limit, tenant.id, MAX_BUILDS_PER_TENANT).await;
        Ok(place.ok_or(CatalogError::QueueTimeout(limit.as_millis()))??)
    }

    async fn pass_gate(&self, gate: &Arc<Gate>, tenant: &Tenant, allowed: u32) -> Result<Permit, InvokeFailure> {
        let limit = self.settings.queue_timeout.0;
        let place = gate.enter_within(limit, tenant.id, allowed).await;
        Ok(place.ok_or(InvokeFailure::QueueTimeout(limit.as_millis()))??)
    }

    /// Deletes a tenant with everything it has, and ends what is being done for it. An operator that goes away does not
    /// stop it half-way.
    pub async fn delete_tenant(self: &Arc<Self>, name: &str) -> Result<(), DeleteError> {
        let (node, name) = (self.clone(), name.to_owned());
        let deleted = tokio::spawn(async move { node.delete_tenant_wholly(&name).await }).await;
        deleted.unwrap_or_else(|error| Err(DeleteError::Interrupted(error.to_string())))
    }

    async fn delete_tenant_wholly(&self, name: &str) -> Result<(), DeleteError> {
        // A deploy that is under way finds the tenant deleted when its turn comes, and leaves nothing.
        let (functions, catalog) = (self.registry.pause().await, self.catalog.pause().await);
        let jobs = self.jobs.pause().await;
        // A write that was begun before would bring back what is deleted here.
        let flushing = self.flushing.lock().await;
        // Looked up only now: if somebody else has deleted it meanwhile, another tenant may have its name.
        let tenant = self.tenants.get(name)?;
        let records = self.registry.deletion_of(tenant.id).and(self.catalog.deletion_of(tenant.id));
        let records = records.and(self.jobs.deletion_of(tenant.id));
        self.tenants.delete(name, records.and(self.logs.forget_tenant(tenant.id))).await?;
        let forget = async {
            self.jobs.forget(tenant.id).await?;
            self.catalog.forget(tenant.id, catalog).await?;
            Ok(self.registry.forget(tenant.id, functions).await?)
        };
        let forgotten: Result<(), DeleteError> = forget.await;
        // A Redis that is away is waited for, and nobody else is to wait for it too.
        drop((jobs, flushing));
        self.end_store(&tenant.store).await;
        forgotten
    }

    /// Makes a data set, or adds to one. A caller that goes away does not stop it half-way.
    pub async fn make_dataset(
        self: &Arc<Self>,
        tenant: Arc<Tenant>,
        name: Name,
        spec: DataSetSpec,
        append: bool,
    ) -> Result<Arc<DataSet>, CatalogError> {
        if self.is_draining() {
            return Err(CatalogError::Stopping);
        }
        let permit = self.place_for_build(&tenant).await?;
        let node = self.clone();
        to_the_end(async move {
            // Held for as long as the work takes, whoever waits for it.
            let _permit = permit;
            match append {
                true => node.catalog.append_dataset(&tenant, name.as_str(), &spec, &node.stopping).await,
                false => node.catalog.create_dataset(&tenant, name, &spec, &node.stopping).await,
            }
        })
        .await
    }

    /// Makes an uploaded file a model, just so.
    pub async fn make_model(
        self: &Arc<Self>,
        tenant: Arc<Tenant>,
        name: Name,
        upload: Digest,
    ) -> Result<Arc<StoredModel>, CatalogError> {
        if self.is_draining() {
            return Err(CatalogError::Stopping);
        }
        let permit = self.place_for_build(&tenant).await?;
        let node = self.clone();
        to_the_end(async move {
            let _permit = permit;
            node.catalog.create_model(&tenant, name, &upload).await
        })
        .await
    }

    pub async fn delete_function(&self, tenant: &Tenant, name: &str) -> Result<(), RegistryError> {
        let function = self.registry.get(tenant.id, name)?;
        self.registry.delete(tenant, name).await?;
        self.logs.forget_function(tenant.id, &function.name);
        Ok(())
    }

    /// Writes the ledger and all logs to disk.
    pub async fn flush(self: &Arc<Self>) -> Result<(), MetaError> {
        self.flush_up_to(usize::MAX).await
    }

    /// Writes the ledger and up to `lines` new log lines of each tenant to disk. Runs to its end, also when whoever asked
    /// for it goes away: what was written is noted.
    async fn flush_up_to(self: &Arc<Self>, lines: usize) -> Result<(), MetaError> {
        let node = self.clone();
        let flush = tokio::spawn(async move {
            let _flushing = node.flushing.lock().await;
            let collecting = node.clone();
            let collect = move || {
                let exists = |tenant| collecting.tenants.by_id(tenant).is_some();
                collecting.logs.unstored(lines, exists)
            };
            // Not on a thread that serves: there may be many lines.
            let collected = tokio::task::spawn_blocking(collect).await.unwrap_or(Err(MetaError::Interrupted));
            let written = match collected {
                Ok((batch, storing)) => {
                    let written = node.metadata.commit_with(batch, || node.tenants.usage_batch()).await;
                    storing.done(written.is_ok());
                    written
                }
                Err(error) => Err(error),
            };
            if written.is_err() {
                node.tenants.usage_was_not_written();
            }
            written
        });
        flush.await.unwrap_or(Err(MetaError::Interrupted))
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

/// A seed for an invocation that was given none: from a generator that the operating system has seeded, one per thread,
/// because asking the system each time costs as much as a tenth of a cold start.
pub(crate) fn random_seed() -> Result<u64, getrandom::Error> {
    thread_local! {
        static GENERATOR: RefCell<Option<ChaCha12Rng>> = const { RefCell::new(None) };
    }
    GENERATOR.with_borrow_mut(|generator| {
        if generator.is_none() {
            let mut seed = [0; 32];
            getrandom::fill(&mut seed)?;
            *generator = Some(ChaCha12Rng::from_seed(seed));
        }
        Ok(generator.as_mut().map_or(0, Rng::next_u64))
    })
}

/// The binary that is running, also after it was replaced on disk.
fn this_program() -> std::io::Result<std::path::PathBuf> {
    let running = std::path::Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

async fn flush_periodically(node: std::sync::Weak<Node>) {
    loop {
        tokio::time::sleep(FLUSH_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        if let Err(error) = node.flush_up_to(LINES_AT_A_TIME).await {
            tracing::error!(%error, "the ledger could not be written; trying again");
        }
    }
}

/// Finds out what unfinished jobs need where that could not be done when the node started.
async fn find_needs(node: std::sync::Weak<Node>) {
    loop {
        let Some(node) = node.upgrade().filter(|node| node.jobs.unknown_needs() > 0) else { return };
        let unknown = node.jobs.unknown_needs();
        tracing::warn!(unknown, "what jobs need cannot be read: nothing is swept until it can");
        node.jobs.find_needs(FIND_NEEDS_EVERY).await;
        drop(node);
        tokio::time::sleep(FIND_NEEDS_EVERY).await;
    }
}

async fn sweep_periodically(node: std::sync::Weak<Node>) {
    let mut clock = tokio::time::interval(SWEEP_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is now; what is near was swept before anybody was served.
    if node.upgrade().is_some_and(|node| !node.blobs.is_remote()) {
        clock.tick().await;
    }
    loop {
        clock.tick().await;
        let Some(node) = node.upgrade() else { return };
        for tenant in node.tenants.list() {
            if let Err(error) = node.catalog.expire_uploads(&tenant).await {
                tracing::warn!(%error, "forgotten uploads could not be given up; trying again in an hour");
            }
        }
        match node.blobs.sweep().await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "blobs that nobody needs were deleted"),
            Err(error) => tracing::warn!(%error, "blobs could not be swept; trying again in an hour"),
        }
    }
}
