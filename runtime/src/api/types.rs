//! What goes over the wire, for the server and for every client in this repository.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::logs::LogLine;
use crate::tenant::{Quota, QuotaPatch, Usage};

mod jobs;
mod plans;
mod standing;
mod tunes;

pub use jobs::{
    InferAnswer, InferRequest, JobDetail, JobEventList, JobEventView, JobHistory, JobList, JobView, JobsPruned,
    ResumeRequest,
};
pub use plans::PlanView;
pub use standing::{StandingOrderList, StandingOrderView};
pub use tunes::{
    AskAnswer, BestTrial, CurvePoint, Importance, TellAnswer, TellRequest, TrialCounts, TrialList, TrialReport,
    TrialView, TuneDetail, TuneEventList, TuneEventView, TuneList, TuneView,
};

/// A deployed function.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FunctionView {
    pub name: String,
    /// The digest of the running version, `sha256:…`.
    pub version: String,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
    /// How many versions are stored.
    pub versions: usize,
    /// Bytes of all versions.
    pub stored_bytes: u64,
    /// Bytes of the running version.
    pub size: u64,
    /// The interfaces that the running version imports.
    pub imports: Vec<String>,
}

/// A page of functions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FunctionList {
    pub functions: Vec<FunctionView>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What a deploy did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeployOutcome {
    Created,
    Updated,
    Unchanged,
}

/// The answer to a deploy.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeployView {
    pub outcome: DeployOutcome,
    pub function: FunctionView,
}

/// A stored version of a function.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VersionView {
    /// `sha256:…` of the uploaded bytes.
    pub version: String,
    pub size: u64,
    /// Of the native code that it was compiled to, which counts as stored too.
    pub native_bytes: u64,
    /// RFC 3339.
    pub deployed_at: String,
    pub imports: Vec<String>,
    /// Whether this is the one that runs.
    pub active: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VersionList {
    pub versions: Vec<VersionView>,
}

/// Which version to go back to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RollbackRequest {
    /// The beginning of a version's digest; without it, the version that ran before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What a trainer says of itself.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DescriptionView {
    pub summary: String,
    pub parameters: Vec<ParameterView>,
    /// What of that can be searched, as a study has it in its `search`.
    pub search: Vec<String>,
}

/// A parameter that a trainer takes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ParameterView {
    pub name: String,
    pub summary: String,
    /// What it is if nobody says otherwise, and what it can be at least and at most.
    pub default: serde_json::Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<serde_json::Value>,
    /// What a text can be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Whether equal factors matter, and not equal steps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
}

/// Lines of a function's log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogList {
    pub lines: Vec<LogLine>,
}

/// A new tenant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantRequest {
    pub name: String,
    /// Limits that differ from the node's defaults.
    #[serde(default)]
    pub quota: QuotaPatch,
    /// The `store` of a tenant on another node that uses the same Redis: the two share their parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

/// A tenant, what it may use and what it has used.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    pub name: String,
    /// What the parameter store calls it; no other tenant ever gets this.
    pub store: String,
    /// RFC 3339.
    pub created_at: String,
    pub quota: Quota,
    pub usage: Usage,
    pub now: TenantNow,
}

/// What a tenant holds at this moment.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantNow {
    pub functions: usize,
    pub stored_bytes: u64,
    /// Linear memory and bodies in flight, in bytes.
    pub memory: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantList {
    pub tenants: Vec<TenantView>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A tenant and its key, which is shown this once.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct TenantCreated {
    pub tenant: TenantView,
    pub key: String,
}

/// A new key, which is shown this once. The old one no longer works.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct KeyRotated {
    pub key: String,
}

/// The node at this moment.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    pub version: String,
    pub tenants: usize,
    pub functions: usize,
    pub instances: u32,
    pub max_instances: u32,
    pub waiting: u32,
    /// Memory that is handed out, in bytes: instances, bodies, parameters, tensors in the machine's memory, and the two below.
    pub memory: u64,
    pub max_memory: u64,
    /// Compiled components in memory.
    pub loaded: usize,
    pub loaded_bytes: u64,
    /// What is known of jobs, in memory.
    pub job_bytes: u64,
    pub draining: bool,
}

/// What the node computes on.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceList {
    pub devices: Vec<DeviceView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceView {
    /// `cpu`, `gpu:0`, `gpu:1`, …
    pub device: String,
    pub name: String,
    pub kind: String,
    /// Bytes, and those that leases have set aside.
    pub memory: u64,
    pub reserved: u64,
    /// Who has a lease.
    pub tenants: Vec<DeviceTenant>,
}

/// What a tenant's leases on one device amount to.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceTenant {
    pub tenant: String,
    pub leases: usize,
    pub reserved: u64,
    /// Of the reserved bytes, those that are allocated.
    pub used: u64,
    /// Of these leases so far.
    pub device_seconds: f64,
}

/// An error, as RFC 9457 has it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What kind of problem; stable, to be matched on.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// What was wrong this time, and what to do.
    pub detail: String,
    /// The limit that was hit, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The word of the request that is wrong, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    /// The function's own error case, if it answered with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_error: Option<String>,
    /// The invocation, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<String>,
}

/// A file that is to be uploaded.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadRequest {
    /// Of the whole file, `sha256:…`.
    pub digest: String,
    /// Its bytes.
    pub size: u64,
}

/// How far an upload has come.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct UploadView {
    pub digest: String,
    pub size: u64,
    /// Bytes of each part but the last.
    pub part_bytes: u64,
    /// How many parts there are.
    pub parts: usize,
    /// Those that have not come; the first part is 0.
    pub missing: Vec<usize>,
}

/// A data set.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DataSetView {
    pub name: String,
    /// The digest of the newest version, `sha256:…`.
    pub version: String,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
    /// Samples to train on.
    pub train: u64,
    /// Samples to test with.
    pub test: u64,
    /// How many versions there are.
    pub versions: usize,
    /// Bytes of all versions, what they share counted once.
    pub stored_bytes: u64,
}

/// A page of data sets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DataSetList {
    pub datasets: Vec<DataSetView>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All about a data set.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DataSetDetail {
    pub dataset: DataSetView,
    /// The version that this is about.
    pub shown: String,
    /// `dense` or `sparse`.
    pub kind: String,
    /// The type that features are kept in.
    pub element: String,
    /// Of one sample.
    pub shape: Vec<usize>,
    /// What labels are.
    pub labels: String,
    /// How many classes there are.
    pub classes: usize,
    pub class_names: Vec<String>,
    /// What is done to features when batches are made.
    pub transform: String,
    /// The rule that made the samples, where a program did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<String>,
    pub train: SplitView,
    pub test: SplitView,
    pub statistics: StatisticsView,
    /// The first samples, as text.
    pub preview: String,
    /// Oldest first.
    pub versions: Vec<DataSetVersionView>,
}

/// The samples to train on, or those to test with.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SplitView {
    pub count: u64,
    pub blocks: usize,
    pub bytes: u64,
    /// Samples of each class.
    pub classes: Vec<u64>,
}

/// Moments of the features of the samples to train on, by channel or column: the first few.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticsView {
    /// How many channels or columns there are.
    pub groups: usize,
    pub mean: Vec<f64>,
    pub deviation: Vec<f64>,
    pub low: Vec<f32>,
    pub high: Vec<f32>,
}

/// A version of a data set.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DataSetVersionView {
    pub version: String,
    pub created_at: String,
    pub train: u64,
    pub test: u64,
}

/// Which upload is to become a model.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelRequest {
    /// Its digest.
    pub upload: String,
}

/// A model.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ModelView {
    pub name: String,
    /// Of the file, `sha256:…`.
    pub digest: String,
    pub size: u64,
    pub tensors: usize,
    /// Numbers in all tensors.
    pub parameters: u64,
    /// RFC 3339.
    pub created_at: String,
}

/// A page of models.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ModelList {
    pub models: Vec<ModelView>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All about a model.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ModelDetail {
    pub model: ModelView,
    /// What its file says: function, step, hyper-parameters, metrics, data set.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// A page of them, in the order of the file.
    pub tensors: Vec<TensorView>,
    /// Give this as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A tensor of a model.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TensorView {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<usize>,
}

/// A value of the parameter store.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ParamView {
    pub name: String,
    /// `bytes`, `a counter`, or a type of elements and a shape.
    pub form: String,
    /// Grows with every change.
    pub version: u64,
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// Values, by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ParamList {
    pub params: Vec<ParamView>,
    /// Where the next page begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Jobs that have values of their own.
    pub jobs: Vec<String>,
}

/// A value was set.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ParamSet {
    pub version: u64,
}

/// How many values were deleted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ParamsDeleted {
    pub deleted: u64,
}
