//! What whoever runs the node needs: health, metrics, status, backup.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};

use super::auth::AsOperator;
use super::problem::{ApiError, Kind};
use super::types::{NodeView, Problem};
use crate::backup;
use crate::metrics::as_classic_text;
use crate::node::Node;

const TAG: &str = "operations";

/// Is the process alive?
#[utoipa::path(get, path = "/livez", tag = TAG, operation_id = "livez", security(()), responses((status = 200, body = String)))]
pub async fn livez() -> &'static str {
    "ok\n"
}

/// Does the node take work?
#[utoipa::path(
    get, path = "/readyz", tag = TAG, operation_id = "readyz", security(()),
    responses(
        (status = 200, body = String),
        (status = 503, description = "It is stopping", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn readyz(State(node): State<Arc<Node>>) -> Result<&'static str, ApiError> {
    match node.is_draining() {
        false => Ok("ready\n"),
        true => Err(ApiError::new(Kind::Draining, "the node is stopping")),
    }
}

/// The operator, or anybody if the node's metrics are open.
pub struct MayScrape;

impl FromRequestParts<Arc<Node>> for MayScrape {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, ApiError> {
        if !node.settings.open_metrics {
            AsOperator::from_request_parts(parts, node).await?;
        }
        Ok(Self)
    }
}

/// Metrics for Prometheus, as OpenMetrics for whoever accepts that.
#[utoipa::path(
    get, path = "/metrics", tag = TAG, operation_id = "metrics",
    responses((status = 200, description = "All figures", content(
        (String = "text/plain"),
        (String = "application/openmetrics-text"),
    )))
)]
pub async fn metrics(_: MayScrape, State(node): State<Arc<Node>>, headers: HeaderMap) -> Result<Response, ApiError> {
    let text = node.metrics.render(node.occupancy()).map_err(anyhow::Error::from)?;
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (content_type, text) = match accepted.any(|accepted| accepted.contains("application/openmetrics-text")) {
        true => ("application/openmetrics-text; version=1.0.0; charset=utf-8", text),
        false => ("text/plain; version=0.0.4; charset=utf-8", as_classic_text(&text)),
    };
    Ok(([(CONTENT_TYPE, content_type)], text).into_response())
}

/// The node at this moment.
#[utoipa::path(get, path = "/v1/node", tag = TAG, operation_id = "node", responses((status = 200, body = NodeView)))]
pub async fn status(_: AsOperator, State(node): State<Arc<Node>>) -> Json<NodeView> {
    let now = node.occupancy();
    Json(NodeView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tenants: now.tenants,
        functions: now.functions,
        instances: now.instances,
        max_instances: now.max_instances,
        waiting: now.waiting,
        memory: now.memory,
        max_memory: now.max_memory,
        loaded: now.loaded,
        loaded_bytes: now.loaded_bytes,
        job_bytes: now.job_bytes,
        draining: now.draining,
    })
}

/// Everything that the node stores, as of one moment, as a tar archive for `weft restore`.
#[utoipa::path(
    get, path = "/v1/backup", tag = TAG, operation_id = "backup",
    responses((status = 200, body = Vec<u8>, content_type = "application/x-tar"))
)]
pub async fn backup(_: AsOperator, State(node): State<Arc<Node>>) -> Result<Response, ApiError> {
    node.flush().await?;
    let archive = Body::from_stream(backup::stream(node).await?);
    Ok(([(CONTENT_TYPE, "application/x-tar")], archive).into_response())
}
