//! Everything that a continuation with the same bits needs, as one safetensors file.

use std::io::{self, Read, Seek};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::engine::ModelFacts;
use super::model::{GlobalModel, WorkerState};
use super::record::Reshaped;
use crate::catalog::CatalogError;
use crate::dataset::shard::Cut;
use crate::model::{self, Dtype, Meta, Model, OpenError, TensorInfo, WriteError};
use weft_core::cost::Breakdown;
use weft_core::learning::Learning;
use weft_core::spec::Shape;
use weft_core::usage::{Replicas, Spending, Stages, Traffic};

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
    /// How this epoch's samples were divided before the shape changed in the middle of it, the first first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<Cut>,
    /// Steps of this epoch that were done before that.
    #[serde(default)]
    pub earlier: u64,
    /// Steps of this epoch that are done since then.
    pub done: u64,
    /// Steps of all epochs that are done.
    pub step: u64,
    pub learning: Learning,
    pub sums: Sums,
    /// Of the model that validated best.
    #[serde(default)]
    pub best: ModelFacts,
    /// Workers and their size; none in checkpoints of versions that could not change it.
    #[serde(default)]
    pub shape: Option<Shape>,
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
    #[serde(default)]
    pub costs: Breakdown,
    /// What went through the channel.
    #[serde(default)]
    pub traffic: Traffic,
    /// Of contributions that were applied without a barrier.
    #[serde(default)]
    pub staleness: Staleness,
    #[serde(default)]
    pub replicas: Replicas,
    /// Changes of the workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reshaped: Vec<Reshaped>,
    /// The loss on new samples before any of them was trained on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_before: Option<f64>,
}

/// How old the model was that contributions were computed from, when they were applied: in versions of the model, or in
/// rounds of the peer that averages them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Staleness {
    pub sum: u64,
    pub count: u64,
    pub most: u64,
}

impl Staleness {
    pub fn add(&mut self, versions: u64) {
        (self.sum, self.count, self.most) = (self.sum + versions, self.count + 1, self.most.max(versions));
    }

    /// Nothing where nothing was applied without a barrier.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
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

impl From<BadCheckpoint> for CatalogError {
    fn from(error: BadCheckpoint) -> Self {
        match error {
            BadCheckpoint::Open(error) => error.into(),
            other => Self::Refused(other.to_string()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Facts {
    progress: Progress,
    optimizer_steps: u64,
    worker_steps: Vec<u64>,
    has_best: bool,
}

impl Training {
    /// Bytes of the file.
    pub fn file_size(&self) -> Result<u64, WriteError> {
        self.write(Meta::default(), io::sink())
    }

    /// Writes the file, and what else there is to say of it. Numbers go straight from where they are.
    pub fn write(&self, mut meta: Meta, to: impl io::Write) -> Result<u64, WriteError> {
        let mut rows: Vec<(String, &[f32])> = vec![
            ("weights".to_owned(), &self.model.weights),
            ("buffers".to_owned(), &self.model.buffers),
            ("optimizer.moments".to_owned(), &self.optimizer.moments),
        ];
        for (worker, worker_state) in self.worker_states.iter().enumerate() {
            rows.push((format!("worker.{worker}.moments"), &worker_state.moments));
            rows.push((format!("worker.{worker}.locals"), &worker_state.locals));
            for (name, row) in worker_state.optional().into_iter().filter(|(_, row)| !row.is_empty()) {
                rows.push((format!("worker.{worker}.{name}"), row));
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
        meta.other.insert(KEY.to_owned(), facts);
        let info = |(name, row): &(String, &[f32])| TensorInfo {
            name: name.clone(),
            dtype: Dtype::F32,
            shape: vec![row.len()],
        };
        let infos: Vec<TensorInfo> = rows.iter().map(info).collect();
        model::write(&infos, rows.iter().map(|(_, row)| Ok(model::le_bytes(row))), &meta, to)
    }

    pub fn from_file<R: Read + Seek>(file: R) -> Result<Self, BadCheckpoint> {
        let mut model = Model::open(file)?;
        let facts = model.meta.other.get(KEY).ok_or_else(|| BadCheckpoint::Missing(KEY.to_owned()))?;
        let facts: Facts = serde_json::from_str(facts)?;
        let mut row = |name: &str| -> Result<Vec<f32>, BadCheckpoint> {
            let info = model.info(name).filter(|info| info.dtype == Dtype::F32);
            let info = info.ok_or_else(|| BadCheckpoint::Missing(name.to_owned()))?;
            let mut numbers = Vec::with_capacity(info.shape.iter().product());
            model.pieces(name, |piece| {
                numbers.extend(piece.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                Ok::<_, OpenError>(())
            })?;
            Ok(numbers)
        };
        let mut shared = |prefix: &str| -> Result<Arc<GlobalModel>, BadCheckpoint> {
            let (weights, buffers) = (row(&format!("{prefix}weights"))?, row(&format!("{prefix}buffers"))?);
            Ok(Arc::new(GlobalModel { weights: weights.into(), buffers: buffers.into(), of: None, version: 0 }))
        };
        let (model, best) = (shared("")?, facts.has_best.then(|| shared("best.")).transpose()?);
        let optimizer =
            WorkerState { moments: row("optimizer.moments")?, steps: facts.optimizer_steps, ..WorkerState::default() };
        let worker_state = |(worker, steps): (usize, &u64)| -> Result<Arc<WorkerState>, BadCheckpoint> {
            let moments = row(&format!("worker.{worker}.moments"))?;
            let locals = row(&format!("worker.{worker}.locals"))?;
            let mut optional = |name: &str| match row(&format!("worker.{worker}.{name}")) {
                Err(BadCheckpoint::Missing(_)) => Ok(Vec::new()),
                found => found,
            };
            let (residual, weights, duals) = (optional("residual")?, optional("weights")?, optional("duals")?);
            Ok(Arc::new(WorkerState { moments, steps: *steps, locals, residual, weights, duals }))
        };
        let worker_states = facts.worker_steps.iter().enumerate().map(worker_state).collect::<Result<_, _>>()?;
        Ok(Self { model, optimizer, worker_states, best, progress: facts.progress })
    }
}

#[cfg(test)]
mod tests {
    use weft_core::spec::JobSpec;

    use super::*;

    #[test]
    fn what_is_saved_is_what_is_found() {
        let shared = |first: f32| {
            let (weights, buffers) = (vec![first, -0.0].into(), vec![2.5].into());
            Arc::new(GlobalModel { weights, buffers, of: None, version: 0 })
        };
        let training = Training {
            model: shared(1.0),
            optimizer: WorkerState { moments: vec![0.5; 2], steps: 7, ..WorkerState::default() },
            worker_states: vec![Arc::new(WorkerState {
                moments: vec![0.25; 2],
                steps: 9,
                locals: vec![4.0],
                residual: vec![0.5; 2],
                weights: vec![1.5; 2],
                duals: vec![-0.5; 2],
            })],
            best: Some(shared(3.0)),
            progress: Progress {
                epoch: 2,
                cuts: vec![Cut { shards: 2, taken: 64 }],
                earlier: 4,
                done: 3,
                step: 11,
                learning: Learning::new(&JobSpec::new("f", None)),
                sums: Sums { loss: 0.1, samples: 64, ..Sums::default() },
                best: ModelFacts { step: 5, metrics: [("accuracy".to_owned(), 0.5)].into() },
                shape: None,
            },
        };
        let mut file = Vec::new();
        training.write(Meta::default(), &mut file).unwrap();
        let found = Training::from_file(io::Cursor::new(file)).unwrap();
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
