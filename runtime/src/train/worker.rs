//! One worker: a trainer's instance, the tensors that it declared, and the device that they are on.
//!
//! The instance may be replaced between any two calls, and is after one that failed; what it declared stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use weft_gpu::{Context, Tensor};

use super::declared::{Declared, OptimizerChanges, Pull};
use super::settings::Settings;
use crate::dataset::batches::Batch;
use crate::digest::Digest;
use crate::host::bindings::weft::train::training::Description;
use crate::host::data::StepInfo;
use crate::logs::{LogBook, LogSink};
use crate::names::Name;
use crate::sandbox::trainer::{Measured, Stepped, TrainerInstance, TrainerSetup};
use crate::sandbox::{Facts, InvokeError, Loaded, Sandbox, Share};
use crate::tenant::Tenant;

/// What runs functions.
#[derive(Clone)]
pub struct FunctionHost {
    pub sandbox: Arc<Sandbox>,
    /// Numbers instances.
    pub invocations: Arc<AtomicU64>,
    pub stopping: Arc<AtomicBool>,
}

impl FunctionHost {
    pub fn new(sandbox: Arc<Sandbox>) -> Self {
        Self { sandbox, invocations: Arc::default(), stopping: Arc::default() }
    }
}

/// A function that trains, compiled.
#[derive(Clone)]
pub struct Trainer {
    pub code: Arc<Loaded>,
    pub name: Name,
    pub version: Digest,
}

/// What every instance of a worker has in common.
pub struct WorkerSetup {
    pub host: FunctionHost,
    pub trainer: Trainer,
    pub tenant: Arc<Tenant>,
    /// Of CPU time.
    pub share: Arc<Share>,
    pub log: Arc<LogBook>,
    /// The job that it works for, if there is one.
    pub job: Option<Name>,
    pub context: Context,
    pub seed: u64,
    pub settings: Settings,
    /// What becomes of the optimizer that the trainer declares.
    pub optimizer: OptimizerChanges,
    /// The most linear memory of an instance, in bytes.
    pub memory: u64,
    /// Whether every call meets a fresh instance.
    pub fresh: bool,
}

impl WorkerSetup {
    /// A worker that belongs to no job, says nothing to anybody's log, and has its defaults for settings.
    pub fn new(host: &FunctionHost, trainer: &Trainer, tenant: &Arc<Tenant>, context: Context, seed: u64) -> Self {
        Self {
            host: host.clone(),
            trainer: trainer.clone(),
            tenant: tenant.clone(),
            share: tenant.share.clone(),
            log: Arc::default(),
            job: None,
            context,
            seed,
            settings: Settings::default(),
            optimizer: OptimizerChanges::default(),
            memory: u64::MAX,
            fresh: false,
        }
    }
}

pub struct Worker {
    setup: WorkerSetup,
    instance: Option<TrainerInstance>,
    declared: Option<Declared>,
    instances: u64,
    /// The latest of them.
    born: Instant,
}

impl Worker {
    /// Starts the trainer and has it declare its model.
    pub async fn start(setup: WorkerSetup) -> Result<Self, InvokeError> {
        let mut worker = Self { setup, instance: None, declared: None, instances: 0, born: Instant::now() };
        worker.instance = Some(worker.ready().await?);
        Ok(worker)
    }

    /// What a trainer says of itself.
    pub async fn describe(setup: &WorkerSetup) -> Result<Description, InvokeError> {
        instance(setup).await?.describe().await
    }

    /// An instance that has declared its model. It belongs to the call, which has to [`keep`](Self::keep) it.
    async fn ready(&mut self) -> Result<TrainerInstance, InvokeError> {
        if let Some(kept) = self.instance.take() {
            return Ok(kept);
        }
        let mut made = instance(&self.setup).await?;
        made.init(&self.setup.settings, &mut self.declared).await?;
        self.instances += 1;
        self.born = Instant::now();
        Ok(made)
    }

    /// For the next call. One that failed is not kept: it may have trapped, and holds whatever it leaked.
    fn keep(&mut self, instance: TrainerInstance) {
        if !self.setup.fresh {
            self.instance = Some(instance);
        }
    }

    /// Gradients of one batch.
    pub async fn step(&mut self, place: StepInfo, batch: Option<Batch>) -> Result<Stepped, InvokeError> {
        if let Some(declared) = &self.declared {
            declared.arena().clear_gradients();
        }
        let mut instance = self.ready().await?;
        // A trainer that makes its own data may collect some of it before it learns.
        let learns = batch.is_some();
        let stepped = instance.step(self.scheduled(place), batch).await?;
        if learns && self.declared.as_ref().is_some_and(Declared::was_not_reached) {
            let message = "the step has called no `backward` on its loss, so no weight has a gradient and the optimizer that \
                           `init` declared has nothing to do";
            return Err(InvokeError::Function { kind: "bad-input", message: message.to_owned() });
        }
        self.keep(instance);
        Ok(stepped)
    }

    /// A trainer is told the rate that its schedule makes of the run's.
    fn scheduled(&self, place: StepInfo) -> StepInfo {
        let rate = self.declared.as_ref().map_or(place.rate, |declared| declared.scheduled(place.rate));
        StepInfo { rate, ..place }
    }

    /// Weights follow the gradients, at the run's rate as the schedule changes it.
    pub fn descend(&mut self, rate: f32) -> Result<(), weft_gpu::Error> {
        self.descend_towards(rate, None)
    }

    /// The same, and the weights follow whatever else pulls them.
    pub fn descend_towards(&mut self, rate: f32, pull: Option<&Pull>) -> Result<(), weft_gpu::Error> {
        self.declared.as_mut().map_or(Ok(()), |declared| declared.descend_towards(rate, pull))
    }

    /// Statistics become weights.
    pub async fn update(&mut self, place: StepInfo) -> Result<(), InvokeError> {
        let mut instance = self.ready().await?;
        instance.update(self.scheduled(place)).await?;
        self.keep(instance);
        Ok(())
    }

    pub async fn evaluate(&mut self, place: StepInfo, batch: Option<Batch>) -> Result<Vec<Measured>, InvokeError> {
        let mut instance = self.ready().await?;
        let measured = instance.evaluate(place, batch).await?;
        self.keep(instance);
        Ok(measured)
    }

    pub async fn infer(&mut self, place: StepInfo, batch: Batch) -> Result<Tensor, InvokeError> {
        let mut instance = self.ready().await?;
        let inferred = instance.infer(place, batch).await?;
        self.keep(instance);
        Ok(inferred)
    }

    pub fn context(&self) -> &Context {
        &self.setup.context
    }

    pub fn seed(&self) -> u64 {
        self.setup.seed
    }

    pub fn declared(&self) -> Option<&Declared> {
        self.declared.as_ref()
    }

    pub fn declared_mut(&mut self) -> Option<&mut Declared> {
        self.declared.as_mut()
    }

    /// How long its instance has been there.
    pub fn age(&self) -> Duration {
        self.born.elapsed()
    }

    /// The next call meets a fresh instance.
    pub fn renew(&mut self) {
        self.instance = None;
    }

    /// Nothing is called soon: whoever waits may compute.
    pub fn rest(&self) {
        self.instance.iter().for_each(TrainerInstance::rest);
    }

    /// Linear memory that its instance holds.
    pub fn memory(&self) -> u64 {
        self.instance.as_ref().map_or(0, TrainerInstance::memory)
    }

    /// How many instances there were.
    pub fn instances(&self) -> u64 {
        self.instances
    }
}

async fn instance(setup: &WorkerSetup) -> Result<TrainerInstance, InvokeError> {
    let WorkerSetup { host, trainer, .. } = setup;
    let number = host.invocations.fetch_add(1, Relaxed);
    let facts = Facts {
        invocation: number,
        function: trainer.name.clone(),
        version: trainer.version,
        seed: setup.seed,
        stopping: host.stopping.clone(),
    };
    let mut log = LogSink::new(setup.log.clone(), setup.tenant.clone(), trainer.name.clone(), number);
    if let Some(job) = &setup.job {
        log = log.of_job(job.clone());
    }
    let (tenant, share, context) = (setup.tenant.clone(), setup.share.clone(), setup.context.clone());
    let (memory, optimizer) = (setup.memory, setup.optimizer);
    let setup = TrainerSetup { tenant, share, facts, log, context, memory, optimizer };
    host.sandbox.start_trainer(&trainer.code, setup).await
}
