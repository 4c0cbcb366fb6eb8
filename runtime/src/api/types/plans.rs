//! What is planned about a training job, over the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weft_core::plan::aim::Limits;
use weft_core::plan::bounds::Bounds;
use weft_core::plan::points::{Point, Recommendation};
use weft_core::plan::policy::{Kept, Spent};
use weft_core::spec::Shape;

/// What is planned about a job: what was decided, what that was expected to take and what it took, and what one may choose
/// between.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlanView {
    /// Of the job.
    pub job: String,
    /// Who decides, as it was asked for.
    pub policy: String,
    /// Whether the job is only about finding out, and keeps no model.
    pub only: bool,
    /// What no decision leaves.
    pub bounds: Bounds,
    /// What the job may use, with what its policy has in its name.
    pub limits: Limits,
    /// The shape that the job began with, and the one that it has now.
    pub start: Shape,
    pub shape: Shape,
    /// What was used so far, and apart what tries used of that.
    pub spent: Spent,
    /// Steps that are left, as decisions count them: of the size of the batch of one worker, or of the global batch.
    pub left: u64,
    /// Whether nothing more is to be tried.
    pub is_settled: bool,
    /// Each decision that is still kept, the oldest first, with what came of it.
    pub decisions: Vec<Kept>,
    /// Decisions that were made before those.
    pub forgotten: u64,
    /// Settings of which no other is both faster and cheaper, the fastest first: what the whole job takes with each.
    pub points: Vec<Point>,
    /// Which of those to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<Recommendation>,
}
