//! Trainers without a server around them: a component of this repository, a pool of devices, and workers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use tokio::sync::watch;
use weft::catalog::spec::{DataSetSpec, SyntheticSpec};
use weft::dataset::batches::{Batch, Inputs};
use weft::devices::TAPE_NODES;
use weft::digest::Digest;
use weft::host::bindings::weft::train::training::Description;
use weft::job::channel::{Channel, MemoryChannel};
use weft::job::checkpoint::Training as Checkpoint;
use weft::job::engine::{Ending, Keeper, ModelFacts, Origin};
use weft::job::model::GlobalModel;
use weft::job::team::{Halt, Order};
use weft::job::workshop::{InstanceRules, JobData};
use weft::job::{EpochRecord, JobSpec};
use weft::local::LocalJob;
use weft::local::job::LocalLines;
use weft::logs::LogBook;
use weft::model::Meta;
use weft::sandbox::{Sandbox, SandboxLimits};
use weft::tenant::{Account, Quota, Tenant, TrainingUse};
use weft::train::declared::Plan;
use weft::train::files::LocalDataSet;
use weft::train::run::Data;
use weft::train::settings;
use weft::train::worker::{FunctionHost, Trainer, Worker, WorkerSetup};
use weft_core::spec::Memory;
use weft_gpu::device::Shared;
use weft_gpu::device::cpu::SharedCpu;
use weft_gpu::pool::{Ledger, Wish};
use weft_gpu::{Context, Crew, Pool, Request};

use crate::{components, sandbox};

/// Device memory that a worker leases, unless told otherwise.
const DEVICE_MEMORY: usize = 256 << 20;

/// How long what a worker had may outlive it.
const LINGERING: Duration = Duration::from_secs(10);

/// A trainer that is ready to be started, again and again.
pub struct Training {
    host: FunctionHost,
    trainer: Trainer,
    log: Arc<LogBook>,
    pool: Pool,
    pub quota: Quota,
    pub device: Wish,
    pub device_memory: usize,
    /// That work on one operation where cores compute.
    pub threads: usize,
    pub seed: u64,
    /// Whether every call meets a fresh instance.
    pub fresh: bool,
}

impl Training {
    /// With the component of a crate, such as `functions/lenet`, on the machine's cores.
    pub async fn of(crate_folder: &str) -> Result<Self> {
        Self::on(vec![Arc::new(SharedCpu::new())], crate_folder).await
    }

    /// The same on these devices.
    pub async fn on(devices: Vec<Arc<dyn Shared>>, crate_folder: &str) -> Result<Self> {
        let component = components::component(crate_folder)?;
        let limits = SandboxLimits { instances: 4, ..SandboxLimits::default() };
        let sandbox = Arc::new(Sandbox::new(limits)?);
        let function = sandbox::load(&sandbox, &component).await?;
        let name = crate_folder.rsplit('/').next().unwrap_or(crate_folder).parse()?;
        Ok(Self {
            host: FunctionHost::new(sandbox),
            trainer: Trainer { code: function, name, version: Digest::of(&component) },
            log: Arc::default(),
            pool: Pool::new(devices),
            quota: Quota { memory: u64::MAX, ..Quota::default() },
            device: Wish::Auto,
            device_memory: DEVICE_MEMORY,
            threads: 1,
            seed: 0,
            fresh: false,
        })
    }

    /// What a worker needs, with a lease of its own. Settings are still to be given.
    pub fn setup(&self) -> Result<WorkerSetup> {
        let request = Request { device: self.device, ..Request::new(self.trainer.name.as_str(), self.device_memory) };
        let lease = self.pool.lease(request)?;
        let tenant = self.tenant();
        let context = Context::leased(&lease, Arc::new(Crew::new(self.threads)), TAPE_NODES);
        let setup = WorkerSetup::new(&self.host, &self.trainer, &tenant, context, self.seed);
        Ok(WorkerSetup { log: self.log.clone(), fresh: self.fresh, ..setup })
    }

    fn tenant(&self) -> Arc<Tenant> {
        let account = Account::new("max_memory", u64::MAX, None);
        Tenant::unregistered(self.trainer.name.clone(), self.quota.clone(), account)
    }

    /// A job with every default, of this seed.
    pub fn spec(&self) -> JobSpec {
        JobSpec {
            seed: Some(self.seed),
            memory: Memory::Bytes(self.device_memory as u64),
            ..JobSpec::new(self.trainer.name.as_str(), None)
        }
    }

    /// Trains as `weft train-local` does, from first values or from a checkpoint. Any end but a good one is an error.
    pub async fn train(
        &self,
        spec: JobSpec,
        data: Option<&LocalDataSet>,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Trained> {
        self.train_through(Arc::new(MemoryChannel::default()), spec, data, checkpoint).await
    }

    /// The same with workers that exchange what they have through this channel.
    pub async fn train_through(
        &self,
        channel: Arc<dyn Channel>,
        spec: JobSpec,
        data: Option<&LocalDataSet>,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Trained> {
        let job_data = |data: &LocalDataSet| JobData {
            name: "samples".to_owned(),
            manifest: Arc::new(data.manifest.clone()),
            charge: None,
            blocks: data.blocks.clone(),
            growth: None,
        };
        let job = LocalJob {
            host: self.host.clone(),
            trainer: self.trainer.clone(),
            tenant: self.tenant(),
            pool: self.pool.clone(),
            log: self.log.clone(),
            name: self.trainer.name.clone(),
            data: data.map(job_data),
            spec,
            instances: InstanceRules { linear: Some(u64::MAX), fresh: self.fresh },
        };
        let prepared = job.prepare::<std::fs::File>(None, checkpoint.is_some()).await?;
        let (_order, orders) = watch::channel(Order::Run);
        let keeper = Arc::new(MemoryKeeper::default());
        let origin = checkpoint.map_or(Origin::FirstValues, |training| Origin::Checkpoint(Box::new(training)));
        let lines = LocalLines { orders, news: Box::new(|_| {}) };
        match prepared.train_through(channel, keeper.clone(), origin, lines, || {}).await {
            Ending::Done(_) => Ok(std::mem::take(&mut *keeper.trained.lock().unwrap_or_else(PoisonError::into_inner))),
            Ending::CaughtUp => bail!("it waits for data, and nobody asked for that"),
            Ending::Halted(Halt::Failed(reason) | Halt::Waits(reason)) => bail!(reason),
            Ending::Halted(halt) => bail!("{halt:?}"),
        }
    }

    /// What the trainer says of itself.
    pub async fn describe(&self) -> Result<Description> {
        Ok(Worker::describe(&self.setup()?).await?)
    }

    /// A worker that has its model, with these hyper-parameters.
    pub async fn worker(&self, parameters: &[(&str, &str)]) -> Result<Worker> {
        let mut setup = self.setup()?;
        let given: Vec<_> = parameters.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        setup.settings = settings::read(&Worker::describe(&setup).await?, &given)?;
        Ok(Worker::start(setup).await?)
    }

    /// Who has what of the devices.
    pub fn ledger(&self) -> Ledger {
        self.pool.ledger()
    }

    /// Once all workers are gone, so is all that they had. The thread that makes batches ahead may take a moment to notice.
    pub async fn is_left_clean(&self) -> Result<()> {
        let start = Instant::now();
        while !self.ledger().is_zero() {
            ensure!(start.elapsed() < LINGERING, "something is left: {:?}", self.ledger());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

/// Samples that a rule makes: `binary20`, `higgs` or `rcv1`.
pub fn synthetic(kind: &str, train: u64, test: u64) -> Result<LocalDataSet> {
    let synthetic = Some(SyntheticSpec { kind: kind.to_owned(), train, test, seed: 0 });
    Ok(LocalDataSet::make(&DataSetSpec { synthetic, ..DataSetSpec::default() })?)
}

/// A data set as the loop takes it.
pub fn data(made: &LocalDataSet) -> Data<'_> {
    Data { name: "samples", manifest: &made.manifest, blocks: made.blocks.clone() }
}

/// A small batch of samples of this shape: waves, whose class decides how long they are.
pub fn waves(context: &Context, count: usize, shape: &[usize], classes: usize) -> Result<Batch> {
    let elements: usize = shape.iter().product();
    let labels: Vec<i32> = (0..count).map(|sample| (sample % classes) as i32).collect();
    let wave = |sample: usize, element: usize| {
        let length = 2.0 + (sample % classes) as f32;
        ((element + sample) as f32 / length).sin()
    };
    let features: Vec<f32> =
        (0..count).flat_map(|sample| (0..elements).map(move |element| wave(sample, element))).collect();
    let dimensions: Vec<usize> = std::iter::once(count).chain(shape.iter().copied()).collect();
    Ok(Batch {
        features: Inputs::Dense(context.tensor(&dimensions, &features)?),
        labels: Some(context.tensor(&[count], &labels)?),
        count,
    })
}

/// What a job of this process came to.
#[derive(Default)]
pub struct Trained {
    pub epochs: Vec<EpochRecord>,
    /// As a safetensors file.
    pub model: Vec<u8>,
    /// As they came, epochs' ends included.
    pub checkpoints: Vec<Checkpoint>,
}

/// Keeps what a job comes to in memory.
#[derive(Default)]
struct MemoryKeeper {
    trained: Mutex<Trained>,
}

impl Keeper for MemoryKeeper {
    async fn checkpoint(&self, training: &Checkpoint, epoch: Option<EpochRecord>) -> Result<(), Halt> {
        let mut trained = self.trained.lock().unwrap_or_else(PoisonError::into_inner);
        trained.epochs.extend(epoch);
        trained.checkpoints.push(training.clone());
        Ok(())
    }

    async fn model(&self, _: &str, shared: &GlobalModel, plan: &Plan, facts: ModelFacts) -> Result<(), Halt> {
        let meta = Meta { step: Some(facts.step), ..Meta::default() };
        let file = shared.to_file(plan, &meta).map_err(|error| Halt::Failed(error.to_string()))?;
        self.trained.lock().unwrap_or_else(PoisonError::into_inner).model = file;
        Ok(())
    }

    async fn forget_model(&self, _: &str) {}

    fn charge(&self, _: &TrainingUse) -> Result<(), String> {
        Ok(())
    }
}
