//! A job, running or not, and the blobs that it needs.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use weft_core::queue::Ask;

use super::events::EventBook;
use super::record::{EpochRecord, Job, JobEvent};
use super::team::Order;
use super::workshop::Workshop;
use crate::blob::Blobs;
use crate::dataset::Manifest;
use crate::digest::Digest;
use crate::locks::{Lock, SharedLock};
use crate::tenant::{Charge, OverLimit};

/// A job, running or not.
pub struct Live {
    job: RwLock<Arc<Job>>,
    /// Held from when its record is looked at until the changed one is shown: whoever runs it and whoever scales it change
    /// it at any time.
    pub(super) changing: tokio::sync::Mutex<()>,
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
    pub(super) fn new(job: Job, start: u64, charge: Charge) -> Arc<Self> {
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

    /// Shows a changed record, and tells whoever follows the job.
    pub(super) fn show(&self, before: &Job, job: Job) -> Arc<Job> {
        let job = Arc::new(job);
        *self.job.writing() = job.clone();
        if (before.state, &before.reason) != (job.state, &job.reason) {
            self.events.tell(JobEvent::State { state: job.state, reason: job.reason.clone() });
        }
        job
    }

    /// All its workers are there, so many milliseconds after it was asked for; written with the next change.
    pub(super) fn note_ready(&self, ms: f64) {
        self.note(|job| {
            job.ready_ms.get_or_insert(ms);
        });
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
    pub(super) fn has_unknown_needs(&self) -> bool {
        let job = self.job();
        !job.state.is_over() && job.data.is_some() && self.needs.reading().is_none()
    }

    /// Reads from its data set's manifest which blocks it reads, after a restart.
    pub async fn find_needs(&self, blobs: &Blobs) {
        let job = self.job();
        let Some(digest) = job.data else { return };
        let read = async {
            let size = blobs.size(&digest).await.ok()?;
            Manifest::parse(&blobs.read(&digest, 0..size).await.ok()?).ok()
        };
        // One that cannot be read is told when the job is about to go on.
        if let Some(manifest) = read.await {
            self.need(job.version, Some((&manifest, digest)));
        }
    }

    pub(super) fn each_digest(&self, tell: &mut impl FnMut(Digest)) {
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
