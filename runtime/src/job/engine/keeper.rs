//! Who keeps what a job comes to: a node its records, blobs and models; `train-local` its files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_core::spec::Shape;

use super::super::checkpoint::Training;
use super::super::model::GlobalModel;
use super::super::record::{EpochRecord, Reshaped};
use super::super::team::Halt;
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
    fn wanted_shape(&self, _epoch: u64, _is_begun: bool, _now: &Shape) -> Option<Shape> {
        None
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

/// What a model's file says of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    pub step: u64,
    pub metrics: BTreeMap<String, f64>,
}
