//! The sandbox: compiled functions in, answers out, with every limit in between.
//!
//! Each invocation gets a fresh instance from wasmtime's pool and is gone afterwards. A guest waits for its first turn, and
//! has it, on the thread that asked: most finish within one epoch, and a change of thread costs as much as a cold start. One
//! that has not finished by then moves to the guests' own threads, so that the thread that asked is never held longer. As
//! many guests as there are cores run so at once, for some instructions cannot be interrupted, and one thread more than that
//! keeps serving. A guest that computes on a device has a thread of its own from the start: kernels cannot be interrupted
//! as guests can.
//!
//! Whatever a guest does or waits for, its first turn included, its deadline ends it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store, StoreContextMut, UpdateDeadline};
use weft_gpu::{Cancel, Context};

use crate::host::params::Params;
use crate::host::tensor::{Compute, MAX_TENSORS};
use crate::host::{self, HostState, JobState, Request, Response, TaskPre, TrainerPre};
use crate::logs::{Level, LogSink};
use crate::params::ParamStore;
use crate::tenant::{Charge, OverLimit, Quota, Spent, Tenant};

mod compile_child;
mod compiler;
mod engine;
mod error;
mod gate;
mod here;
mod jail;
mod limits;
mod meter;
mod ticker;
pub mod trainer;
mod turns;

pub use crate::host::Facts;
pub use compile_child::{precompile, run as run_compile_child};
pub use compiler::{CompileError, CompileLimits, Compiler};
pub use engine::swap_is_off;
pub use error::{InvokeError, LimitHit};
pub use gate::{Gate, GateFull, GateLimits, Permit};
use here::Here;
pub use limits::{MAX_HANDLES, SandboxLimits};
pub use meter::Meter;
pub use turns::{Aside, Seat, Share, TeamId, Turns};

/// How long an invocation can take, whatever its quota: clocks overflow when one adds ages to them.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Threads of guests that compute on devices, beyond one for each instance: for what they wait for.
const SPARE_THREADS: usize = 64;

/// A component that cannot be run here.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

/// What a function exports.
#[derive(Clone)]
enum Export {
    Task(TaskPre<HostState>),
    Trainer(TrainerPre<HostState>),
}

/// A function that is ready to be instantiated.
pub struct Loaded {
    export: Export,
    imports: Arc<[String]>,
    bytes: usize,
    /// What its code takes of somebody's memory, for as long as anybody uses it.
    _charge: Option<Charge>,
    /// What it is the use of.
    _of: Option<Arc<Self>>,
}

impl Loaded {
    /// The same, with what its code takes charged until it is gone.
    pub fn charged(self, charge: Charge) -> Self {
        Self { _charge: Some(charge), ..self }
    }

    /// The same code, as somebody uses it who pays for that.
    pub fn used(of: &Arc<Self>, charge: Charge) -> Self {
        let Self { export, imports, bytes, .. } = &**of;
        let (export, imports) = (export.clone(), imports.clone());
        Self { export, imports, bytes: *bytes, _charge: Some(charge), _of: Some(of.clone()) }
    }

    /// The interfaces that it imports.
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    /// Whether it computes with tensors.
    pub fn needs_device(&self) -> bool {
        self.imports.iter().any(|import| import.starts_with("weft:train/tensor@"))
    }

    /// Whether it trains, and does not answer requests.
    pub fn is_trainer(&self) -> bool {
        matches!(self.export, Export::Trainer(_))
    }

    /// How much memory its code takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// One invocation.
pub struct Call {
    pub tenant: Arc<Tenant>,
    pub request: Request,
    /// Counts the request's bytes, and then the answer's.
    pub charge: Charge,
    pub facts: Facts,
    pub log: LogSink,
    /// Where it computes, if it does.
    pub context: Option<Context>,
    /// Where it keeps parameters, if it may.
    pub params: Option<Arc<dyn ParamStore>>,
}

/// What a function answered, with its bytes counted.
#[derive(Debug)]
pub struct Answer {
    pub response: Response,
    pub charge: Charge,
}

/// How an invocation ended.
pub struct Finished {
    pub result: Result<Answer, InvokeError>,
    pub spent: Spent,
}

pub struct Sandbox {
    engine: Engine,
    linker: Linker<HostState>,
    limits: SandboxLimits,
    gate: Arc<Gate>,
    turns: Arc<Turns>,
    ticker: ticker::Ticker,
    /// Places to run on the thread that asked.
    here: here::Places,
    guests: Option<Runtime>,
}

impl Sandbox {
    pub fn new(limits: SandboxLimits) -> anyhow::Result<Self> {
        let engine = engine::running(&limits).map_err(|error| {
            anyhow::anyhow!(
                "cannot reserve a pool for {} instances: {error:#}; lower `max_instances`",
                limits.instances
            )
        })?;
        let guests = Builder::new_multi_thread()
            // One more than can compute at once: it brings waiting guests to `Turns`, which is where the choice is made.
            .worker_threads(Turns::most_at_once(limits.cores) + 1)
            .thread_name("weft-guest")
            .max_blocking_threads(limits.instances as usize + SPARE_THREADS)
            .enable_all()
            .build()?;
        let turns = Turns::new(limits.cores);
        Ok(Self {
            linker: host::linker(&engine).map_err(|error| anyhow::anyhow!("{error:#}"))?,
            gate: Gate::new(GateLimits {
                places: limits.instances,
                waiting: limits.waiting,
                waiting_per_tenant: limits.waiting_per_tenant,
            }),
            ticker: ticker::Ticker::start(engine.clone(), turns.clone())?,
            turns,
            here: here::Places::new(limits.cores),
            guests: Some(guests),
            engine,
            limits,
        })
    }

    /// Names the engine for which artifacts must have been compiled.
    pub fn compatibility(&self) -> String {
        engine::compatibility(&self.engine)
    }

    pub fn limits(&self) -> &SandboxLimits {
        &self.limits
    }

    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// How many threads must ask for guests to be run, for one of them to be free of guests at any time.
    pub fn asking_threads(cores: usize) -> usize {
        cores + 1
    }

    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Makes a compiled component ready to run.
    ///
    /// # Safety
    /// `artifact` must be what [`Compiler`] wrote: native code is run from it as it is.
    pub unsafe fn load(&self, artifact: &[u8]) -> Result<Loaded, LoadError> {
        // SAFETY: the caller's promise.
        let component = unsafe { Component::deserialize(&self.engine, artifact) };
        let component = component.map_err(|error| LoadError(format!("{:#}", error)))?;
        let pre = self.linker.instantiate_pre(&component).map_err(|error| LoadError(format!("{error:#}")))?;
        let export = match TaskPre::new(pre.clone()) {
            Ok(task) => Export::Task(task),
            Err(no_task) => match TrainerPre::new(pre) {
                Ok(trainer) => Export::Trainer(trainer),
                // What it exports tells which of the two it was meant to be.
                Err(error) if component.get_export_index(None, "step").is_some() => {
                    let text = format!("the component does not implement the world `weft:train/trainer`: {error:#}");
                    return Err(LoadError(text));
                }
                Err(_) => {
                    let text = format!("the component does not implement the world `weft:train/task`: {no_task:#}");
                    return Err(LoadError(text));
                }
            },
        };
        // Made now, off the path of the first invocation.
        component.initialize_copy_on_write_image().map_err(|error| LoadError(format!("{error:#}")))?;
        let imports: Vec<String> =
            component.component_type().imports(&self.engine).map(|(name, _)| name.to_owned()).collect();
        Ok(Loaded { export, imports: imports.into(), bytes: artifact.len(), _charge: None, _of: None })
    }

    /// Runs one invocation in a fresh instance. Dropping the future stops the guest.
    pub async fn invoke(&self, function: &Arc<Loaded>, call: Call, permit: Permit) -> Finished {
        let started = Instant::now();
        let tenant = call.tenant.clone();
        let quota = tenant.quota();
        let wall_ms = quota.wall_ms;
        let deadline = started + Duration::from_millis(wall_ms).min(LONGEST);
        let cancel = call.context.as_ref().map(|context| context.cancel().clone());
        let has_device = cancel.is_some();
        let ticking = self.ticker.guest();
        let watched = cancel.clone().map(|cancel| self.ticker.watch(cancel));
        let seat = self.turns.seat(tenant.clone(), tenant.share.clone(), cancel);
        let bill = Bill { tenant, bytes_in: call.request.body.len() as u64, bytes_out: 0, failed: true };
        let times = Times { started, deadline, wall_ms };
        let guest = Guest {
            engine: self.engine.clone(),
            function: function.clone(),
            call,
            limits: self.limits.clone(),
            quota,
            seat: seat.clone(),
            watched,
            times,
            bill,
            _inside: (permit, ticking),
        };
        let guest: Running = Box::pin(run(guest));
        let mut guest = Turns::run(seat, guest);
        if has_device {
            return self.on_a_thread(times.end(guest)).await;
        }
        match poll_fn(|context| Poll::Ready(self.here.poll(&mut guest, context))).await {
            Here::Done(finished) => return finished,
            Here::Elsewhere => {}
            // Only whoever waits needs a timer.
            Here::Waits => {
                let first_turn = poll_fn(|context| match self.here.poll(&mut guest, context) {
                    Here::Done(finished) => Poll::Ready(Some(finished)),
                    Here::Waits => Poll::Pending,
                    Here::Elsewhere => Poll::Ready(None),
                });
                match tokio::time::timeout_at(times.deadline.into(), first_turn).await {
                    Ok(Some(finished)) => return finished,
                    Ok(None) => {}
                    Err(_) => return times.over(),
                }
            }
        }
        self.elsewhere(times.end(guest)).await
    }

    async fn elsewhere(&self, guest: impl Future<Output = Finished> + Send + 'static) -> Finished {
        let Some(guests) = &self.guests else { return guest.await };
        let mut task = StopOnDrop(guests.spawn(guest));
        (&mut task.0).await.unwrap_or_else(|error| ended_early(&error))
    }

    /// Runs a guest on a thread that it has to itself.
    async fn on_a_thread(&self, guest: impl Future<Output = Finished> + Send + 'static) -> Finished {
        let Some(guests) = &self.guests else { return guest.await };
        let runtime = guests.handle().clone();
        let (_caller, caller_left) = tokio::sync::oneshot::channel::<()>();
        let task = guests.spawn_blocking(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    finished = guest => finished,
                    _ = caller_left => Finished { result: Err(InvokeError::Limit(LimitHit::Stopped)), spent: Spent::default() },
                }
            })
        });
        task.await.unwrap_or_else(|error| ended_early(&error))
    }
}

fn ended_early(error: &tokio::task::JoinError) -> Finished {
    Finished {
        result: Err(InvokeError::Host(format!("the guest's task ended early: {error}"))),
        spent: Spent::default(),
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(guests) = self.guests.take() {
            guests.shutdown_background();
        }
    }
}

/// An invocation on its way.
type Running = Pin<Box<dyn Future<Output = Finished> + Send>>;

struct StopOnDrop(tokio::task::JoinHandle<Finished>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// When an invocation began, and when it must have ended.
#[derive(Clone, Copy)]
struct Times {
    started: Instant,
    deadline: Instant,
    wall_ms: u64,
}

impl Times {
    /// Ends a guest at its deadline, also while it waits for a turn. Most are done before they need it.
    async fn end(self, guest: impl Future<Output = Finished>) -> Finished {
        tokio::time::timeout_at(self.deadline.into(), guest).await.unwrap_or_else(|_| self.over())
    }

    /// How a guest ends whose deadline has passed.
    fn over(&self) -> Finished {
        Finished {
            result: Err(InvokeError::Limit(LimitHit::Wall(self.wall_ms))),
            spent: Spent { wall: self.started.elapsed(), ..Spent::default() },
        }
    }
}

/// What one invocation has and needs.
struct Guest {
    engine: Engine,
    function: Arc<Loaded>,
    call: Call,
    limits: SandboxLimits,
    quota: Arc<Quota>,
    seat: Arc<Seat>,
    watched: Option<Arc<ticker::Watched>>,
    times: Times,
    bill: Bill,
    /// Its place at the gate, and what keeps the epoch going, until all else is gone.
    _inside: (Permit, ticker::Ticking),
}

/// One invocation from instance to answer, and what it used. The ledger is charged even if this is dropped half-way.
async fn run(guest: Guest) -> Finished {
    // What is named first is dropped last.
    let Guest { _inside, engine, function, call, limits, quota, seat, watched, times, mut bill } = guest;
    let Call { tenant, request, mut charge, facts, log, context, params } = call;
    let Times { started, deadline, wall_ms } = times;
    let job = JobState::new(facts, log, deadline, limits.payload);
    // Whichever is lower is the one to raise.
    let memory = match quota.instance_memory <= limits.memory {
        true => ("instance_memory", quota.instance_memory),
        false => ("max_instance_memory", limits.memory),
    };
    let params = params.map(|store| Params { store, tenant: tenant.clone() });
    let meter = Meter::new(tenant, memory);
    let seed = job.facts.seed;
    let mut state = HostState::new(meter, job);
    state.params = params;
    if let Some(context) = context {
        state.compute = Compute::on(context);
        state.compute.draws.seed = seed;
        state.seat = Some(seat.clone());
    }
    let _watching = watched.as_ref().map(|watched| watched.until(deadline));
    let mut store = new_store(&engine, state, &limits);
    store.epoch_deadline_callback(look_up(seat, quota.cpu_ms, wall_ms, None));
    let mut cold_start = Duration::ZERO;
    let answer = async {
        let Export::Task(task) = &function.export else {
            return Ok(Err(host::Error::BadInput("this function is a trainer: it is trained, not invoked".to_owned())));
        };
        let task = task.instantiate_async(&mut store).await?;
        cold_start = started.elapsed();
        task.call_handle(&mut store, &request).await
    };
    let result = match answer.await {
        // What it made of kernels that were stopped is no answer.
        Ok(_) if Instant::now() >= deadline => Err(InvokeError::Limit(LimitHit::Wall(wall_ms))),
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => {
            let (kind, message) = error.parts();
            Err(InvokeError::said_by_function(kind, message))
        }
        Err(error) => Err(after_deadline(failure(&error, store.data(), &limits), deadline, wall_ms)),
    };
    let memory = store.data().meter.held();
    // The guest's memory goes first: the answer takes its place.
    drop(store);
    let result =
        result.and_then(|response| match charge.grow((response.body.len() + response.content_type.len()) as u64) {
            Ok(()) => Ok(Answer { response, charge }),
            Err(OverLimit { name, limit, .. }) => Err(InvokeError::Limit(LimitHit::Memory { name, limit })),
        });
    bill.failed = result.is_err();
    bill.bytes_out = result.as_ref().map_or(0, |answer| answer.response.body.len() as u64);
    Finished { result, spent: Spent { wall: started.elapsed(), cold_start, memory } }
}

/// A store with every limit but those of time.
fn new_store(engine: &Engine, state: HostState, limits: &SandboxLimits) -> Store<HostState> {
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.meter);
    store.set_hostcall_fuel(usize::try_from(limits.payload).unwrap_or(usize::MAX));
    store.set_max_component_handles(MAX_HANDLES + MAX_TENSORS);
    // At least one whole epoch, however soon the next one begins.
    store.set_epoch_deadline(2);
    store
}

/// What a guest that did not return did wrong.
fn failure(error: &wasmtime::Error, state: &HostState, limits: &SandboxLimits) -> InvokeError {
    let mut log = state.job.log.lock();
    let failure = error::classify(error, state.meter.refused(), limits.payload, log.take_last_words());
    if matches!(failure, InvokeError::Trap { .. }) {
        // With the functions that it was in: for whoever wrote it, not for whoever called it.
        log.write(Level::Error, &format!("{error:?}"));
    }
    failure
}

/// At the deadline the kernels of a call are stopped: what a guest then makes of their error is not its own doing.
fn after_deadline(error: InvokeError, deadline: Instant, wall_ms: u64) -> InvokeError {
    match error {
        InvokeError::Function { .. } | InvokeError::Trap { .. } if Instant::now() >= deadline => {
            InvokeError::Limit(LimitHit::Wall(wall_ms))
        }
        error => error,
    }
}

/// What happens at each epoch: limits are looked at, and other guests get their turn.
fn look_up(
    seat: Arc<Seat>,
    cpu_ms: u64,
    wall_ms: u64,
    cancel: Option<Cancel>,
) -> impl FnMut(StoreContextMut<'_, HostState>) -> wasmtime::Result<UpdateDeadline> + Send + Sync + 'static {
    move |store| {
        let (this_turn, spent) = seat.so_far();
        if spent > Duration::from_millis(cpu_ms) {
            return Err(LimitHit::Cpu(cpu_ms).into());
        }
        if Instant::now() > store.data().job.deadline {
            return Err(LimitHit::Wall(wall_ms).into());
        }
        if cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(LimitHit::Stopped.into());
        }
        // The epoch goes by the clock on the wall; on a busy machine the guest may hardly have run in it.
        if this_turn < ticker::EPOCH && !seat.has_left() {
            return Ok(UpdateDeadline::Continue(1));
        }
        // Not tokio's yield, nor wasmtime's: who is next is for `Turns` to say, not for the executor's queue.
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(seat.end_turn())))
    }
}

/// Counts the invocation when it is over, however it ended. CPU time, memory and log are charged where they are measured.
struct Bill {
    tenant: Arc<Tenant>,
    bytes_in: u64,
    bytes_out: u64,
    failed: bool,
}

impl Drop for Bill {
    fn drop(&mut self) {
        self.tenant.ledger.charge_invocation(self.failed, self.bytes_in, self.bytes_out);
    }
}
