//! One job from its start to its end.
//!
//! Once it has its leases it has a thread of its own, finds what it needs, is tried out there if it was not before, and
//! trains.

use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use weft_core::cost::Prices;
use weft_core::queue::Ask;
use weft_gpu::Lease;
use weft_gpu::pool::DeviceId;

use super::accounting::Accounting;
use super::channel::Channel;
use super::checkpoint::Training;
use super::engine::{Ending, Engine, Origin};
use super::keep::{Kept, ordered};
use super::live::Live;
use super::meter::Meter;
use super::planning::planning;
use super::prepare::Found;
use super::record::{Job, JobEvent, State};
use super::team::{Halt, Lines, News, Order, Team};
use super::workshop::Workshop;
use super::{JobError, Jobs, suspects};
use crate::clock::unix_ms;
use crate::locks::Lock;
use crate::logs::one_line;
use crate::tenant::Tenant;
use crate::text;

/// How long what a job has left in its channel may take to be deleted, and how long once it is told to end.
const LEAVE_WITHIN: Duration = Duration::from_secs(60);
const LEAVE_SOON: Duration = Duration::from_secs(2);

/// Bytes of a checkpoint that are read at once.
const READ_AT_ONCE: usize = 4 << 20;

impl Jobs {
    pub(super) fn start_job(self: &Arc<Self>, live: Arc<Live>, ask: Ask, leases: Vec<Vec<Lease>>) {
        let (jobs, runtime) = (self.clone(), Handle::current());
        self.roster.running.send_modify(|running| *running += 1);
        let (kills, killed) = mpsc::unbounded_channel();
        *live.kills.locked() = Some(kills);
        *live.booked.locked() = Some(ask);
        let running = Running { jobs: jobs.clone() };
        let work = {
            let (jobs, live, runtime) = (jobs.clone(), live.clone(), runtime.clone());
            move || {
                let done = running;
                let _entered = runtime.enter();
                let waits = run(&runtime, &jobs, &live, leases, killed);
                // What it held is free now: perhaps another can start.
                drop(done);
                if let Some(reason) = waits {
                    runtime.block_on(jobs.wait_for_it_to_pass(&live, &reason));
                }
                jobs.roster.look_through_queue();
            }
        };
        // A merge of large models takes its time: not on a thread that others need.
        if let Err(error) = std::thread::Builder::new().name("job".to_owned()).spawn(work) {
            let reason = format!("no thread for it could be started: {error}");
            jobs.end_booking(&live);
            runtime.spawn(async move { jobs.wait_for_it_to_pass(&live, &reason).await });
        }
    }

    /// What a job that has run counts as in the queue is free for others, and it has no workers any more.
    fn end_booking(&self, live: &Live) {
        *live.kills.locked() = None;
        if let Some(ask) = live.booked.locked().take() {
            self.roster.queue.locked().end(&ask);
        }
    }
}

/// A job that runs, until this is dropped.
struct Running {
    jobs: Arc<Jobs>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.jobs.roster.running.send_modify(|running| *running -= 1);
    }
}

/// Runs a job to its end, and notes that. What it waits for, if it is not over.
fn run(
    runtime: &Handle,
    jobs: &Arc<Jobs>,
    live: &Arc<Live>,
    leases: Vec<Vec<Lease>>,
    kills: mpsc::UnboundedReceiver<u32>,
) -> Option<String> {
    let ending = unless_it_panics(|| runtime.block_on(train(jobs, live, leases, kills)));
    // Before it is said to be over: from then on it can be resumed and run again, which is another booking.
    runtime.block_on(jobs.roster.end_trial(live));
    jobs.end_booking(live);
    let most = jobs.facilities.tenants.by_id(live.job().tenant).map_or(0, |tenant| tenant.quota().worker_memory);
    let mut waits = None;
    let note = jobs.roster.change_anyway(live, |job| match ending {
        Ending::Done(reason) => job.end(State::Done, reason),
        Ending::Halted(Halt::OutOfBudget(why)) => job.end(State::Done, format!("its budget is used up: {why}")),
        Ending::CaughtUp => job.caught_up(*live.orders.borrow() == Order::Stop),
        Ending::Halted(Halt::OutOfTime) => job.end(State::Done, "`max_time` is over"),
        Ending::Halted(Halt::Stopped) => job.end(State::Stopped, "stopped"),
        Ending::Halted(Halt::Rested(epoch)) => {
            job.end(State::Stopped, format!("it rests after epoch {epoch}, as its `until` says; resume it to go on"));
        }
        Ending::Halted(Halt::Failed(error)) => job.end(State::Failed, error),
        // It goes on where it was.
        Ending::Halted(Halt::Paused) => {
            (job.state, job.reason) = (State::Queued, "the node stopped".to_owned());
            job.forget_deaths();
        }
        Ending::Halted(Halt::Waits(reason)) => {
            (job.state, job.reason) = (State::Queued, format!("waits: {reason}"));
            waits = Some(reason);
        }
        // It goes on from its checkpoint with twice as much.
        Ending::Halted(Halt::OutOfMemory(error)) => match job.double_memory(most) {
            true => {
                let reason = format!("{error}; it goes on with {} MiB for each worker", job.shape().memory >> 20);
                (job.state, job.reason) = (State::Queued, format!("waits: {reason}"));
                waits = Some(reason);
            }
            false => job.end(State::Failed, error),
        },
    });
    if runtime.block_on(note).state == State::Waiting {
        live.forget_prepared();
        // Its data set may have grown before the record said that it waits.
        jobs.roster.look_at_followers();
    }
    waits
}

/// A panic ends one job, visibly.
fn unless_it_panics(train: impl FnOnce() -> Result<Ending, Halt>) -> Ending {
    match catch_unwind(AssertUnwindSafe(train)) {
        Ok(Ok(ending)) => ending,
        Ok(Err(halt)) => Ending::Halted(halt),
        Err(_) => Ending::Halted(Halt::Failed("the job's engine panicked; the node's log says where".to_owned())),
    }
}

async fn train(
    jobs: &Arc<Jobs>,
    live: &Arc<Live>,
    leases: Vec<Vec<Lease>>,
    kills: mpsc::UnboundedReceiver<u32>,
) -> Result<Ending, Halt> {
    let halt = |error: JobError| Halt::of(&error);
    let mut watch = JoinSet::new();
    let suspect = live.job();
    if suspect.is_suspect() {
        jobs.roster.begin_trial(live).await.map_err(|error| halt(error.into()))?;
        let (jobs, live) = (jobs.clone(), live.clone());
        // It ends with the job, if that is over before.
        watch.spawn(async move {
            tokio::time::sleep(suspect.deaths.trial()).await;
            jobs.roster.end_trial(&live).await;
        });
    }
    // Before any of its code runs: a job that takes its node with it is known by this.
    let job = jobs.roster.change(live, |job| {
        (job.state, job.reason) = (State::Running, String::new());
        job.started_ms.get_or_insert(unix_ms());
    });
    let job = job.await.map_err(|error| halt(error.into()))?;
    let workshop = prepare(jobs, live, &job, &leases).await?;
    // It may have been scaled before it was known what it is.
    let fits = workshop.spec().check_workers(&workshop.brief.sync, job.shape().workers);
    fits.map_err(|error| Halt::Failed(error.to_string()))?;
    let from = unless_ordered(live, origin(jobs, &workshop, &job)).await?;
    let deadline = Some(job.spec.max_time_ms).filter(|ms| *ms > 0).map(|ms| {
        let spent: f64 = job.history.iter().map(|epoch| epoch.seconds).sum();
        Instant::now() + Duration::from_millis(ms).saturating_sub(Duration::from_secs_f64(spent))
    });
    let lines = Lines { orders: live.orders.subscribe(), kills, news: news(live.clone(), &workshop) };
    let opened = async { jobs.open_channel(live, &workshop).await.map_err(halt) };
    let channel = unless_ordered(live, opened).await?;
    let device = leases.iter().flatten().next().map_or(DeviceId::Cpu(0), Lease::device);
    let started = Team::start(workshop.clone(), channel.clone(), job.shape(), leases, lines, deadline).await;
    let (team, declaration) = started?;
    let ms = live.asked.locked().elapsed().as_secs_f64() * 1e3;
    live.events.tell(JobEvent::Ready { workers: job.shape().workers, ms });
    live.note_ready(ms);
    let keeper = Arc::new(Kept::new(jobs.clone(), live.clone(), workshop.clone()));
    let prices = Prices::from(&*jobs.facilities.rules.prices);
    let before = if let Origin::Checkpoint(training) = &from { training.progress.shape } else { None };
    let planning = planning(&job, &workshop, &prices, device, before).map_err(Halt::Failed)?;
    let accounting = Accounting::new(prices, jobs.facilities.exchange.clone(), workshop.brief.sync.channel);
    let engine = Engine::new(workshop, channel.clone(), team, *declaration, keeper, accounting, from)?;
    let engine = if let Some(planning) = planning { engine.planned(planning) } else { engine };
    let ending = engine.run().await;
    leave(live, &*channel).await;
    Ok(ending)
}

/// Does `work`, unless an order comes first: then it is dropped half-way.
async fn unless_ordered<T>(live: &Live, work: impl Future<Output = Result<T, Halt>>) -> Result<T, Halt> {
    let mut orders = live.orders.subscribe();
    tokio::select! {
        biased;
        halt = ordered(&mut orders) => Err(halt),
        done = work => done,
    }
}

/// Deletes what a job has left in its channel, for which a store may take some time; less once the job is told to end. What
/// stays is deleted by the next run of the job, or when the node is started.
async fn leave(live: &Live, channel: &dyn Channel) {
    let mut orders = live.orders.subscribe();
    let over = async {
        let told = tokio::time::timeout(LEAVE_WITHIN, ordered(&mut orders)).await;
        if told.is_ok() {
            tokio::time::sleep(LEAVE_SOON).await;
        }
    };
    let cleared = tokio::select! {
        cleared = channel.clear() => cleared.map_err(|error| error.to_string()),
        () = over => Err("it took too long".to_owned()),
    };
    if let Err(error) = cleared {
        tracing::warn!(%error, job = %live.job().name, "what a job has left in its channel could not be deleted");
    }
}

/// What a job goes on from.
async fn origin(jobs: &Arc<Jobs>, workshop: &Workshop, job: &Job) -> Result<Origin, Halt> {
    let (halt, facilities, tenant) = (|error: JobError| Halt::of(&error), &jobs.facilities, &workshop.tenant);
    let place = async || facilities.places.opening(tenant).await.map_err(|error| halt(error.into()));
    Ok(match (&job.checkpoint, &job.spec.init_from) {
        (Some(checkpoint), _) => {
            let read = |file| Ok(Training::from_file(BufReader::with_capacity(READ_AT_ONCE, file))?);
            let (digest, size) = (checkpoint.digest, checkpoint.size);
            let training = facilities.catalog.with_file(tenant, digest, size, place().await?, read).await;
            Origin::Checkpoint(Box::new(training.map_err(|error| halt(error.into()))?))
        }
        (None, Some(model)) => {
            let model = facilities.catalog.model(job.tenant, model).map_err(|error| halt(error.into()))?;
            let opened = facilities.catalog.open_model(tenant, &model, place().await?).await;
            let mut file = opened.map_err(|error| halt(error.into()))?;
            Origin::Model(Box::new(move |plan, shared| shared.take(plan, &mut file).map_err(|error| error.to_string())))
        }
        (None, None) => Origin::FirstValues,
    })
}

/// What was found when it was submitted, or is found now; an order ends it.
async fn prepare(jobs: &Arc<Jobs>, live: &Arc<Live>, job: &Job, leases: &[Vec<Lease>]) -> Result<Arc<Workshop>, Halt> {
    if let Some(prepared) = live.prepared() {
        return Ok(prepared);
    }
    let Some(lease) = leases.iter().flatten().next() else {
        return Err(Halt::Failed("its words make no sense any more: submit it again".to_owned()));
    };
    let Some(tenant) = jobs.facilities.tenants.by_id(job.tenant) else { return Err(Halt::Stopped) };
    let try_out = async {
        let tried = match find(jobs, live, &tenant, job).await {
            Ok(found) => jobs.try_out(&tenant, job, found, lease).await,
            Err(error) => Err(error),
        };
        tried.map_err(|error| Halt::of(&error))
    };
    let prepared = unless_ordered(live, try_out).await?;
    match &prepared.data {
        // What it trains on is not all that the version's manifest names.
        Some(data) if data.growth.is_some() => live.find_needs(&jobs.facilities.blobs).await,
        Some(data) => live.need(job.version, job.data.map(|digest| (&*data.manifest, digest))),
        None => {}
    }
    live.keep_prepared(&prepared);
    let host = prepared.brief.host;
    if host != job.host {
        // Its leases were granted before it was known how large its model is.
        let noted = jobs.roster.change(live, |job| job.host = host).await;
        let needed = noted.map_err(|error| Halt::of(&error.into()))?.host_bytes();
        return Err(Halt::Waits(format!("each worker needs {needed} bytes for copies of the model")));
    }
    Ok(prepared)
}

/// What a job needs. The other suspects wait while one is on trial, so one whose blobs do not come lets them pass: it is
/// tried again later, and then waited for twice as long.
async fn find(jobs: &Arc<Jobs>, live: &Live, tenant: &Arc<Tenant>, job: &Job) -> Result<Found, JobError> {
    if !job.is_suspect() {
        return jobs.find(tenant, job).await;
    }
    let wait = suspects::FIRST_FIND.saturating_mul(1 << live.stumbles.load(Relaxed).min(16));
    let late = |_| JobError::Passing(format!("what it needs did not come within {} s", wait.as_secs()));
    tokio::time::timeout(wait, jobs.find(tenant, job)).await.map_err(late)?
}

/// What a running job's followers are told.
fn news(live: Arc<Live>, workshop: &Workshop) -> Box<dyn Fn(News) + Send> {
    let job = workshop.brief.job.clone();
    let meter = Meter::new(workshop, live.job().history.last().map_or(0, |epoch| epoch.epoch));
    Box::new(move |news| match news {
        News::Lost { worker, reason } => {
            tracing::info!(%job, worker, reason = %one_line(&reason), "a worker was lost");
            let reason = text::cut(reason, text::MOST_ERROR);
            live.events.tell(JobEvent::Worker { worker, reason });
        }
        News::Silent(text) => {
            tracing::warn!(%job, reason = %text, "a job stands still");
            live.tell_reason(&format!("waits: {text}"));
        }
        News::Heard(silent) => {
            tracing::info!(%job, seconds = silent.as_secs(), "a job goes on");
            live.tell_reason("");
        }
        // One speaks for all.
        News::Progress { worker: 0, steps, loss, .. } if live.events.wants_progress() => {
            let epoch = live.job().history.last().map_or(0, |epoch| epoch.epoch);
            live.events.tell(JobEvent::Progress(meter.progress(epoch, steps, loss)));
        }
        News::Progress { .. } => {}
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_engine_fails_the_job_and_says_so() {
        let ending = unless_it_panics(|| panic!("out of luck"));
        let Ending::Halted(Halt::Failed(reason)) = ending else { panic!("{ending:?}") };
        assert!(reason.contains("panicked"), "{reason}");
    }
}
