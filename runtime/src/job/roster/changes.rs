//! How a job's record is changed: on disk and then in memory, one change of a job at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};
use weft_core::plan::course::CourseRecord;
use weft_core::spec::{Shape, ShapeChange};

use super::super::live::{Live, changed};
use super::super::record::{CheckpointRef, EpochRecord, Job, JobEvent};
use super::Roster;
use crate::meta::{Batch, MetaError, Record};
use crate::names::Name;
use crate::tenant::{Tenant, TenantId};

/// An epoch of a job, as it is kept: apart, so that a long history is not written again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptEpoch {
    pub tenant: TenantId,
    pub job: Name,
    pub epoch: EpochRecord,
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

/// How far a job has come.
pub(in crate::job) struct Advance {
    pub checkpoint: CheckpointRef,
    /// The epoch that it has just done, if it has.
    pub epoch: Option<EpochRecord>,
    /// The shape that the checkpoint is of.
    pub shape: Option<Shape>,
    /// Changes of the shape that are made by then.
    pub made: Vec<ShapeChange>,
    /// What is planned by then, if anything is.
    pub plan: Option<Arc<CourseRecord>>,
}

impl Roster {
    /// Changes a job's record, on disk and then in memory.
    pub(in crate::job) async fn change(
        &self,
        live: &Live,
        change: impl FnOnce(&mut Job),
    ) -> Result<Arc<Job>, MetaError> {
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
        let job = changed(&before, change);
        if self.is_shown(live) {
            self.metadata.commit_with(written(&job, batch)?, newest).await?;
        }
        Ok(self.show(live, &before, job))
    }

    /// Shows a changed record, and tells whoever waits for jobs to be over.
    fn show(&self, live: &Live, before: &Job, job: Job) -> Arc<Job> {
        let job = live.show(before, job);
        if job.state.is_over() {
            self.ended.notify_one();
        }
        job
    }

    /// Whether it was not deleted meanwhile, with its tenant: then nothing of it is written any more.
    pub(in crate::job) fn is_shown(&self, live: &Live) -> bool {
        let job = live.job();
        let shown = self.live(job.tenant, job.name.as_str());
        shown.is_ok_and(|shown| std::ptr::eq(Arc::as_ptr(&shown), live))
    }

    /// Changes a job's record in memory, and on disk if that can be: a job that a full disk has stopped still says so.
    pub(in crate::job) async fn change_anyway(&self, live: &Live, change: impl FnOnce(&mut Job)) -> Arc<Job> {
        let _recording = self.recording.read().await;
        let _changing = live.changing.lock().await;
        let before = live.job();
        let job = changed(&before, change);
        let written = match written(&job, Batch::default()) {
            Ok(batch) if self.is_shown(live) => self.metadata.commit(batch).await,
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::error!(%error, job = %job.name, "a job's record could not be written; it is with its next change");
        }
        self.show(live, &before, job)
    }

    /// Shows what a node that has just started found of unfinished jobs, and writes it in one transaction if that can be.
    /// Nobody else knows of these jobs yet.
    pub(in crate::job) async fn note_found(&self, found: Vec<(Arc<Live>, Job)>, and: Batch) {
        let batch = found.iter().try_fold(and, |batch, (_, job)| batch.put(job));
        let written = match batch {
            Ok(batch) => self.metadata.commit(batch).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::error!(%error, "what was found of unfinished jobs could not be written; it is with their next changes");
        }
        for (live, job) in found {
            live.show(&live.job(), job);
        }
    }

    /// Keeps where a job is, and the epoch that it has just done with it, if it has: after a crash none is done twice.
    /// What the tenant has used goes with the epoch that it was used for.
    pub(in crate::job) async fn advance(
        &self,
        live: &Live,
        advance: Advance,
        tenant: &Tenant,
    ) -> Result<(), MetaError> {
        let Advance { checkpoint, epoch, shape, made, plan } = advance;
        let job = live.job();
        let mut batch = Batch::default();
        if let Some(epoch) = &epoch {
            batch = batch.put(&KeptEpoch { tenant: job.tenant, job: job.name.clone(), epoch: epoch.clone() })?;
        }
        let told = epoch.clone();
        let add = |job: &mut Job| {
            job.checkpoint = Some(checkpoint);
            job.shape = shape.or(job.shape);
            job.plan = plan.or(job.plan.take());
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
                (job.spending, _) = super::super::accounting::total(history.iter().map(|epoch| &**epoch));
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
}

/// Adds a job's record to what is written. How a trial is can be lost, as long as nothing else is written with it: its study
/// remembers what it was told, and has done again what was not.
pub(super) fn written(job: &Job, batch: Batch) -> Result<Batch, MetaError> {
    let is_alone = batch.is_empty() && job.trial.is_some();
    let batch = batch.put(job)?;
    Ok(if is_alone { batch.that_can_be_lost() } else { batch })
}

/// Everything that is kept of a job, as deletions.
pub(super) fn deletion(job: &Job) -> Batch {
    let epochs = job.history.iter().map(|epoch| epoch_key(job.tenant, &job.name, epoch.epoch));
    epochs.fold(Batch::default().delete::<Job>(job.key()), Batch::delete::<KeptEpoch>)
}
