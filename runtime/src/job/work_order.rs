//! What the coordinator tells a worker to do. All of it can be written down and sent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weft_core::sync::barrier::{MergePart, MergeResult};
use weft_core::sync::{Slot, Who};

use super::contribution::Payload;
use super::model::{GlobalModel, WorkerState};
use super::numbers::{Numbers, as_owned, as_owned_option};
use super::workshop::Cursor;

/// What a worker is to do in a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    Train {
        steps: u64,
        /// Whether all go on from one model afterwards; otherwise each from its own weights.
        joins: bool,
    },
    /// Turns the merged statistics into weights. One worker does it for all.
    Update,
    Evaluate,
    /// Evaluates on the samples that are new in this version of the data set.
    EvaluateNew,
    /// Hands its own weights over.
    ShowWeights,
}

/// What a worker is told to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkOrder {
    /// Its part of a round. With a generation above 0 it may be one that it has done already: then it hands in the same
    /// once more.
    Work { assignment: Box<Assignment>, generation: u32 },
    /// A merge of what others have put into the channel.
    Merge(MergeOrder),
}

/// What workers have merged in a round, and the learning rate that goes with it. A worker that has the model of that round
/// makes the next one of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakeOrder {
    pub round: u64,
    #[serde(with = "as_owned")]
    pub results: Arc<Vec<MergeResult>>,
    pub rate: f32,
}

/// The model that a worker begins with: which one it is, and where its numbers are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRef {
    /// See [`GlobalModel::version`].
    pub version: u64,
    /// See [`GlobalModel::of`].
    pub of: Option<Who>,
    /// Nothing where the worker makes it of the model before by [`Assignment::take`]. A worker that needs numbers which it
    /// does not find asks for them.
    pub weights: Option<Payload>,
    /// Nothing where the weights are not here: the buffers are where these are.
    pub buffers: Numbers,
}

impl ModelRef {
    /// A model with all of its numbers, which are shared.
    pub fn whole(model: &GlobalModel) -> Self {
        let GlobalModel { weights, buffers, of, version } = model;
        let weights = Some(Payload::Plain(weights.clone()));
        Self { version: *version, of: *of, weights, buffers: buffers.clone() }
    }

    /// A model that lies in a slot, or that its worker makes.
    pub fn elsewhere(model: &GlobalModel, slot: Option<Slot>) -> Self {
        let weights = slot.map(Payload::Stored);
        Self { version: model.version, of: model.of, weights, buffers: Numbers::default() }
    }
}

/// One merge of a round, all parts of which are there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergeOrder {
    pub round: u64,
    /// Which of the plan's.
    pub merge: usize,
    pub generation: u32,
    pub parts: Vec<MergePart>,
    /// Samples of all parts of the round that count.
    pub total: u64,
}

/// What one worker is given at the start of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    pub round: u64,
    pub task: Task,
    pub at: Cursor,
    pub model: ModelRef,
    /// Where the worker finds what makes this model of the one before, if workers have merged it.
    pub take: Option<TakeOrder>,
    /// The state of the optimizer that all workers share, for one that does not have it.
    #[serde(with = "as_owned_option")]
    pub optimizer: Option<Arc<WorkerState>>,
    #[serde(with = "as_owned_option")]
    pub worker_state: Option<Arc<WorkerState>>,
    /// Whether that state is not what the worker left, so that it has to be loaded.
    pub is_new_state: bool,
    /// Whether the worker's model turned out to be another than this one, so that it has to be loaded.
    #[serde(default)]
    pub is_new_model: bool,
    /// Whether the worker is to say what the checksum of its model is, as the round begins.
    #[serde(default)]
    pub tells_checksum: bool,
    /// Gradients that a peer takes a step with, on its own weights, before anything else.
    pub average: Option<Numbers>,
    /// The merged statistics of all workers; only for [`Task::Update`].
    pub statistics: Numbers,
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use weft_core::spec::Shape;
    use weft_core::sync::topology::Source;

    use super::*;
    use crate::dataset::shard::Cut;

    const WHO: Who = Who { worker: 3, claim: u64::MAX };
    const SLOT: Slot = Slot { round: 5, layer: u32::MAX, shard: 0, worker: 0, claim: 0 };

    fn model() -> GlobalModel {
        let (weights, buffers) = (vec![0.1, f32::INFINITY].into(), vec![7.0].into());
        GlobalModel { weights, buffers, of: Some(WHO), version: 12 }
    }

    fn assignment(task: Task, model: ModelRef, take: Option<TakeOrder>) -> Assignment {
        let state = WorkerState {
            moments: vec![0.5, -0.0],
            steps: 9,
            locals: vec![1.0],
            residual: vec![f32::MIN_POSITIVE],
            weights: vec![2.0, 3.0],
            duals: vec![-1.0],
        };
        let at = Cursor {
            epoch: 2,
            cuts: [Cut { shards: 4, taken: 17 }].into(),
            done: 5,
            step: 1 << 40,
            batch: NonZeroU32::new(32).unwrap(),
            rate: 0.1,
            shape: Shape { workers: 4, batch: NonZeroU32::new(8), ..Shape::LEAST },
        };
        Assignment {
            round: 6,
            task,
            at,
            model,
            take,
            optimizer: Some(Arc::new(WorkerState::default())),
            worker_state: Some(Arc::new(state)),
            is_new_state: true,
            is_new_model: true,
            tells_checksum: true,
            average: Some(vec![0.25, 0.75].into()),
            statistics: vec![1.0, 2.0, 3.0].into(),
        }
    }

    #[test]
    fn every_order_is_read_as_it_was_written() {
        let results = Arc::new(vec![MergeResult { shard: 1, merge: 2, who: WHO }]);
        let take = Some(TakeOrder { round: 5, results, rate: 1e-3 });
        let work =
            |task, model, take| WorkOrder::Work { assignment: Box::new(assignment(task, model, take)), generation: 1 };
        let part = |source, layer| MergePart { source, who: WHO, layer, samples: 64 };
        let bare = Assignment {
            optimizer: None,
            worker_state: None,
            average: None,
            statistics: Numbers::default(),
            ..assignment(Task::Evaluate, ModelRef::whole(&model()), None)
        };
        for order in [
            work(Task::Train { steps: 3, joins: false }, ModelRef::elsewhere(&model(), None), take),
            work(Task::Update, ModelRef::elsewhere(&model(), Some(SLOT)), None),
            work(Task::ShowWeights, ModelRef::whole(&model()), None),
            work(Task::EvaluateNew, ModelRef::whole(&model()), None),
            WorkOrder::Work { assignment: Box::new(bare), generation: 0 },
            WorkOrder::Merge(MergeOrder {
                round: 6,
                merge: 1,
                generation: 2,
                parts: vec![part(Source::Worker(1), 0), part(Source::Merge(0), 1)],
                total: 128,
            }),
        ] {
            let packed = rmp_serde::to_vec_named(&order).unwrap();
            assert_eq!(rmp_serde::from_slice::<WorkOrder>(&packed).unwrap(), order);
            let text = serde_json::to_string(&order).unwrap();
            assert_eq!(serde_json::from_str::<WorkOrder>(&text).unwrap(), order);
        }
    }

    #[test]
    fn a_model_that_lies_in_a_slot_is_written_as_its_name_alone() {
        let large = GlobalModel { weights: vec![0.5; 10_000].into(), ..model() };
        let size = |model: ModelRef| rmp_serde::to_vec_named(&model).unwrap().len();
        assert!(size(ModelRef::whole(&large)) > 40_000);
        assert!(size(ModelRef::elsewhere(&large, Some(SLOT))) < 256 && size(ModelRef::elsewhere(&large, None)) < 256);
    }
}
