//! Room for chunks that are being sent.
//!
//! From the moment a server has reserved it until a head names the chunks, somebody must be responsible for it: what is
//! forgotten blocks the tenant's quota until its time is over. That is a [`Reservation`], wherever it goes.

use super::Redis;
use crate::params::Space;

/// Places for the chunks of some values. Whoever drops it has given up, and what was sent there is deleted.
pub struct Reservation {
    store: Redis,
    space: Space,
    /// As scripts name them: the reference and how many chunks. None once nobody needs to delete them any more.
    places: Vec<String>,
}

impl Reservation {
    pub fn new(store: Redis, space: Space, places: Vec<String>) -> Self {
        Self { store, space, places }
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    pub fn places(&self) -> &[String] {
        &self.places
    }

    pub fn references(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|place| place.split_once(' ').map_or(place.as_str(), |(reference, _)| reference))
    }

    /// A head names the chunks, or may do so.
    pub fn keep(mut self) {
        self.places.clear();
    }

    /// Deletes what was sent, now.
    pub async fn abandon(mut self) {
        let places = std::mem::take(&mut self.places);
        self.store.abandon(&self.space, &places).await;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let places = std::mem::take(&mut self.places);
        if places.is_empty() {
            return;
        }
        // A process that ends has no runtime any more; then the server's collection finds them.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (store, space) = (self.store.clone(), self.space.clone());
            runtime.spawn(async move { store.abandon(&space, &places).await });
        }
    }
}
