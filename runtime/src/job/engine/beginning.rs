//! What a job starts from: first values, another model, or a checkpoint; and the machinery that makes one model of
//! contributions.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_core::learning::Learning;
use weft_core::spec::Shape;
use weft_gpu::Codec;

use super::super::accounting::Accounting;
use super::super::channel::Channel;
use super::super::checkpoint::{Progress, Sums, Training};
use super::super::directing::{Comparison, ModelPlace, Settled};
use super::super::exchange::Scheme;
use super::super::merging::Merger;
use super::super::model::{GlobalModel, WorkerState};
use super::super::replica::Replica;
use super::super::reshape;
use super::super::scheme::{self, Lengths};
use super::super::team::{Halt, Sizes, Team};
use super::super::worker::Declaration;
use super::super::workshop::Workshop;
use super::{Engine, Keeper, ModelFacts};
use crate::train::declared::Plan;

/// Puts a model's numbers over those that a plan's tensors have at first.
pub type Load = Box<dyn FnOnce(&Plan, &mut GlobalModel) -> Result<(), String> + Send>;

/// What a job starts from.
pub enum Origin {
    /// The first values that the trainer declares.
    FirstValues,
    /// Another model's weights.
    Model(Load),
    Checkpoint(Box<Training>),
}

/// What makes one model of contributions, for workers of one shape.
pub(super) struct Machinery {
    pub merger: Merger,
    pub replica: Option<Replica>,
    pub scheme: Option<Scheme>,
}

impl Machinery {
    pub fn open(
        workshop: &Arc<Workshop>,
        shape: &Shape,
        lengths: Lengths,
        plan: &Plan,
        training: &Training,
    ) -> Result<Self, Halt> {
        let is_encoded = workshop.codec(shape) != Codec::Plain;
        let merger = Merger::new(&workshop.brief.sync, shape.workers, is_encoded, plan);
        let is_needed = merger.exchange.shares_optimizer() || is_encoded || scheme::workers_merge(workshop, shape);
        let replica = is_needed.then(|| Replica::open(workshop, shape, plan, training)).transpose()?;
        let scheme = match &replica {
            Some(replica) => scheme::scheme(workshop, shape, lengths, replica.context()),
            None => Ok(None),
        };
        let scheme = scheme.map_err(|error| Halt::Failed(error.to_string()))?;
        Ok(Self { merger, replica, scheme })
    }
}

impl<K: Keeper> Engine<K> {
    pub fn new(
        workshop: Arc<Workshop>,
        channel: Arc<dyn Channel>,
        mut team: Team,
        declaration: Declaration,
        keeper: Arc<K>,
        accounting: Accounting,
        origin: Origin,
    ) -> Result<Self, Halt> {
        let Declaration { plan, mut model, worker_state, statistics } = declaration;
        let shape = team.shape();
        let exchange = workshop.exchange(&shape);
        let (weights, buffers) = (model.weights.len(), model.buffers.len());
        let payload = if exchange.is_sum() { statistics } else { weights };
        team.sizes = Sizes { payload, buffers, weights };
        let training = match origin {
            Origin::Checkpoint(training) => {
                let mut training = *training;
                // Versions that could not change it did not write it down.
                let workers = u32::try_from(training.worker_states.len()).unwrap_or(u32::MAX);
                let before = *training.progress.shape.get_or_insert(Shape { workers, batch: None, ..shape });
                let fits = (training.model.weights.len(), training.model.buffers.len()) == (weights, buffers)
                    && before.workers == workers;
                if !fits {
                    let text = "the checkpoint is of another model than the trainer declares now";
                    return Err(Halt::Failed(text.to_owned()));
                }
                if reshape::go_on(&workshop, &mut training, &shape, &worker_state) {
                    keeper.made_change(Some(reshape::reshaped(&workshop, &training.progress, &shape)));
                }
                training
            }
            other => {
                if let Origin::Model(load) = other {
                    load(&plan, &mut model).map_err(Halt::Failed)?;
                }
                let progress = Progress {
                    epoch: 0,
                    cuts: Vec::new(),
                    earlier: 0,
                    done: 0,
                    step: 0,
                    learning: Learning::new(&workshop.spec().words),
                    sums: Sums::default(),
                    best: ModelFacts::default(),
                    shape: Some(shape),
                };
                let first = Arc::new(match exchange.descends() {
                    true => worker_state.clone(),
                    false => WorkerState { moments: Vec::new(), steps: 0, ..worker_state.clone() },
                });
                let worker_states = (0..shape.workers).map(|_| first.clone()).collect();
                Training {
                    model: Arc::new(model),
                    optimizer: WorkerState::default(),
                    worker_states,
                    best: None,
                    progress,
                }
            }
        };
        let lengths = Lengths { payload, buffers };
        let Machinery { merger, replica, scheme } = Machinery::open(&workshop, &shape, lengths, &plan, &training)?;
        Ok(Self {
            workshop,
            channel,
            scheme,
            take: None,
            place: ModelPlace::Here,
            settled: Settled::default(),
            comparison: Comparison::default(),
            team,
            keeper,
            plan,
            merger,
            replica,
            training,
            shape,
            first_state: worker_state,
            lengths,
            try_again: None,
            since_checkpoint: 0,
            metrics: BTreeMap::new(),
            residuals: None,
            has_new_states: false,
            accounting,
            planning: None,
        })
    }
}
