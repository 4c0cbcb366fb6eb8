//! A function's log: the last lines, or a stream that goes on and can be resumed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::{ACCEPT, HeaderMap};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::auth::{AsTenant, is_still};
use super::problem::{ApiError, Kind};
use super::request::Params;
use super::types::{LogList, Problem};
use crate::logs::{LogBook, LogLine};
use crate::names::Name;
use crate::node::{MAX_FOLLOWERS, Node};
use crate::sandbox::Permit;
use crate::tenant::Tenant;

/// Lines that are fetched from the book at once.
const PIECE: usize = 256;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
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
    let book = node.logs.book(tenant.id);
    let after = match headers.get("last-event-id") {
        None => query.after,
        Some(value) => {
            let id = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            Some(id.ok_or_else(|| ApiError::new(Kind::InvalidRequest, "`Last-Event-ID` must be a line's id"))?)
        }
    };
    let tail = query.tail.unwrap_or(100).min(MAX_TAIL);
    let lines = match after {
        Some(after) => book.after(&function.name, after, MAX_TAIL),
        None => book.tail(&function.name, tail),
    };
    if !headers.get_all(ACCEPT).iter().any(|value| value.as_bytes().starts_with(b"text/event-stream")) {
        return Ok(Json(LogList { lines }).into_response());
    }
    let follow = Follow {
        _permit: node.begin_following(&tenant).await.map_err(|_| {
            let detail = format!("more than `max_followers` = {MAX_FOLLOWERS} streams of this tenant's logs at once");
            ApiError::new(Kind::Busy, detail).limit("max_followers").retry_after(5)
        })?,
        latest: book.follow(),
        draining: node.draining(),
        after: lines.last().map(|line| line.id).or(after).unwrap_or(0),
        pending: lines.into_iter().collect(),
        function: function.name.clone(),
        book,
        tenant,
        headers,
        node,
    };
    Ok(Sse::new(events(follow)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

struct Follow {
    _permit: Permit,
    book: Arc<LogBook>,
    function: Name,
    pending: std::collections::VecDeque<LogLine>,
    after: u64,
    tenant: Arc<Tenant>,
    headers: HeaderMap,
    node: Arc<Node>,
    latest: watch::Receiver<u64>,
    draining: watch::Receiver<bool>,
}

impl Follow {
    /// The next line, or nothing when the node stops or the key no longer works.
    async fn next(&mut self) -> Option<LogLine> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                self.after = line.id;
                return is_still(&self.tenant, &self.headers, &self.node).then_some(line);
            }
            self.latest.mark_unchanged();
            self.pending = self.book.after(&self.function, self.after, PIECE).into();
            if !self.pending.is_empty() {
                continue;
            }
            if *self.draining.borrow() {
                return None;
            }
            tokio::select! {
                changed = self.latest.changed() => changed.ok()?,
                changed = self.draining.changed() => changed.ok()?,
            }
        }
    }
}

fn events(follow: Follow) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(follow, |mut follow| async move {
        let line = follow.next().await?;
        let event = Event::default().id(line.id.to_string()).event("line");
        let event = event.json_data(&line).unwrap_or_else(|_| Event::default().comment("a line that is not JSON"));
        Some((Ok(event), follow))
    })
}
