//! A trainer's instance: kept from call to call while all goes well, and replaced by a fresh one at any time.
//!
//! What must outlive an instance is not here: the declared tensors are in [`Declared`], which the caller keeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use wasmtime::Store;
use wasmtime::component::Resource;
use weft_gpu::run::Listener;
use weft_gpu::{Cancel, Context, DType, Tensor};

use super::ticker::{Ticking, Watched};
use super::{Export, InvokeError, LONGEST, LimitHit, Loaded, Meter, Sandbox, SandboxLimits, Share, Turns};
use crate::dataset::batches::Batch;
use crate::host::bindings::weft::train::training::{Description, Setting};
use crate::host::data::StepInfo;
use crate::host::tensor::{Compute, Draws, Handle};
use crate::host::{self, Facts, HostState, JobState, Trainer};
use crate::logs::LogSink;
use crate::tenant::Tenant;
use crate::train::declared::{Declared, OptimizerChanges, Plan};
use crate::train::description;

/// Metrics of one evaluation.
pub const MAX_METRICS: usize = 64;

/// Bytes of a metric's name.
pub const MAX_METRIC_NAME: usize = 64;

/// Whose trainer it is, and where it computes.
pub struct TrainerSetup {
    pub tenant: Arc<Tenant>,
    /// Of CPU time.
    pub share: Arc<Share>,
    pub facts: Facts,
    pub log: LogSink,
    pub context: Context,
    /// The most linear memory, in bytes.
    pub memory: u64,
    /// What becomes of the optimizer that it declares.
    pub optimizer: OptimizerChanges,
}

/// An instance of a trainer.
pub struct TrainerInstance {
    store: Store<HostState>,
    trainer: Trainer,
    context: Context,
    tenant: Arc<Tenant>,
    share: Arc<Share>,
    turns: Arc<Turns>,
    limits: SandboxLimits,
    seed: u64,
    optimizer: OptimizerChanges,
    watched: Arc<Watched>,
    _ticking: Ticking,
}

impl Drop for TrainerInstance {
    fn drop(&mut self) {
        self.rest();
    }
}

/// What came of a step: the mean loss over so many samples, still on the device.
#[derive(Debug)]
pub struct Stepped {
    pub loss: Tensor,
    pub samples: u32,
}

/// A mean over the samples of a call, still on the device.
#[derive(Debug)]
pub struct Measured {
    pub name: String,
    pub value: Tensor,
}

/// Which numbers a call draws: each kind of call its own.
#[derive(Clone, Copy)]
enum Kind {
    Init = 1,
    Step,
    Update,
    Evaluate,
    Infer,
}

impl Sandbox {
    /// A fresh instance of a trainer.
    pub async fn start_trainer(
        &self,
        function: &Arc<Loaded>,
        setup: TrainerSetup,
    ) -> Result<TrainerInstance, InvokeError> {
        let Export::Trainer(trainer) = &function.export else {
            return Err(InvokeError::Host("this function is a task: it is invoked, not trained".to_owned()));
        };
        let TrainerSetup { tenant, share, facts, log, context, memory: asked, optimizer } = setup;
        let quota = tenant.quota();
        let seed = facts.seed;
        let deadline = Instant::now() + Duration::from_millis(quota.wall_ms).min(LONGEST);
        let job = JobState::new(facts, log, deadline, self.limits.payload);
        // Whichever is lowest is the one to raise.
        let limits = [("memory", asked), ("instance_memory", quota.instance_memory)];
        let memory = limits.into_iter().fold(("max_instance_memory", self.limits.memory), |lowest, next| {
            if next.1 <= lowest.1 { next } else { lowest }
        });
        let mut state = HostState::new(Meter::new(tenant.clone(), memory), job);
        state.compute = Compute::on(context.clone());
        let mut store = super::new_store(&self.engine, state, &self.limits);
        let ticking = self.ticker.guest();
        let cancel = context.cancel().clone();
        let seat = self.turns.seat(tenant.clone(), share.clone(), Some(cancel.clone()));
        store.data_mut().seat = Some(seat.clone());
        store.epoch_deadline_callback(super::look_up(seat.clone(), quota.cpu_ms, quota.wall_ms, Some(cancel.clone())));
        let watched = self.ticker.watch(cancel.clone());
        let started = {
            let _watching = watched.until(deadline);
            let instantiate = Box::pin(trainer.instantiate_async(&mut store));
            within(deadline, quota.wall_ms, &cancel, Turns::run(seat, instantiate)).await?
        };
        let trainer = started.map_err(|error| super::failure(&error, store.data(), &self.limits))?;
        Ok(TrainerInstance {
            store,
            trainer,
            tenant,
            share,
            turns: self.turns.clone(),
            limits: self.limits.clone(),
            seed,
            optimizer,
            watched,
            context,
            _ticking: ticking,
        })
    }
}

/// Runs one exported call under its limits. What a guest answers with an error is `InvokeError::Function`.
macro_rules! call {
    ($self:ident, $kind:expr, $place:expr, |$trainer:ident, $store:ident| $call:expr) => {{
        if $self.turns.is_due(&$self.share) {
            $self.rest();
        }
        $self.prepare($kind, $place);
        let quota = $self.tenant.quota();
        let wall = Duration::from_millis(quota.wall_ms).min(LONGEST);
        let deadline = Instant::now() + wall;
        let cancel = $self.context.cancel().clone();
        let seat = $self.turns.seat($self.tenant.clone(), $self.share.clone(), Some(cancel.clone()));
        let look_up = super::look_up(seat.clone(), quota.cpu_ms, quota.wall_ms, Some(cancel.clone()));
        $self.store.data_mut().job.deadline = deadline;
        $self.store.data_mut().seat = Some(seat.clone());
        $self.store.set_epoch_deadline(2);
        $self.store.epoch_deadline_callback(look_up);
        let answer = {
            // An epoch stops a guest that computes at its deadline, the first of these what a kernel does, and the
            // second whatever it waits for.
            let _watching = $self.watched.until(deadline);
            let ($trainer, $store) = (&$self.trainer, &mut $self.store);
            within(deadline, quota.wall_ms, &cancel, Turns::run(seat, Box::pin($call))).await
        };
        match answer {
            Err(stopped) => Err(stopped),
            Ok(Ok(_)) if Instant::now() > deadline => Err(InvokeError::Limit(LimitHit::Wall(quota.wall_ms))),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let error = super::failure(&error, $self.store.data(), &$self.limits);
                Err(super::after_deadline(error, deadline, quota.wall_ms))
            }
        }
    }};
}

/// Ends a call at its deadline or when it is cancelled, whatever it waits for: a turn, WASI, a device. After that, its
/// instance cannot be called again.
async fn within<T>(
    deadline: Instant,
    wall_ms: u64,
    cancel: &Cancel,
    call: impl Future<Output = T>,
) -> Result<T, InvokeError> {
    tokio::select! {
        biased;
        answer = call => return Ok(answer),
        () = tokio::time::sleep_until(deadline.into()) => {}
        () = cancelled(cancel) => {}
    }
    // At the deadline, kernels are cancelled as well.
    Err(InvokeError::Limit(if Instant::now() >= deadline { LimitHit::Wall(wall_ms) } else { LimitHit::Stopped }))
}

/// Waits until it is cancelled.
async fn cancelled(cancel: &Cancel) {
    let bell = Arc::new(Bell(Notify::new()));
    let listener: Arc<dyn Listener> = bell.clone();
    let _listening = cancel.listen(Arc::downgrade(&listener));
    while !cancel.is_cancelled() {
        bell.0.notified().await;
    }
}

/// Wakes a task when something is cancelled.
#[derive(Debug)]
struct Bell(Notify);

impl Listener for Bell {
    fn cancelled(&self) {
        self.0.notify_one();
    }
}

/// What a trainer answered. It is believed that its device was lost only if it was: a job waits for a device to come back,
/// however long that takes, and one whose trainer always says so would wait for ever.
fn said<T>(answer: Result<T, host::Error>, is_lost: bool) -> Result<T, InvokeError> {
    answer.map_err(|error| match error.parts() {
        ("device-lost", message) if !is_lost => {
            let message = format!("it says that its device was lost, which was not: {message}");
            InvokeError::said_by_function("other", message)
        }
        (kind, message) => InvokeError::said_by_function(kind, message),
    })
}

/// Names of metrics are kept with every epoch, and shown to people.
fn check_metric_name(name: &str) -> Result<(), InvokeError> {
    if !name.is_empty() && name.len() <= MAX_METRIC_NAME && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let start: String = name.chars().take(MAX_METRIC_NAME).flat_map(char::escape_debug).collect();
    let message = format!(
        "a metric's name has 1 to {MAX_METRIC_NAME} bytes (`max_metric_name`) and no control characters, and `{start}` \
         has {} bytes",
        name.len()
    );
    Err(InvokeError::Function { kind: "bad-input", message })
}

/// Told apart here, where it is known what the tensor is for.
fn one_number(tensor: &Tensor, what: &str) -> Result<(), InvokeError> {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    if shape.elements() == 1 && dtype == DType::F32 {
        return Ok(());
    }
    let message = format!("{what} must be one number of f32, and is {shape:?} of {dtype}");
    Err(InvokeError::Function { kind: "bad-shape", message })
}

impl TrainerInstance {
    /// What it says of itself, within limits.
    pub async fn describe(&mut self) -> Result<Description, InvokeError> {
        let answer = call!(self, Kind::Init, StepInfo::default(), |trainer, store| trainer.call_describe(store));
        let description = answer?;
        description::check(&description)?;
        Ok(description)
    }

    /// Has the model declared. The first time it is made; later, what is declared must be what there is.
    pub async fn init(&mut self, settings: &[Setting], declared: &mut Option<Declared>) -> Result<(), InvokeError> {
        self.store.data_mut().training.plan = Some(Plan::default());
        let answer = call!(self, Kind::Init, StepInfo::default(), |trainer, store| trainer.call_init(store, settings));
        let mut plan = self.store.data_mut().training.plan.take().unwrap_or_default();
        self.said(answer?)?;
        self.optimizer.apply(&mut plan);
        let is_lost = self.context.device().is_lost();
        let refused = |error| said::<()>(Err(host::Error::from(error)), is_lost);
        let declared = match declared {
            Some(before) => {
                plan.check_same(before.plan()).or_else(refused)?;
                before
            }
            None => match Declared::new(plan, &self.context, self.seed) {
                Ok(made) => declared.insert(made),
                Err(error) => return refused(error),
            },
        };
        self.store.data_mut().compute.tensors.bind(declared.tensors());
        Ok(())
    }

    /// One step: gradients are added to those of the weights.
    pub async fn step(&mut self, place: StepInfo, batch: Option<Batch>) -> Result<Stepped, InvokeError> {
        self.store.data_mut().training.batch = batch;
        let answer = call!(self, Kind::Step, place, |trainer, store| trainer.call_step(store));
        self.store.data_mut().training.batch = None;
        let report = self.said(answer?)?;
        let loss = self.take(report.loss)?.detach();
        one_number(&loss, "the loss")?;
        Ok(Stepped { loss, samples: report.samples })
    }

    pub async fn update(&mut self, place: StepInfo) -> Result<(), InvokeError> {
        let _paused = self.context.no_grad();
        let answer = call!(self, Kind::Update, place, |trainer, store| trainer.call_update(store));
        self.said(answer?)
    }

    pub async fn evaluate(&mut self, place: StepInfo, batch: Option<Batch>) -> Result<Vec<Measured>, InvokeError> {
        let _paused = self.context.no_grad();
        self.store.data_mut().training.batch = batch;
        let answer = call!(self, Kind::Evaluate, place, |trainer, store| trainer.call_evaluate(store));
        self.store.data_mut().training.batch = None;
        let metrics = self.said(answer?)?;
        if metrics.len() > MAX_METRICS {
            let message = format!("it has {} metrics; there may be {MAX_METRICS} (`max_metrics`)", metrics.len());
            return Err(InvokeError::Function { kind: "quota", message });
        }
        metrics.iter().try_for_each(|metric| check_metric_name(&metric.name))?;
        let measured = metrics.into_iter().map(|metric| {
            let value = self.take(metric.value)?;
            one_number(&value, &format!("the metric `{}`", metric.name.escape_debug()))?;
            Ok(Measured { name: metric.name, value })
        });
        measured.collect()
    }

    pub async fn infer(&mut self, place: StepInfo, batch: Batch) -> Result<Tensor, InvokeError> {
        let _paused = self.context.no_grad();
        self.store.data_mut().training.batch = Some(batch);
        let answer = call!(self, Kind::Infer, place, |trainer, store| trainer.call_infer(store));
        self.store.data_mut().training.batch = None;
        let logits = self.said(answer?)?;
        self.take(logits)
    }

    fn said<T>(&self, answer: Result<T, host::Error>) -> Result<T, InvokeError> {
        said(answer, self.context.device().is_lost())
    }

    /// Nothing is called soon: whoever waits may compute.
    pub fn rest(&self) {
        self.context.device().rest();
        self.turns.give_up(&self.share);
    }

    /// Linear memory that it holds.
    pub fn memory(&self) -> u64 {
        self.store.data().meter.held()
    }

    /// What a call draws follows from the seed, the place and the kind of call, not from what was called before.
    fn prepare(&mut self, kind: Kind, place: StepInfo) {
        let worker = u64::from(place.worker).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let seed = self.seed.wrapping_add(worker) ^ ((kind as u64) << 56);
        let state = self.store.data_mut();
        state.training.place = place;
        state.compute.draws = Draws { seed, step: place.step, drawn: 0 };
        state.job.reseed(seed.wrapping_add(place.step.wrapping_mul(0xd134_2543_de82_ef95)));
        // The fuel of host calls is for one call.
        self.store.set_hostcall_fuel(usize::try_from(self.limits.payload).unwrap_or(usize::MAX));
    }

    fn take(&mut self, handle: Resource<Handle>) -> Result<Tensor, InvokeError> {
        let tensor = self.store.data_mut().compute.tensors.take(handle.rep());
        tensor.ok_or_else(|| InvokeError::Function {
            kind: "bad-input",
            message: "it gave back a tensor that has no value yet".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trainer_is_believed_that_its_device_was_lost_only_if_it_was() {
        let answer = || Err::<(), _>(host::Error::DeviceLost("gone".to_owned()));
        let error = |is_lost| said(answer(), is_lost).unwrap_err();
        assert!(error(true).is_the_nodes_fault() && error(true).to_string().contains("gone"));
        assert!(!error(false).is_the_nodes_fault(), "a job would wait for a device that is there");
        assert!(error(false).to_string().contains("which was not: gone"), "{}", error(false));
    }
}
