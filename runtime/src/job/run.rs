//! What starts jobs, and one job from its start to its end.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weft_gpu::Lease;
use weft_gpu::pool::PoolError;

use super::Jobs;
use super::checkpoint::Training;
use super::common::Common;
use super::cost::Prices;
use super::engine::{Ending, Engine, From};
use super::keep::Kept;
use super::live::{Live, Prepared};
use super::queue::{Allowed, Ask};
use super::record::{JobEvent, Progress, State};
use super::team::{Halt, Lines, News, Team};
use crate::clock::unix_ms;
use crate::dataset::Manifest;
use crate::locks::Lock;
use crate::node::Node;

/// How soon it is looked again whether a device has come back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Node {
    pub(super) fn enqueue(self: &Arc<Self>, live: &Arc<Live>, prepared: Prepared, manifest: Option<&Manifest>) {
        let job = live.job();
        live.need(job.version, manifest.zip(job.data));
        let lanes = prepared.common.lanes();
        let bytes = u64::from(lanes).saturating_mul(job.spec.memory);
        *live.prepared.locked() = Some(prepared);
        self.jobs.queue.locked().push(Ask { tenant: job.tenant, name: job.name.to_string(), lanes, bytes });
        self.schedule();
    }

    /// Goes on with jobs that a node that stopped, or was killed, left unfinished.
    pub async fn resume_unfinished(self: &Arc<Self>) {
        for live in self.jobs.unfinished() {
            self.requeue(live).await;
        }
    }

    async fn requeue(self: &Arc<Self>, live: Arc<Live>) {
        let job = live.job();
        let Some(tenant) = self.tenants.by_id(job.tenant) else { return };
        let prepared = self.prepare(&tenant, &job).await;
        let changed = self.jobs.change(&live, |job| {
            job.starts += 1;
            match &prepared {
                Ok(_) => (job.state, job.reason) = (State::Queued, String::new()),
                Err(error) => (job.state, job.reason) = (State::Failed, error.to_string()),
            }
        });
        if let Err(error) = changed.await {
            tracing::error!(%error, job = %job.name, "a job's record could not be written");
        }
        if let Ok((prepared, manifest)) = prepared {
            self.enqueue(&live, prepared, manifest.as_deref());
        }
    }

    /// Starts every job that may run now.
    pub fn schedule(self: &Arc<Self>) {
        while !self.is_draining() {
            let allowed = |tenant| {
                let quota = self.tenants.by_id(tenant)?.quota();
                Some(Allowed { jobs: quota.jobs, lanes: quota.workers, bytes: quota.worker_memory })
            };
            let Some(ask) = self.jobs.queue.locked().next(allowed) else { return };
            let Ok(live) = self.jobs.live(ask.tenant, &ask.name) else {
                self.jobs.queue.locked().end(&ask);
                continue;
            };
            let Some(prepared) = live.prepared.locked().clone() else {
                self.jobs.queue.locked().end(&ask);
                continue;
            };
            let common = &prepared.common;
            let leases = (0..common.spec.workers).map(|_| common.leases(&Default::default()));
            match leases.collect::<Result<Vec<Vec<Lease>>, PoolError>>() {
                Ok(leases) => self.start_job(live, prepared, ask, leases),
                Err(error) => {
                    let comes_back = matches!(error, PoolError::Device(_));
                    self.jobs.queue.locked().put_back(ask);
                    // With nothing running, nobody would look again.
                    if comes_back || *self.jobs.running.borrow() == 0 {
                        let node = self.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(LOOK_AGAIN).await;
                            node.schedule();
                        });
                    }
                    return;
                }
            }
        }
    }

    fn start_job(self: &Arc<Self>, live: Arc<Live>, prepared: Prepared, ask: Ask, leases: Vec<Vec<Lease>>) {
        let (node, runtime) = (self.clone(), tokio::runtime::Handle::current());
        self.jobs.running.send_modify(|running| *running += 1);
        let (kills, killed) = mpsc::unbounded_channel();
        *live.kills.locked() = Some(kills);
        let running = Running { node: node.clone(), live: live.clone(), ask };
        let work = move || {
            let done = running;
            runtime.block_on(run(&node, &live, prepared, leases, killed));
            // What it held is free now: perhaps another can start.
            drop(done);
            let _entered = runtime.enter();
            node.schedule();
        };
        // A merge of large models takes its time: not on a thread that others need.
        if let Err(error) = std::thread::Builder::new().name("job".to_owned()).spawn(work) {
            tracing::error!(%error, "no thread for a job could be started");
        }
    }
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

/// Runs a job to its end, and notes that.
async fn run(
    node: &Arc<Node>,
    live: &Arc<Live>,
    prepared: Prepared,
    leases: Vec<Vec<Lease>>,
    kills: mpsc::UnboundedReceiver<u32>,
) {
    let ending = match train(node, live, prepared, leases, kills).await {
        Ok(ending) => ending,
        Err(error) => Ending::Halted(Halt::Failed(error)),
    };
    let noted = node.jobs.change(live, |job| match ending {
        Ending::Done(reason) => job.end(State::Done, reason),
        Ending::Halted(Halt::OutOfTime) => job.end(State::Done, "`max_time` is over"),
        Ending::Halted(Halt::Stopped) => job.end(State::Stopped, "stopped"),
        Ending::Halted(Halt::Failed(error)) => job.end(State::Failed, error),
        // It goes on where it was.
        Ending::Halted(Halt::Paused) => (job.state, job.reason) = (State::Queued, "the node stopped".to_owned()),
    });
    if let Err(error) = noted.await {
        tracing::error!(%error, "the end of a job could not be written");
    }
}

async fn train(
    node: &Arc<Node>,
    live: &Arc<Live>,
    Prepared { common, rule }: Prepared,
    leases: Vec<Vec<Lease>>,
    kills: mpsc::UnboundedReceiver<u32>,
) -> Result<Ending, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let job = node.jobs.change(live, |job| {
        (job.state, job.reason) = (State::Running, String::new());
        job.started_ms.get_or_insert(unix_ms());
    });
    let job = job.await.map_err(|error| text(&error))?;
    let from = match (&job.checkpoint, &job.spec.init_from) {
        (Some(checkpoint), _) => {
            let bytes = node.blobs.read(&checkpoint.digest, 0..checkpoint.size).await.map_err(|error| text(&error))?;
            From::Checkpoint(Box::new(Training::from_file(io::Cursor::new(bytes)).map_err(|error| text(&error))?))
        }
        (None, Some(model)) => {
            let model = node.catalog.model(job.tenant, model).map_err(|error| text(&error))?;
            let mut file = node.catalog.open_model(&model).await.map_err(|error| text(&error))?;
            From::Model(Box::new(move |plan, shared| shared.take(plan, &mut file).map_err(|error| error.to_string())))
        }
        (None, None) => From::Birth,
    };
    let deadline = Some(job.spec.max_time_ms).filter(|ms| *ms > 0).map(|ms| {
        let spent: f64 = job.history.iter().map(|epoch| epoch.seconds).sum();
        Instant::now() + Duration::from_millis(ms).saturating_sub(Duration::from_secs_f64(spent))
    });
    let lines = Lines { orders: live.orders.subscribe(), kills, news: news(live.clone(), &common) };
    let (team, born) = match Team::start(common.clone(), leases, lines, deadline).await {
        Ok(started) => started,
        Err(halt) => return Ok(Ending::Halted(halt)),
    };
    let ms = live.asked.elapsed().as_secs_f64() * 1e3;
    live.events.tell(JobEvent::Ready { workers: job.spec.workers, ms });
    node.jobs.note_ready(live, ms);
    let keeper = Arc::new(Kept { node: node.clone(), live: live.clone(), common: common.clone() });
    let prices = Prices::of(&node.settings);
    let engine = Engine::new(common, team, *born, rule, keeper, prices, from)?;
    Ok(engine.run().await)
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
