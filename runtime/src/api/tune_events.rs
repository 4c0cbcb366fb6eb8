//! What happens in a study: the events so far, or a stream that goes on until it is over.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use tokio::sync::watch;

use super::auth::AsTenant;
use super::charged::{ITEM, charged};
use super::follow::{Told, follow, last_seen, wants_events};
use super::job_events::EventQuery;
use super::problem::ApiError;
use super::request::Params;
use super::types::{Problem, TuneEventList, TuneEventView};
use crate::node::Node;
use crate::study::{LiveStudy, TuneEvent};

/// Read what happened in a study. With `Accept: text/event-stream`, events follow as they happen (`state`, `trial`, `report`,
/// `best`), each with its id, until the study is over or stopped; a client that reconnects with `Last-Event-ID` misses none
/// that are still kept.
#[utoipa::path(
    get, path = "/v1/tunes/{name}/events", tag = "tunes", operation_id = "tune_events",
    params(
        ("name" = String, Path), EventQuery,
        ("last-event-id" = Option<u64>, Header, description = "Go on after this event"),
    ),
    responses(
        (status = 200, description = "Events, or a stream of them", content(
            (TuneEventList = "application/json"),
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
    let events = Events(node.studies.roster.get(tenant.id, &name)?);
    // An event that is later than the latest is of another study that had this name.
    let latest = *events.latest().borrow();
    let after = last_seen(&headers, query.after)?.filter(|&after| after <= latest);
    match wants_events(&headers) {
        false => {
            let event = |(id, event)| TuneEventView { id, event };
            let kept = events.after(after.unwrap_or(0), usize::MAX);
            let expected = kept.len() * ITEM;
            let make = move || TuneEventList { events: kept.into_iter().map(event).collect() };
            charged(&node, &tenant, expected, make).await
        }
        true => follow(events, after, tenant, headers, node).await,
    }
}

/// The events of a study.
struct Events(Arc<LiveStudy>);

impl Told for Events {
    type Piece = (u64, TuneEvent);

    fn after(&self, after: u64, limit: usize) -> Vec<Self::Piece> {
        self.0.events.since(after, limit)
    }

    fn latest(&self) -> watch::Receiver<u64> {
        self.0.events.follow()
    }

    fn is_over(&self) -> bool {
        self.0.events.is_over()
    }

    fn number((number, _): &Self::Piece) -> u64 {
        *number
    }

    fn event((_, event): &Self::Piece) -> Result<Event, axum::Error> {
        Event::default().event(event.kind()).json_data(event)
    }
}
