//! What functions and jobs log: the last lines, or a stream that goes on and can be resumed.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::auth::AsTenant;
use super::charged::{ITEM, charged};
use super::follow::{Told, follow, last_seen, wants_events};
use super::problem::ApiError;
use super::request::Params;
use super::types::{LogList, Problem};
use crate::logs::{LogBook, LogLine, Whose};
use crate::node::Node;
use crate::tenant::Tenant;

const MAX_TAIL: usize = 10_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// How many of the latest lines; 100 unless said otherwise.
    tail: Option<usize>,
    /// Only lines after the one with this id.
    after: Option<u64>,
}

/// Read a function's log. With `Accept: text/event-stream`, new lines follow as they are written, each with its id, and a
/// client that reconnects with `Last-Event-ID` misses none that are still kept.
#[utoipa::path(
    get, path = "/v1/functions/{name}/logs", tag = "functions", operation_id = "logs",
    params(
        ("name" = String, Path), LogQuery,
        ("last-event-id" = Option<u64>, Header, description = "Go on after this line"),
    ),
    responses(
        (status = 200, description = "Lines, or a stream of `line` events", content(
            (LogList = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 404, body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn logs(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(query): Params<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let function = node.registry.get(tenant.id, &name)?;
    lines(Whose::Function(function.name.clone()), query, tenant, headers, node).await
}

/// Read what the functions of a job log, as for a function.
#[utoipa::path(
    get, path = "/v1/jobs/{name}/logs", tag = "jobs", operation_id = "job_logs",
    params(
        ("name" = String, Path), LogQuery,
        ("last-event-id" = Option<u64>, Header, description = "Go on after this line"),
    ),
    responses(
        (status = 200, description = "Lines, or a stream of `line` events", content(
            (LogList = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 404, body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn job_logs(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(query): Params<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let job = node.jobs.roster.get(tenant.id, &name)?;
    lines(Whose::Job(job.name.clone()), query, tenant, headers, node).await
}

async fn lines(
    whose: Whose,
    query: LogQuery,
    tenant: Arc<Tenant>,
    headers: HeaderMap,
    node: Arc<Node>,
) -> Result<Response, ApiError> {
    let book = node.logs.book(tenant.id);
    let after = last_seen(&headers, query.after)?;
    let lines = match after {
        Some(after) => book.after(&whose, after, MAX_TAIL),
        None => book.tail(&whose, query.tail.unwrap_or(100).min(MAX_TAIL)),
    };
    match wants_events(&headers) {
        false => {
            let expected = lines.iter().map(|line| line.message.len() + ITEM).sum();
            charged(&node, &tenant, expected, move || LogList { lines }).await
        }
        true => {
            let after = lines.first().map(|line| Lines::number(line).saturating_sub(1)).or(after);
            drop(lines);
            follow(Lines { book, whose }, after, tenant, headers, node).await
        }
    }
}

/// Some lines of a tenant's log.
struct Lines {
    book: Arc<LogBook>,
    whose: Whose,
}

impl Told for Lines {
    type Piece = LogLine;

    fn after(&self, after: u64, limit: usize) -> Vec<LogLine> {
        self.book.after(&self.whose, after, limit)
    }

    fn latest(&self) -> watch::Receiver<u64> {
        self.book.follow()
    }

    fn number(line: &LogLine) -> u64 {
        line.id
    }

    fn event(line: &LogLine) -> Result<Event, axum::Error> {
        Event::default().event("line").json_data(line)
    }
}
