//! What else can be asked of a study: stop, resume, delete; and by a loop outside, ask and tell.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::live::LiveStudy;
use super::record::{Outcome, Row, StudyRecord, TuneState};
use super::{Studies, StudyError};
use crate::job::JobError;
use crate::tenant::Tenant;

/// How long the end of a study's jobs and of its driver is waited for when it is deleted.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// What a loop outside asks of a study's driver.
pub(super) enum Asked {
    Ask(oneshot::Sender<Result<Option<u32>, StudyError>>),
    Tell(TellWords, oneshot::Sender<Result<(), StudyError>>),
}

/// What a loop outside says of a trial.
#[derive(Clone, Debug)]
pub struct TellWords {
    pub trial: u32,
    pub epoch: Option<u32>,
    pub value: Option<f64>,
    pub cost: Option<f64>,
    pub outcome: Option<Outcome>,
    pub reason: Option<String>,
}

/// How a study is after it was asked or told, and the trial that it is about.
pub struct Told {
    pub row: Option<Arc<Row>>,
    pub record: Arc<StudyRecord>,
}

impl Studies {
    /// Stops a study and its trials, which keep what they need to go on.
    pub async fn stop(&self, tenant: &Tenant, name: &str) -> Result<Arc<LiveStudy>, StudyError> {
        let live = self.roster.get(tenant.id, name)?;
        self.turn(&live, TuneState::Running, TuneState::Stopped, "only a study that runs can be stopped").await?;
        Ok(live)
    }

    /// Goes on with a study that was stopped, with the trials that it had.
    pub async fn resume(&self, tenant: &Tenant, name: &str) -> Result<Arc<LiveStudy>, StudyError> {
        let live = self.roster.get(tenant.id, name)?;
        if *live.leaves.borrow() {
            return Err(StudyError::wrong(&live.record(), "it is being deleted"));
        }
        self.turn(&live, TuneState::Stopped, TuneState::Running, "only a study that was stopped can go on").await?;
        Ok(live)
    }

    async fn turn(
        &self,
        live: &Arc<LiveStudy>,
        from: TuneState,
        to: TuneState,
        problem: &'static str,
    ) -> Result<(), StudyError> {
        let mut found = true;
        let turned = self.roster.change(live, |record| {
            found = record.state == from;
            if found {
                let reason = if to == TuneState::Stopped { "stopped" } else { "" };
                (record.state, record.reason) = (to, reason.to_owned());
            }
        });
        let record = turned.await?;
        if !found {
            return Err(StudyError::wrong(&record, problem));
        }
        live.wake.notify_one();
        Ok(())
    }

    /// Forgets a study that is over or stopped, with its trials and their jobs. The best trial's model stays.
    pub async fn delete(&self, tenant: &Arc<Tenant>, name: &str) -> Result<(), StudyError> {
        let live = self.roster.get(tenant.id, name)?;
        let record = live.record();
        if record.state == TuneState::Running {
            return Err(StudyError::wrong(&record, "stop it first"));
        }
        let Ok(_deleting) = live.deleting.try_lock() else {
            return Err(StudyError::wrong(&record, "it is being deleted already"));
        };
        // From here on nobody goes on with it; whoever fails to delete it can try again.
        live.leaves.send_replace(true);
        let mut driven = live.is_driven.subscribe();
        let ended = async { driven.wait_for(|is_driven| !is_driven).await.is_ok() };
        let gone = tokio::time::timeout(ENDS_WITHIN, ended).await;
        if gone.is_err() {
            return Err(StudyError::wrong(&record, "its trials have not ended yet; try again"));
        }
        for row in live.shown().iter() {
            self.delete_trial(tenant, &record, row.trial.number).await?;
        }
        Ok(self.roster.remove(&live).await?)
    }

    async fn delete_trial(&self, tenant: &Tenant, record: &StudyRecord, number: u32) -> Result<(), StudyError> {
        let name = record.job_name(number);
        let Ok(Some(job)) = self.jobs.trial(tenant.id, &name, record.id) else { return Ok(()) };
        if !job.state.is_over() {
            self.jobs.stop(tenant, &name).await.ok();
            let events = self.jobs.roster.events(tenant.id, &name)?;
            let mut follow = events.follow();
            let over = async {
                while !self.jobs.roster.get(tenant.id, &name).is_ok_and(|job| job.state.is_over()) {
                    if follow.changed().await.is_err() {
                        return;
                    }
                }
            };
            tokio::time::timeout(ENDS_WITHIN, over).await.ok();
        }
        match self.jobs.delete(tenant, &name).await {
            Ok(()) | Err(JobError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A trial for a loop outside, if there is one to be had.
    pub async fn ask(&self, tenant: &Tenant, name: &str) -> Result<Told, StudyError> {
        let live = self.driven(tenant, name)?;
        let record = live.record();
        match record.state {
            TuneState::Running => {}
            TuneState::Stopped => return Err(StudyError::wrong(&record, "resume it first")),
            TuneState::Done | TuneState::Failed => return Ok(Told { row: None, record }),
        }
        let (answer, answered) = oneshot::channel();
        live.asked.send(Asked::Ask(answer)).await.ok();
        let number = match answered.await {
            Ok(answer) => answer?,
            Err(_) if live.record().state.is_over() => None,
            Err(_) => return Err(StudyError::Gone),
        };
        let row = number.and_then(|number| live.shown().get(number as usize).cloned());
        Ok(Told { row, record: live.record() })
    }

    /// Takes in what a loop outside says of a trial, and says what is to become of it.
    pub async fn tell(&self, tenant: &Tenant, name: &str, words: TellWords) -> Result<Told, StudyError> {
        let live = self.driven(tenant, name)?;
        let record = live.record();
        let trial = words.trial;
        if trial as usize >= live.shown().len() {
            return Err(StudyError::NoTrial { study: record.name.to_string(), trial });
        }
        if record.state == TuneState::Stopped {
            return Err(StudyError::wrong(&record, "resume it first"));
        }
        if record.state.is_over() {
            return Err(StudyError::wrong(&record, "it takes in nothing more"));
        }
        let (answer, answered) = oneshot::channel();
        live.asked.send(Asked::Tell(words, answer)).await.map_err(|_| StudyError::Gone)?;
        answered.await.map_err(|_| StudyError::Gone)??;
        Ok(Told { row: live.shown().get(trial as usize).cloned(), record: live.record() })
    }

    fn driven(&self, tenant: &Tenant, name: &str) -> Result<Arc<LiveStudy>, StudyError> {
        let live = self.roster.get(tenant.id, name)?;
        match live.record().is_driven() {
            true => Ok(live),
            false => {
                let problem = "it starts its trials by itself: a study that is asked and told has `parallel` 0";
                Err(StudyError::wrong(&live.record(), problem))
            }
        }
    }
}
