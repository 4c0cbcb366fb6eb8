//! A study as everybody may see it. Its driver has the machine that decides, and shows here what came of it once that is
//! kept.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};

use tokio::sync::{Notify, mpsc, watch};
use weft_core::spec::JobSpec;
use weft_core::tune::study::{Direction, Trial, best, curve};

use super::book::StudyBook;
use super::orders::Asked;
use super::record::{Row, StudyRecord, TrialState, TuneEvent};
use crate::job::workshop::Workshop;
use crate::job::{EpochRecord, Job, Judge};
use crate::locks::{Lock, SharedLock};
use crate::tenant::{Charge, OverLimit};
use weft_core::tune::spec::KeepModels;

/// Requests of loops outside that wait for a study's driver.
const MOST_ASKED: usize = 64;

/// The trials of a study, by their numbers. Whoever looks at them shares them.
pub type Shown = Arc<Vec<Arc<Row>>>;

pub struct LiveStudy {
    record: RwLock<Arc<StudyRecord>>,
    shown: RwLock<Shown>,
    pub events: StudyBook,
    /// Held from when its record is looked at until the changed one is shown.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// How many things it was told, or is about to be.
    pub(super) told: AtomicU64,
    /// Has its driver look again.
    pub(super) wake: Notify,
    /// What loops outside ask of its driver.
    pub(super) asked: mpsc::Sender<Asked>,
    /// Taken by its driver.
    pub(super) asks: Mutex<Option<mpsc::Receiver<Asked>>>,
    /// Whether it is about to be deleted, or was: its driver ends.
    pub(super) leaves: watch::Sender<bool>,
    /// Held by whoever deletes it.
    pub(super) deleting: tokio::sync::Mutex<()>,
    /// The job of a trial that was tried out, as far as that depends on it, and where it runs.
    pub(super) tried: Mutex<Option<(JobSpec, Arc<Workshop>)>>,
    /// Whether a driver is there.
    pub(super) is_driven: watch::Sender<bool>,
    /// Its record and its trials, of the tenant's `job_bytes`.
    charge: Mutex<StudyCharge>,
}

struct StudyCharge {
    charge: Charge,
    record: u64,
}

impl LiveStudy {
    /// The charge has what the record takes, and the rows.
    pub(super) fn new(record: StudyRecord, rows: Vec<Row>, charge: Charge) -> Arc<Self> {
        let account = charge.account().clone();
        let (asked, asks) = mpsc::channel(MOST_ASKED);
        // Numbers of a later start come after all of an earlier one.
        let events = StudyBook::after(crate::clock::unix_ms() << 10, Charge::none(account));
        events.tell(TuneEvent::State { state: record.state, reason: record.reason.clone() });
        let charge = StudyCharge { record: record.bytes(), charge };
        Arc::new(Self {
            record: RwLock::new(Arc::new(record)),
            shown: RwLock::new(Arc::new(rows.into_iter().map(Arc::new).collect())),
            events,
            changing: tokio::sync::Mutex::default(),
            told: AtomicU64::default(),
            wake: Notify::new(),
            asked,
            asks: Mutex::new(Some(asks)),
            leaves: watch::channel(false).0,
            tried: Mutex::default(),
            deleting: tokio::sync::Mutex::default(),
            is_driven: watch::channel(false).0,
            charge: Mutex::new(charge),
        })
    }

    pub fn record(&self) -> Arc<StudyRecord> {
        self.record.reading().clone()
    }

    pub fn shown(&self) -> Shown {
        self.shown.reading().clone()
    }

    /// The best trial that is shown, and its value.
    pub fn best(&self) -> Option<(Arc<Row>, f64)> {
        let (shown, direction) = (self.shown(), self.record().settings.direction);
        let (trial, value) = best(shown.iter().map(|row| &row.trial), direction)?;
        shown.get(trial.number as usize).map(|row| (row.clone(), value))
    }

    /// For each trial that came to a value, in the order of their ends, the best value so far.
    pub fn curve(&self) -> Vec<(u32, f64)> {
        curve(self.shown().iter().map(|row| &row.trial), self.record().settings.direction)
    }

    pub fn spent(&self) -> f64 {
        self.shown().iter().map(|row| row.trial.cost).sum()
    }

    /// Shows a changed record that was written, and tells whoever follows.
    pub(super) fn show_record(&self, record: StudyRecord) -> Arc<StudyRecord> {
        let record = Arc::new(record);
        {
            let mut charge = self.charge.locked();
            let bytes = record.bytes();
            let all = charge.charge.bytes() - charge.record + bytes;
            charge.charge.set_whatever_the_limit(all);
            charge.record = bytes;
        }
        let before = std::mem::replace(&mut *self.record.writing(), record.clone());
        if (before.state, &before.reason) != (record.state, &record.reason) {
            self.events.tell(TuneEvent::State { state: record.state, reason: record.reason.clone() });
        }
        record
    }

    /// Charges the tenant for more trials and more of each, before they are kept.
    pub(super) fn charge_rows(&self, more: u64) -> Result<(), OverLimit> {
        self.charge.locked().charge.grow(more)
    }

    /// Shows trials that have changed, and tells whoever follows of them.
    pub(super) fn show_rows(&self, changed: &[Arc<Row>]) {
        let direction = self.record().settings.direction;
        let mut events = Vec::new();
        let best_before = self.best();
        {
            let mut shown = self.shown.writing();
            let rows = Arc::make_mut(&mut shown);
            for row in changed {
                let number = row.trial.number as usize;
                let before = rows.get(number).cloned();
                events.extend(news(before.as_deref(), row, direction));
                match number < rows.len() {
                    true => rows[number] = row.clone(),
                    false => rows.push(row.clone()),
                }
            }
        }
        events.into_iter().for_each(|event| self.events.tell(event));
        if let Some((row, value)) = self.best()
            && best_before.is_none_or(|(_, before)| direction.turned(value) < direction.turned(before))
        {
            self.events.tell(TuneEvent::Best { trial: row.trial.number, value });
        }
    }
}

/// What followers are told of a trial that has changed.
fn news(before: Option<&Row>, row: &Row, direction: Direction) -> Vec<TuneEvent> {
    let trial = &row.trial;
    let known = before.map_or(0, |before| before.trial.reports.len());
    let report = |report: &weft_core::tune::study::Report| TuneEvent::Report {
        trial: trial.number,
        epoch: report.epoch,
        value: report.value,
    };
    let mut events: Vec<TuneEvent> = trial.reports.iter().skip(known).map(report).collect();
    let is_same = |before: &Row| before.trial.state == trial.state && before.trial.until == trial.until;
    if !before.is_some_and(is_same) {
        events.push(TuneEvent::Trial {
            trial: trial.number,
            state: TrialState::from(&trial.state),
            reason: row.reason(),
            epoch: trial.epoch(),
            until: trial.until,
            value: trial.value(direction),
            cost: trial.cost,
        });
    }
    events
}

/// The value of a study's goal that an epoch came to.
pub(super) fn goal_of(goal: &str, epoch: &EpochRecord) -> Option<f64> {
    match goal {
        "train_loss" => Some(epoch.train_loss),
        metric => epoch.validation.get(metric).copied(),
    }
}

/// Decides on the model of one trial.
pub(super) struct Judged {
    pub study: std::sync::Weak<LiveStudy>,
    pub trial: u32,
}

impl Judge for Judged {
    /// Only what is better than all others that there are is worth a file.
    fn keeps_model(&self, job: &Job) -> bool {
        let Some(study) = self.study.upgrade() else { return true };
        let record = study.record();
        match record.spec.keep {
            KeepModels::All => return true,
            KeepModels::None => return false,
            KeepModels::Best => {}
        }
        let turned = |value: f64| record.settings.direction.turned(value);
        let values = job.history.iter().filter_map(|epoch| goal_of(&record.settings.goal, epoch));
        let Some(own) = values.filter(|value| value.is_finite()).map(turned).min_by(f64::total_cmp) else {
            return false;
        };
        let shown = study.shown();
        let others = shown.iter().map(|row| &row.trial).filter(|trial: &&Trial| trial.number != self.trial);
        best(others, record.settings.direction).is_none_or(|(_, best)| own <= turned(best))
    }
}
