//! All jobs of a node, in memory as on disk, and the blobs that they need.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc, watch};

use super::JobError;
use super::events::EventBook;
use super::queue::{Ask, Queue};
use super::record::{CheckpointRef, EpochRecord, Job, JobEvent, State};
use super::team::Order;
use super::workshop::Workshop;
use crate::blob::{Blobs, Referrer};
use crate::dataset::Manifest;
use crate::digest::Digest;
use crate::locks::{Lock, SharedLock};
use crate::meta::{Batch, MetaError, Metadata, Record};
use crate::names::Name;
use crate::tenant::{Charge, OverLimit, Tenant, TenantId, Tenants};
use weft_core::spec::{Shape, ShapeChange};

/// How many jobs may start past one that finds no room, before nothing starts until it has.
const PATIENCE: u32 = 8;
/// How long nothing else starts because of such a job, before others may start past it again.
const BARS_FOR: Duration = Duration::from_secs(600);

/// Manifests of data sets that are read at once after a restart.
const MANIFESTS_AT_A_TIME: usize = 16;

/// An epoch of a job, as it is kept: apart, so that a long history is not written again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptEpoch {
    tenant: TenantId,
    job: Name,
    epoch: EpochRecord,
}

fn epoch_key(tenant: TenantId, job: &Name, epoch: u64) -> String {
    format!("{}/{job}/{epoch:08}", tenant.key())
}

impl Record for KeptEpoch {
    const TABLE: &'static str = "epochs";

    fn key(&self) -> String {
        epoch_key(self.tenant, &self.job, self.epoch.epoch)
    }
}

/// A job, running or not.
pub struct Live {
    job: RwLock<Arc<Job>>,
    /// Held from when its record is looked at until the changed one is shown: whoever runs it and whoever scales it change
    /// it at any time.
    changing: tokio::sync::Mutex<()>,
    pub events: Arc<EventBook>,
    /// When it was accepted, or found again.
    pub asked: Instant,
    pub orders: watch::Sender<Order>,
    /// While it runs: what it counts as in the queue.
    pub(super) booked: Mutex<Option<Ask>>,
    /// While it runs: workers to be lost.
    pub kills: Mutex<Option<mpsc::UnboundedSender<u32>>>,
    /// Where it runs, once its trainer and its data set were looked at.
    pub prepared: Mutex<Option<Arc<Workshop>>>,
    /// How often in a row it had to wait for something to pass.
    pub(super) stumbles: AtomicU32,
    /// How often it has begun to run since the node was started.
    pub(super) runs: AtomicU64,
    /// Blobs that it reads: its component, its data set's manifest and blocks. `None` while that is not known.
    needs: RwLock<Option<Vec<Digest>>>,
    /// What its record and its history take of the tenant's `job_bytes`.
    charge: Mutex<Charge>,
}

impl Live {
    fn new(job: Job, start: u64, charge: Charge) -> Arc<Self> {
        let account = charge.account().clone();
        Arc::new(Self {
            events: Arc::new(EventBook::of(&job, start, Charge::none(account))),
            charge: Mutex::new(charge),
            job: RwLock::new(Arc::new(job)),
            changing: tokio::sync::Mutex::default(),
            asked: Instant::now(),
            orders: watch::channel(Order::Run).0,
            booked: Mutex::default(),
            kills: Mutex::default(),
            prepared: Mutex::default(),
            stumbles: AtomicU32::default(),
            runs: AtomicU64::default(),
            needs: RwLock::default(),
        })
    }

    pub fn job(&self) -> Arc<Job> {
        self.job.reading().clone()
    }

    /// Charges the tenant for another epoch of its history, before that is kept.
    pub(super) fn charge_epoch(&self, epoch: &EpochRecord) -> Result<(), OverLimit> {
        self.charge.locked().grow(epoch.bytes())
    }

    /// Changes what is shown; it is written with the next change.
    pub(super) fn note(&self, change: impl FnOnce(&mut Job)) {
        let mut shown = self.job.writing();
        let mut job = Job::clone(&shown);
        change(&mut job);
        *shown = Arc::new(job);
    }

    /// Tells why it stands still, or (with an empty reason) that it goes on.
    pub(super) fn tell_reason(&self, reason: &str) {
        self.note(|job| reason.clone_into(&mut job.reason));
        self.events.tell(JobEvent::State { state: self.job().state, reason: reason.to_owned() });
    }

    /// Names what it reads, so that nobody deletes it.
    pub fn need(&self, version: Digest, manifest: Option<(&Manifest, Digest)>) {
        let mut needs = vec![version];
        if let Some((manifest, digest)) = manifest {
            needs.push(digest);
            let blocks = manifest.train.blocks.iter().chain(&manifest.test.blocks);
            needs.extend(blocks.map(|block| block.digest));
        }
        *self.needs.writing() = Some(needs);
    }

    /// Whether it is not over, and nobody knows yet which blocks it reads.
    fn has_unknown_needs(&self) -> bool {
        let job = self.job();
        !job.state.is_over() && job.data.is_some() && self.needs.reading().is_none()
    }

    /// Reads from its data set's manifest which blocks it reads, after a restart.
    pub async fn find_needs(&self, blobs: &Blobs) {
        let job = self.job();
        let Some(digest) = job.data else { return };
        let read = async {
            let size = blobs.size(&digest).await.ok()?;
            let bytes = blobs.read(&digest, 0..size).await.ok()?;
            // It may have megabytes: not on a thread that serves.
            tokio::task::spawn_blocking(move || Manifest::parse(&bytes).ok()).await.ok()?
        };
        // One that cannot be read is told when the job is about to go on.
        if let Some(manifest) = read.await {
            self.need(job.version, Some((&manifest, digest)));
        }
    }

    fn each_digest(&self, tell: &mut impl FnMut(Digest)) {
        let job = self.job();
        if let Some(checkpoint) = &job.checkpoint {
            tell(checkpoint.digest);
        }
        if !job.state.is_over() {
            tell(job.version);
            job.data.into_iter().for_each(&mut *tell);
            self.needs.reading().iter().flatten().copied().for_each(tell);
        }
    }
}

/// How far a job has come.
pub(super) struct Advance {
    pub checkpoint: CheckpointRef,
    /// The epoch that it has just done, if it has.
    pub epoch: Option<EpochRecord>,
    /// The shape that the checkpoint is of.
    pub shape: Option<Shape>,
    /// Changes of the shape that are made by then.
    pub made: Vec<ShapeChange>,
}

type Things = HashMap<TenantId, BTreeMap<String, Arc<Live>>>;

#[derive(Default)]
struct Shown(RwLock<Things>);

impl Referrer for Shown {
    fn keep(&self, candidates: &mut HashSet<Digest>) {
        for live in self.0.reading().values().flat_map(BTreeMap::values) {
            // Anything may be what it needs: nothing is deleted before that is known.
            if live.has_unknown_needs() {
                candidates.clear();
                return;
            }
            live.each_digest(&mut |digest| {
                candidates.remove(&digest);
            });
        }
    }
}

/// All jobs.
pub struct Jobs {
    metadata: Arc<Metadata>,
    pub(crate) blobs: Arc<Blobs>,
    shown: Arc<Shown>,
    pub(crate) queue: Mutex<Queue>,
    /// How many run.
    pub(crate) running: watch::Sender<usize>,
    /// Has the queue looked through.
    pub(super) wake: Arc<Notify>,
    /// One change of which jobs there are at a time. A backup holds it for reading.
    changing: Arc<tokio::sync::RwLock<()>>,
    /// Held for reading while a job's record is written and shown; whoever holds it for writing finds both the same.
    recording: tokio::sync::RwLock<()>,
}

impl Jobs {
    /// The jobs on disk. What is known of them is charged to their tenants, whatever the limits are by now.
    pub fn load(
        metadata: Arc<Metadata>,
        blobs: Arc<Blobs>,
        max_workers: u32,
        tenants: &Tenants,
    ) -> Result<Self, MetaError> {
        let shown = Shown::default();
        let mut histories: HashMap<(TenantId, Name), Vec<Arc<EpochRecord>>> = HashMap::new();
        for kept in metadata.all::<KeptEpoch>()? {
            histories.entry((kept.tenant, kept.job)).or_default().push(Arc::new(kept.epoch));
        }
        for mut job in metadata.all::<Job>()? {
            // Records of a tenant go with the tenant, in one transaction.
            let Some(owner) = tenants.by_id(job.tenant) else { continue };
            job.history = Arc::new(histories.remove(&(job.tenant, job.name.clone())).unwrap_or_default());
            let bytes = job.bytes() + job.history.iter().map(|epoch| epoch.bytes()).sum::<u64>();
            let charge = Charge::whatever_the_limit(owner.jobs.clone(), bytes);
            let (tenant, name) = (job.tenant, job.name.to_string());
            let start = job.starts + 1;
            shown.0.writing().entry(tenant).or_default().insert(name, Live::new(job, start, charge));
        }
        let queue = Mutex::new(Queue::new(max_workers, PATIENCE, BARS_FOR));
        let (running, shown) = (watch::channel(0).0, Arc::new(shown));
        let (wake, changing, recording) = Default::default();
        Ok(Self { metadata, blobs, shown, queue, running, wake, changing, recording })
    }

    /// Who tells which blobs are needed.
    pub fn referrer(&self) -> Arc<dyn Referrer> {
        self.shown.clone()
    }

    /// Every blob that a job names.
    pub fn digests(&self) -> HashSet<Digest> {
        let mut digests = HashSet::new();
        self.each(|live| {
            live.each_digest(&mut |digest| {
                digests.insert(digest);
            });
        });
        digests
    }

    /// Bytes of a tenant's checkpoints.
    pub fn stored_bytes(&self, tenant: TenantId) -> u64 {
        self.list(tenant).iter().filter_map(|job| job.checkpoint).map(|checkpoint| checkpoint.size).sum()
    }

    pub fn get(&self, tenant: TenantId, name: &str) -> Result<Arc<Job>, JobError> {
        Ok(self.live(tenant, name)?.job())
    }

    /// A tenant's jobs, by name.
    pub fn list(&self, tenant: TenantId) -> Vec<Arc<Job>> {
        self.of(tenant).iter().map(|live| live.job()).collect()
    }

    /// What happens to a job.
    pub fn events(&self, tenant: TenantId, name: &str) -> Result<Arc<EventBook>, JobError> {
        Ok(self.live(tenant, name)?.events.clone())
    }

    /// How many of the tenant's jobs come before it, while it waits.
    pub fn queue_position(&self, tenant: TenantId, name: &str) -> Option<usize> {
        self.queue.locked().position(tenant, name)
    }

    /// The tenant's jobs that wait, and how many of its jobs come before each.
    pub fn queue_positions(&self, tenant: TenantId) -> HashMap<String, usize> {
        self.queue.locked().names(tenant).enumerate().map(|(before, name)| (name.to_owned(), before)).collect()
    }

    /// Holds changes off, beside others who do.
    pub async fn hold(&self) -> tokio::sync::OwnedRwLockReadGuard<()> {
        self.changing.clone().read_owned().await
    }

    /// Holds every change off until the result is dropped.
    pub async fn pause(&self) -> tokio::sync::OwnedRwLockWriteGuard<()> {
        self.changing.clone().write_owned().await
    }

    /// Holds records of jobs as they are, on disk and in memory, until the result is dropped. For a moment only: running
    /// jobs wait.
    pub async fn hold_still(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.recording.write().await
    }

    /// Has the queue looked through: something has come, or has gone.
    pub(crate) fn look_through_queue(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn live(&self, tenant: TenantId, name: &str) -> Result<Arc<Live>, JobError> {
        let things = self.shown.0.reading();
        let found = things.get(&tenant).and_then(|jobs| jobs.get(name));
        found.cloned().ok_or_else(|| JobError::NotFound(name.chars().take(80).collect()))
    }

    pub(crate) fn of(&self, tenant: TenantId) -> Vec<Arc<Live>> {
        self.shown.0.reading().get(&tenant).map(|jobs| jobs.values().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn each(&self, mut tell: impl FnMut(&Arc<Live>)) {
        let all: Vec<Arc<Live>> = self.shown.0.reading().values().flat_map(BTreeMap::values).cloned().collect();
        all.iter().for_each(&mut tell);
    }

    /// Writes a new job, and shows it. Changes are held off by the caller.
    pub(crate) async fn add(&self, job: Job, owner: &Tenant) -> Result<Arc<Live>, JobError> {
        let mut charge = Charge::none(owner.jobs.clone());
        charge.grow(job.bytes()).map_err(|OverLimit { name, limit }| {
            let what = "what is known of another job; delete or prune jobs that are over".to_owned();
            JobError::Quota { name, limit, what }
        })?;
        self.metadata.commit(Batch::default().put(&job)?).await?;
        let (tenant, name) = (job.tenant, job.name.to_string());
        let live = Live::new(job, 0, charge);
        self.shown.0.writing().entry(tenant).or_default().insert(name, live.clone());
        Ok(live)
    }

    /// Changes a job's record, on disk and then in memory.
    pub(crate) async fn change(&self, live: &Live, change: impl FnOnce(&mut Job)) -> Result<Arc<Job>, MetaError> {
        self.change_and(live, Batch::default(), || Ok(Batch::default()), change).await
    }

    /// `newest` is for [`Metadata::commit_with`].
    async fn change_and(
        &self,
        live: &Live,
        batch: Batch,
        newest: impl FnOnce() -> Result<Batch, MetaError> + Send,
        change: impl FnOnce(&mut Job),
    ) -> Result<Arc<Job>, MetaError> {
        let _recording = self.recording.read().await;
        let _changing = live.changing.lock().await;
        let before = live.job();
        let mut job = Job::clone(&before);
        change(&mut job);
        if self.is_shown(live) {
            self.metadata.commit_with(batch.put(&job)?, newest).await?;
        }
        Ok(show(live, &before, job))
    }

    /// Whether it was not deleted meanwhile, with its tenant: then nothing of it is written any more.
    fn is_shown(&self, live: &Live) -> bool {
        let job = live.job();
        let shown = self.live(job.tenant, job.name.as_str());
        shown.is_ok_and(|shown| std::ptr::eq(Arc::as_ptr(&shown), live))
    }

    /// Changes a job's record in memory, and on disk if that can be: a job that a full disk has stopped still says so.
    pub(crate) async fn change_anyway(&self, live: &Live, change: impl FnOnce(&mut Job)) -> Arc<Job> {
        let _recording = self.recording.read().await;
        let _changing = live.changing.lock().await;
        let before = live.job();
        let mut job = Job::clone(&before);
        change(&mut job);
        let written = match Batch::default().put(&job) {
            Ok(batch) if self.is_shown(live) => self.metadata.commit(batch).await,
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::error!(%error, job = %job.name, "a job's record could not be written; it is with its next change");
        }
        show(live, &before, job)
    }

    /// Shows what a node that has just started found of unfinished jobs, and writes it in one transaction if that can be.
    /// Nobody else knows of these jobs yet.
    pub(super) async fn note_found(&self, found: Vec<(Arc<Live>, Job)>, and: Batch) {
        let batch = found.iter().try_fold(and, |batch, (_, job)| batch.put(job));
        let written = match batch {
            Ok(batch) => self.metadata.commit(batch).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::error!(%error, "what was found of unfinished jobs could not be written; it is with their next changes");
        }
        for (live, job) in found {
            show(&live, &live.job(), job);
        }
    }

    /// Keeps where a job is, and the epoch that it has just done with it, if it has: after a crash none is done twice.
    /// What the tenant has used goes with the epoch that it was used for.
    pub(super) async fn advance(&self, live: &Live, advance: Advance, tenant: &Tenant) -> Result<(), MetaError> {
        let Advance { checkpoint, epoch, shape, made } = advance;
        let job = live.job();
        let mut batch = Batch::default();
        if let Some(epoch) = &epoch {
            batch = batch.put(&KeptEpoch { tenant: job.tenant, job: job.name.clone(), epoch: epoch.clone() })?;
        }
        let told = epoch.clone();
        let add = |job: &mut Job| {
            job.checkpoint = Some(checkpoint);
            job.shape = shape.or(job.shape);
            for change in &made {
                if let Some(at) = job.changes.iter().position(|other| other == change) {
                    job.changes.remove(at);
                }
            }
            let Some(epoch) = epoch else { return };
            let history = Arc::make_mut(&mut job.history);
            let before = history.len();
            history.retain(|before| before.epoch < epoch.epoch);
            // One that takes another's place (earlier versions could do one twice) counts once.
            if history.len() < before {
                (job.spending, _) = super::engine::total(history.iter().map(|epoch| &**epoch));
                job.losses = history.iter().map(|epoch| epoch.losses).sum();
            }
            job.spending.add(&epoch.spending);
            job.losses += epoch.losses;
            history.push(Arc::new(epoch));
        };
        // What the tenant has used goes with what it was used for, which the checkpoint counts.
        self.change_and(live, batch, || tenant.ledger_batch(), add).await?;
        if let Some(epoch) = told {
            live.events.tell(JobEvent::Epoch(Box::new(epoch)));
        }
        live.stumbles.store(0, Relaxed);
        Ok(())
    }

    /// Takes jobs away that are over. Changes are held off by the caller.
    pub(crate) async fn remove(&self, jobs: &[Arc<Job>]) -> Result<(), JobError> {
        let deletions = jobs.iter().fold(Batch::default(), |batch, job| batch.and(deletion(job)));
        self.metadata.commit(deletions).await?;
        let mut digests = Vec::new();
        for job in jobs {
            if let Some(jobs) = self.shown.0.writing().get_mut(&job.tenant) {
                jobs.remove(job.name.as_str());
            }
            digests.extend(job.checkpoint.map(|checkpoint| checkpoint.digest));
        }
        Ok(self.blobs.collect_soon(&digests).await?)
    }

    /// The records of a tenant as deletions, for the transaction that deletes the tenant.
    pub fn deletion_of(&self, tenant: TenantId) -> Batch {
        self.list(tenant).iter().fold(Batch::default(), |batch, job| batch.and(deletion(job)))
    }

    /// Forgets a tenant whose records are gone; what it has running is stopped.
    pub async fn forget(&self, tenant: TenantId) -> Result<(), JobError> {
        let jobs = self.of(tenant);
        self.shown.0.writing().remove(&tenant);
        let mut digests = Vec::new();
        for live in jobs {
            live.orders.send_replace(Order::Stop);
            let job = live.job();
            self.queue.locked().remove(tenant, job.name.as_str());
            digests.extend(job.checkpoint.map(|checkpoint| checkpoint.digest));
        }
        Ok(self.blobs.collect_soon(&digests).await?)
    }

    /// Has every running job come to rest, to go on when the node is there again.
    pub fn pause_all(&self) {
        self.each(|live| {
            live.orders.send_if_modified(|order| {
                let runs = *order == Order::Run;
                if runs {
                    *order = Order::Pause;
                }
                runs
            });
        });
    }

    /// Waits until no job runs.
    pub async fn at_rest(&self) {
        self.running.subscribe().wait_for(|running| *running == 0).await.ok();
    }

    /// Finds out what unfinished jobs need, many at a time. Those that are not done within `limit` are left unknown.
    pub(crate) async fn find_needs(&self, limit: Duration) {
        let unfinished = self.unfinished();
        let unknown = unfinished.iter().filter(|live| live.has_unknown_needs());
        let find = futures_util::stream::iter(unknown)
            .for_each_concurrent(MANIFESTS_AT_A_TIME, |live| live.find_needs(&self.blobs));
        tokio::time::timeout(limit, find).await.ok();
    }

    /// How many unfinished jobs' needs are not known.
    pub(crate) fn unknown_needs(&self) -> usize {
        self.unfinished().iter().filter(|live| live.has_unknown_needs()).count()
    }

    /// Jobs that a node that stopped left unfinished.
    pub(crate) fn unfinished(&self) -> Vec<Arc<Live>> {
        let mut unfinished = Vec::new();
        self.each(|live| {
            if !live.job().state.is_over() {
                unfinished.push(live.clone());
            }
        });
        unfinished.sort_by_key(|live| live.job().created_ms);
        unfinished
    }

    /// How many jobs there are in each state.
    pub fn counts(&self) -> [(State, usize); 5] {
        let mut counts =
            [State::Queued, State::Running, State::Done, State::Stopped, State::Failed].map(|state| (state, 0));
        self.each(|live| {
            let state = live.job().state;
            counts.iter_mut().filter(|(counted, _)| *counted == state).for_each(|(_, count)| *count += 1);
        });
        counts
    }
}

/// Shows a changed job, and tells whoever follows it.
fn show(live: &Live, before: &Job, job: Job) -> Arc<Job> {
    let job = Arc::new(job);
    *live.job.writing() = job.clone();
    if (before.state, &before.reason) != (job.state, &job.reason) {
        live.events.tell(JobEvent::State { state: job.state, reason: job.reason.clone() });
    }
    job
}

fn deletion(job: &Job) -> Batch {
    let epochs = job.history.iter().map(|epoch| epoch_key(job.tenant, &job.name, epoch.epoch));
    epochs.fold(Batch::default().delete::<Job>(job.key()), Batch::delete::<KeptEpoch>)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::tests::job;
    use weft_core::usage::{Spending, Stages, Traffic};

    use super::*;
    use crate::tenant::{Account, Quota, Tenants};

    fn epoch() -> EpochRecord {
        EpochRecord {
            epoch: 1,
            train_loss: 0.0,
            validation: BTreeMap::new(),
            workers: 1,
            batch: 1,
            lr: 0.0,
            samples: 1,
            steps: 1,
            seconds: 0.0,
            samples_per_second: 0.0,
            memory: 0,
            stages: Stages::default(),
            spending: Spending::default(),
            losses: 0,
            traffic: Traffic::default(),
            mean_staleness: None,
            max_staleness: None,
            primal_residual: None,
            dual_residual: None,
            reshaped: Vec::new(),
        }
    }

    #[tokio::test]
    async fn an_epoch_that_waits_to_be_recorded_does_not_take_the_ledger_back() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Metadata::open(&folder.path().join("meta.redb")).unwrap();
        let memory = Account::new("max_memory", u64::MAX, None);
        let tenants = Tenants::load(metadata.clone(), memory.clone()).unwrap();
        let (tenant, _) = tenants.create("ada".parse().unwrap(), Quota::default(), None).await.unwrap();
        let jobs = Jobs::load(metadata.clone(), Blobs::memory(), 1, &tenants).unwrap();
        let live = jobs.add(Job { tenant: tenant.id, ..job(State::Running, 0) }, &tenant).await.unwrap();
        tenant.ledger.charge_job();
        let checkpoint = live.job().checkpoint.unwrap();
        let still = jobs.hold_still().await;
        let advance = Advance { checkpoint, epoch: Some(epoch()), shape: None, made: Vec::new() };
        let mut recorded = Box::pin(jobs.advance(&live, advance, &tenant));
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut recorded).await.is_err(), "nothing held it");
        // The periodic write comes first, and has more to write.
        tenant.ledger.charge_job();
        metadata.commit_with(Batch::default(), || tenants.usage_batch()).await.unwrap();
        drop(still);
        recorded.await.unwrap();
        let again = Tenants::load(metadata, memory).unwrap();
        assert_eq!(again.get("ada").unwrap().ledger.usage().jobs, 2);
    }

    /// No jobs, and a tenant who may have some.
    pub(in crate::job) async fn jobs(folder: &std::path::Path) -> (Jobs, Arc<Tenant>) {
        let metadata = Metadata::open(&folder.join("meta.redb")).unwrap();
        let tenants = Tenants::load(metadata.clone(), Account::new("max_memory", u64::MAX, None)).unwrap();
        let (tenant, _) = tenants.create("ada".parse().unwrap(), Quota::default(), None).await.unwrap();
        (Jobs::load(metadata, Blobs::memory(), 8, &tenants).unwrap(), tenant)
    }

    #[tokio::test]
    async fn nothing_is_deleted_while_it_is_not_known_what_a_job_needs() {
        let folder = tempfile::tempdir().unwrap();
        let (jobs, tenant) = jobs(folder.path()).await;
        let (manifest, other) = (Digest::of(b"manifest"), Digest::of(b"other"));
        let live = jobs.add(Job { data: Some(manifest), ..job(State::Queued, 0) }, &tenant).await.unwrap();
        let kept = || {
            let mut candidates = HashSet::from([manifest, other]);
            jobs.referrer().keep(&mut candidates);
            candidates
        };
        // Its manifest cannot be read.
        jobs.find_needs(Duration::from_secs(60)).await;
        assert_eq!((jobs.unknown_needs(), kept()), (1, HashSet::new()));
        live.need(live.job().version, None);
        assert_eq!((jobs.unknown_needs(), kept()), (0, HashSet::from([other])));
    }

    #[tokio::test]
    async fn what_a_job_that_is_over_needed_holds_nothing_up() {
        let folder = tempfile::tempdir().unwrap();
        let (jobs, tenant) = jobs(folder.path()).await;
        let data = Digest::of(b"manifest");
        jobs.add(Job { data: Some(data), ..job(State::Done, 0) }, &tenant).await.unwrap();
        let mut candidates = HashSet::from([data]);
        jobs.referrer().keep(&mut candidates);
        assert!(candidates.contains(&data) && jobs.unknown_needs() == 0);
    }
}
