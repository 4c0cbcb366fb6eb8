//! Streams of server-sent events that go on and can be resumed, for whatever is told in numbered pieces.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{ACCEPT, HeaderMap};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use tokio::sync::watch;

use super::auth::is_still;
use super::problem::{ApiError, Kind};
use crate::node::Node;
use crate::places::MAX_FOLLOWERS;
use crate::sandbox::Permit;
use crate::tenant::Tenant;

/// Pieces that are fetched at once.
const PIECE: usize = 256;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What is told in pieces, each with a number that is higher than the last.
pub trait Told: Send + Sync + 'static {
    type Piece: Send;

    /// Up to `limit` pieces after the one with this number, oldest first.
    fn after(&self, after: u64, limit: usize) -> Vec<Self::Piece>;

    /// Wakes whoever waits for the next.
    fn latest(&self) -> watch::Receiver<u64>;

    /// Whether there will be no more than there is now.
    fn is_over(&self) -> bool {
        false
    }

    fn number(piece: &Self::Piece) -> u64;

    /// A piece as an event, but for its number.
    fn event(piece: &Self::Piece) -> Result<Event, axum::Error>;
}

/// Whether the client wants a stream.
pub fn wants_events(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// The last piece that a client has seen: its header says it after a connection broke, its query otherwise.
pub fn last_seen(headers: &HeaderMap, query: Option<u64>) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(query) };
    let id = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    id.map(Some).ok_or_else(|| ApiError::new(Kind::InvalidRequest, "`Last-Event-ID` must be the id of an event"))
}

/// A stream of what is told after the piece `after`. Some pieces at a time are held for it, however slowly it is read.
pub async fn follow<T: Told>(
    told: T,
    after: Option<u64>,
    tenant: Arc<Tenant>,
    headers: HeaderMap,
    node: Arc<Node>,
) -> Result<Response, ApiError> {
    let follow = Follow {
        _permit: node.places.follow(&tenant).await.map_err(|_| {
            let detail = format!("more than `max_followers` = {MAX_FOLLOWERS} streams of this tenant at once");
            ApiError::new(Kind::Busy, detail).limit("max_followers").retry_after(5)
        })?,
        latest: told.latest(),
        draining: node.draining(),
        after: after.unwrap_or(0),
        pending: VecDeque::new(),
        told,
        tenant,
        headers,
        node,
    };
    Ok(Sse::new(events(follow)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

struct Follow<T: Told> {
    _permit: Permit,
    told: T,
    pending: VecDeque<T::Piece>,
    after: u64,
    tenant: Arc<Tenant>,
    headers: HeaderMap,
    node: Arc<Node>,
    latest: watch::Receiver<u64>,
    draining: watch::Receiver<bool>,
}

impl<T: Told> Follow<T> {
    /// The next piece, or nothing when all is told, the node stops or the key no longer works.
    async fn next(&mut self) -> Option<T::Piece> {
        loop {
            if let Some(piece) = self.pending.pop_front() {
                self.after = T::number(&piece);
                return is_still(&self.tenant, &self.headers, &self.node).then_some(piece);
            }
            self.latest.mark_unchanged();
            // Before the last pieces are fetched: they may come in between.
            let over = self.told.is_over();
            self.pending = self.told.after(self.after, PIECE).into();
            if !self.pending.is_empty() {
                continue;
            }
            if over || *self.draining.borrow() {
                return None;
            }
            tokio::select! {
                changed = self.latest.changed() => changed.ok()?,
                changed = self.draining.changed() => changed.ok()?,
            }
        }
    }
}

fn events<T: Told>(follow: Follow<T>) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(follow, |mut follow| async move {
        let piece = follow.next().await?;
        let event = T::event(&piece).map(|event| event.id(T::number(&piece).to_string()));
        Some((Ok(event.unwrap_or_else(|_| Event::default().comment("an event that is not JSON"))), follow))
    })
}
