//! What a request knows of the connection that it came on.
//!
//! A node has so many connections and no more. So that nobody keeps others out, a connection may be closed when all are
//! taken, unless a request of somebody who showed a key is being answered on it; and a tenant can have only so many of those.
//! This is the state of one connection, which three parties change: the request that is being answered, the task that reads
//! and writes, and whoever looks for a connection to close.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::locks::Lock;
use crate::tenant::Answering;

/// May be closed.
const OPEN: u8 = 0;
/// Somebody who showed a key is being answered.
const HELD: u8 = 1;
/// Somebody else wants its place: it is closed, unless a request with a key is there first.
const CLOSING: u8 = 2;
/// Nothing is answered on it any more.
const CLOSED: u8 = 3;

/// One connection of a client.
pub struct Connection {
    state: AtomicU8,
    /// Whether any request is being answered, whoever sent it, or an answer is still being sent.
    busy: AtomicBool,
    /// Requests whose answers are not yet with whoever sends them.
    unanswered: AtomicU32,
    opened: Instant,
    /// When it was last of use, in milliseconds after it was opened.
    used_ms: AtomicU64,
    told_to_close: Notify,
    /// Whose share of the connections it is counted in, while it is held.
    counted: Mutex<Option<Answering>>,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            state: AtomicU8::new(OPEN),
            busy: AtomicBool::new(false),
            unanswered: AtomicU32::new(0),
            opened: Instant::now(),
            used_ms: AtomicU64::new(0),
            told_to_close: Notify::new(),
            counted: Mutex::new(None),
        }
    }
}

impl Connection {
    /// A request has arrived. It is being answered until the result is dropped and [`Self::flushed`] is called after that.
    pub fn begin_request(self: &Arc<Self>) -> RequestOn {
        self.busy.store(true, Relaxed);
        self.unanswered.fetch_add(1, Relaxed);
        RequestOn(self.clone())
    }

    /// All bytes that there were to send have left the process. HTTP hands over the last piece of an answer, which may be
    /// all of it, long before that; so this is what ends a request whose answer has been handed over.
    pub fn flushed(&self) {
        if self.is_busy() && self.unanswered.load(Relaxed) == 0 {
            self.end_requests();
        }
    }

    /// Whether a request is being answered, or its answer is still being sent.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Relaxed)
    }

    /// The request that is being answered has shown a key: the connection is not closed before its answer is sent. `counted`
    /// is given back then. Says whether it came in time, which is before the connection was closed for somebody else.
    pub fn hold(&self, counted: Option<Answering>) -> bool {
        let held = self.state.fetch_update(Relaxed, Relaxed, |state| (state != CLOSED).then_some(HELD));
        let in_time = held.is_ok();
        if in_time {
            // A request that comes while the answer to the one before it is still being sent takes its place.
            *self.counted.locked() = counted;
        }
        in_time
    }

    /// Whether it could be closed now.
    pub fn may_close(&self) -> bool {
        self.state.load(Relaxed) == OPEN
    }

    pub fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// When it was last of use.
    pub fn last_used(&self) -> Instant {
        self.opened + Duration::from_millis(self.used_ms.load(Relaxed))
    }

    /// Asks for it to be closed, if nobody holds it; says whether it did.
    pub fn close(&self) -> bool {
        let closing = self.state.compare_exchange(OPEN, CLOSING, Relaxed, Relaxed).is_ok();
        if closing {
            self.told_to_close.notify_one();
        }
        closing
    }

    /// Waits until it is to be closed. From then on nobody can hold it.
    pub async fn told_to_close(&self) {
        while !self.closes() {
            self.told_to_close.notified().await;
        }
    }

    /// Closes it if it was asked to be, and nobody has held it since.
    fn closes(&self) -> bool {
        self.state.compare_exchange(CLOSING, CLOSED, Relaxed, Relaxed).is_ok()
    }

    fn end_requests(&self) {
        *self.counted.locked() = None;
        self.used_ms.store(u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
        self.state.compare_exchange(HELD, OPEN, Relaxed, Relaxed).ok();
        self.busy.store(false, Relaxed);
    }
}

/// A request that is being answered, until the last piece of its answer's body is handed over to be sent.
pub struct RequestOn(Arc<Connection>);

impl RequestOn {
    pub fn connection(&self) -> Arc<Connection> {
        self.0.clone()
    }
}

impl Drop for RequestOn {
    fn drop(&mut self) {
        self.0.unanswered.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can happen to a connection, in any order in which HTTP/1 lets it happen.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Event {
        Begin,
        Hold,
        End,
        Flush,
        Ask,
        Close,
    }

    /// Every order of events up to this many.
    const DEPTH: usize = 7;

    #[test]
    fn no_order_of_events_closes_a_held_connection_or_revives_a_closed_one() {
        let mut seen = 0;
        let mut orders = vec![Vec::new()];
        while let Some(order) = orders.pop() {
            check(&order);
            seen += 1;
            if order.len() == DEPTH {
                continue;
            }
            let answering = order.iter().rev().find(|event| matches!(event, Event::Begin | Event::End));
            let next: &[Event] = match answering {
                Some(Event::Begin) => &[Event::Hold, Event::End, Event::Flush, Event::Ask, Event::Close],
                _ => &[Event::Begin, Event::Flush, Event::Ask, Event::Close],
            };
            orders.extend(next.iter().map(|event| [&order[..], &[*event]].concat()));
        }
        assert!(seen > 500, "{seen}");
    }

    fn check(order: &[Event]) {
        let connection = Arc::new(Connection::default());
        let (mut request, mut busy) = (None, false);
        let (mut held, mut asked, mut closed) = (false, false, false);
        for event in order {
            match event {
                Event::Begin => {
                    request = Some(connection.begin_request());
                    busy = true;
                }
                Event::Hold => {
                    held = connection.hold(None);
                    assert_eq!(held, !closed, "{order:?}");
                    asked &= !held;
                }
                Event::End => request = None,
                // In the middle of an answer it means nothing.
                Event::Flush if request.is_some() => connection.flushed(),
                Event::Flush => {
                    connection.flushed();
                    (busy, held) = (false, false);
                }
                Event::Ask => {
                    let is_asked = connection.close();
                    assert_eq!(is_asked, !held && !asked && !closed, "{order:?}");
                    asked |= is_asked;
                }
                Event::Close => {
                    let closes = connection.closes();
                    assert_eq!(closes, asked, "{order:?}");
                    closed |= closes;
                    asked = false;
                }
            }
            assert_eq!(connection.is_busy(), busy, "{order:?}");
            assert_eq!(connection.may_close(), !held && !asked && !closed, "{order:?}");
        }
    }
}
