//! The parameter store of a tenant: list, look at, fetch, set, delete.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::AsTenant;
use super::charged::{ITEM, charged};
use super::problem::{ApiError, Kind};
use super::request::{Params, Pieces, beginning, cursor};
use super::types::{ParamList, ParamSet, ParamView, ParamsDeleted, Problem};
use crate::clock::rfc3339;
use crate::names::Name;
use crate::node::Node;
use crate::params::bucket::Keeping;
use crate::params::{BadKey, Bucket, Entry, Expect, Form, Head, Key, ParamError, Value};
use crate::tenant::{Charge, Tenant};

const TAG: &str = "params";

/// What the bytes are: `bytes`, `counter`, or a type of elements and a shape, as in `f32 [2, 3]`.
const FORM: HeaderName = HeaderName::from_static("weft-form");
const VERSION: HeaderName = HeaderName::from_static("weft-param-version");

/// The longest that a request waits for a value.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Whose values.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Whose {
    /// Of this job; those that belong to none unless it is said.
    job: Option<String>,
    /// Names that begin so.
    #[serde(default, deserialize_with = "beginning")]
    prefix: String,
    /// Begin after this name.
    #[serde(default, deserialize_with = "cursor")]
    after: Option<String>,
    /// How many at most; 100 unless said otherwise, 1000 at most.
    #[param(value_type = Option<usize>)]
    limit: Option<std::num::NonZeroUsize>,
}

/// Which part of a value, and of which age.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Of this job; of none unless it is said.
    job: Option<String>,
    /// Only if it is newer than this version; else the answer is 204.
    newer_than: Option<u64>,
    /// How many milliseconds to wait for something newer, 60000 at most.
    wait_ms: Option<u64>,
    /// The first byte that is wanted.
    start: Option<u64>,
    /// The byte after the last one that is wanted.
    end: Option<u64>,
}

/// How a value is kept.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Of this job; of none unless it is said.
    job: Option<String>,
    /// Only if it is at this version, 0 for none.
    expected: Option<u64>,
    /// Milliseconds after which it is gone.
    expires_ms: Option<u64>,
    /// Answer only once it would survive a crash.
    #[serde(default)]
    durable: bool,
}

/// Of which job.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct OfJob {
    /// Of this job; of none unless it is said.
    job: Option<String>,
}

fn bucket(node: &Node, tenant: &Tenant, job: Option<&str>) -> Result<Bucket, ApiError> {
    let job = job.map(str::parse::<Name>).transpose()?;
    Ok(node.bucket(tenant, job))
}

fn view(key: &Key, head: &Head) -> ParamView {
    ParamView {
        name: key.to_string(),
        form: head.form.to_string(),
        version: head.version,
        bytes: head.bytes,
        expires_at: head.expires.map(|moment| rfc3339(moment.0)),
    }
}

/// List values by name.
#[utoipa::path(
    get, path = "/v1/params", tag = TAG, operation_id = "list_params", params(Whose),
    responses((status = 200, body = ParamList))
)]
pub async fn list(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Params(whose): Params<Whose>,
) -> Result<Response, ApiError> {
    let after = whose.after.as_deref().map(str::parse::<Key>).transpose()?;
    let bucket = bucket(&node, &tenant, whose.job.as_deref())?;
    let page = bucket.list(&whose.prefix, after.as_ref(), whose.limit.map_or(100, std::num::NonZeroUsize::get)).await?;
    tenant.ledger.charge_params(1, 0);
    let spaces = node.params.spaces(&tenant.store).await?;
    charged(&node, &tenant, (page.items.len() + spaces.len()) * ITEM, move || ParamList {
        params: page.items.iter().map(|(key, head)| view(key, head)).collect(),
        next: page.next.map(String::from),
        jobs: spaces.into_iter().filter_map(|space| space.job).map(|job| job.to_string()).collect(),
    })
    .await
}

/// Fetch a value's bytes: all of them or some, at once or when there is something newer.
#[utoipa::path(
    get, path = "/v1/params/{name}", tag = TAG, operation_id = "get_param", params(("name" = String, Path), Wanted),
    responses(
        (status = 200, description = "The bytes; `weft-form` and `weft-param-version` say what they are", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 204, description = "There is nothing newer"),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn get(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(wanted): Params<Wanted>,
) -> Result<Response, ApiError> {
    let (bucket, key) = (bucket(&node, &tenant, wanted.job.as_deref())?, name.parse::<Key>()?);
    let known = wanted.newer_than.unwrap_or(0);
    if let Some(wait) = wanted.wait_ms {
        let wait = Duration::from_millis(wait).min(LONGEST_WAIT);
        let _place = node.places.wait(&tenant).await.map_err(|_| {
            let detail = format!(
                "more than `max_param_waits` = {} requests of this tenant wait for values",
                node.places.most_waits()
            );
            ApiError::new(Kind::Busy, detail).limit("max_param_waits").retry_after(1)
        })?;
        match bucket.wait_head(&key, known, wait).await {
            Err(ParamError::TimedOut { .. }) => return Ok(StatusCode::NO_CONTENT.into_response()),
            waited => drop(waited?),
        }
    }
    let head = bucket.head(&key).await?.ok_or_else(|| ApiError::not_found(&format!("there is no value `{key}`")))?;
    if wanted.newer_than.is_some() && head.version <= known {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    // Counted until it is sent.
    let mut charge = Charge::none(tenant.memory.clone());
    charge.grow(head.bytes)?;
    let found = match (wanted.start, wanted.end) {
        (None, None) => bucket.get(&key).await?,
        (start, end) => bucket.get_range(&key, start.unwrap_or(0)..end.unwrap_or(head.bytes)).await?,
    };
    let Entry { version, value, .. } =
        found.ok_or_else(|| ApiError::not_found(&format!("there is no value `{key}`")))?;
    tenant.ledger.charge_params(1, value.data.len() as u64);
    let length = value.data.len();
    let mut answer = Response::new(Body::from(Bytes::from_owner(Sent { data: value.data, _charge: charge })));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(VERSION, version.into());
    headers.extend(HeaderValue::try_from(value.form.to_string()).ok().map(|form| (FORM, form)));
    Ok(answer)
}

struct Sent {
    data: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Set a value. The header `weft-form` says what it is; bytes unless it is there.
#[utoipa::path(
    put, path = "/v1/params/{name}", tag = TAG, operation_id = "set_param", params(("name" = String, Path), Kept),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = ParamSet), (status = 409, description = "It is at another version", body = Problem, content_type = "application/problem+json"))
)]
pub async fn set(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(kept): Params<Kept>,
    headers: HeaderMap,
    pieces: Pieces,
) -> Result<Json<ParamSet>, ApiError> {
    let (bucket, key) = (bucket(&node, &tenant, kept.job.as_deref())?, name.parse::<Key>()?);
    let form = match headers.get(FORM).map(HeaderValue::to_str) {
        None => Form::Bytes,
        Some(text) => {
            let parsed = text.ok().and_then(|text| text.parse().ok());
            let wrong = "`weft-form` must be `bytes`, `counter`, or a type and a shape, as in `f32 [2, 3]`";
            parsed.ok_or_else(|| ApiError::new(Kind::InvalidRequest, wrong))?
        }
    };
    let mut charge = Charge::none(tenant.memory.clone());
    let body = pieces.read(node.settings.max_body.0, "max_body", &mut charge).await?;
    let value = Value { form, data: body.into() };
    let value = value.checked().map_err(|error| ApiError::new(Kind::InvalidRequest, error.to_string()))?;
    tenant.ledger.charge_params(1, value.data.len() as u64);
    let keeping = Keeping { expires: kept.expires_ms.map(Duration::from_millis), durable: kept.durable };
    let version = match kept.expected {
        None => bucket.set(key, value, keeping).await?,
        Some(0) => bucket.compare_and_set(key, Expect::Absent, value, keeping).await?,
        Some(version) => bucket.compare_and_set(key, Expect::Version(version), value, keeping).await?,
    };
    Ok(Json(ParamSet { version }))
}

/// Delete a value.
#[utoipa::path(
    delete, path = "/v1/params/{name}", tag = TAG, operation_id = "delete_param", params(("name" = String, Path), OfJob),
    responses((status = 204), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn delete(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(of): Params<OfJob>,
) -> Result<StatusCode, ApiError> {
    let (bucket, key) = (bucket(&node, &tenant, of.job.as_deref())?, name.parse::<Key>()?);
    tenant.ledger.charge_params(1, 0);
    match bucket.delete(std::slice::from_ref(&key)).await? {
        0 => Err(ApiError::not_found(&format!("there is no value `{key}`"))),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

/// Delete all values: a job's, or everything of the tenant's. What a Redis has lost is accepted as lost.
#[utoipa::path(
    delete, path = "/v1/params", tag = TAG, operation_id = "delete_params", params(OfJob),
    responses((status = 200, body = ParamsDeleted))
)]
pub async fn delete_all(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Params(of): Params<OfJob>,
) -> Result<Json<ParamsDeleted>, ApiError> {
    let deleted = match &of.job {
        Some(job) => bucket(&node, &tenant, Some(job))?.clear().await?,
        None => node.clear_params(&tenant).await?,
    };
    Ok(Json(ParamsDeleted { deleted }))
}

impl From<BadKey> for ApiError {
    fn from(error: BadKey) -> Self {
        Self::new(Kind::InvalidRequest, error.to_string())
    }
}
