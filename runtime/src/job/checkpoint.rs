//! Everything that a continuation with the same bits needs, as one safetensors file.

use std::io::{self, Read, Seek};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::engine::ModelFacts;
use super::learning::Learning;
use super::model::{GlobalModel, WorkerState};
use super::record::{Spending, Stages};
use crate::model::{self, Dtype, Meta, Model, OpenError, TensorInfo, WriteError};

/// Where the JSON part is kept.
const KEY: &str = "weft.checkpoint";

/// A job between two rounds.
#[derive(Clone, Debug)]
pub struct Training {
    pub model: Arc<GlobalModel>,
    /// Of the job's own optimizer, where there is one.
    pub optimizer: WorkerState,
    /// By worker.
    pub worker_states: Vec<Arc<WorkerState>>,
    /// The model that validated best, if it is to be kept.
    pub best: Option<Arc<GlobalModel>>,
    pub progress: Progress,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Epochs that are done.
    pub epoch: u64,
    /// Steps of this epoch that are done.
    pub done: u64,
    /// Steps of all epochs that are done.
    pub step: u64,
    pub learning: Learning,
    pub sums: Sums,
    /// Of the model that validated best.
    #[serde(default)]
    pub best: ModelFacts,
}

/// What an epoch has come to so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    pub loss: f64,
    pub samples: u64,
    pub seconds: f64,
    pub memory: u64,
    pub losses: u64,
    pub stages: Stages,
    pub spending: Spending,
}

/// A file that is no checkpoint of this job.
#[derive(Debug, thiserror::Error)]
pub enum BadCheckpoint {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the checkpoint lacks `{0}`")]
    Missing(String),
    #[error("the checkpoint cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

#[derive(Serialize, Deserialize)]
struct Facts {
    progress: Progress,
    optimizer_steps: u64,
    worker_steps: Vec<u64>,
    has_best: bool,
}

impl Training {
    pub fn to_file(&self) -> Result<Vec<u8>, WriteError> {
        let mut rows: Vec<(String, &[f32])> = vec![
            ("weights".to_owned(), &self.model.weights),
            ("buffers".to_owned(), &self.model.buffers),
            ("optimizer.moments".to_owned(), &self.optimizer.moments),
        ];
        for (worker, worker_state) in self.worker_states.iter().enumerate() {
            rows.push((format!("worker.{worker}.moments"), &worker_state.moments));
            rows.push((format!("worker.{worker}.locals"), &worker_state.locals));
            if !worker_state.residual.is_empty() {
                rows.push((format!("worker.{worker}.residual"), &worker_state.residual));
            }
        }
        if let Some(best) = &self.best {
            rows.push(("best.weights".to_owned(), &best.weights));
            rows.push(("best.buffers".to_owned(), &best.buffers));
        }
        let facts = Facts {
            progress: self.progress.clone(),
            optimizer_steps: self.optimizer.steps,
            worker_steps: self.worker_states.iter().map(|worker_state| worker_state.steps).collect(),
            has_best: self.best.is_some(),
        };
        let facts = serde_json::to_string(&facts).map_err(io::Error::other)?;
        let meta = Meta { other: [(KEY.to_owned(), facts)].into(), ..Meta::default() };
        let info = |(name, row): &(String, &[f32])| TensorInfo {
            name: name.clone(),
            dtype: Dtype::F32,
            shape: vec![row.len()],
        };
        let infos: Vec<TensorInfo> = rows.iter().map(info).collect();
        let numbers =
            rows.iter().map(|(_, row)| Ok(row.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()));
        let mut file = Vec::new();
        model::write(&infos, numbers, &meta, &mut file)?;
        Ok(file)
    }

    pub fn from_file<R: Read + Seek>(file: R) -> Result<Self, BadCheckpoint> {
        let mut model = Model::open(file)?;
        let facts = model.meta.other.get(KEY).ok_or_else(|| BadCheckpoint::Missing(KEY.to_owned()))?;
        let facts: Facts = serde_json::from_str(facts)?;
        let mut row = |name: &str| -> Result<Vec<f32>, BadCheckpoint> {
            if model.info(name).is_none_or(|info| info.dtype != Dtype::F32) {
                return Err(BadCheckpoint::Missing(name.to_owned()));
            }
            Ok(model.tensor(name)?.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        };
        let mut shared = |prefix: &str| -> Result<Arc<GlobalModel>, BadCheckpoint> {
            let (weights, buffers) = (row(&format!("{prefix}weights"))?, row(&format!("{prefix}buffers"))?);
            Ok(Arc::new(GlobalModel { weights, buffers, of: None }))
        };
        let (model, best) = (shared("")?, facts.has_best.then(|| shared("best.")).transpose()?);
        let optimizer =
            WorkerState { moments: row("optimizer.moments")?, steps: facts.optimizer_steps, ..WorkerState::default() };
        let worker_state = |(worker, steps): (usize, &u64)| -> Result<Arc<WorkerState>, BadCheckpoint> {
            let moments = row(&format!("worker.{worker}.moments"))?;
            let locals = row(&format!("worker.{worker}.locals"))?;
            // Most codecs have none.
            let residual = match row(&format!("worker.{worker}.residual")) {
                Err(BadCheckpoint::Missing(_)) => Vec::new(),
                residual => residual?,
            };
            Ok(Arc::new(WorkerState { moments, steps: *steps, locals, residual }))
        };
        let worker_states = facts.worker_steps.iter().enumerate().map(worker_state).collect::<Result<_, _>>()?;
        Ok(Self { model, optimizer, worker_states, best, progress: facts.progress })
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::JobSpec;
    use super::*;

    #[test]
    fn what_is_saved_is_what_is_found() {
        let shared = |first: f32| Arc::new(GlobalModel { weights: vec![first, -0.0], buffers: vec![2.5], of: None });
        let training = Training {
            model: shared(1.0),
            optimizer: WorkerState { moments: vec![0.5; 2], steps: 7, ..WorkerState::default() },
            worker_states: vec![Arc::new(WorkerState {
                moments: vec![0.25; 2],
                steps: 9,
                locals: vec![4.0],
                residual: vec![0.5; 2],
            })],
            best: Some(shared(3.0)),
            progress: Progress {
                epoch: 2,
                done: 3,
                step: 11,
                learning: Learning::new(&JobSpec::new("f", None)),
                sums: Sums { loss: 0.1, samples: 64, ..Sums::default() },
                best: ModelFacts { step: 5, metrics: [("accuracy".to_owned(), 0.5)].into() },
            },
        };
        let found = Training::from_file(io::Cursor::new(training.to_file().unwrap())).unwrap();
        assert_eq!(found.model, training.model);
        assert_eq!((found.optimizer, found.worker_states), (training.optimizer, training.worker_states));
        assert_eq!((found.best, found.progress), (training.best, training.progress));
    }

    #[test]
    fn another_file_is_refused() {
        let file = model::write(&[], std::iter::empty::<io::Result<Vec<u8>>>(), &Meta::default(), io::sink());
        assert!(file.is_ok());
        assert!(Training::from_file(io::Cursor::new(b"nothing".to_vec())).is_err());
    }
}
