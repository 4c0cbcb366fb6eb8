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
use tokio::task::JoinSet;
use weft_core::spec::{Memory, Shape};
use weft_gpu::pool::{PoolError, Room};
use weft_gpu::{Lease, Pool};

use super::channel::Channel;
use super::checkpoint::Training;
use super::engine::{Ending, Engine, Origin};
use super::keep::{Kept, ordered};
use super::live::Live;
use super::meter::Meter;
use super::model::HostMemory;
use super::queue::{Ask, InTheWay, Pass};
use super::record::{Job, JobEvent, State};
use super::submit::{Found, device_and_codec};
use super::team::{Halt, Lines, News, Order, Team};
use super::workshop::{Wanted, Workshop};
use super::{JobError, Jobs, is_busy, suspects};
use crate::clock::unix_ms;
use crate::dataset::Manifest;
use crate::locks::Lock;
use crate::logs::one_line;
use crate::node::Node;
use crate::tenant::Tenant;
use crate::text;

/// How soon it is looked again whether a device has come back, or there is room for a job that waits.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Memory that is given back comes in many small parts: they are waited for so long before the queue is looked through.
const GATHER: Duration = Duration::from_millis(10);
/// How long all that a job has told is kept after its end, for those who follow it.
const HEARD_AFTER: Duration = Duration::from_secs(60);
/// How long what a job has left in its channel may take to be deleted, and how long once it is told to end.
const LEAVE_WITHIN: Duration = Duration::from_secs(60);
const LEAVE_SOON: Duration = Duration::from_secs(2);
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
        let bar_ends = node.upgrade().and_then(|node| node.jobs.queue.locked().bar_ends());
        let bar_ends = async {
            match bar_ends {
                // One that is over by now, and still there, is looked at again in a while.
                Some(end) => tokio::time::sleep_until(end.max(Instant::now() + LOOK_AGAIN).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wake.notified() => {}
            () = bar_ends => {}
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

pub(super) fn ask_of(job: &Job) -> Ask {
    let shape = job.shape();
    let (lanes, bytes) = (shape.lanes(), shape.all_memory(job.host_bytes()));
    Ask { tenant: job.tenant, name: job.name.to_string(), lanes, bytes, suspect: job.is_suspect() }
}

/// A device that a job could have: what jobs may have of it, and what the job's own tenant has of it already.
struct OwnPart {
    capacity: usize,
    own: usize,
}

/// Whether so many leases would find room if nobody else than their own tenant had anything.
fn fits_beside_own(devices: &[OwnPart], bytes: usize, leases: u32) -> bool {
    let room = |device: &OwnPart| device.capacity.saturating_sub(device.own) / bytes.max(1);
    devices.iter().map(room).sum::<usize>() >= leases as usize
}

/// Who keeps a job from fitting. Nothing of it is leased any more.
fn in_the_way(pool: &Pool, tenant: &Tenant, job: &Job, error: &PoolError) -> InTheWay {
    let PoolError::NothingFits { rooms, wanted, .. } = error else { return InTheWay::Others };
    let ledger = pool.ledger();
    let own_part = |room: &Room| {
        let accounts = ledger.device(room.device).map(|device| &device.tenants);
        let own = accounts.and_then(|accounts| accounts.get(&tenant.owner));
        OwnPart { capacity: room.capacity, own: own.map_or(0, |account| account.reserved) }
    };
    let devices: Vec<OwnPart> = rooms.iter().map(own_part).collect();
    match fits_beside_own(&devices, *wanted, job.shape().lanes()) {
        true => InTheWay::Others,
        false => InTheWay::OwnTenant,
    }
}

impl Node {
    pub(super) fn enqueue(&self, live: &Live, prepared: Option<Arc<Workshop>>, manifest: Option<&Manifest>) {
        let job = live.job();
        if manifest.is_some() || job.data.is_none() {
            live.need(job.version, manifest.zip(job.data));
        }
        match &prepared {
            Some(prepared) => live.keep_prepared(prepared),
            None => live.forget_prepared(),
        }
        self.jobs.queue.locked().push(ask_of(&job));
        self.jobs.look_through_queue();
    }

    /// Goes on with jobs that a node that stopped, or was killed, left unfinished. It is done before anybody can ask for
    /// them, and written in one transaction: a node that is killed meanwhile finds all of it or nothing, and blames nobody
    /// for half of it.
    pub(crate) async fn resume_unfinished(&self) {
        let id = |job: &Job| (job.tenant, job.name.clone());
        let unfinished: Vec<(Arc<Live>, Arc<Job>)> =
            self.jobs.unfinished().into_iter().map(|live| (live.clone(), live.job())).collect();
        let ran = unfinished.iter().filter(|(_, job)| job.state == State::Running);
        let ran: Vec<_> = ran.map(|(_, job)| id(job)).collect();
        let blamed = suspects::blame(&ran, self.last_trial().as_ref());
        let (mut found, mut goes_on) = (Vec::new(), Vec::new());
        for (live, job) in unfinished {
            if self.tenants.by_id(job.tenant).is_none() {
                continue;
            }
            let mut job = Job::clone(&job);
            match job.found_unfinished(blamed == Some(&id(&job))) {
                true => goes_on.push((live.clone(), job.is_suspect(), job.blamed)),
                false => tracing::warn!(job = %job.name, reason = %one_line(&job.reason), "a job is held back"),
            }
            found.push((live, job));
        }
        self.jobs.note_found(found, suspects::no_trial()).await;
        // Suspects come last. Of them, whoever was blamed comes first, so that nobody else is there to be blamed instead.
        goes_on.sort_by_key(|(_, is_suspect, blamed)| (*is_suspect, std::cmp::Reverse(*blamed)));
        for (live, ..) in goes_on {
            self.enqueue(&live, None, None);
        }
    }

    /// Starts every job that may run now. How many leases were taken and given back for jobs that need more.
    async fn start_jobs(self: &Arc<Self>) -> u64 {
        let mut given_back = 0;
        let mut pass = Pass::default();
        while !self.is_draining() {
            let allowed = |tenant| Some(Self::allowed(&*self.tenants.by_id(tenant)?));
            let Some(mut ask) = self.jobs.queue.locked().next(&mut pass, Instant::now(), allowed) else { break };
            let pool = match self.devices.open().await {
                Ok(pool) => pool,
                Err(error) => {
                    tracing::error!(%error, "jobs wait: the devices could not be opened");
                    self.jobs.queue.locked().no_room(&ask, &mut pass, InTheWay::Others);
                    self.look_again();
                    break;
                }
            };
            let found = self.jobs.live(ask.tenant, &ask.name).ok().zip(self.tenants.by_id(ask.tenant));
            let Some((live, tenant)) = found else {
                // It was deleted; whoever did that takes it from the queue, if he has not yet.
                self.jobs.queue.locked().no_room(&ask, &mut pass, InTheWay::Others);
                self.jobs.queue.locked().remove(ask.tenant, &ask.name);
                continue;
            };
            // It was scaled since it was put into the queue.
            let now = ask_of(&live.job());
            if now != ask {
                self.jobs.queue.locked().no_room(&ask, &mut pass, InTheWay::Others);
                self.jobs.queue.locked().ask_for(now);
                self.look_again();
                continue;
            }
            let is_empty = pool.ledger().is_zero();
            let mut leases = Vec::new();
            match take_leases(pool, &tenant, &live.job(), &mut leases) {
                Ok(()) => {
                    if self.jobs.queue.locked().started(&ask, &pass) {
                        self.take_more(pool, &tenant, &live, &mut ask, &mut leases).await;
                        self.start_job(live, ask, leases);
                    }
                }
                Err(error) => {
                    given_back += leases.iter().map(|taken: &Vec<Lease>| taken.len() as u64).sum::<u64>();
                    drop(leases);
                    // One that waits for a device that is lost, or does not fit into empty ones, must not keep others waiting.
                    let is_full = matches!(error, PoolError::NothingFits { .. }) && is_busy(&error) && !is_empty;
                    if is_full {
                        let in_the_way = in_the_way(pool, &tenant, &live.job(), &error);
                        self.jobs.queue.locked().no_room(&ask, &mut pass, in_the_way);
                    } else if self.jobs.queue.locked().started(&ask, &Pass::default()) {
                        self.jobs.queue.locked().end(&ask);
                        let text = format!("no device: {error}");
                        // One that has been given more and more memory needs more than there is.
                        let never_fits = live.job().spec.memory == Memory::Auto && !is_busy(&error);
                        match never_fits {
                            true => drop(self.jobs.change_anyway(&live, |job| job.end(State::Failed, text)).await),
                            false => self.wait_for_it_to_pass(&live, &text).await,
                        }
                    }
                }
            }
        }
        given_back
    }

    /// Gives a job that may have from so many to so many workers, and has not trained yet, as many as find room.
    async fn take_more(&self, pool: &Pool, tenant: &Tenant, live: &Live, ask: &mut Ask, leases: &mut Vec<Vec<Lease>>) {
        let job = live.job();
        let (mut shape, most) = (job.shape(), job.spec.workers.most);
        let Some(device) = job.spec.check().ok().and_then(|spec| Some(device_and_codec(&spec).ok()?.0)) else { return };
        // What its copies of the model take is not known before it was tried out.
        let is_known = job.host != HostMemory::default();
        if !job.spec.workers.is_range() || job.scaled || job.checkpoint.is_some() || !is_known {
            return;
        }
        while shape.workers < most {
            let next = Shape { workers: shape.workers + 1, ..shape };
            if self.rebook(tenant, &job, ask, &next).is_err() {
                break;
            }
            let host_bytes = job.host.per_worker(shape.workers);
            let wanted = Wanted { shape, device, host_bytes };
            let (cancel, mut worker) = (weft_gpu::Cancel::default(), Vec::new());
            if wanted.lease_worker(pool, tenant, &cancel, &mut worker).is_err() {
                // What it had was allowed before.
                self.rebook(tenant, &job, ask, &shape).ok();
                break;
            }
            leases.push(worker);
            shape = next;
        }
        self.jobs.change_anyway(live, |job| job.shape = Some(shape)).await;
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
    async fn wait_for_it_to_pass(self: &Arc<Self>, live: &Arc<Live>, reason: &str) {
        let stumbles = live.stumbles.fetch_add(1, Relaxed).min(16);
        let wait = FIRST_WAIT.saturating_mul(1 << stumbles).min(LONGEST_WAIT);
        let (tenant, name) = (live.job().tenant, live.job().name.clone());
        tracing::warn!(job = %name, reason = %one_line(reason), seconds = wait.as_secs(), "a job waits, and is tried again");
        if !self.jobs.go_back(live, reason).await {
            return;
        }
        let node = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let Some(node) = node.upgrade() else { return };
            node.jobs.queue.locked().due(tenant, name.as_str());
            node.jobs.look_through_queue();
        });
    }

    fn start_job(self: &Arc<Self>, live: Arc<Live>, ask: Ask, leases: Vec<Vec<Lease>>) {
        let (node, runtime) = (self.clone(), Handle::current());
        self.jobs.running.send_modify(|running| *running += 1);
        let (kills, killed) = mpsc::unbounded_channel();
        *live.kills.locked() = Some(kills);
        *live.booked.locked() = Some(ask);
        let running = Running { node: node.clone(), live: live.clone() };
        let work = {
            let (node, live, runtime) = (node.clone(), live.clone(), runtime.clone());
            move || {
                let done = running;
                let _entered = runtime.enter();
                let waits = run(&runtime, &node, &live, leases, killed);
                // What it held is free now: perhaps another can start.
                drop(done);
                if let Some(reason) = waits {
                    runtime.block_on(node.wait_for_it_to_pass(&live, &reason));
                }
                node.jobs.look_through_queue();
            }
        };
        // A merge of large models takes its time: not on a thread that others need.
        if let Err(error) = std::thread::Builder::new().name("job".to_owned()).spawn(work) {
            let reason = format!("no thread for it could be started: {error}");
            runtime.spawn(async move { node.wait_for_it_to_pass(&live, &reason).await });
        }
    }
}

/// Leases for all workers; those that were granted before one was not are left in `taken`.
fn take_leases(pool: &Pool, tenant: &Tenant, job: &Job, taken: &mut Vec<Vec<Lease>>) -> Result<(), PoolError> {
    // What the words mean was checked when it was submitted.
    let Some((device, _)) = job.spec.check().ok().and_then(|spec| device_and_codec(&spec).ok()) else { return Ok(()) };
    let wanted = Wanted { shape: job.shape(), device, host_bytes: job.host_bytes() };
    for _ in 0..wanted.shape.workers {
        // One order stops all functions of a worker.
        let cancel = weft_gpu::Cancel::default();
        let mut worker = Vec::new();
        let granted = wanted.lease_worker(pool, tenant, &cancel, &mut worker);
        taken.push(worker);
        granted?;
    }
    Ok(())
}

/// A job that runs: when this is dropped, another may.
struct Running {
    node: Arc<Node>,
    live: Arc<Live>,
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.live.kills.locked() = None;
        if let Some(ask) = self.live.booked.locked().take() {
            self.node.jobs.queue.locked().end(&ask);
        }
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
    let most = node.tenants.by_id(live.job().tenant).map_or(0, |tenant| tenant.quota().worker_memory);
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
    let job = runtime.block_on(note);
    runtime.block_on(node.end_trial(live));
    if job.state.is_over() {
        let live = Arc::downgrade(live);
        runtime.spawn(async move {
            tokio::time::sleep(HEARD_AFTER).await;
            if let Some(live) = live.upgrade() {
                live.events.forget_if_over();
            }
        });
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
    let mut watch = JoinSet::new();
    let suspect = live.job();
    if suspect.is_suspect() {
        node.begin_trial(live).await.map_err(|error| halt(error.into()))?;
        let (node, live) = (node.clone(), live.clone());
        // It ends with the job, if that is over before.
        watch.spawn(async move {
            tokio::time::sleep(suspects::trial_of(suspect.deaths)).await;
            node.end_trial(&live).await;
        });
    }
    // Before any of its code runs: a job that takes its node with it is known by this.
    let job = node.jobs.change(live, |job| {
        (job.state, job.reason) = (State::Running, String::new());
        job.started_ms.get_or_insert(unix_ms());
    });
    let job = job.await.map_err(|error| halt(error.into()))?;
    let workshop = prepare(node, live, &job, &leases).await?;
    // It may have been scaled before it was known what it is.
    let fits = workshop.spec().check_workers(&workshop.brief.sync, job.shape().workers);
    fits.map_err(|error| Halt::Failed(error.to_string()))?;
    let from = unless_ordered(live, origin(node, &workshop, &job)).await?;
    let deadline = Some(job.spec.max_time_ms).filter(|ms| *ms > 0).map(|ms| {
        let spent: f64 = job.history.iter().map(|epoch| epoch.seconds).sum();
        Instant::now() + Duration::from_millis(ms).saturating_sub(Duration::from_secs_f64(spent))
    });
    let lines = Lines { orders: live.orders.subscribe(), kills, news: news(live.clone(), &workshop) };
    let opened = async { node.open_channel(live, &workshop).await.map_err(halt) };
    let channel = unless_ordered(live, opened).await?;
    let started = Team::start(workshop.clone(), channel.clone(), job.shape(), leases, lines, deadline).await;
    let (team, declaration) = started?;
    let ms = live.asked.elapsed().as_secs_f64() * 1e3;
    live.events.tell(JobEvent::Ready { workers: job.shape().workers, ms });
    node.jobs.note_ready(live, ms);
    let keeper = Arc::new(Kept::new(node.clone(), live.clone(), workshop.clone()));
    let prices = node.settings.prices();
    let engine = Engine::new(workshop, channel.clone(), team, *declaration, keeper, prices, from)?;
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
async fn origin(node: &Arc<Node>, workshop: &Workshop, job: &Job) -> Result<Origin, Halt> {
    let halt = |error: JobError| Halt::of(&error);
    Ok(match (&job.checkpoint, &job.spec.init_from) {
        (Some(checkpoint), _) => {
            let bytes = node.blobs.read(&checkpoint.digest, 0..checkpoint.size).await;
            let bytes = bytes.map_err(|error| halt(error.into()))?;
            let training = Training::from_file(io::Cursor::new(bytes));
            Origin::Checkpoint(Box::new(training.map_err(|error| Halt::Failed(error.to_string()))?))
        }
        (None, Some(model)) => {
            let model = node.catalog.model(job.tenant, model).map_err(|error| halt(error.into()))?;
            let place = node.place_for_opening(&workshop.tenant).await.map_err(|error| halt(error.into()))?;
            let opened = node.catalog.open_model(&workshop.tenant, &model, place).await;
            let mut file = opened.map_err(|error| halt(error.into()))?;
            Origin::Model(Box::new(move |plan, shared| shared.take(plan, &mut file).map_err(|error| error.to_string())))
        }
        (None, None) => Origin::FirstValues,
    })
}

/// What was found when it was submitted, or is found now; an order ends it.
async fn prepare(node: &Arc<Node>, live: &Arc<Live>, job: &Job, leases: &[Vec<Lease>]) -> Result<Arc<Workshop>, Halt> {
    if let Some(prepared) = live.prepared() {
        return Ok(prepared);
    }
    let Some(lease) = leases.iter().flatten().next() else {
        return Err(Halt::Failed("its words make no sense any more: submit it again".to_owned()));
    };
    let Some(tenant) = node.tenants.by_id(job.tenant) else { return Err(Halt::Stopped) };
    let try_out = async {
        let tried = match find(node, live, &tenant, job).await {
            Ok(found) => node.try_out(&tenant, job, found, lease).await,
            Err(error) => Err(error),
        };
        tried.map_err(|error| Halt::of(&error))
    };
    let prepared = unless_ordered(live, try_out).await?;
    if let Some(data) = &prepared.data {
        live.need(job.version, job.data.map(|digest| (&*data.manifest, digest)));
    }
    live.keep_prepared(&prepared);
    let host = prepared.brief.host;
    if host != job.host {
        // Its leases were granted before it was known how large its model is.
        let noted = node.jobs.change(live, |job| job.host = host).await;
        let needed = noted.map_err(|error| Halt::of(&error.into()))?.host_bytes();
        return Err(Halt::Waits(format!("each worker needs {needed} bytes for copies of the model")));
    }
    Ok(prepared)
}

/// What a job needs. The other suspects wait while one is on trial, so one whose blobs do not come lets them pass: it is
/// tried again later, and then waited for twice as long.
async fn find(node: &Arc<Node>, live: &Live, tenant: &Arc<Tenant>, job: &Job) -> Result<Found, JobError> {
    if !job.is_suspect() {
        return node.find(tenant, job).await;
    }
    let wait = suspects::FIRST_FIND.saturating_mul(1 << live.stumbles.load(Relaxed).min(16));
    let late = |_| JobError::Passing(format!("what it needs did not come within {} s", wait.as_secs()));
    tokio::time::timeout(wait, node.find(tenant, job)).await.map_err(late)?
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
            let job = live.job();
            let epoch = job.history.last().map_or(0, |epoch| epoch.epoch);
            live.events.tell(JobEvent::Progress(meter.progress(&job.shape(), epoch, steps, loss)));
        }
        News::Progress { .. } => {}
    })
}

impl Jobs {
    /// Puts a job back into the queue, where it is set aside. Whether it waits there: not if it was told to stop meanwhile.
    async fn go_back(&self, live: &Live, reason: &str) -> bool {
        let reason = format!("waits: {reason}");
        // Before it is in the queue: whoever finds it there to stop it has the last word on its state.
        let job = self.change_anyway(live, |job| {
            (job.state, job.reason) = (State::Queued, reason);
            job.forget_room();
        });
        let job = job.await;
        self.queue.locked().set_aside(ask_of(&job));
        // An order that came before it was in the queue.
        if *live.orders.borrow() == Order::Stop && self.queue.locked().remove(job.tenant, job.name.as_str()) {
            self.change_anyway(live, |job| job.end(State::Stopped, "stopped while it waited")).await;
        }
        self.queue.locked().position(job.tenant, job.name.as_str()).is_some()
    }

    /// For whoever looks: it is written with the next change.
    fn note_ready(&self, live: &Live, ms: f64) {
        live.note(|job| {
            job.ready_ms.get_or_insert(ms);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::super::live::tests::jobs;
    use super::super::record::tests::job;
    use super::*;

    #[test]
    fn a_panic_of_the_engine_fails_the_job_and_says_so() {
        let ending = unless_it_panics(|| panic!("out of luck"));
        let Ending::Halted(Halt::Failed(reason)) = ending else { panic!("{ending:?}") };
        assert!(reason.contains("panicked"), "{reason}");
    }

    #[test]
    fn a_job_fits_beside_its_own_tenants_if_its_workers_do_on_some_devices() {
        let part = |capacity, own| OwnPart { capacity, own };
        assert!(fits_beside_own(&[part(7, 0)], 7, 1) && !fits_beside_own(&[part(7, 1)], 7, 1));
        assert!(fits_beside_own(&[part(7, 1), part(7, 4)], 3, 3) && !fits_beside_own(&[part(7, 2), part(7, 4)], 4, 2));
    }

    #[tokio::test]
    async fn a_job_that_goes_back_is_in_the_queue_only_once_its_record_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let (jobs, tenant) = jobs(folder.path()).await;
        let live = jobs.add(Job { tenant: tenant.id, ..job(State::Running, 0) }, &tenant).await.unwrap();
        // Whoever stops a job looks for it in the queue, and writes that it has stopped if it was there.
        let stops = || jobs.queue.locked().remove(live.job().tenant, live.job().name.as_str());
        let mut going = std::pin::pin!(jobs.go_back(&live, "for a reason"));
        while std::future::poll_fn(|context| Poll::Ready(going.as_mut().poll(context))).await.is_pending() {
            assert!(!stops() || live.job().state == State::Queued, "what is shown next is not that it has stopped");
            tokio::task::yield_now().await;
        }
        assert!(stops() && live.job().reason == "waits: for a reason");
        live.orders.send_replace(Order::Stop);
        assert!(!jobs.go_back(&live, "again").await);
        assert_eq!((live.job().state, stops()), (State::Stopped, false));
    }
}
