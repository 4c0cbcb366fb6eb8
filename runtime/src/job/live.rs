//! A job, running or not, and the blobs that it needs.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use weft_core::queue::Ask;
use weft_core::stay::Stay;

use super::events::EventBook;
use super::held::{BlockList, BlockLists, Spare};
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
    /// When it was accepted, found again, or woken by new data.
    pub asked: Mutex<Instant>,
    pub orders: watch::Sender<Order>,
    /// While it runs: what it counts as in the queue.
    pub(super) booked: Mutex<Option<Ask>>,
    /// While it runs: workers to be lost.
    pub kills: Mutex<Option<mpsc::UnboundedSender<u32>>>,
    /// Where it runs, once its trainer and its data set were looked at.
    prepared: Spare<Arc<Workshop>>,
    /// How often in a row it had to wait for something to pass.
    pub(super) stumbles: AtomicU32,
    /// How often it has begun to run since the node was started.
    pub(super) runs: AtomicU64,
    /// What it reads. `None` while that is not known.
    pub(super) needs: RwLock<Option<Needs>>,
    lists: Arc<BlockLists>,
    /// Whether it is about to be deleted, or was.
    stay: Mutex<Stay>,
    /// Who says whether its model is kept, if somebody does.
    judge: Mutex<Option<Arc<dyn Judge>>>,
    /// What its record and its history take of the tenant's `job_bytes`.
    charge: Mutex<RecordCharge>,
}

/// Says whether a trial's model is worth keeping, when the trial comes to an end or to rest.
pub trait Judge: Send + Sync {
    fn keeps_model(&self, job: &Job) -> bool;
}

/// What a job's record and its history take.
struct RecordCharge {
    charge: Charge,
    /// What the record takes of it, as it is now.
    record: u64,
}

impl RecordCharge {
    /// A record changes in little parts, each with a bound of its own, for jobs that have their place already: it is charged
    /// whatever the limit.
    fn record_is(&mut self, bytes: u64) {
        let all = self.charge.bytes() - self.record + bytes;
        self.charge.set_whatever_the_limit(all);
        self.record = bytes;
    }
}

impl Live {
    /// What the charge has is for the record, and for the history if there is one.
    pub(super) fn new(job: Job, start: u64, charge: Charge, lists: Arc<BlockLists>) -> Arc<Self> {
        let account = charge.account().clone();
        let record = job.bytes().min(charge.bytes());
        Arc::new(Self {
            events: Arc::new(EventBook::of(&job, start, Charge::none(account.clone()))),
            prepared: Spare::of(account),
            charge: Mutex::new(RecordCharge { charge, record }),
            job: RwLock::new(Arc::new(job)),
            changing: tokio::sync::Mutex::default(),
            asked: Mutex::new(Instant::now()),
            orders: watch::channel(Order::Run).0,
            booked: Mutex::default(),
            kills: Mutex::default(),
            stumbles: AtomicU32::default(),
            runs: AtomicU64::default(),
            needs: RwLock::default(),
            lists,
            stay: Mutex::default(),
            judge: Mutex::default(),
        })
    }

    pub fn job(&self) -> Arc<Job> {
        self.job.reading().clone()
    }

    pub(super) fn set_judge(&self, judge: Arc<dyn Judge>) {
        *self.judge.locked() = Some(judge);
    }

    /// Whether the model that it has come to is to be kept.
    pub(super) fn is_model_kept(&self) -> bool {
        let judge = self.judge.locked().clone();
        judge.is_none_or(|judge| judge.keeps_model(&self.job()))
    }

    /// Charges the tenant for another epoch of its history, before that is kept.
    pub(super) fn charge_epoch(&self, epoch: &EpochRecord) -> Result<(), OverLimit> {
        self.charge.locked().charge.grow(epoch.bytes())
    }

    /// An epoch that was charged, and is not kept after all.
    pub(super) fn give_back_epoch(&self, epoch: &EpochRecord) {
        self.charge.locked().charge.shrink(epoch.bytes());
    }

    /// Changes what is shown; it is written with the next change.
    pub(super) fn note(&self, change: impl FnOnce(&mut Job)) {
        let mut shown = self.job.writing();
        let job = changed(&shown, change);
        self.charge.locked().record_is(job.bytes());
        *shown = Arc::new(job);
    }

    /// Shows a changed record, and tells whoever follows the job.
    pub(super) fn show(&self, before: &Job, mut job: Job) -> Arc<Job> {
        let mut shown = self.job.writing();
        // What was noted while this change was written stays, unless the change is about the same.
        if job.reason == before.reason {
            job.reason.clone_from(&shown.reason);
        }
        job.ready_ms = job.ready_ms.or(shown.ready_ms);
        self.charge.locked().record_is(job.bytes());
        let job = Arc::new(job);
        let is_news = (shown.state, &shown.reason) != (job.state, &job.reason);
        *shown = job.clone();
        drop(shown);
        let ends = job.state.is_over() && !before.state.is_over();
        if ends {
            // What it needed is found again if somebody resumes it.
            self.forget_prepared();
            self.forget_needs();
        }
        if is_news {
            self.events.tell(JobEvent::State { state: job.state, reason: job.reason.clone() });
        }
        if ends {
            self.events.forget_later();
        }
        job
    }

    /// Forgets what it reads: it is over, and what it reads may be deleted.
    pub(super) fn forget_needs(&self) {
        *self.needs.writing() = None;
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
        let job = self.job();
        self.events.tell(JobEvent::State { state: job.state, reason: job.reason.clone() });
    }

    /// Keeps where it runs for the next time, if its tenant has room for that. Otherwise it is found once more.
    pub(super) fn keep_prepared(&self, prepared: &Arc<Workshop>) {
        self.prepared.keep(prepared.clone(), prepared.bytes());
    }

    pub(super) fn forget_prepared(&self) {
        self.prepared.forget();
    }

    /// Where it runs, if that is kept.
    pub fn prepared(&self) -> Option<Arc<Workshop>> {
        self.prepared.get()
    }

    /// Begins to delete it if it is over, unless somebody does already: nobody resumes it from here on. Changes are held off
    /// by the caller.
    pub(super) fn leave(self: &Arc<Self>) -> Option<Leaving> {
        let is_over = self.job().state.is_over();
        self.stay.locked().leave(is_over).then(|| Leaving { live: self.clone() })
    }

    /// Whether it is about to be deleted, or was.
    pub(super) fn is_leaving(&self) -> bool {
        self.stay.locked().is_leaving()
    }

    /// Names what it reads, so that nobody deletes it.
    pub fn need(&self, version: Digest, manifest: Option<(&Manifest, Digest)>) {
        let account = self.charge.locked().charge.account().clone();
        let list = |(manifest, digest)| (digest, self.lists.of(self.job().tenant, digest, manifest, &account));
        let needs = Needs { version, data: manifest.map(list) };
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
            let bytes = blobs.read(&digest, 0..size).await.ok()?;
            // It may have megabytes: not on a thread that serves.
            tokio::task::spawn_blocking(move || Manifest::parse(&bytes).ok()).await.ok()?
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
            if let Some(Needs { version, data }) = &*self.needs.reading() {
                tell(*version);
                if let Some((manifest, blocks)) = data {
                    tell(*manifest);
                    blocks.digests().iter().copied().for_each(tell);
                }
            }
        }
    }
}

/// A job that is about to be deleted. It stays, and can be resumed, if it is not.
pub(super) struct Leaving {
    live: Arc<Live>,
}

impl Leaving {
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// It was deleted.
    pub fn has_left(self) {
        self.live.stay.locked().left();
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        // One that was deleted stays so.
        self.live.stay.locked().stay();
    }
}

/// Blobs that a job reads: its component, its data set's manifest and blocks.
pub(super) struct Needs {
    version: Digest,
    data: Option<(Digest, Arc<BlockList>)>,
}

/// A job's record after a change, with no longer a reason than is kept.
pub(super) fn changed(job: &Job, change: impl FnOnce(&mut Job)) -> Job {
    let mut job = Job::clone(job);
    change(&mut job);
    job.cut_reason();
    job
}
