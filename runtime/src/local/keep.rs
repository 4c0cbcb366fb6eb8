//! What a training on this machine comes to is kept as files: its model, those of single epochs, and its checkpoint.
//!
//! The engine says more often how far it is than files are worth writing. The latest is held in memory, so that whoever
//! interrupts a training loses little, and is written when a while has passed, when somebody asked for it, or at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use weft_core::spec::JobSpec;

use super::output::{OutputError, OutputFiles};
use super::resume;
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::job::checkpoint::Training;
use crate::job::engine::{Keeper, ModelFacts};
use crate::job::meter::Meter;
use crate::job::model::GlobalModel;
use crate::job::record::CheckpointRef;
use crate::job::team::{Halt, News};
use crate::job::workshop::Workshop;
use crate::job::{EpochRecord, JobEvent, State};
use crate::locks::Lock;
use crate::model::{Input, Meta};
use crate::tenant::TrainingUse;
use crate::train::declared::{Plan, Role};
use crate::train::settings;

/// How often a checkpoint is written that nobody asked for.
const WRITE_EVERY: Duration = Duration::from_secs(10);

/// What is trained, as its files say.
pub struct Subject {
    /// As it was asked for.
    pub spec: JobSpec,
    /// How often it was started, this time included.
    pub starts: u64,
    pub version: Digest,
    pub data_version: Option<Digest>,
    hyper_parameters: BTreeMap<String, Value>,
    input: Option<Input>,
}

impl Subject {
    pub fn new(workshop: &Workshop, spec: JobSpec, starts: u64) -> Self {
        Self {
            spec,
            starts,
            version: workshop.brief.version,
            data_version: workshop.brief.data.as_ref().map(|data| data.version),
            hyper_parameters: settings::to_json(&workshop.brief.settings),
            input: workshop.data.as_ref().map(|data| Input::of(&data.manifest)),
        }
    }

    pub fn meta(&self) -> Meta {
        Meta {
            function: Some(self.version),
            hyper_parameters: self.hyper_parameters.clone(),
            data_set: self.data_version,
            created_ms: Some(unix_ms()),
            input: self.input.clone(),
            ..Meta::default()
        }
    }
}

/// Writes what a training comes to.
pub struct FileKeeper {
    files: OutputFiles,
    subject: Subject,
    events: UnboundedSender<JobEvent>,
    kept: Mutex<Kept>,
}

/// What a training has come to.
pub struct Kept {
    /// Epochs that are done, earlier runs included.
    pub epoch: u64,
    /// Of this run.
    pub history: Vec<EpochRecord>,
    /// What is newer than the checkpoint that was written.
    unwritten: Option<Training>,
    /// The one that is written.
    pub checkpoint: Option<CheckpointRef>,
    looked: Instant,
    /// Files that were written, the latest last.
    pub models: Vec<KeptModel>,
    /// Workers that were lost in this run.
    pub losses: u64,
    last_loss: String,
}

/// A model's file.
#[derive(Clone, Debug)]
pub struct KeptModel {
    pub path: PathBuf,
    pub bytes: u64,
    pub parameters: usize,
    pub step: u64,
}

impl FileKeeper {
    /// For a training that goes on from this checkpoint, if there is one.
    pub fn new(
        files: OutputFiles,
        subject: Subject,
        checkpoint: Option<CheckpointRef>,
        events: UnboundedSender<JobEvent>,
    ) -> Self {
        let kept = Kept {
            epoch: checkpoint.map_or(0, |checkpoint| checkpoint.epoch),
            history: Vec::new(),
            unwritten: None,
            checkpoint,
            looked: Instant::now(),
            models: Vec::new(),
            losses: 0,
            last_loss: String::new(),
        };
        Self { files, subject, events, kept: Mutex::new(kept) }
    }

    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Looks at what was kept so far.
    pub fn kept<T>(&self, look: impl FnOnce(&Kept) -> T) -> T {
        look(&self.kept.locked())
    }

    pub fn tell(&self, event: JobEvent) {
        // Nobody listens any more when all is over.
        self.events.send(event).ok();
    }

    /// Tells followers what the workers tell.
    pub fn news(self: &Arc<Self>, meter: Meter) -> Box<dyn Fn(News) + Send> {
        let this = self.clone();
        Box::new(move |news| match news {
            News::Lost { worker, reason } => {
                let mut kept = this.kept.locked();
                kept.losses += 1;
                // A worker that is started again and meets the same end is no news.
                if kept.last_loss != reason {
                    kept.last_loss.clone_from(&reason);
                    this.tell(JobEvent::Worker { worker, reason });
                }
            }
            News::Silent(reason) => {
                this.tell(JobEvent::State { state: State::Running, reason: format!("waits: {reason}") });
            }
            News::Heard(_) => this.tell(JobEvent::State { state: State::Running, reason: String::new() }),
            // One speaks for all.
            News::Progress { worker: 0, steps, loss, .. } => {
                let epoch = this.kept(|kept| kept.epoch);
                this.tell(JobEvent::Progress(meter.progress(epoch, steps, loss)));
            }
            News::Progress { .. } => {}
        })
    }

    /// Writes the latest checkpoint, if it is not written yet.
    pub fn write_checkpoint(&self) -> Result<(), OutputError> {
        let Some(path) = self.files.checkpoint() else { return Ok(()) };
        let mut kept = self.kept.locked();
        kept.looked = Instant::now();
        let Some(training) = &kept.unwritten else { return Ok(()) };
        let mut file = Vec::new();
        training
            .write(resume::describe(&self.subject), &mut file)
            .map_err(|error| OutputError::Write { path: path.clone(), error: std::io::Error::other(error) })?;
        self.files.write(&path, &file)?;
        let (epoch, step) = (training.progress.epoch, training.progress.step);
        let checkpoint = CheckpointRef { digest: Digest::of(&file), size: file.len() as u64, epoch, step };
        (kept.unwritten, kept.checkpoint) = (None, Some(checkpoint));
        self.tell(JobEvent::Checkpoint { epoch, step, bytes: checkpoint.size });
        Ok(())
    }

    /// Deletes the checkpoint of a training that is over.
    pub fn remove_checkpoint(&self) -> Result<(), OutputError> {
        let mut kept = self.kept.locked();
        (kept.unwritten, kept.checkpoint) = (None, None);
        self.files.checkpoint().map_or(Ok(()), |path| self.files.remove(&path))
    }
}

impl Keeper for FileKeeper {
    async fn checkpoint(&self, training: &Training, epoch: Option<EpochRecord>) -> Result<(), Halt> {
        let is_asked = epoch.is_none() && self.subject.spec.checkpoint_every > 0;
        let is_due = {
            let mut kept = self.kept.locked();
            kept.unwritten = Some(training.clone());
            if let Some(epoch) = epoch {
                kept.epoch = epoch.epoch;
                self.tell(JobEvent::Epoch(Box::new(epoch.clone())));
                kept.history.push(epoch);
            }
            is_asked || kept.looked.elapsed() >= WRITE_EVERY
        };
        if is_due && let Err(error) = self.write_checkpoint() {
            // It is no reason to stop: the next one may be written, and the model is not lost by it.
            let reason = format!("a checkpoint could not be written: {error}");
            self.tell(JobEvent::State { state: State::Running, reason });
        }
        Ok(())
    }

    async fn model(&self, suffix: &str, shared: &GlobalModel, plan: &Plan, facts: ModelFacts) -> Result<(), Halt> {
        // Nothing was trained: what an earlier training has left there is worth more.
        if facts.step == 0 {
            return Ok(());
        }
        let failed = |error: &dyn std::fmt::Display| Halt::Failed(format!("the model could not be kept: {error}"));
        let meta = Meta { step: Some(facts.step), metrics: facts.metrics, ..self.subject.meta() };
        let file = shared.to_file(plan, &meta).map_err(|error| failed(&error))?;
        let path = self.files.model_with(suffix);
        self.files.write(&path, &file).map_err(|error| failed(&error))?;
        let parameters = plan.places(Role::Weight).into_iter().map(|(_, range)| range.len()).sum();
        let (bytes, step) = (file.len() as u64, facts.step);
        let mut kept = self.kept.locked();
        kept.models.retain(|model| model.path != path);
        kept.models.push(KeptModel { path, bytes, parameters, step });
        Ok(())
    }

    async fn forget_model(&self, suffix: &str) {
        let path = self.files.model_with(suffix);
        let is_own = {
            let mut kept = self.kept.locked();
            let before = kept.models.len();
            kept.models.retain(|model| model.path != path);
            kept.models.len() < before
        };
        // A run before this one has left those of its epochs.
        if (is_own || self.subject.starts > 1)
            && let Err(error) = self.files.remove(&path)
        {
            let reason = format!("an old model could not be deleted: {error}");
            self.tell(JobEvent::State { state: State::Running, reason });
        }
    }

    fn charge(&self, _: &TrainingUse) -> Result<(), String> {
        Ok(())
    }
}
