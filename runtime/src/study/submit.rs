//! How a study is asked for: what can be wrong with it is found out before it begins, and its first point is tried out.

use std::sync::Arc;

use weft_core::spec::BadSpec;
use weft_core::tune::spec::TuneSpec;

use super::live::LiveStudy;
use super::record::{StudyRecord, TuneState};
use super::{MAX_STUDIES, Studies, StudyError, parameters};
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::job::made_up_name;
use crate::names::{MAX_NAME, Name};
use crate::seed;
use crate::tenant::{Tenant, TenantId};

/// Letters of the name of a trial's job after the study's own.
const SUFFIX: usize = 6;

impl Studies {
    /// Begins a study. The second part tells whether it is new, or was found by its key.
    pub async fn submit(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        mut spec: TuneSpec,
        idempotency: Option<&str>,
    ) -> Result<(Arc<LiveStudy>, bool), StudyError> {
        let asked = Digest::of(&serde_json::to_vec(&spec).unwrap_or_default());
        if let Some(found) = self.repeated(tenant.id, idempotency, &asked)? {
            return Ok((found, false));
        }
        let name: Name = match (&spec.name, &spec.job) {
            (Some(name), _) => name.parse().map_err(|error| BadSpec::new("name", error))?,
            (None, Some(job)) => made_up_name(&job.function.chars().take(MAX_NAME - 9 - SUFFIX).collect::<String>())?,
            (None, None) => made_up_name("study")?,
        };
        if name.as_str().len() + SUFFIX > MAX_NAME {
            let problem = format!("its trials are called after it, so it has {} letters at most", MAX_NAME - SUFFIX);
            return Err(BadSpec::new("name", problem).into());
        }
        // Exact in JSON too.
        let made_up = seed::random()? >> 11;
        let seed = *spec.seed.get_or_insert(made_up);
        if let Some(job) = &mut spec.job {
            job.seed.get_or_insert(made_up);
        }
        let declared = match (&spec.job, spec.search.is_empty()) {
            (Some(job), true) => parameters(&self.jobs.describe(tenant, &job.function).await?),
            _ => Vec::new(),
        };
        let settings = spec.check(&declared, seed)?;
        let (version, data) = match &spec.job {
            Some(job) if spec.parallel > 0 => {
                let versions = self.jobs.trial_versions(tenant, job).await?;
                let first = settings.enqueued.first().cloned().unwrap_or_default();
                let middle = settings.space.decode(&[]);
                let point = settings.space.complete(&first, &middle).unwrap_or(middle);
                self.jobs.check_trial(tenant, spec.trial(&point, 0, None)?, versions).await?;
                (Some(versions.0), versions.1)
            }
            _ => (None, None),
        };
        let record = StudyRecord {
            tenant: tenant.id,
            id: (unix_ms() << 20) | (made_up & 0xf_ffff),
            name,
            spec,
            settings,
            version,
            data,
            state: TuneState::Running,
            reason: String::new(),
            end: None,
            created_ms: unix_ms(),
            ended_ms: None,
            idempotency: idempotency.map(|key| (key.to_owned(), asked)),
        };
        let paused = self.roster.pause().await;
        if let Some(found) = self.repeated(tenant.id, idempotency, &asked)? {
            return Ok((found, false));
        }
        self.check_place(tenant, &record)?;
        let live = self.roster.add(record, tenant).await?;
        drop(paused);
        self.start(&live, tenant, Vec::new());
        Ok((live, true))
    }

    fn repeated(
        &self,
        tenant: TenantId,
        key: Option<&str>,
        asked: &Digest,
    ) -> Result<Option<Arc<LiveStudy>>, StudyError> {
        let Some(key) = key else { return Ok(None) };
        let same = self.roster.list(tenant).into_iter().find_map(|live| match &live.record().idempotency {
            Some((known, digest)) if known == key => Some((live.clone(), digest == asked)),
            _ => None,
        });
        match same {
            Some((live, true)) => Ok(Some(live)),
            Some((live, false)) => Err(StudyError::OtherRequest(live.record().name.to_string())),
            None => Ok(None),
        }
    }

    /// Whether there is a place for such a study, and for jobs of the names that its trials would have.
    fn check_place(&self, tenant: &Tenant, record: &StudyRecord) -> Result<(), StudyError> {
        if tenant.is_deleted() {
            return Err(StudyError::TenantDeleted);
        }
        if self.roster.get(tenant.id, record.name.as_str()).is_ok() {
            return Err(StudyError::Exists(record.name.to_string()));
        }
        if self.roster.list(tenant.id).len() >= MAX_STUDIES {
            let what = "another study; delete some that are over".to_owned();
            return Err(StudyError::Quota { name: "max_studies", limit: MAX_STUDIES as u64, what });
        }
        let is_trials = |name: &str| {
            let number = name.strip_prefix(record.name.as_str()).and_then(|rest| rest.strip_prefix('-'));
            number.is_some_and(|number| number.len() >= 4 && number.bytes().all(|digit| digit.is_ascii_digit()))
        };
        if record.is_driven() {
            return Ok(());
        }
        match self.jobs.roster.list(tenant.id).iter().find(|job| is_trials(job.name.as_str())) {
            Some(job) => {
                let problem = format!("there is a job `{}` already, as a trial of it would be called", job.name);
                Err(BadSpec::new("name", problem).into())
            }
            None => Ok(()),
        }
    }
}
