//! Everything that training in this process needs: a sandbox, devices, and the trainer, compiled.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use weft_core::spec::Shape;
use weft_gpu::device::cpu::SharedCpu;
use weft_gpu::pool::{Wish, machine};
use weft_gpu::{Context, Crew, Pool, Request};

use crate::config::{Options, Settings};
use crate::devices::TAPE_NODES;
use crate::digest::Digest;
use crate::logs::LogBook;
use crate::names::Name;
use crate::sandbox::{Compiler, Sandbox, SandboxLimits};
use crate::tenant::{Account, Quota, Tenant, TenantId};
use crate::train::worker::{FunctionHost, Trainer, WorkerSetup};

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
    pub host: FunctionHost,
    pub trainer: Trainer,
    pub tenant: Arc<Tenant>,
    pub log: Arc<LogBook>,
    pub pool: Pool,
    device: Wish,
}

impl LocalTrainer {
    /// Compiles the component and opens the devices.
    pub async fn open(component: &Path, name: Name, place: Place, program: PathBuf) -> anyhow::Result<Self> {
        let config = Settings::resolve(Options::default(), Options::default())?;
        let mut limits = SandboxLimits { instances: 4, ..config.sandbox() };
        if place.threads > 0 {
            limits.cores = place.threads;
        }
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
        let (host, trainer) = (FunctionHost::new(sandbox), Trainer { code: function, name, version });
        let pool = open_devices(place.device)?;
        Ok(Self { host, trainer, tenant, log: Arc::default(), pool, device: place.device })
    }

    /// How a worker of it is set up that belongs to no job, with a lease of its own; settings are still to be given.
    pub fn setup(&self, seed: u64) -> anyhow::Result<WorkerSetup> {
        let bytes = usize::try_from(self.memory()?)?;
        let lease = self.pool.lease(Request { device: self.device, ..Request::new("local", bytes) })?;
        let crew = Crew::new(self.host.sandbox.limits().cores);
        let context = Context::leased(&lease, Arc::new(crew), TAPE_NODES);
        let setup = WorkerSetup::new(&self.host, &self.trainer, &self.tenant, context, seed);
        Ok(WorkerSetup { log: self.log.clone(), ..setup })
    }

    /// The part that each function of a job may have of all memory that training here takes.
    pub fn memory_of_each(&self, shape: &Shape) -> anyhow::Result<u64> {
        Ok(self.memory()? / u64::from(shape.lanes().max(1)))
    }

    /// Half of the smallest device, so that it is there whichever is leased.
    fn memory(&self) -> anyhow::Result<u64> {
        let smallest = self.pool.devices().map(|(_, info)| info.memory).min().context("no device can be used here")?;
        Ok(((smallest as f64 * MEMORY_SHARE) as u64).max(1))
    }

    pub fn version(&self) -> Digest {
        self.trainer.version
    }

    pub fn name(&self) -> &Name {
        &self.trainer.name
    }
}

fn open_devices(device: Wish) -> anyhow::Result<Pool> {
    let devices = match device {
        // Opening GPUs takes a moment, and nobody asked for one.
        Wish::Cpu => vec![Arc::new(SharedCpu::new()) as Arc<dyn weft_gpu::device::Shared>],
        _ => machine(None),
    };
    let visible = std::env::var("WEFT_VISIBLE_DEVICES").unwrap_or_else(|_| "all".to_owned());
    Ok(Pool::visible(devices, &visible)?)
}
