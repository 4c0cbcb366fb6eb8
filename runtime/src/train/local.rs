//! Everything that training in this process needs: a sandbox, a device, and the trainer, compiled.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use weft_gpu::device::cpu::SharedCpu;
use weft_gpu::pool::{Wish, machine};
use weft_gpu::{Context, Crew, Lease, Pool, Request};

use super::worker::WorkerSetup;
use crate::config::{Options, Settings};
use crate::devices::TAPE_NODES;
use crate::digest::Digest;
use crate::logs::LogBook;
use crate::names::Name;
use crate::sandbox::{Compiler, Loaded, Sandbox, SandboxLimits};
use crate::tenant::{Account, Quota, Tenant, TenantId};

/// Of a device's memory, what training here takes for itself.
const MEMORY_SHARE: f64 = 0.5;

/// Where to compute.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub device: Wish,
    /// Threads of the machine's cores; 0 means all.
    pub threads: usize,
}

/// A trainer that can be started here.
pub struct LocalTrainer {
    sandbox: Arc<Sandbox>,
    function: Arc<Loaded>,
    name: Name,
    version: Digest,
    tenant: Arc<Tenant>,
    log: Arc<LogBook>,
    lease: Lease,
    context: Context,
}

impl LocalTrainer {
    /// Compiles the component and takes the device.
    pub async fn open(component: &Path, name: Name, place: Place, program: PathBuf) -> anyhow::Result<Self> {
        let config = Settings::resolve(Options::default(), Options::default())?;
        let limits = SandboxLimits { instances: 4, ..config.sandbox() };
        let sandbox = Arc::new(Sandbox::new(limits)?);
        let version = Digest::of_file(component).with_context(|| format!("cannot read `{}`", component.display()))?;
        let folder = tempfile::tempdir()?;
        let artifact = folder.path().join("artifact");
        Compiler::new(program, config.compile()).compile(TenantId(0), component, &artifact).await?;
        let code = std::fs::read(&artifact)?;
        // SAFETY: the compiler has just written it, into a folder that only this process knows.
        let function = Arc::new(unsafe { sandbox.load(&code) }?);
        if !function.is_trainer() {
            bail!("`{name}` answers requests and does not train; see `weft invoke`");
        }
        let quota = Quota { instance_memory: u64::MAX, memory: u64::MAX, cpu_ms: u64::MAX / 2, ..Quota::default() };
        let tenant = Tenant::unregistered(name.clone(), quota, Account::new("max_memory", u64::MAX, None));
        let lease = lease(place)?;
        let crew = match place.threads {
            0 => SandboxLimits::default().cores,
            given => given,
        };
        let context = Context::leased(&lease, Arc::new(Crew::new(crew)), TAPE_NODES);
        Ok(Self { sandbox, function, name, version, tenant, log: Arc::default(), lease, context })
    }

    /// How a worker of it is set up; settings are still to be given.
    pub fn setup(&self, seed: u64) -> WorkerSetup {
        WorkerSetup {
            sandbox: self.sandbox.clone(),
            function: self.function.clone(),
            name: self.name.clone(),
            version: self.version,
            tenant: self.tenant.clone(),
            share: self.tenant.share.clone(),
            log: self.log.clone(),
            job: None,
            context: self.context.clone(),
            seed,
            settings: Vec::new(),
            memory: u64::MAX,
            invocations: Arc::default(),
            stopping: Arc::new(AtomicBool::new(false)),
            fresh: false,
        }
    }

    pub fn version(&self) -> Digest {
        self.version
    }

    pub fn log(&self) -> &LogBook {
        &self.log
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    pub fn context(&self) -> &Context {
        &self.context
    }
}

fn lease(place: Place) -> anyhow::Result<Lease> {
    let devices = match place.device {
        // Opening GPUs takes a moment, and nobody asked for one.
        Wish::Cpu => vec![Arc::new(SharedCpu::new()) as Arc<dyn weft_gpu::device::Shared>],
        _ => machine(None),
    };
    let visible = std::env::var("WEFT_VISIBLE_DEVICES").unwrap_or_else(|_| "all".to_owned());
    let pool = Pool::visible(devices, &visible)?;
    let largest = pool.devices().map(|(_, info)| info.memory).max().context("no device can be used here")?;
    let smallest = pool.devices().map(|(_, info)| info.memory).min().unwrap_or(largest);
    let bytes = ((smallest as f64 * MEMORY_SHARE) as usize).max(1);
    Ok(pool.lease(Request { device: place.device, ..Request::new("local", bytes) })?)
}
