//! What starts jobs, and one job from its start to its end.
//!
//! A job is queued by what its record says alone, so that nothing stands between a restart and the queue. Once it has its
//! leases it has a thread of its own, finds what it needs, is tried out there if it was not before, and trains. Whatever is
//! in its way and passes sends it back to the queue for a while; a job is never over because its node was busy.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use weft_gpu::pool::PoolError;
use weft_gpu::{Lease, Pool};

use super::checkpoint::Training;
use super::common::{Common, lease_worker};
use super::cost::Prices;
use super::engine::{Ending, Engine, From};
use super::keep::Kept;
use super::live::{Live, Prepared};
use super::queue::{Allowed, Ask, Pass};
use super::record::{Job, JobEvent, Progress, State};
use super::team::{Halt, Lines, News, Order, Team};
use super::{JobError, Jobs, is_busy};
use crate::clock::unix_ms;
use crate::dataset::Manifest;
use crate::locks::Lock;
use crate::node::Node;
use crate::tenant::Tenant;

/// How soon it is looked again whether a device has come back, or there is room for a job that waits.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Memory that is given back comes in many small parts: they are waited for so long before the queue is looked through.
const GATHER: Duration = Duration::from_millis(10);
/// How long a job waits for something to pass: twice as long each time in a row, up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Looks through the queue whenever a job has come or gone, or memory was given back, for as long as there is a node.
pub(crate) async fn schedule(node: Weak<Node>) {
    let Some((wake, mut freed)) = node.upgrade().map(|node| (node.jobs.wake.clone(), node.devices.freed())) else {
        return;
    };
    let mut someone_waits = false;
    loop {
        tokio::select! {
            () = wake.notified() => {}
            changed = freed.changed() => match changed {
                Ok(()) => tokio::time::sleep(GATHER).await,
                Err(_) => return,
            },
            // The machine's memory is given back by others than devices too, who tell nobody.
            () = tokio::time::sleep(LOOK_AGAIN), if someone_waits => {}
        }
        let Some(node) = node.upgrade() else { return };
        let before = *freed.borrow_and_update();
        let own = node.start_jobs().await;
        someone_waits = node.jobs.queue.locked().is_waiting();
        // What it took and gave back itself is no news.
        if *freed.borrow_and_update() > before + own {
            wake.notify_one();
        }
    }
}

fn ask_of(job: &Job) -> Ask {
    let lanes = job.spec.lanes();
    let bytes = job.spec.all_memory(job.host_bytes);
    Ask { tenant: job.tenant, name: job.name.to_string(), lanes, bytes }
}

impl Node {
    pub(super) fn enqueue(&self, live: &Live, prepared: Option<Prepared>, manifest: Option<&Manifest>) {
        let job = live.job();
        if manifest.is_some() || job.data.is_none() {
            live.need(job.version, manifest.zip(job.data));
        }
        *live.prepared.locked() = prepared;
        self.jobs.queue.locked().push(ask_of(&job));
        self.jobs.look_through_queue();
    }

    /// Goes on with jobs that a node that stopped, or was killed, left unfinished.
    pub async fn resume_unfinished(&self) {
        for live in self.jobs.unfinished() {
            if self.tenants.by_id(live.job().tenant).is_none() {
                continue;
            }
            let mut goes_on = true;
            let job = self.jobs.change_anyway(&live, |job| goes_on = job.found_unfinished()).await;
            match goes_on {
                true => self.enqueue(&live, None, None),
                false => tracing::warn!(job = %job.name, reason = %job.reason, "a job is held back"),
            }
        }
    }

    /// Starts every job that may run now. How many leases were taken and given back for jobs that need more.
    async fn start_jobs(self: &Arc<Self>) -> u64 {
        let mut given_back = 0;
        let mut pass = Pass::default();
        while !self.is_draining() {
            let allowed = |tenant| {
                let quota = self.tenants.by_id(tenant)?.quota();
                Some(Allowed { jobs: quota.jobs, lanes: quota.workers, bytes: quota.worker_memory })
            };
            let Some(ask) = self.jobs.queue.locked().next(&mut pass, allowed) else { break };
            let pool = match self.devices.open().await {
                Ok(pool) => pool,
                Err(error) => {
                    tracing::error!(%error, "jobs wait: the devices could not be opened");
                    self.jobs.queue.locked().no_room(&ask, &mut pass);
                    self.look_again();
                    break;
                }
            };
            let found = self.jobs.live(ask.tenant, &ask.name).ok().zip(self.tenants.by_id(ask.tenant));
            let Some((live, tenant)) = found else {
                // It was deleted; whoever did that takes it from the queue, if he has not yet.
                self.jobs.queue.locked().no_room(&ask, &mut pass);
                self.jobs.queue.locked().remove(ask.tenant, &ask.name);
                continue;
            };
            let is_empty = pool.ledger().is_zero();
            let mut leases = Vec::new();
            match take_leases(pool, &tenant, &live.job(), &mut leases) {
                Ok(()) => {
                    if self.jobs.queue.locked().started(&ask, &pass) {
                        self.start_job(live, ask, leases);
                    }
                }
                Err(error) => {
                    given_back += leases.iter().map(|taken: &Vec<Lease>| taken.len() as u64).sum::<u64>();
                    drop(leases);
                    // One that waits for a device that is lost, or does not fit into empty ones, must not keep others waiting.
                    let is_full = matches!(error, PoolError::NothingFits { .. }) && is_busy(&error) && !is_empty;
                    if is_full {
                        self.jobs.queue.locked().no_room(&ask, &mut pass);
                    } else if self.jobs.queue.locked().started(&ask, &Pass::default()) {
                        self.jobs.queue.locked().end(&ask);
                        self.wait_for_it_to_pass(&live, ask, &format!("no device: {error}")).await;
                    }
                }
            }
        }
        given_back
    }

    fn look_again(&self) {
        let wake = self.jobs.wake.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LOOK_AGAIN).await;
            wake.notify_one();
        });
    }

    /// Sends a job back to the queue, where it waits for a while before it is tried again. It is not in the queue, nor
    /// counted as running.
    async fn wait_for_it_to_pass(self: &Arc<Self>, live: &Arc<Live>, ask: Ask, reason: &str) {
        let stumbles = live.stumbles.fetch_add(1, Relaxed).min(16);
        let wait = FIRST_WAIT.saturating_mul(1 << stumbles).min(LONGEST_WAIT);
        tracing::warn!(job = %ask.name, %reason, seconds = wait.as_secs(), "a job waits, and is tried again");
        self.jobs.queue.locked().set_aside(ask.clone());
        let reason = format!("waits: {reason}");
        self.jobs.change_anyway(live, |job| (job.state, job.reason) = (State::Queued, reason)).await;
        // An order that came before it was in the queue.
        if *live.orders.borrow() == Order::Stop && self.jobs.queue.locked().remove(ask.tenant, &ask.name) {
            self.jobs.change_anyway(live, |job| job.end(State::Stopped, "stopped while it waited")).await;
            return;
        }
        let node = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let Some(node) = node.upgrade() else { return };
            node.jobs.queue.locked().due(ask.tenant, &ask.name);
            node.jobs.look_through_queue();
        });
    }

    fn start_job(self: &Arc<Self>, live: Arc<Live>, ask: Ask, leases: Vec<Vec<Lease>>) {
        let (node, runtime) = (self.clone(), Handle::current());
        self.jobs.running.send_modify(|running| *running += 1);
        let (kills, killed) = mpsc::unbounded_channel();
        *live.kills.locked() = Some(kills);
        let running = Running { node: node.clone(), live: live.clone(), ask: ask.clone() };
        let work = {
            let (node, live, runtime) = (node.clone(), live.clone(), runtime.clone());
            move || {
                let done = running;
                let _entered = runtime.enter();
                let waits = run(&runtime, &node, &live, leases, killed);
                // What it held is free now: perhaps another can start.
                drop(done);
                if let Some(reason) = waits {
                    // It may need more by now than when it was first asked for.
                    let ask = ask_of(&live.job());
                    runtime.block_on(node.wait_for_it_to_pass(&live, ask, &reason));
                }
                node.jobs.look_through_queue();
            }
        };
        // A merge of large models takes its time: not on a thread that others need.
        if let Err(error) = std::thread::Builder::new().name("job".to_owned()).spawn(work) {
            let reason = format!("no thread for it could be started: {error}");
            runtime.spawn(async move { node.wait_for_it_to_pass(&live, ask, &reason).await });
        }
    }
}

/// Leases for all workers; those that were granted before one was not are left in `taken`.
fn take_leases(pool: &Pool, tenant: &Tenant, job: &Job, taken: &mut Vec<Vec<Lease>>) -> Result<(), PoolError> {
    // What the words mean was checked when it was submitted.
    let Ok(meaning) = job.spec.check() else { return Ok(()) };
    for _ in 0..job.spec.workers {
        // One order stops all functions of a worker.
        let cancel = weft_gpu::Cancel::default();
        let mut worker = Vec::new();
        let granted = lease_worker(pool, tenant, &job.spec, meaning.device, job.host_bytes, &cancel, &mut worker);
        taken.push(worker);
        granted?;
    }
    Ok(())
}

/// A job that runs: when this is dropped, another may.
struct Running {
    node: Arc<Node>,
    live: Arc<Live>,
    ask: Ask,
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.live.kills.locked() = None;
        self.node.jobs.queue.locked().end(&self.ask);
        self.node.jobs.running.send_modify(|running| *running -= 1);
    }
}

/// Runs a job to its end, and notes that. What it waits for, if it is not over.
fn run(
    runtime: &Handle,
    node: &Arc<Node>,
    live: &Arc<Live>,
    leases: Vec<Vec<Lease>>,
    kills: mpsc::UnboundedReceiver<u32>,
) -> Option<String> {
    let ending = unless_it_panics(|| runtime.block_on(train(node, live, leases, kills)));
    let mut waits = None;
    let note = node.jobs.change_anyway(live, |job| match ending {
        Ending::Done(reason) => job.end(State::Done, reason),
        Ending::Halted(Halt::OutOfTime) => job.end(State::Done, "`max_time` is over"),
        Ending::Halted(Halt::Stopped) => job.end(State::Stopped, "stopped"),
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
    });
    let job = runtime.block_on(note);
    if job.state.is_over() {
        *live.prepared.locked() = None;
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
    node: &Arc<Node>,
    live: &Arc<Live>,
    leases: Vec<Vec<Lease>>,
    kills: mpsc::UnboundedReceiver<u32>,
) -> Result<Ending, Halt> {
    let halt = |error: JobError| Halt::of(&error);
    // Before any of its code runs: a job that takes its node with it is known by this.
    let job = node.jobs.change(live, |job| {
        (job.state, job.reason) = (State::Running, String::new());
        job.started_ms.get_or_insert(unix_ms());
    });
    let job = job.await.map_err(|error| halt(error.into()))?;
    let Prepared { common, rule } = prepare(node, live, &job, &leases).await?;
    let from = match (&job.checkpoint, &job.spec.init_from) {
        (Some(checkpoint), _) => {
            let bytes = node.blobs.read(&checkpoint.digest, 0..checkpoint.size).await;
            let bytes = bytes.map_err(|error| halt(error.into()))?;
            let training = Training::from_file(io::Cursor::new(bytes));
            From::Checkpoint(Box::new(training.map_err(|error| Halt::Failed(error.to_string()))?))
        }
        (None, Some(model)) => {
            let model = node.catalog.model(job.tenant, model).map_err(|error| halt(error.into()))?;
            let place = node.place_for_opening(&common.tenant).await.map_err(|error| halt(error.into()))?;
            let opened = node.catalog.open_model(&common.tenant, &model, place).await;
            let mut file = opened.map_err(|error| halt(error.into()))?;
            From::Model(Box::new(move |plan, shared| shared.take(plan, &mut file).map_err(|error| error.to_string())))
        }
        (None, None) => From::Birth,
    };
    let deadline = Some(job.spec.max_time_ms).filter(|ms| *ms > 0).map(|ms| {
        let spent: f64 = job.history.iter().map(|epoch| epoch.seconds).sum();
        Instant::now() + Duration::from_millis(ms).saturating_sub(Duration::from_secs_f64(spent))
    });
    let lines = Lines { orders: live.orders.subscribe(), kills, news: news(live.clone(), &common) };
    let (team, born) = Team::start(common.clone(), leases, lines, deadline).await?;
    let ms = live.asked.elapsed().as_secs_f64() * 1e3;
    live.events.tell(JobEvent::Ready { workers: job.spec.workers, ms });
    node.jobs.note_ready(live, ms);
    let keeper = Arc::new(Kept { node: node.clone(), live: live.clone(), common: common.clone() });
    let prices = Prices::of(&node.settings);
    let engine = Engine::new(common, team, *born, rule, keeper, prices, from)?;
    Ok(engine.run().await)
}

/// What was found when it was submitted, or is found now; an order ends it.
async fn prepare(node: &Arc<Node>, live: &Arc<Live>, job: &Job, leases: &[Vec<Lease>]) -> Result<Prepared, Halt> {
    if let Some(prepared) = live.prepared.locked().clone() {
        return Ok(prepared);
    }
    let Some(lease) = leases.iter().flatten().next() else {
        return Err(Halt::Failed("its words make no sense any more: submit it again".to_owned()));
    };
    let Some(tenant) = node.tenants.by_id(job.tenant) else { return Err(Halt::Stopped) };
    let try_out = async {
        let found = node.find(&tenant, job).await?;
        node.try_out(&tenant, job, found, lease).await
    };
    let mut orders = live.orders.subscribe();
    tokio::select! {
        biased;
        ordered = orders.wait_for(|order| *order != Order::Run) => {
            let order = ordered.map_or(Order::Stop, |order| *order);
            Err(if order == Order::Pause { Halt::Paused } else { Halt::Stopped })
        }
        prepared = try_out => {
            let prepared = prepared.map_err(|error| Halt::of(&error))?;
            if let Some(data) = &prepared.common.data {
                live.need(job.version, job.data.map(|digest| (&*data.manifest, digest)));
            }
            *live.prepared.locked() = Some(prepared.clone());
            let needed = prepared.common.host_bytes;
            if needed > job.host_bytes {
                // Its leases were granted before it was known how large its model is.
                let noted = node.jobs.change(live, |job| job.host_bytes = needed).await;
                noted.map_err(|error| Halt::of(&error.into()))?;
                return Err(Halt::Waits(format!("each worker needs {needed} bytes for copies of the model")));
            }
            Ok(prepared)
        }
    }
}

/// What a running job's followers are told.
fn news(live: Arc<Live>, common: &Common) -> Box<dyn Fn(News) + Send> {
    let job = common.job.clone();
    let shards = u64::from(common.lanes());
    let data = common.data.as_ref().map(|data| data.manifest.train.count);
    let (spec, began) = (common.spec.clone(), Instant::now());
    Box::new(move |news| match news {
        News::Lost { worker, reason } => {
            tracing::info!(%job, worker, %reason, "a worker was lost");
            live.events.tell(JobEvent::Worker { worker, reason });
        }
        // One speaks for all.
        News::Progress { worker: 0, steps, loss, .. } if live.events.wants_progress() => {
            let epoch = live.job().history.last().map_or(0, |epoch| epoch.epoch);
            let batch = u64::from(spec.batch_of(epoch).get());
            let all = data.map_or(spec.steps, |samples| samples.div_ceil(shards).div_ceil(batch));
            let done = epoch as f64 + steps as f64 / all.max(1) as f64;
            let samples = data.map_or(0.0, |samples| samples as f64 * done);
            let samples_per_second = samples / began.elapsed().as_secs_f64().max(1e-9);
            let progress = Progress { epoch: epoch + 1, step: steps.min(all), steps: all, loss, samples_per_second };
            live.events.tell(JobEvent::Progress(progress));
        }
        News::Progress { .. } => {}
    })
}

impl Jobs {
    /// For whoever looks: it is written with the next change.
    fn note_ready(&self, live: &Live, ms: f64) {
        live.note(|job| {
            job.ready_ms.get_or_insert(ms);
        });
    }
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
