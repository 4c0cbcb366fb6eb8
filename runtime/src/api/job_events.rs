//! What happens in a job: the events so far, or a stream that goes on until it is over.

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
use super::types::{JobEventList, JobEventView, Problem};
use crate::job::{EventBook, JobEvent};
use crate::node::Node;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Only events after the one with this id.
    pub(super) after: Option<u64>,
}

/// Read what happened in a job. With `Accept: text/event-stream`, events follow as they happen (`state`, `ready`, `progress`,
/// `epoch`, `worker`, `checkpoint`), each with its id, until the job is over; a client that reconnects with `Last-Event-ID`
/// misses none that are still kept.
#[utoipa::path(
    get, path = "/v1/jobs/{name}/events", tag = "jobs", operation_id = "job_events",
    params(
        ("name" = String, Path), EventQuery,
        ("last-event-id" = Option<u64>, Header, description = "Go on after this event"),
    ),
    responses(
        (status = 200, description = "Events, or a stream of them", content(
            (JobEventList = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 404, body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn events(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(query): Params<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let events = Events(node.jobs.roster.events(tenant.id, &name)?);
    // An event that is later than the latest is of another job that had this name.
    let latest = *events.latest().borrow();
    let after = last_seen(&headers, query.after)?.filter(|&after| after <= latest);
    match wants_events(&headers) {
        false => {
            let event = |(id, event)| JobEventView { id, event };
            // All that are kept, as there is no saying how large they are before they are looked at.
            let expected = usize::try_from(latest.saturating_sub(after.unwrap_or(0))).unwrap_or(usize::MAX);
            let all = move || events.after(after.unwrap_or(0), usize::MAX).into_iter().map(event).collect();
            charged(&node, &tenant, expected.saturating_mul(ITEM), move || JobEventList { events: all() }).await
        }
        true => follow(events, after, tenant, headers, node).await,
    }
}

/// The events of a job.
struct Events(Arc<EventBook>);

impl Told for Events {
    type Piece = (u64, JobEvent);

    fn after(&self, after: u64, limit: usize) -> Vec<Self::Piece> {
        self.0.after(after, limit)
    }

    fn latest(&self) -> watch::Receiver<u64> {
        self.0.follow()
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn number((number, _): &Self::Piece) -> u64 {
        *number
    }

    fn event((_, event): &Self::Piece) -> Result<Event, axum::Error> {
        Event::default().event(event.kind()).json_data(event)
    }
}
