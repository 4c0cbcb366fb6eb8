//! What drives a study: one task for each that is not over.
//!
//! It looks at the jobs of the study's trials, tells the study what they came to, keeps that, shows it, and does what is
//! next. All of it goes by how things are, not by what was heard: whatever wakes it, it looks. So nothing is lost that
//! happened while nobody looked, and a driver that begins anew after a crash needs no more than what the study was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::{mpsc, watch};
use weft_core::tune::steer::{Phase, Step, step};
use weft_core::tune::study::{End, Event, Study};

use super::Studies;
use super::doing::Done;
use super::live::LiveStudy;
use super::looking::{is_alive, seen};
use super::orders::Asked;
use super::record::{StudyRecord, TuneState};
use super::telling::{Answer, Gathered, Told, batch, changed_rows, tell_all};
use crate::clock::unix_ms;
use crate::locks::Lock;
use crate::logs::one_line;
use crate::tenant::Tenant;

/// How long is waited before something is tried again: twice as long each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Studies {
    /// Goes on with studies that a node that stopped, or was killed, left unfinished. After its jobs were found.
    pub(crate) fn resume_unfinished(self: &Arc<Self>, tenant: impl Fn(crate::tenant::TenantId) -> Option<Arc<Tenant>>) {
        for (live, told) in self.roster.unfinished() {
            let record = live.record();
            if let Some(tenant) = tenant(record.tenant) {
                // Before a job of it ends.
                self.judge_all(&live, &record);
                self.start(&live, &tenant, told);
            }
        }
    }

    /// Has a study driven that was told this.
    pub(super) fn start(self: &Arc<Self>, live: &Arc<LiveStudy>, tenant: &Arc<Tenant>, told: Vec<Event>) {
        let Some(asks) = live.asks.locked().take() else { return };
        live.is_driven.send_replace(true);
        let (studies, live, tenant) = (Arc::downgrade(self), live.clone(), tenant.clone());
        tokio::spawn(async move {
            let driven = Driven { live: live.clone() };
            drive(studies, live, tenant, told, asks).await;
            drop(driven);
        });
    }
}

/// A study that is driven, until this is dropped.
struct Driven {
    live: Arc<LiveStudy>,
}

impl Drop for Driven {
    fn drop(&mut self) {
        *self.live.tried.locked() = None;
        self.live.is_driven.send_replace(false);
    }
}

async fn drive(
    studies: Weak<Studies>,
    live: Arc<LiveStudy>,
    tenant: Arc<Tenant>,
    told: Vec<Event>,
    asks: mpsc::Receiver<Asked>,
) {
    let (settings, is_new) = (live.record().settings.clone(), told.is_empty());
    let replay = tokio::task::spawn_blocking(move || Study::replay(settings, &told)).await;
    let replayed = replay.map_err(|error| error.to_string()).and_then(|study| study.map_err(|error| error.to_string()));
    let study = match replayed {
        Ok(study) => study,
        Err(error) => {
            let reason = format!("what it was told makes no sense to this version of weft: {error}");
            tracing::error!(study = %live.record().name, %error, "a study cannot go on");
            if let Some(studies) = studies.upgrade() {
                studies.roster.change(&live, |record| record.end(TuneState::Failed, reason)).await.ok();
            }
            return;
        }
    };
    let mut driver = Driver {
        live,
        tenant,
        study: Some(study),
        is_new,
        asks,
        asked: Vec::new(),
        last_answers: Vec::new(),
        undelivered: Vec::new(),
        pending: Vec::new(),
        watched: BTreeMap::new(),
        wait: FIRST_WAIT,
    };
    driver.watch_all(&studies);
    loop {
        let Some(studies) = studies.upgrade() else { return };
        let next = driver.pass(&studies).await;
        drop(studies);
        let within = match next {
            Next::Over => return,
            Next::Idle => None,
            Next::Again => {
                let wait = driver.wait;
                driver.wait = (wait * 2).min(LONGEST_WAIT);
                Some(wait)
            }
        };
        if !driver.sleep(within).await {
            return;
        }
    }
}

/// What follows a look at a study.
enum Next {
    /// Nothing before something happens.
    Idle,
    /// Another look in a while.
    Again,
    Over,
}

struct Driver {
    live: Arc<LiveStudy>,
    tenant: Arc<Tenant>,
    /// Always there but while it is told something.
    study: Option<Study>,
    is_new: bool,
    asks: mpsc::Receiver<Asked>,
    /// What was asked, and is not answered yet.
    asked: Vec<Asked>,
    /// What is answered once the study's record says that it is over.
    last_answers: Vec<Answer>,
    /// Trials that have started because a loop outside had asked, and that nobody was given yet.
    undelivered: Vec<u32>,
    /// What the study is to be told of what could not be done for it.
    pending: Vec<Event>,
    /// Trials whose jobs may be alive, and what tells of them.
    watched: BTreeMap<u32, watch::Receiver<u64>>,
    wait: Duration,
}

impl Driver {
    /// Jobs that a node has found may be alive, whatever became of their trials.
    fn watch_all(&mut self, studies: &Weak<Studies>) {
        let Some(studies) = studies.upgrade() else { return };
        let count = self.study.as_ref().map_or(0, |study| study.trials().len() as u32);
        let record = self.live.record();
        let (looked, _) = studies.look(&record, 0..count);
        for (number, job) in looked {
            if job.is_some_and(|job| is_alive(&job)) {
                self.watch(&studies, &record, number);
            }
        }
    }

    fn watch(&mut self, studies: &Studies, record: &StudyRecord, number: u32) {
        if let Ok(events) = studies.jobs.roster.events(record.tenant, &record.job_name(number)) {
            self.watched.insert(number, events.follow());
        }
    }

    /// Looks at everything, tells and does what there is to tell and do.
    async fn pass(&mut self, studies: &Arc<Studies>) -> Next {
        loop {
            let record = self.live.record();
            if record.state.is_over() {
                return Next::Over;
            }
            let kept = self.tell(studies, &record).await;
            match kept {
                Kept::Something => self.wait = FIRST_WAIT,
                Kept::Nothing => {}
                Kept::Gone => return Next::Over,
            }
            match self.do_all(studies, &record).await {
                Did::Nothing => {}
                Did::Something => continue,
                // What could not be told is not tried again and again without a pause.
                Did::Tells if matches!(kept, Kept::Nothing) => return Next::Again,
                Did::Tells => continue,
                Did::Waits(reason) => {
                    self.say(&format!("waits: {reason}")).await;
                    return Next::Again;
                }
                Did::Gone => return Next::Over,
            }
            if !record.is_driven()
                && let Err(error) = studies.settle_models(&self.live, &self.tenant, &record).await
            {
                self.say(&format!("waits: {error}")).await;
                return Next::Again;
            }
            if record.state == TuneState::Running {
                self.say("").await;
            }
            if self.is_over() {
                let next = self.end(studies).await;
                if matches!(next, Next::Over) {
                    std::mem::take(&mut self.last_answers).into_iter().for_each(Answer::send);
                }
                return next;
            }
            return Next::Idle;
        }
    }

    fn is_over(&self) -> bool {
        self.watched.is_empty() && self.study.as_ref().is_some_and(|study| study.end_reason().is_some())
    }

    /// The trials that there is something to do for, or may be soon.
    fn numbers(&self) -> BTreeSet<u32> {
        let trials = self.study.iter().flat_map(|study| study.trials());
        let in_flight = trials.filter(|trial| trial.state.is_in_flight()).map(|trial| trial.number);
        in_flight.chain(self.watched.keys().copied()).collect()
    }

    /// Tells the study all that there is to tell, keeps it and shows it.
    async fn tell(&mut self, studies: &Arc<Studies>, record: &StudyRecord) -> Kept {
        while let Ok(asked) = self.asks.try_recv() {
            self.asked.push(asked);
        }
        for receiver in self.watched.values_mut() {
            receiver.mark_unchanged();
        }
        let is_stopped = record.state == TuneState::Stopped;
        let numbers = self.numbers();
        let Some(study) = self.study.take() else { return Kept::Gone };
        let (looked, jobs) = match record.is_driven() {
            true => Default::default(),
            false => {
                let (looked, taken) = studies.look(record, numbers.into_iter());
                for (trial, error) in taken {
                    self.pending.push(Event::Failed { trial, why: error.to_string() });
                }
                let see = |(number, job): (&u32, &Option<Arc<crate::job::Job>>)| {
                    let trial = study.trials().get(*number as usize)?;
                    Some((*number, job.as_ref().map(|job| seen(&record.settings.goal, trial, job))))
                };
                let jobs: BTreeMap<_, _> = looked.iter().filter_map(see).collect();
                (looked, jobs)
            }
        };
        let gathered = Gathered {
            seen: jobs,
            pending: std::mem::take(&mut self.pending),
            asked: std::mem::take(&mut self.asked),
            undelivered: std::mem::take(&mut self.undelivered),
            is_stopped,
            now: unix_ms().saturating_sub(record.created_ms) as f64 / 1e3,
        };
        let is_new = std::mem::take(&mut self.is_new);
        // A sampler thinks for a while: not on a thread that serves.
        let told = tokio::task::spawn_blocking(move || tell_all(study, gathered, is_new)).await;
        let Ok(Told { study, events, answers, undelivered }) = told else {
            tracing::error!(study = %record.name, "a study's sampler panicked");
            let reason = "its sampler panicked; the node's log says where";
            studies.roster.change(&self.live, |record| record.end(TuneState::Failed, reason)).await.ok();
            return Kept::Gone;
        };
        self.undelivered = undelivered;
        let (rows, more) = changed_rows(&self.live, record, &study, &looked);
        self.study = Some(study);
        let is_news = !events.is_empty();
        if is_news && !self.keep(studies, record, &events, &rows, more).await {
            return Kept::Gone;
        }
        // Whoever hears that there is nothing more to try finds the study over.
        match self.is_over() {
            true => self.last_answers.extend(answers),
            false => answers.into_iter().for_each(Answer::send),
        }
        match is_news {
            true => Kept::Something,
            false => Kept::Nothing,
        }
    }

    /// Keeps what the study was told, and shows what came of it. What cannot be kept now is waited for. Whether the study is
    /// still there.
    async fn keep(
        &mut self,
        studies: &Arc<Studies>,
        record: &StudyRecord,
        events: &[Event],
        rows: &[Arc<super::Row>],
        more: u64,
    ) -> bool {
        let first = self.live.told.fetch_add(events.len() as u64, Relaxed);
        let (mut wait, mut is_charged) = (FIRST_WAIT, false);
        loop {
            if !is_charged {
                is_charged = self.live.charge_rows(more).is_ok();
            }
            let reason = match is_charged {
                true => match batch(record, first, events, rows) {
                    Ok(batch) => match studies.roster.write(&self.live, batch).await {
                        Ok(true) => {
                            self.live.show_rows(rows);
                            return true;
                        }
                        Ok(false) => return false,
                        Err(error) => error.to_string(),
                    },
                    Err(error) => error.to_string(),
                },
                false => "there is no room for its trials within `job_bytes`: delete jobs and studies that are over"
                    .to_owned(),
            };
            self.say(&format!("waits: {reason}")).await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = left(&self.live) => return false,
                () = self.tenant.ended() => return false,
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Says what the study waits for, or (with an empty reason) that it goes on. It is not written: what it waits for may be
    /// the disk.
    async fn say(&self, reason: &str) {
        let _changing = self.live.changing.lock().await;
        let record = self.live.record();
        if record.state == TuneState::Running && record.reason != reason {
            if !reason.is_empty() {
                tracing::warn!(study = %record.name, reason = %one_line(reason), "a study waits");
            }
            let mut record = StudyRecord::clone(&record);
            record.reason = crate::text::cut(reason.to_owned(), crate::text::MOST_ERROR);
            self.live.show_record(record);
        }
    }

    /// Does what is next for every trial.
    async fn do_all(&mut self, studies: &Arc<Studies>, record: &StudyRecord) -> Did {
        if record.is_driven() {
            return Did::Nothing;
        }
        let is_stopped = record.state == TuneState::Stopped;
        let (looked, _) = studies.look(record, self.numbers().into_iter());
        let (mut did, mut tells, mut waits) = (false, false, None);
        for (number, job) in looked {
            let Some(trial) = self.study.as_ref().and_then(|study| study.trials().get(number as usize)).cloned() else {
                continue;
            };
            let seen = job.as_ref().map(|job| seen(&record.settings.goal, &trial, job));
            let next = step(&trial, seen.as_ref(), is_stopped);
            let is_alive = seen.as_ref().is_some_and(|seen| seen.phase == Phase::Alive);
            match &next {
                Step::Wait => {
                    match (is_alive, self.watched.contains_key(&number)) {
                        (true, false) => {
                            self.watch(studies, record, number);
                            // It may have ended before it was watched.
                            did = true;
                        }
                        (false, true) => {
                            self.watched.remove(&number);
                        }
                        _ => {}
                    }
                    continue;
                }
                Step::Tell(_) => {
                    tells = true;
                    continue;
                }
                // It was told already, and ends within moments: what it tells then wakes whoever watches it.
                Step::Stop | Step::Hold if job.as_ref().is_some_and(|job| studies.jobs.is_told_to_end(job)) => {
                    if !self.watched.contains_key(&number) {
                        self.watch(studies, record, number);
                        did = true;
                    }
                    continue;
                }
                _ => {}
            }
            match studies.act(&self.live, &self.tenant, record, &trial, &next).await {
                Done::Did => {
                    self.watch(studies, record, number);
                    did = true;
                }
                Done::Waits(reason) => waits = Some(reason),
                Done::Failed(event) => {
                    self.pending.push(event);
                    did = true;
                }
                Done::Gone => return Did::Gone,
            }
        }
        match (waits, did) {
            (Some(reason), _) => Did::Waits(reason),
            (None, true) => Did::Something,
            (None, false) if tells => Did::Tells,
            (None, false) => Did::Nothing,
        }
    }

    /// Notes that the study is over, and why.
    async fn end(&mut self, studies: &Arc<Studies>) -> Next {
        let Some(end) = self.study.as_ref().and_then(|study| study.end_reason().cloned()) else { return Next::Idle };
        let has_best = self.live.best().is_some();
        let reason = match &end {
            End::Deadline { deadline } if has_best => format!("its deadline of {deadline} s has come"),
            End::Deadline { deadline } => format!("its deadline of {deadline} s has come before any trial had a value"),
            other => other.to_string(),
        };
        let state = match &end {
            End::AllFailed { .. } | End::BelowOneTrial { .. } => TuneState::Failed,
            _ if !has_best => TuneState::Failed,
            _ => TuneState::Done,
        };
        let noted = studies.roster.change(&self.live, |record| {
            record.end = Some(end);
            record.end(state, reason);
        });
        match noted.await {
            Ok(record) => {
                tracing::info!(study = %record.name, state = record.state.word(), "a study is over");
                Next::Over
            }
            Err(error) => {
                self.say(&format!("waits: {error}")).await;
                Next::Again
            }
        }
    }

    /// Waits until there may be something to do, for so long at most. Whether the study is still there.
    async fn sleep(&mut self, within: Option<Duration>) -> bool {
        let record = self.live.record();
        let deadline = record.settings.deadline.map(|deadline| {
            let at = record.created_ms as f64 / 1e3 + deadline;
            // A moment later, so that it has come by then.
            Duration::from_secs_f64((at - unix_ms() as f64 / 1e3).max(0.0)) + Duration::from_millis(2)
        });
        let deadline = deadline.filter(|_| self.study.as_ref().is_some_and(|study| !study.is_ending()));
        let timer = async {
            match within.into_iter().chain(deadline).min() {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let jobs = async {
            match self.watched.is_empty() {
                true => std::future::pending().await,
                false => {
                    let changed = self.watched.values_mut().map(|receiver| Box::pin(receiver.changed()));
                    // One whose job was deleted is looked at, too.
                    drop(select_all(changed).await);
                }
            }
        };
        tokio::select! {
            () = left(&self.live) => return false,
            () = self.tenant.ended() => return false,
            () = self.live.wake.notified() => {}
            asked = self.asks.recv() => self.asked.extend(asked),
            () = jobs => {}
            () = timer => {}
        }
        true
    }
}

/// Waits until the study is about to be deleted.
async fn left(live: &LiveStudy) {
    live.leaves.subscribe().wait_for(|leaves| *leaves).await.ok();
}

enum Kept {
    Something,
    Nothing,
    Gone,
}

enum Did {
    Something,
    /// Nothing, but there is something to tell.
    Tells,
    Nothing,
    Waits(String),
    Gone,
}
