//! All connections of the node, and which of them are closed when there are too many.
//!
//! As long as there is room everybody may have as many as they like. When all are taken, the address with the most
//! connections that may be closed loses the ones that it has not used for the longest time. So whoever opens thousands and
//! leaves them idle, or asks without a key, keeps out nobody but itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::Connection;
use crate::locks::Lock;

/// How long whoever waits for a place waits before it looks again for a connection to close.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How old a connection must be to be closed for others: long enough to have sent a request and to have its answer.
const GRACE: Duration = Duration::from_millis(500);
/// One of so many connections is closed at a time, because looking for them means looking at all.
const CLOSED_AT_ONCE: usize = 128;

/// Where a client is. Who has one IPv6 address has all of its network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(IpAddr::V6((address.to_bits() & !(u128::MAX >> 64)).into())),
            address => Self(address),
        }
    }
}

/// The connections of a node.
pub struct Connections {
    most: u32,
    grace: Duration,
    places: Arc<Semaphore>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    by_number: HashMap<u64, (Peer, Arc<Connection>)>,
}

impl Connections {
    pub fn new(most: u32) -> Arc<Self> {
        Self::with_grace(most, GRACE)
    }

    fn with_grace(most: u32, grace: Duration) -> Arc<Self> {
        Arc::new(Self { most, grace, places: Arc::new(Semaphore::new(most as usize)), open: Mutex::default() })
    }

    /// A place for one more connection. Waits for one if need be, and sees to it that there is one soon.
    pub async fn place(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(place) = self.places.clone().try_acquire_owned() {
                return Some(place);
            }
            self.close_some();
            if let Ok(place) = tokio::time::timeout(LOOK_AGAIN, self.places.clone().acquire_owned()).await {
                return place.ok();
            }
        }
    }

    /// Waits until all connections are closed.
    pub async fn all_closed(&self) {
        self.places.acquire_many(self.most).await.ok();
    }

    /// Notes a connection until the result is dropped.
    pub fn opened(self: &Arc<Self>, peer: Peer, place: OwnedSemaphorePermit) -> OpenConnection {
        let connection = Arc::new(Connection::default());
        let mut open = self.open.locked();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, (peer, connection.clone()));
        OpenConnection { number, connection, all: self.clone(), _place: place }
    }

    fn close_some(&self) {
        let open = self.open.locked();
        let may_close = |connection: &Connection| connection.may_close() && connection.age() >= self.grace;
        let closable = open.by_number.values().filter(|(_, connection)| may_close(connection));
        let most = (self.most as usize / CLOSED_AT_ONCE).max(1);
        for connection in least_used_of_the_fullest(closable, most) {
            connection.close();
        }
    }
}

/// Of the peer that has the most, the connections that were not used for the longest time, up to `most`.
fn least_used_of_the_fullest<'a>(
    connections: impl Iterator<Item = &'a (Peer, Arc<Connection>)> + Clone,
    most: usize,
) -> Vec<&'a Arc<Connection>> {
    let mut counts: HashMap<Peer, usize> = HashMap::new();
    for (peer, _) in connections.clone() {
        *counts.entry(*peer).or_default() += 1;
    }
    let Some((fullest, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else { return Vec::new() };
    let of_fullest = connections.filter(|(peer, _)| *peer == fullest);
    let mut theirs: Vec<_> = of_fullest.map(|(_, connection)| (connection.last_used(), connection)).collect();
    theirs.sort_unstable_by_key(|(used, _)| *used);
    theirs.into_iter().take(most).map(|(_, connection)| connection).collect()
}

/// A connection that is open.
pub struct OpenConnection {
    number: u64,
    pub connection: Arc<Connection>,
    all: Arc<Connections>,
    _place: OwnedSemaphorePermit,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.open.locked().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::from(text.parse::<IpAddr>().unwrap())
    }

    async fn opened(all: &Arc<Connections>, from: &str) -> OpenConnection {
        all.opened(peer(from), all.place().await.unwrap())
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    }

    #[tokio::test]
    async fn the_oldest_of_the_fullest_address_is_closed_and_nobody_else() {
        let all = Connections::with_grace(4, Duration::ZERO);
        let other = opened(&all, "10.0.0.1").await;
        let mut full = Vec::new();
        for _ in 0..3 {
            full.push(opened(&all, "10.0.0.2").await);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // A request makes the first one the one that was used last.
        drop(full[0].connection.begin_request());
        full[0].connection.flushed();
        let newcomer = tokio::spawn({
            let all = all.clone();
            async move { opened(&all, "10.0.0.3").await }
        });
        full[1].connection.told_to_close().await;
        assert!(other.connection.may_close() && full[0].connection.may_close() && full[2].connection.may_close());
        drop(full.remove(1));
        newcomer.await.unwrap();
    }

    #[tokio::test]
    async fn a_new_connection_is_given_time_to_be_served() {
        let all = Connections::with_grace(1, Duration::from_secs(3_600));
        let only = opened(&all, "10.0.0.1").await;
        let newcomer = tokio::time::timeout(3 * LOOK_AGAIN, opened(&all, "10.0.0.2")).await;
        assert!(newcomer.is_err() && only.connection.may_close());
    }

    #[tokio::test]
    async fn a_held_connection_is_waited_for() {
        let all = Connections::with_grace(1, Duration::ZERO);
        let only = opened(&all, "10.0.0.1").await;
        let request = only.connection.begin_request();
        assert!(only.connection.hold(None));
        let newcomer = tokio::spawn({
            let all = all.clone();
            async move { opened(&all, "10.0.0.2").await }
        });
        let closed = tokio::time::timeout(3 * LOOK_AGAIN, only.connection.told_to_close()).await;
        assert!(closed.is_err(), "it was closed while it was held");
        drop(request);
        let closed = tokio::time::timeout(3 * LOOK_AGAIN, only.connection.told_to_close()).await;
        assert!(closed.is_err(), "it was closed while its answer was being sent");
        only.connection.flushed();
        only.connection.told_to_close().await;
        drop(only);
        newcomer.await.unwrap();
    }
}
