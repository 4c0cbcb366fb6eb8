//! What goes over the wire, for the server and for every client in this repository.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::logs::LogLine;
use crate::tenant::{Quota, QuotaPatch, Usage};

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
}

/// A tenant, what it may use and what it has used.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    pub name: String,
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
    /// Linear memory and bodies in flight, in bytes.
    pub memory: u64,
    pub max_memory: u64,
    /// Compiled components in memory.
    pub loaded: usize,
    pub loaded_bytes: u64,
    pub draining: bool,
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
    /// The function's own error case, if it answered with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_error: Option<String>,
    /// The invocation, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<String>,
}
