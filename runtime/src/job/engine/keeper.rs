//! Who keeps what a job comes to: a node its records, blobs and models; `train-local` its files.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weft_core::plan::bounds::Room;
use weft_core::plan::course::CourseRecord;
use weft_core::spec::Shape;

use super::super::checkpoint::Training;
use super::super::model::GlobalModel;
use super::super::record::{EpochRecord, PlanStep, Reshaped};
use super::super::team::Halt;
use super::SpentAtMost;
use crate::tenant::TrainingUse;
use crate::train::declared::Plan;

/// Who is told what a job comes to, and keeps it.
pub trait Keeper: Send + Sync {
    /// Keeps where it is, and the epoch that is over by then, if one is: both or neither. Where that cannot be done now, it
    /// is waited for.
    fn checkpoint(
        &self,
        training: &Training,
        epoch: Option<EpochRecord>,
    ) -> impl Future<Output = Result<(), Halt>> + Send;
    /// Keeps a model under this name, in place of one that it has kept before.
    fn model(
        &self,
        suffix: &str,
        shared: &GlobalModel,
        plan: &Plan,
        facts: ModelFacts,
    ) -> impl Future<Output = Result<(), Halt>> + Send;
    /// Forgets one.
    fn forget_model(&self, suffix: &str) -> impl Future<Output = ()> + Send;
    /// Whether the tenant may use more of devices.
    fn charge(&self, spent: &TrainingUse) -> Result<(), String>;
    /// The epoch after which the job comes to rest, if it is to.
    fn until(&self) -> Option<u64> {
        None
    }
    /// The shape that the job is to have from here on, if a change of it is due: in an epoch, counted from 1, some rounds
    /// of which are done already, or none.
    fn wanted_shape(&self, _epoch: u64, _is_begun: bool, _now: &Shape) -> Option<ByHand> {
        None
    }
    /// Workers that the job may have, with those that it has.
    fn room(&self, _now: &Shape) -> Room {
        Room::ENDLESS
    }
    /// What is planned is this from now on; it is kept with the next checkpoint, and then the decision is told.
    fn planned(&self, _record: Arc<CourseRecord>, _news: Option<PlanStep>) {}
    /// Writes down what the job may have spent, before it has.
    fn note_spending(&self, _most: SpentAtMost) -> impl Future<Output = Result<(), Halt>> + Send {
        async { Ok(()) }
    }
    /// Counts the job as one of this shape. Why it may not have it, otherwise.
    fn book(&self, _shape: &Shape) -> Result<(), String> {
        Ok(())
    }
    /// Has nobody start while this is held: the workers are replaced, and what the old ones had is the new ones'.
    fn hold_room(&self) -> Box<dyn Send> {
        Box::new(())
    }
    /// The changes that were due are made, and are kept with the next checkpoint; nothing, if they change nothing.
    fn made_change(&self, _change: Option<Reshaped>) {}
    /// The change that was due cannot be made now, or never.
    fn put_off_change(&self, _reason: &str, _for_good: bool) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// A shape that somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByHand {
    pub shape: Shape,
    /// What was said of it.
    pub workers: Option<u32>,
    pub memory: Option<u64>,
}

/// What a model's file says of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    pub step: u64,
    pub metrics: BTreeMap<String, f64>,
}
