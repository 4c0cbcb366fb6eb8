//! All jobs of a node, in memory as on disk, and the queue of those that wait.
//!
//! - `changes`: how a job's record is changed, on disk and then in memory

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::{Notify, watch};
use weft_core::queue::Queue;

use super::JobError;
use super::events::EventBook;
use super::held::BlockLists;
use super::live::Live;
use super::record::{EpochRecord, Job, State};
use super::team::Order;
use crate::blob::{Blobs, Referrer};
use crate::digest::Digest;
use crate::locks::{Lock, SharedLock};
use crate::meta::{Batch, MetaError, Metadata};
use crate::names::Name;
use crate::tenant::{Charge, OverLimit, Tenant, TenantId, Tenants};

mod changes;
#[cfg(test)]
pub(in crate::job) mod tests;

pub(super) use changes::Advance;
use changes::{KeptEpoch, deletion, written};

/// How many jobs may start past one that finds no room, before nothing starts until it has.
const PATIENCE: u32 = 8;
/// How long nothing else starts because of such a job, before others may start past it again.
const BARS_FOR: Duration = Duration::from_secs(600);

/// Manifests of data sets that are read at once after a restart.
const MANIFESTS_AT_A_TIME: usize = 16;

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

/// All jobs of a node.
pub struct Roster {
    pub(super) metadata: Arc<Metadata>,
    blobs: Arc<Blobs>,
    shown: Arc<Shown>,
    lists: Arc<BlockLists>,
    pub(super) queue: Mutex<Queue>,
    /// How many run.
    pub(super) running: watch::Sender<usize>,
    /// Has the queue looked through.
    pub(super) wake: Arc<Notify>,
    /// Has jobs looked at that wait for data.
    pub(super) followers: Arc<Notify>,
    /// Tells that a job is over.
    pub(super) ended: Arc<Notify>,
    /// One change of which jobs there are at a time. A backup holds it for reading.
    changing: Arc<tokio::sync::RwLock<()>>,
    /// Held for reading while a job's record is written and shown; whoever holds it for writing finds both the same.
    recording: tokio::sync::RwLock<()>,
}

impl Roster {
    /// The jobs on disk. What is known of them is charged to their tenants, whatever the limits are by now.
    pub fn load(
        metadata: Arc<Metadata>,
        blobs: Arc<Blobs>,
        max_workers: u32,
        tenants: &Tenants,
    ) -> Result<Self, MetaError> {
        let (shown, lists) = (Shown::default(), Arc::<BlockLists>::default());
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
            shown.0.writing().entry(tenant).or_default().insert(name, Live::new(job, start, charge, lists.clone()));
        }
        let queue = Mutex::new(Queue::new(max_workers, PATIENCE, BARS_FOR));
        let (running, shown) = (watch::channel(0).0, Arc::new(shown));
        let (wake, followers, ended, changing, recording) = Default::default();
        Ok(Self { metadata, blobs, shown, lists, queue, running, wake, followers, ended, changing, recording })
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
    pub(super) fn look_through_queue(&self) {
        self.wake.notify_one();
    }

    /// Has jobs looked at that wait for data.
    pub(super) fn look_at_followers(&self) {
        self.followers.notify_one();
    }

    /// Jobs that wait for data.
    pub(super) fn waiting(&self) -> Vec<Arc<Live>> {
        let mut waiting = Vec::new();
        self.each(|live| {
            if live.job().state == State::Waiting {
                waiting.push(live.clone());
            }
        });
        waiting
    }

    pub(super) fn live(&self, tenant: TenantId, name: &str) -> Result<Arc<Live>, JobError> {
        let things = self.shown.0.reading();
        let found = things.get(&tenant).and_then(|jobs| jobs.get(name));
        found.cloned().ok_or_else(|| JobError::NotFound(name.chars().take(80).collect()))
    }

    fn of(&self, tenant: TenantId) -> Vec<Arc<Live>> {
        self.shown.0.reading().get(&tenant).map(|jobs| jobs.values().cloned().collect()).unwrap_or_default()
    }

    fn each(&self, mut tell: impl FnMut(&Arc<Live>)) {
        let all: Vec<Arc<Live>> = self.shown.0.reading().values().flat_map(BTreeMap::values).cloned().collect();
        all.iter().for_each(&mut tell);
    }

    /// Writes a new job, and shows it. Changes are held off by the caller.
    pub(super) async fn add(&self, job: Job, owner: &Tenant) -> Result<Arc<Live>, JobError> {
        let mut charge = Charge::none(owner.jobs.clone());
        charge.grow(job.bytes()).map_err(|OverLimit { name, limit, .. }| {
            let what = "what is known of another job; delete or prune jobs that are over".to_owned();
            JobError::Quota { name, limit, what }
        })?;
        self.metadata.commit(written(&job, Batch::default())?).await?;
        let (tenant, name) = (job.tenant, job.name.to_string());
        let live = Live::new(job, 0, charge, self.lists.clone());
        self.shown.0.writing().entry(tenant).or_default().insert(name, live.clone());
        Ok(live)
    }

    /// Takes jobs away that are over. Changes are held off by the caller.
    pub(super) async fn remove(&self, jobs: &[Arc<Job>]) -> Result<(), JobError> {
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

    pub fn is_running(&self) -> bool {
        *self.running.borrow() > 0
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
    pub(super) fn unfinished(&self) -> Vec<Arc<Live>> {
        let mut unfinished = Vec::new();
        self.each(|live| {
            if !live.job().state.is_over() {
                unfinished.push(live.clone());
            }
        });
        unfinished.sort_by_key(|live| live.job().created_ms);
        unfinished
    }
}
