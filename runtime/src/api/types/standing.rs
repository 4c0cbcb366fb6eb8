//! Standing orders over the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::job::JobSpec;

/// A job that is started whenever a data set has grown.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StandingOrderView {
    pub dataset: String,
    /// RFC 3339.
    pub created_at: String,
    /// What is asked for, version by version. A `name` gets the version's number at its end.
    pub spec: JobSpec,
    /// The version that its latest job was started for, or that was there when the order was given, `sha256:…`.
    pub seen: String,
    /// The latest job that it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// How many it has started.
    pub started: u64,
    /// Why no job was started; empty if one was.
    pub problem: String,
}

/// A page of standing orders.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StandingOrderList {
    pub orders: Vec<StandingOrderView>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
