//! What is done for a study: its trials are submitted, resumed, held and stopped, and models that are not the best's deleted.

use std::sync::Arc;

use weft_core::tune::spec::KeepModels;
use weft_core::tune::steer::Step;
use weft_core::tune::study::{Event, Trial};

use super::Studies;
use super::live::{Judged, LiveStudy};
use super::record::StudyRecord;
use crate::job::{AsTrial, JobError, TrialOf, tried_by};
use crate::locks::Lock;
use crate::meta::{Batch, MetaError};
use crate::study::record::{KeptTrial, Row};
use crate::tenant::Tenant;

/// What came of a step.
pub(super) enum Done {
    /// There may be more to do at once.
    Did,
    /// It is tried again in a while, for this reason.
    Waits(String),
    /// The study is to be told that the trial cannot be.
    Failed(Event),
    Gone,
}

impl Studies {
    /// Does what is next for a trial.
    pub(super) async fn act(
        &self,
        live: &Arc<LiveStudy>,
        tenant: &Arc<Tenant>,
        record: &StudyRecord,
        trial: &Trial,
        step: &Step,
    ) -> Done {
        let name = record.job_name(trial.number);
        let done = match step {
            Step::Wait | Step::Tell(_) => return Done::Did,
            Step::Submit { until } => self.submit_trial(live, tenant, record, trial, *until).await,
            Step::Resume { until } => {
                self.jobs.judge_trial(tenant.id, &name, judge(live, trial.number));
                self.jobs.resume_until(tenant, &name, Some((*until).into())).await.map(drop)
            }
            Step::Stop => self.jobs.stop(tenant, &name).await.map(drop),
            Step::Hold => self.jobs.hold_trial(tenant, &name).await,
        };
        let Err(error) = done else { return Done::Did };
        match error {
            JobError::TenantDeleted => Done::Gone,
            JobError::Quota { name: "queued_jobs" | "job_bytes", .. } => Done::Waits(error.to_string()),
            // It has become another meanwhile: it is looked at again.
            JobError::Wrong { .. } | JobError::NotFound(_) => Done::Waits(error.to_string()),
            error if error.passes() => Done::Waits(error.to_string()),
            error if matches!(step, Step::Submit { .. } | Step::Resume { .. }) => {
                Done::Failed(Event::Failed { trial: trial.number, why: error.to_string() })
            }
            error => Done::Waits(error.to_string()),
        }
    }

    async fn submit_trial(
        &self,
        live: &Arc<LiveStudy>,
        tenant: &Arc<Tenant>,
        record: &StudyRecord,
        trial: &Trial,
        until: u32,
    ) -> Result<(), JobError> {
        let number = trial.number;
        let spec = record.spec.trial(&trial.point, number, Some(record.job_name(number)))?;
        let version = match record.version {
            Some(version) => version,
            None => self.jobs.trial_versions(tenant, &spec).await?.0,
        };
        let of = TrialOf { study: record.name.clone(), id: record.id, number, spent_before: trial.cost, held: false };
        let (tried, judge) = (tried_by(&spec), judge(live, number));
        let like = live.tried.locked().clone().filter(|(like, _)| Some(like) == tried.as_ref());
        let like = like.map(|(_, workshop)| workshop);
        let as_trial = AsTrial { of, until: until.into(), version, data: record.data, judge, like };
        let job = self.jobs.submit_trial(tenant, spec, as_trial).await?;
        if let Some(tried) = tried
            && let Some(prepared) = self.jobs.prepared_trial(tenant.id, job.name.as_str())
        {
            *live.tried.locked() = Some((tried, prepared));
        }
        Ok(())
    }

    /// Says again who decides on models, for jobs that a node has found.
    pub(super) fn judge_all(&self, live: &Arc<LiveStudy>, record: &StudyRecord) {
        for row in live.shown().iter() {
            let number = row.trial.number;
            self.jobs.judge_trial(record.tenant, &record.job_name(number), judge(live, number));
        }
    }

    /// Deletes the models of trials that are not the best any more.
    pub(super) async fn settle_models(
        &self,
        live: &Arc<LiveStudy>,
        tenant: &Tenant,
        record: &StudyRecord,
    ) -> Result<(), MetaError> {
        if record.spec.keep == KeepModels::All {
            return Ok(());
        }
        let best = match record.spec.keep {
            KeepModels::Best => live.best().map(|(row, _)| row.trial.number),
            _ => None,
        };
        let mut forgotten = Vec::new();
        for row in live.shown().iter().filter(|row| row.model.is_some() && Some(row.trial.number) != best) {
            match self.jobs.forget_models(tenant, &record.job_name(row.trial.number)).await {
                Ok(()) | Err(JobError::NotFound(_)) => {
                    forgotten.push(Arc::new(Row { model: None, ..Row::clone(row) }));
                }
                // It is tried again when the study comes by here again.
                Err(error) => tracing::warn!(%error, study = %record.name, "a trial's model could not be deleted"),
            }
        }
        if !forgotten.is_empty() {
            let kept = |batch: Batch, row: &Arc<Row>| {
                let (tenant, study) = (record.tenant, record.name.clone());
                batch.put(&KeptTrial { tenant, study, row: Row::clone(row) })
            };
            let batch = forgotten.iter().try_fold(Batch::default(), kept)?;
            if self.roster.write(live, batch).await? {
                live.show_rows(&forgotten);
            }
        }
        Ok(())
    }
}

fn judge(live: &Arc<LiveStudy>, trial: u32) -> Arc<Judged> {
    Arc::new(Judged { study: Arc::downgrade(live), trial })
}
