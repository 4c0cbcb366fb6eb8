//! Going on from a checkpoint, with the same bits as if nothing had come in between.
//!
//! A checkpoint says what it is of: function, samples, hyper-parameters, and what was asked for. What is not said when it
//! is resumed is as it was; what is said must not contradict what the weights were trained with so far.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weft_core::spec::JobSpec;

use super::keep::Subject;
use crate::digest::Digest;
use crate::job::checkpoint::{BadCheckpoint, Training};
use crate::job::record::CheckpointRef;
use crate::model::{Meta, Model};

/// Where a checkpoint keeps what was asked for.
const KEY: &str = "weft.training";

/// Words that may change from one run to the next: when it is over, what is kept, and what does not change any bit.
const FREE: [&str; 18] = [
    "function",
    "dataset",
    "name",
    "epochs",
    "device",
    "memory",
    "straggler_ms",
    "lifetime_ms",
    "goal_accuracy",
    "goal_loss",
    "early_stop",
    "plateau",
    "validate_every",
    "max_time_ms",
    "checkpoint_every",
    "keep",
    "init_from",
    "params",
];

/// A checkpoint that training cannot go on from.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error("there is no checkpoint `{}` to go on from: leave `--resume` out to start anew", .0.display())]
    Missing(PathBuf),
    #[error("nothing can go on from what is no file")]
    NoFile,
    #[error("cannot read checkpoint `{}`: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("`{}`: {error}", path.display())]
    Bad { path: PathBuf, error: BadCheckpoint },
    #[error(
        "the checkpoint is of another {0}: leave `--resume` out to start anew, or start from a model with `--init-from`"
    )]
    Other(&'static str),
    #[error("`{flag}` was {before} when the checkpoint was made, and cannot become {now}: leave it out")]
    Changed { flag: String, before: String, now: String },
    #[error("all {0} epochs of the checkpoint are done: ask for more with `--epochs`")]
    Over(u64),
}

/// What was asked for, and how often it was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Asked {
    spec: JobSpec,
    starts: u64,
}

/// A training as a checkpoint has it.
pub struct Resumed {
    pub training: Training,
    pub spec: JobSpec,
    /// How often it was started so far.
    pub starts: u64,
    /// The file.
    pub checkpoint: CheckpointRef,
    meta: Meta,
}

/// What a checkpoint's file says of its training.
pub fn describe(subject: &Subject) -> Meta {
    let asked = Asked { spec: subject.spec.clone(), starts: subject.starts };
    let asked = serde_json::to_string(&asked).unwrap_or_default();
    Meta { other: [(KEY.to_owned(), asked)].into(), ..subject.meta() }
}

impl Resumed {
    pub fn open(path: &Path) -> Result<Self, ResumeError> {
        let bad = |error| ResumeError::Bad { path: path.to_owned(), error };
        let open = || match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ResumeError::Missing(path.to_owned())),
            opened => opened.map_err(|error| ResumeError::Read { path: path.to_owned(), error }),
        };
        let meta = Model::open(open()?).map_err(|error| bad(error.into()))?.meta;
        let asked = meta.other.get(KEY).ok_or_else(|| bad(BadCheckpoint::Missing(KEY.to_owned())))?;
        let Asked { spec, starts } = serde_json::from_str(asked).map_err(|error| bad(error.into()))?;
        let training = Training::from_file(open()?).map_err(bad)?;
        let read = |error| ResumeError::Read { path: path.to_owned(), error };
        let (digest, size) = (Digest::of_file(path).map_err(read)?, open()?.metadata().map_err(read)?.len());
        let checkpoint = CheckpointRef { digest, size, epoch: training.progress.epoch, step: training.progress.step };
        Ok(Self { training, spec, starts, checkpoint, meta })
    }

    /// Refuses to go on with something else than what was trained so far.
    pub fn check(&self, subject: &Subject) -> Result<(), ResumeError> {
        let now = subject.meta();
        if self.meta.function != now.function {
            return Err(ResumeError::Other("version of the function"));
        }
        if self.meta.data_set != now.data_set {
            return Err(ResumeError::Other("data set"));
        }
        if self.meta.hyper_parameters != now.hyper_parameters {
            return Err(ResumeError::Other("set of hyper-parameters"));
        }
        if let Some((word, before, now)) = changed(&self.spec, &subject.spec) {
            let flag = format!("--{}", word.replace('_', "-"));
            return Err(ResumeError::Changed { flag, before, now });
        }
        let done = self.training.progress.epoch;
        if done >= subject.spec.epochs {
            return Err(ResumeError::Over(done));
        }
        Ok(())
    }
}

/// The first word that has changed and must not: its name, what it was, and what it is.
fn changed(before: &JobSpec, now: &JobSpec) -> Option<(String, String, String)> {
    let words = |spec: &JobSpec| match serde_json::to_value(spec) {
        Ok(Value::Object(words)) => words,
        _ => serde_json::Map::new(),
    };
    let (before, now) = (words(before), words(now));
    let names = before.keys().chain(now.keys()).filter(|name| !FREE.contains(&name.as_str()));
    let text = |word: Option<&Value>| word.map_or_else(|| "left out".to_owned(), Value::to_string);
    names
        .map(|name| (name, before.get(name), now.get(name)))
        .find(|(_, before, now)| before != now)
        .map(|(name, before, now)| (name.clone(), text(before), text(now)))
}

#[cfg(test)]
mod tests {
    use weft_core::spec::Workers;

    use super::*;

    #[test]
    fn what_the_weights_depend_on_must_not_change_and_the_rest_may() {
        let before = JobSpec { seed: Some(1), ..JobSpec::new("spot", None) };
        let later = JobSpec { epochs: 99, goal_accuracy: Some(0.5), checkpoint_every: 7, ..before.clone() };
        assert_eq!(changed(&before, &later), None);
        let other = |now: JobSpec| changed(&before, &now).map(|(word, ..)| word);
        assert_eq!(other(JobSpec { batch: 7, ..before.clone() }).as_deref(), Some("batch"));
        assert_eq!(other(JobSpec { lr: 0.5, ..before.clone() }).as_deref(), Some("lr"));
        assert_eq!(other(JobSpec { seed: Some(2), ..before.clone() }).as_deref(), Some("seed"));
        assert_eq!(other(JobSpec { workers: Workers::exactly(2), ..before.clone() }).as_deref(), Some("workers"));
        assert_eq!(other(JobSpec { global_batch: Some(2), ..before.clone() }).as_deref(), Some("global_batch"));
    }

    #[test]
    fn what_is_not_there_or_is_no_checkpoint_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spot.checkpoint");
        let error = |path: &Path| Resumed::open(path).map(|_| ()).unwrap_err().to_string();
        assert!(error(&path).contains("there is no checkpoint"), "{}", error(&path));
        std::fs::write(&path, "something else").unwrap();
        assert!(error(&path).contains("spot.checkpoint"), "{}", error(&path));
    }
}
