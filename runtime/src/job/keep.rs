//! What a job comes to is kept: epochs, checkpoints, models, and what it cost.
//!
//! A disk that is full or a bucket that is away ends no job: it stands still between two rounds, says so, and goes on from
//! there when it can.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::JobError;
use super::checkpoint::Training;
use super::common::Common;
use super::engine::{Keeper, ModelFacts};
use super::live::Live;
use super::model::GlobalModel;
use super::record::{CheckpointRef, EpochRecord, JobEvent};
use super::team::{Halt, Order};
use crate::catalog::CatalogError;
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::logs::one_line;
use crate::model::{Input, Meta};
use crate::names::{MAX_NAME, Name};
use crate::node::Node;
use crate::tenant::{OverLimit, Tenant, TrainingUse};
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
    pub node: Arc<Node>,
    pub live: Arc<Live>,
    pub common: Arc<Common>,
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

/// Waits for an order other than to run, and gives what it comes to.
async fn ordered(orders: &mut watch::Receiver<Order>) -> Halt {
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
    fn name(&self, suffix: &str) -> Result<Name, String> {
        model_name(&self.common.job, suffix)
    }

    /// Does `work` until it is done; followers are told what it waits for.
    async fn insist<F>(&self, what: &str, work: impl FnMut() -> F + Send) -> Result<(), Halt>
    where
        F: Future<Output = Result<(), JobError>> + Send,
    {
        let tell = |waits: Option<&str>| match waits {
            Some(text) => {
                tracing::warn!(job = %self.common.job, reason = %one_line(text), "a job stands still");
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
                let model = self.node.catalog.model(job.tenant, name.as_str());
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
        self.node.jobs.change(&self.live, remember).await?;
        let (node, tenant, kept) = (self.node.clone(), self.common.tenant.clone(), name.clone());
        let put = async move {
            let replaces = [&mine[..], &[digest]].concat();
            node.catalog.put_model(&tenant, kept, file, &replaces).await
        };
        // An order does not wait for a store that is away. What was begun is done all the same.
        let put = async { Ok(crate::catalog::to_the_end(put).await?) };
        unless_ordered(self.live.orders.subscribe(), put).await?;
        let noted = self.node.jobs.change(&self.live, |job| {
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
            self.live.charge_epoch(epoch).map_err(|OverLimit { name, limit }| {
                let text = format!("there is no room for its history within `{name}` of {limit} bytes");
                Halt::Failed(format!("{text}: delete or prune jobs that are over, then resume it"))
            })?;
        }
        let file = training.to_file().map_err(|error| Halt::Failed(error.to_string()))?;
        let file = Bytes::from(file);
        let at = (training.progress.epoch, training.progress.step);
        self.insist("a checkpoint", || self.keep_checkpoint(file.clone(), at, epoch.clone())).await
    }

    async fn model(&self, suffix: &str, shared: &GlobalModel, plan: &Plan, facts: ModelFacts) -> Result<(), Halt> {
        let name = self.name(suffix).map_err(Halt::Failed)?;
        let meta = Meta {
            function: Some(self.common.version),
            step: Some(facts.step),
            hyper_parameters: settings::to_json(&self.common.settings),
            metrics: facts.metrics,
            data_set: self.live.job().data,
            created_ms: Some(unix_ms()),
            input: self.common.data.as_ref().map(|data| Input::of(&data.manifest)),
            other: BTreeMap::from([("weft.job".to_owned(), self.common.job.to_string())]),
        };
        let file = shared.to_file(plan, &meta).map_err(|error| Halt::Failed(error.to_string()))?;
        let file = Bytes::from(file);
        self.insist("the model", || self.put_model(&name, file.clone())).await
    }

    async fn forget_model(&self, suffix: &str) {
        let Ok(name) = self.name(suffix) else { return };
        let mine = self.own_files(&name);
        let forgotten = self.node.catalog.delete_model_of(&self.common.tenant, name.as_str(), &mine).await;
        let noted = self.node.jobs.change(&self.live, |job| {
            job.models.retain(|other| *other != name);
            job.model_files.remove(&name);
        });
        let noted = noted.await;
        match forgotten {
            // Somebody has deleted it before, or has one of his own there now.
            Ok(()) | Err(CatalogError::NotFound { .. }) if noted.is_ok() => {}
            _ => tracing::warn!(job = %self.common.job, model = %name, "an old model of a job could not be deleted"),
        }
    }

    fn charge(&self, spent: &TrainingUse) -> Result<(), String> {
        let tenant: &Tenant = &self.common.tenant;
        tenant.ledger.charge_training(spent);
        let limit = tenant.quota().device_seconds;
        if tenant.ledger.usage().device_seconds() > limit as f64 {
            return Err(format!("the tenant's `device_seconds` of {limit} are used up"));
        }
        Ok(())
    }
}

impl Kept {
    async fn keep_checkpoint(
        &self,
        file: Bytes,
        (epoch, step): (u64, u64),
        record: Option<EpochRecord>,
    ) -> Result<(), JobError> {
        let (node, live, tenant) = (&self.node, &self.live, &self.common.tenant);
        let size = file.len() as u64;
        let reserved = tenant.storage.reserve(size)?;
        let publish = async { Ok(node.blobs.publish_bytes(file).await?) };
        let pin = unless_ordered(live.orders.subscribe(), publish).await?;
        let next = CheckpointRef { digest: pin.digest(), size, epoch, step };
        let before = live.job().checkpoint;
        match node.jobs.advance(live, next, record, tenant).await {
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
            // One that cannot be deleted now goes with the next sweep.
            if before.digest != next.digest
                && let Err(error) = node.blobs.collect(&[before.digest]).await
            {
                tracing::warn!(%error, job = %self.common.job, "an old checkpoint could not be deleted");
            }
        }
        live.events.tell(JobEvent::Checkpoint { epoch, step, bytes: size });
        // Whoever makes progress is no suspect any more.
        node.end_trial(live).await;
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
