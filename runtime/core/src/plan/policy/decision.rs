//! What a planner is asked and told, what it answers, and how both are kept.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::plan::bounds::Room;
use crate::spec::Shape;

/// What makes an iteration take as long as it does, apart from the shape. When it changes, what was measured is void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Samples of a step of all workers.
    pub batch: u32,
    /// Parameters of the model.
    pub parameters: u64,
    /// A digest of the hyper-parameters that may change how long a step takes.
    pub settings: u64,
}

/// How things stand when a planner is asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Situation {
    pub room: Room,
    /// Of the steps to come.
    pub workload: Workload,
    /// Steps until the job is done.
    pub left: u64,
}

/// What a stretch of training took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    pub shape: Shape,
    pub workload: Workload,
    /// Steps that were done and count.
    pub steps: u64,
    /// Seconds of training them, without validation.
    pub seconds: f64,
    /// All seconds since the decision, with validation, starts and checkpoints.
    pub elapsed: f64,
    /// All that was paid since the decision.
    pub cost: f64,
    pub ends_epoch: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Go on with the shape that there is.
    Keep,
    /// Go on with this one.
    Reshape(Shape),
    /// Write a checkpoint and end: more would exceed the budget.
    Stop,
}

/// What a decision is expected to lead to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Expected {
    pub step_seconds: f64,
    pub step_cost: f64,
    /// Of the rest of the job.
    pub seconds: f64,
    pub cost: f64,
}

/// What to do, for how long, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    pub action: Action,
    /// Ask again after so many steps; in any case when an epoch ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// What the stretch may cost. Whoever trains ends it before it costs more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowance: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// Whether this is a try, whose time and cost are counted apart.
    pub is_probe: bool,
    pub why: String,
}

impl Decision {
    pub(super) fn stop(why: String) -> Self {
        Self { action: Action::Stop, steps: None, allowance: None, expected: None, is_probe: false, why }
    }
}

/// What happened to a planner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    Asked {
        situation: Situation,
        decision: Decision,
    },
    Told(Observation),
    /// Work that was paid for and is done again: a node died in the middle of it.
    Lost {
        seconds: f64,
        cost: f64,
    },
    /// Someone set this by hand, or left it to the policy again.
    Pinned {
        workers: Option<u32>,
        memory: Option<u64>,
    },
}

/// What all stretches took, and those that were tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Spent {
    pub seconds: f64,
    pub cost: f64,
    pub probes: u32,
    pub probing_seconds: f64,
    pub probing_cost: f64,
}

/// A decision beside what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Kept {
    pub decision: Decision,
    /// None as long as nothing was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came: Option<Came>,
}

/// What came of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Came {
    pub shape: Shape,
    pub steps: u64,
    pub step_seconds: f64,
    pub step_cost: f64,
}

/// Each decision of a record with what came of it.
pub fn history(record: &[Event]) -> Vec<Kept> {
    let mut kept: Vec<Kept> = Vec::new();
    for event in record {
        match event {
            Event::Asked { decision, .. } => kept.push(Kept { decision: decision.clone(), came: None }),
            Event::Told(it) => {
                if let Some(last) = kept.last_mut()
                    && it.steps > 0
                {
                    let steps = it.steps as f64;
                    let (step_seconds, step_cost) = (it.seconds / steps, it.cost / steps);
                    last.came = Some(Came { shape: it.shape, steps: it.steps, step_seconds, step_cost });
                }
            }
            Event::Lost { .. } | Event::Pinned { .. } => {}
        }
    }
    kept
}
