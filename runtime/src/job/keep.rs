//! What a job comes to is kept: epochs, checkpoints, models, and what it cost.
//!
//! A disk that is full or a bucket that is away ends no job: it stands still between two rounds, says so, and goes on from
//! there when it can.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use weft_core::spec::{Shape, ShapeChange};

use super::checkpoint::{Progress, Training};
use super::engine::{Keeper, ModelFacts};
use super::live::Live;
use super::model::GlobalModel;
use super::record::{CheckpointRef, EpochRecord, Job, JobEvent, Reshaped};
use super::roster::Advance;
use super::scale;
use super::team::{Halt, Order};
use super::workshop::Workshop;
use super::{JobError, Jobs};
use crate::catalog::CatalogError;
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::locks::Lock;
use crate::logs::one_line;
use crate::model::{Input, Meta, WriteError};
use crate::names::{MAX_NAME, Name};
use crate::tenant::{Charge, OverLimit, Tenant, TenantId, TrainingUse};
use crate::train::declared::Plan;
use crate::train::settings;

/// How long is waited before something is tried again that could not be kept: twice as long each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long an attempt to keep something may take that begins after the job was told to end.
const LAST_ATTEMPT: Duration = Duration::from_secs(60);

/// Files of one model that a job remembers as its own: the latest, and the one before while that is replaced.
const REMEMBERED: usize = 2;

/// Keeps what a job comes to.
pub(super) struct Kept {
    jobs: Arc<Jobs>,
    live: Arc<Live>,
    workshop: Arc<Workshop>,
    changes: Mutex<Changes>,
}

/// Changes of the shape that the engine was told of.
#[derive(Default)]
struct Changes {
    /// The latest that were due.
    due: Vec<ShapeChange>,
    /// Those that are made, and not yet kept.
    made: Vec<ShapeChange>,
    /// Why they are put off, if they are.
    reason: String,
}

/// The name of a job's model. A job's name that is too long for the suffix is cut, and told from others that begin alike by
/// some digits of its digest.
fn model_name(job: &Name, suffix: &str) -> Result<Name, String> {
    let whole = format!("{job}{suffix}");
    let name = match whole.len() <= MAX_NAME {
        true => whole,
        false => {
            let digits: String = Digest::of(job.as_str().as_bytes()).hex().chars().take(8).collect();
            let stem: String = job.as_str().chars().take(MAX_NAME - suffix.len() - digits.len() - 1).collect();
            format!("{}-{digits}{suffix}", stem.trim_end_matches('-'))
        }
    };
    name.parse().map_err(|error: crate::names::BadName| error.to_string())
}

/// Memory for what is on its way to a bucket: what it takes at most, or else at least. The least is charged whatever the
/// limit: it is one part, and a job that waited for memory that its own workers have would wait for ever.
fn room_to_write(tenant: &Tenant, (least, most): (u64, u64)) -> Charge {
    let account = tenant.memory.clone();
    let mut room = Charge::none(account.clone());
    match most == 0 || room.grow(most).is_ok() {
        true => room,
        false => Charge::whatever_the_limit(account, least),
    }
}

/// Waits for an order other than to run, and gives what it comes to.
pub(super) async fn ordered(orders: &mut watch::Receiver<Order>) -> Halt {
    let order = orders.wait_for(|order| *order != Order::Run).await.map_or(Order::Stop, |order| *order);
    if order == Order::Pause { Halt::Paused } else { Halt::Stopped }
}

/// Does `work` until it is done. While it fails for something that passes, `tell` is told what is waited for, and nothing
/// once that is over; an order ends the wait.
async fn insist<F>(
    mut orders: watch::Receiver<Order>,
    tell: impl Fn(Option<&str>) + Send,
    what: &str,
    mut work: impl FnMut() -> F + Send,
) -> Result<(), Halt>
where
    F: Future<Output = Result<(), JobError>> + Send,
{
    let (mut wait, mut told) = (FIRST_WAIT, String::new());
    loop {
        let Err(error) = work().await else {
            if !told.is_empty() {
                tell(None);
            }
            return Ok(());
        };
        let text = format!("{what} could not be kept: {error}");
        if !error.passes() {
            return Err(Halt::Failed(text));
        }
        if *orders.borrow() != Order::Run {
            return Err(ordered(&mut orders).await);
        }
        if told != text {
            tell(Some(&text));
            told = text;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            halt = ordered(&mut orders) => return Err(halt),
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Does `work`, unless an order comes first: then it is dropped half-way. Work that begins after an order (the model of a
/// job that was stopped is kept) may take a bounded time.
async fn unless_ordered<T>(
    mut orders: watch::Receiver<Order>,
    work: impl Future<Output = Result<T, JobError>>,
) -> Result<T, JobError> {
    let is_late = *orders.borrow() != Order::Run;
    let over = async {
        match is_late {
            true => tokio::time::sleep(LAST_ATTEMPT).await,
            false => drop(ordered(&mut orders).await),
        }
    };
    tokio::select! {
        done = work => done,
        () = over => Err(JobError::Passing("it was told to end meanwhile".to_owned())),
    }
}

impl Kept {
    pub fn new(jobs: Arc<Jobs>, live: Arc<Live>, workshop: Arc<Workshop>) -> Self {
        Self { jobs, live, workshop, changes: Mutex::default() }
    }

    fn name(&self, suffix: &str) -> Result<Name, String> {
        model_name(&self.workshop.brief.job, suffix)
    }

    /// Does `work` until it is done; followers are told what it waits for.
    async fn insist<F>(&self, what: &str, work: impl FnMut() -> F + Send) -> Result<(), Halt>
    where
        F: Future<Output = Result<(), JobError>> + Send,
    {
        let tell = |waits: Option<&str>| match waits {
            Some(text) => {
                tracing::warn!(job = %self.workshop.brief.job, reason = %one_line(text), "a job stands still");
                self.live.tell_reason(&format!("waits: {text}"));
            }
            None => self.live.tell_reason(""),
        };
        insist(self.live.orders.subscribe(), tell, what, work).await
    }

    /// Files of a model that are the job's own.
    fn own_files(&self, name: &Name) -> Vec<Digest> {
        let job = self.live.job();
        match job.model_files.get(name) {
            Some(files) => files.clone(),
            // Left by a version that remembered no more than the name.
            None if job.models.contains(name) => {
                let model = self.jobs.facilities.catalog.model(job.tenant, name.as_str());
                model.iter().map(|model| model.digest).collect()
            }
            None => Vec::new(),
        }
    }

    /// Puts a model's file where it belongs, in place of the job's own of that name and of no other.
    async fn put_model(&self, name: &Name, file: Bytes) -> Result<(), JobError> {
        let digest = Digest::of(&file);
        let mine = self.own_files(name);
        // Noted before it is there: whatever happens in between, the job knows its own when it comes back.
        let remember = |job: &mut super::Job| {
            let files = job.model_files.entry(name.clone()).or_default();
            files.retain(|other| *other != digest);
            files.push(digest);
            let old = files.len().saturating_sub(REMEMBERED);
            files.drain(..old);
        };
        self.jobs.roster.change(&self.live, remember).await?;
        let (catalog, tenant, kept) =
            (self.jobs.facilities.catalog.clone(), self.workshop.tenant.clone(), name.clone());
        let put = async move {
            let replaces = [&mine[..], &[digest]].concat();
            catalog.put_model(&tenant, kept, file, &replaces).await
        };
        // An order does not wait for a store that is away. What was begun is done all the same.
        let put = async { Ok(crate::catalog::to_the_end(put).await?) };
        unless_ordered(self.live.orders.subscribe(), put).await?;
        let noted = self.jobs.roster.change(&self.live, |job| {
            job.models.retain(|other| other != name);
            job.models.push(name.clone());
        });
        noted.await?;
        Ok(())
    }
}

impl Keeper for Kept {
    async fn checkpoint(&self, training: &Training, epoch: Option<EpochRecord>) -> Result<(), Halt> {
        if let Some(epoch) = &epoch {
            self.live.charge_epoch(epoch).map_err(|OverLimit { name, limit, .. }| {
                let text = format!("there is no room for its history within `{name}` of {limit} bytes");
                Halt::Failed(format!("{text}: delete or prune jobs that are over, then resume it"))
            })?;
        }
        let kept = self.insist("a checkpoint", || self.keep_checkpoint(training, epoch.clone())).await;
        if let (Err(_), Some(epoch)) = (&kept, &epoch) {
            self.live.give_back_epoch(epoch);
        }
        kept?;
        self.changes.locked().made.clear();
        Ok(())
    }

    async fn model(&self, suffix: &str, shared: &GlobalModel, plan: &Plan, facts: ModelFacts) -> Result<(), Halt> {
        if !self.live.is_model_kept() {
            return Ok(());
        }
        let name = self.name(suffix).map_err(Halt::Failed)?;
        let meta = Meta {
            function: Some(self.workshop.brief.version),
            step: Some(facts.step),
            hyper_parameters: settings::to_json(&self.workshop.brief.settings),
            metrics: facts.metrics,
            data_set: self.live.job().data,
            created_ms: Some(unix_ms()),
            input: self.workshop.data.as_ref().map(|data| Input::of(&data.manifest)),
            other: BTreeMap::from([("weft.job".to_owned(), self.workshop.brief.job.to_string())]),
        };
        let file = shared.to_file(plan, &meta).map_err(|error| Halt::Failed(error.to_string()))?;
        let file = Bytes::from(file);
        self.insist("the model", || self.put_model(&name, file.clone())).await
    }

    async fn forget_model(&self, suffix: &str) {
        let Ok(name) = self.name(suffix) else { return };
        let mine = self.own_files(&name);
        let forgotten = self.jobs.facilities.catalog.delete_model_of(&self.workshop.tenant, name.as_str(), &mine).await;
        let noted = self.jobs.roster.change(&self.live, |job| {
            job.models.retain(|other| *other != name);
            job.model_files.remove(&name);
        });
        let noted = noted.await;
        match forgotten {
            // Somebody has deleted it before, or has one of his own there now.
            Ok(()) | Err(CatalogError::NotFound { .. }) if noted.is_ok() => {}
            _ => {
                tracing::warn!(job = %self.workshop.brief.job, model = %name, "an old model of a job could not be deleted")
            }
        }
    }

    fn charge(&self, spent: &TrainingUse) -> Result<(), String> {
        let tenant: &Tenant = &self.workshop.tenant;
        tenant.ledger.charge_training(spent);
        let limit = tenant.quota().device_seconds;
        if tenant.ledger.usage().device_seconds() > limit as f64 {
            return Err(format!("the tenant's `device_seconds` of {limit} are used up"));
        }
        Ok(())
    }

    fn until(&self) -> Option<u64> {
        self.live.job().until
    }

    fn wanted_shape(&self, epoch: u64, is_begun: bool, now: &Shape) -> Option<Shape> {
        let job = self.live.job();
        if job.changes.is_empty() {
            return None;
        }
        let due: Vec<ShapeChange> =
            job.changes.iter().filter(|change| change.is_due(epoch, is_begun)).copied().collect();
        let wanted = (!due.is_empty()).then(|| scale::after(*now, due.clone()));
        self.changes.locked().due = due;
        wanted
    }

    fn book(&self, shape: &Shape) -> Result<(), String> {
        let mut booked = self.live.booked.locked();
        let Some(ask) = &mut *booked else { return Ok(()) };
        self.jobs.roster.rebook(&self.workshop.tenant, &self.live.job(), ask, shape)
    }

    fn hold_room(&self) -> Box<dyn Send> {
        Box::new(HeldRoom::of(self.jobs.clone(), &self.live.job()))
    }

    fn made_change(&self, change: Option<Reshaped>) {
        let mut changes = self.changes.locked();
        let due = std::mem::take(&mut changes.due);
        changes.made.extend(due);
        if !std::mem::take(&mut changes.reason).is_empty() {
            self.live.tell_reason("");
        }
        if let Some(change) = change {
            self.live.events.tell(JobEvent::Reshaped(change));
        }
    }

    async fn put_off_change(&self, reason: &str, for_good: bool) {
        let due = {
            let mut changes = self.changes.locked();
            let is_new = changes.reason != reason;
            reason.clone_into(&mut changes.reason);
            if is_new {
                let text = if for_good { "its workers stay as they are" } else { "its workers are not changed yet" };
                self.live.tell_reason(&format!("{text}: {reason}"));
            }
            if for_good { std::mem::take(&mut changes.due) } else { Vec::new() }
        };
        if !due.is_empty() {
            self.jobs.roster.change_anyway(&self.live, |job| job.changes.retain(|change| !due.contains(change))).await;
        }
    }
}

/// No job starts while this is there.
struct HeldRoom {
    jobs: Arc<Jobs>,
    tenant: TenantId,
    job: Name,
}

impl HeldRoom {
    fn of(jobs: Arc<Jobs>, job: &Job) -> Self {
        jobs.roster.queue.locked().changes(job.tenant, job.name.as_str());
        Self { jobs, tenant: job.tenant, job: job.name.clone() }
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        self.jobs.roster.queue.locked().changed(self.tenant, self.job.as_str());
        self.jobs.roster.look_through_queue();
    }
}

impl Kept {
    async fn keep_checkpoint(&self, training: &Training, record: Option<EpochRecord>) -> Result<(), JobError> {
        let Progress { epoch, step, shape, .. } = training.progress;
        let (roster, blobs) = (&self.jobs.roster, &self.jobs.facilities.blobs);
        let (live, tenant) = (&self.live, &self.workshop.tenant);
        let size = training.file_size().map_err(|error| JobError::Refused(error.to_string()))?;
        let reserved = tenant.storage.reserve(size)?;
        let write = |to: &mut dyn io::Write| match training.write(Meta::default(), to) {
            Ok(_) => Ok(()),
            Err(WriteError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        };
        let room = room_to_write(tenant, blobs.room_to_write(size));
        let publish = async { Ok(blobs.publish_written(write, room.bytes()).await?) };
        let (pin, size) = unless_ordered(live.orders.subscribe(), publish).await?;
        drop(room);
        let next = CheckpointRef { digest: pin.digest(), size, epoch, step };
        let before = live.job().checkpoint;
        let made = self.changes.locked().made.clone();
        let advance = Advance { checkpoint: next, epoch: record, shape, made };
        match roster.advance(live, advance, tenant).await {
            Ok(()) => {}
            Err(error) => {
                pin.until_restart();
                return Err(error.into());
            }
        }
        reserved.keep();
        drop(pin);
        if let Some(before) = before {
            tenant.storage.release(before.size);
            // The job does not wait for a bucket to delete it. One that cannot be deleted now goes with the next sweep.
            if before.digest != next.digest
                && let Err(error) = blobs.collect_soon(&[before.digest]).await
            {
                tracing::warn!(%error, job = %self.workshop.brief.job, "an old checkpoint could not be deleted");
            }
        }
        live.events.tell(JobEvent::Checkpoint { epoch, step, bytes: size });
        // Whoever makes progress is no suspect any more.
        roster.end_trial(live).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passing() -> JobError {
        JobError::Passing("the disk is full".to_owned())
    }

    #[tokio::test]
    async fn an_order_that_comes_while_something_cannot_be_kept_ends_the_job_as_ordered() {
        for (order, halt) in [(Order::Stop, Halt::Stopped), (Order::Pause, Halt::Paused)] {
            let (orders, hears) = watch::channel(Order::Run);
            let ended = insist(
                hears,
                |_| {},
                "a checkpoint",
                || async {
                    orders.send_replace(order);
                    Err(passing())
                },
            );
            assert_eq!(ended.await, Err(halt));
        }
        let (_orders, hears) = watch::channel(Order::Stop);
        let refused = insist(hears, |_| {}, "a checkpoint", || async { Err(JobError::TenantDeleted) });
        assert!(matches!(refused.await, Err(Halt::Failed(_))), "what does not pass is a failure all the same");
    }

    #[tokio::test]
    async fn an_order_does_not_wait_for_a_store_that_never_answers() {
        let (orders, hears) = watch::channel(Order::Run);
        let never = std::future::pending::<Result<(), JobError>>;
        let ended = insist(hears.clone(), |_| {}, "a checkpoint", || unless_ordered(hears.clone(), never()));
        let (ended, ()) = tokio::join!(ended, async {
            tokio::task::yield_now().await;
            orders.send_replace(Order::Stop);
        });
        assert_eq!(ended, Err(Halt::Stopped));
        // What is kept after the order, as the last model is, has some time.
        let slow = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        };
        assert!(unless_ordered(hears, slow).await.is_ok());
    }

    #[test]
    fn long_names_of_jobs_that_begin_alike_have_models_of_their_own() {
        let long = |end: &str| -> Name { format!("{}{end}", "a".repeat(MAX_NAME - 1)).parse().unwrap() };
        let name = |job: &Name| model_name(job, "-e12").unwrap();
        let (one, two) = (name(&long("1")), name(&long("2")));
        assert!(one != two && one.as_str().ends_with("-e12"), "{one} and {two}");
        let short: Name = "short".parse().unwrap();
        assert_eq!(
            (model_name(&short, "-e12").unwrap().as_str(), model_name(&short, "").unwrap()),
            ("short-e12", short)
        );
    }
}
