//! What a study is told: gathered from its jobs and from whoever asks, kept, and shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use weft_core::tune::steer::{JobSeen, Step, step};
use weft_core::tune::study::{Event, State, Study};

use super::looking::Looked;
use super::orders::{Asked, TellWords};
use super::record::{KeptEvent, KeptTrial, Outcome, Row, StudyRecord};
use super::{StudyError, live::LiveStudy};
use crate::clock::unix_ms;
use crate::meta::{Batch, MetaError};
use crate::text;

/// What there is to tell a study.
pub(super) struct Gathered {
    /// The jobs of trials that are in flight.
    pub seen: BTreeMap<u32, Option<JobSeen>>,
    /// What has come of doing what it wanted.
    pub pending: Vec<Event>,
    pub asked: Vec<Asked>,
    /// Trials that nobody was given yet who asked.
    pub undelivered: Vec<u32>,
    pub is_stopped: bool,
    pub now: f64,
}

/// An answer to a loop outside, for when what it was told is kept.
pub(super) enum Answer {
    Asked(oneshot::Sender<Result<Option<u32>, StudyError>>, Result<Option<u32>, StudyError>),
    Told(oneshot::Sender<Result<(), StudyError>>, Result<(), StudyError>),
}

impl Answer {
    pub(super) fn send(self) {
        match self {
            Self::Asked(to, answer) => drop(to.send(answer)),
            Self::Told(to, answer) => drop(to.send(answer)),
        }
    }
}

/// A study that was told, and what.
pub(super) struct Told {
    pub study: Study,
    pub events: Vec<Event>,
    pub answers: Vec<Answer>,
    pub undelivered: Vec<u32>,
}

/// Tells a study all that there is to tell. What it decides may take a while: this is for a thread that may block.
pub(super) fn tell_all(study: Study, gathered: Gathered, is_new: bool) -> Told {
    let Gathered { seen, pending, asked, undelivered, is_stopped, now } = gathered;
    let mut told = Told { study, events: Vec::new(), answers: Vec::new(), undelivered };
    if is_new {
        told.tell(Event::Looked).ok();
    }
    for event in pending {
        told.tell(event).ok();
    }
    let is_late = told.study.settings().deadline.is_some_and(|deadline| now >= deadline);
    if is_late && told.study.end_reason().is_none() && !told.study.is_ending() {
        told.tell(Event::Passed { now }).ok();
    }
    told.look_at_jobs(&seen, is_stopped);
    if told.study.settings().parallel == 0 {
        told.end_stopping();
        for asked in asked {
            told.answer(asked);
        }
        told.end_stopping();
    }
    told
}

impl Told {
    fn tell(&mut self, event: Event) -> Result<(), StudyError> {
        let before = self.study.trials().len();
        let was_running: Vec<bool> = match self.study.settings().parallel {
            0 => self.study.trials().iter().map(|trial| trial.state == State::Running).collect(),
            _ => Vec::new(),
        };
        self.study.tell(event.clone())?;
        self.events.push(event);
        if self.study.settings().parallel == 0 {
            let starts = |number: &usize| {
                let is_running = self.study.trials()[*number].state == State::Running;
                is_running && (*number >= before || !was_running[*number])
            };
            let started: Vec<u32> = (0..self.study.trials().len()).filter(starts).map(|number| number as u32).collect();
            self.undelivered.extend(started);
        }
        Ok(())
    }

    /// Until no job has anything more to tell: what one has told may be the end of another.
    fn look_at_jobs(&mut self, seen: &BTreeMap<u32, Option<JobSeen>>, is_stopped: bool) {
        let mut is_news = true;
        while is_news {
            is_news = false;
            for (number, job) in seen {
                let Some(trial) = self.study.trials().get(*number as usize) else { continue };
                let Step::Tell(event) = step(trial, job.as_ref(), is_stopped) else { continue };
                match self.tell(event) {
                    Ok(()) => is_news = true,
                    // It cannot be: the next step is for an event that can.
                    Err(error) => tracing::error!(%error, trial = number, "a study could not be told of a job"),
                }
            }
        }
    }

    /// Trials of a loop outside hold nothing here: those that are to stop have stopped.
    fn end_stopping(&mut self) {
        let stops = |state: &State| matches!(state, State::Stopping(_));
        while let Some(trial) = self.study.trials().iter().find(|trial| stops(&trial.state)) {
            if self.tell(Event::Stopped { trial: trial.number }).is_err() {
                return;
            }
        }
    }

    fn answer(&mut self, asked: Asked) {
        match asked {
            Asked::Ask(to) => {
                let answer = self.ask();
                self.answers.push(Answer::Asked(to, answer));
            }
            Asked::Tell(words, to) => {
                let answer = self.hear(&words);
                self.answers.push(Answer::Told(to, answer));
            }
        }
    }

    fn ask(&mut self) -> Result<Option<u32>, StudyError> {
        // One that has started since somebody asked in vain, and runs still.
        let is_running = |number: &u32| self.study.trials()[*number as usize].state == State::Running;
        let waiting: Vec<u32> = self.undelivered.iter().copied().filter(is_running).collect();
        self.undelivered = waiting;
        if self.undelivered.is_empty() && self.study.asked() == 0 && self.study.end_reason().is_none() {
            self.tell(Event::Asked)?;
        }
        Ok(match self.undelivered.is_empty() {
            true => None,
            false => Some(self.undelivered.remove(0)),
        })
    }

    fn hear(&mut self, words: &TellWords) -> Result<(), StudyError> {
        let trial = words.trial;
        match (words.epoch, words.value) {
            (Some(epoch), value) => {
                let value = value.unwrap_or(f64::NAN);
                self.tell(Event::Trained { trial, epoch, value, cost: words.cost.unwrap_or(0.0) })?;
            }
            (None, _) => {
                if let Some(cost) = words.cost {
                    self.tell(Event::Spent { trial, cost })?;
                }
            }
        }
        let is_in_flight =
            |told: &Self| told.study.trials().get(trial as usize).is_some_and(|it| it.state.is_in_flight());
        match words.outcome {
            // It ended by what was told of its epoch.
            _ if words.epoch.is_some() && !is_in_flight(self) => Ok(()),
            None => Ok(()),
            Some(Outcome::Finished) => self.tell(Event::Finished { trial }),
            Some(Outcome::Paused) => self.tell(Event::Paused { trial }),
            Some(Outcome::Stopped) => self.tell(Event::Stopped { trial }),
            Some(Outcome::Failed) => {
                let why = words.reason.clone().unwrap_or_else(|| "it failed".to_owned());
                self.tell(Event::Failed { trial, why: text::cut(why, text::MOST_ERROR) })
            }
        }
    }
}

/// The trials that are not as they are shown, and by how many bytes they are more.
pub(super) fn changed_rows(
    live: &LiveStudy,
    record: &StudyRecord,
    study: &Study,
    looked: &Looked,
) -> (Vec<Arc<Row>>, u64) {
    let (shown, now) = (live.shown(), unix_ms());
    let (mut changed, mut more) = (Vec::new(), 0);
    for trial in study.trials() {
        let before = shown.get(trial.number as usize);
        if before.is_some_and(|before| before.trial == *trial) {
            continue;
        }
        let job = looked.get(&trial.number).and_then(Option::as_ref);
        let started = || (record.is_driven() && trial.state.is_in_flight()).then_some(now);
        let row = Row {
            seconds: match job {
                Some(job) => job.history.iter().map(|epoch| epoch.seconds).sum(),
                None => before.map_or(0.0, |before| before.seconds),
            },
            started_ms: before
                .and_then(|before| before.started_ms)
                .or_else(|| job.and_then(|job| job.started_ms))
                .or_else(started),
            ended_ms: trial.state.is_over().then_some(now),
            model: match job {
                Some(job) => job.models.last().cloned(),
                None => before.and_then(|before| before.model.clone()),
            },
            trial: trial.clone(),
        };
        more += row.bytes().saturating_sub(before.map_or(0, |before| before.bytes()));
        changed.push(Arc::new(row));
    }
    (changed, more)
}

/// What is to be written: what the study was told, and the trials as they are by then.
pub(super) fn batch(record: &StudyRecord, first: u64, events: &[Event], rows: &[Arc<Row>]) -> Result<Batch, MetaError> {
    let (tenant, study, at_ms) = (record.tenant, &record.name, unix_ms());
    let mut batch = Batch::default();
    for (number, told) in (first..).zip(events) {
        batch = batch.put(&KeptEvent { tenant, study: study.clone(), number, at_ms, told: told.clone() })?;
    }
    for row in rows {
        batch = batch.put(&KeptTrial { tenant, study: study.clone(), row: Row::clone(row) })?;
    }
    Ok(batch)
}
