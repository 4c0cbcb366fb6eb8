//! What the coordinator tells a worker to do. All of it can be written down and sent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weft_core::sync::Slot;
use weft_core::sync::barrier::{MergeResult, Part};

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

/// What a worker takes from the channel before it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TakeOrder {
    /// What workers have merged in a round, and the learning rate that goes with it.
    Results {
        round: u64,
        #[serde(with = "as_owned")]
        results: Arc<Vec<MergeResult>>,
        rate: f32,
    },
    /// The model, which the coordinator has put there.
    Model(Slot),
}

/// One merge of a round, all parts of which are there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergeOrder {
    pub round: u64,
    /// Which of the plan's.
    pub merge: usize,
    pub generation: u32,
    pub parts: Vec<Part>,
    /// Samples of all parts of the round that count.
    pub total: u64,
}

/// What one worker is given at the start of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    pub round: u64,
    pub task: Task,
    pub at: Cursor,
    #[serde(with = "as_owned")]
    pub model: Arc<GlobalModel>,
    /// Where the worker finds what makes this model of the one before, if workers take it from the channel.
    pub take: Option<TakeOrder>,
    /// The state of the optimizer that all workers share, for one that does not have it.
    #[serde(with = "as_owned_option")]
    pub optimizer: Option<Arc<WorkerState>>,
    #[serde(with = "as_owned_option")]
    pub worker_state: Option<Arc<WorkerState>>,
    /// Whether that state is not what the worker left, so that it has to be loaded.
    pub is_new_state: bool,
    /// Gradients that a peer takes a step with, on its own weights, before anything else.
    pub average: Option<Numbers>,
    /// The merged statistics of all workers; only for [`Task::Update`].
    pub statistics: Numbers,
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use weft_core::spec::Shape;
    use weft_core::sync::Who;
    use weft_core::sync::topology::Source;

    use super::*;
    use crate::dataset::shard::Cut;

    const WHO: Who = Who { worker: 3, claim: u64::MAX };

    fn assignment(task: Task, take: Option<TakeOrder>) -> Assignment {
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
        let model = GlobalModel { weights: vec![0.1, f32::INFINITY], buffers: vec![7.0], of: Some(WHO), version: 12 };
        Assignment {
            round: 6,
            task,
            at,
            model: Arc::new(model),
            take,
            optimizer: Some(Arc::new(WorkerState::default())),
            worker_state: Some(Arc::new(state)),
            is_new_state: true,
            average: Some(vec![0.25, 0.75].into()),
            statistics: vec![1.0, 2.0, 3.0].into(),
        }
    }

    #[test]
    fn every_order_is_read_as_it_was_written() {
        let results = Arc::new(vec![MergeResult { shard: 1, merge: 2, who: WHO }]);
        let slot = Slot { round: 5, layer: u32::MAX, shard: 0, worker: 0, claim: 0 };
        let work = |task, take| WorkOrder::Work { assignment: Box::new(assignment(task, take)), generation: 1 };
        let part = |source, layer| Part { source, who: WHO, layer, samples: 64 };
        let bare = Assignment {
            optimizer: None,
            worker_state: None,
            average: None,
            statistics: Numbers::default(),
            ..assignment(Task::Evaluate, None)
        };
        for order in [
            work(Task::Train { steps: 3, joins: false }, Some(TakeOrder::Results { round: 5, results, rate: 1e-3 })),
            work(Task::Update, Some(TakeOrder::Model(slot))),
            work(Task::ShowWeights, None),
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
}
