//! Removing blobs that nobody needs, and only those.
//!
//! A blob is needed while it is pinned, or while a [`Referrer`] refers to it. Whoever publishes holds a pin until its
//! referrer knows; whoever collects first makes sure that there is no pin, holds new pins of the same blob off, and only
//! then asks the referrers. So there is no moment at which a blob is needed and can be taken for garbage.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::{Backend, BlobError, Blobs};
use crate::digest::Digest;
use crate::locks::Lock;

/// Blobs that are looked at together: whoever publishes one of them waits for so many deletions at most.
const BATCH: usize = 256;

/// Somebody whose records name blobs.
pub trait Referrer: Send + Sync {
    /// Takes out of `candidates` whatever its records name.
    fn keep(&self, candidates: &mut HashSet<Digest>);
}

/// Keeps a blob until it is dropped.
#[must_use = "the blob may be collected as soon as this is dropped"]
pub struct Pinned {
    digest: Digest,
    pins: Arc<Pins>,
}

impl Pinned {
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Keeps it for as long as this process runs: for a record that could not be written, and may be on disk all the
    /// same. The next start knows.
    pub fn until_restart(self) {
        std::mem::forget(self);
    }
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({})", self.digest)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut state = self.pins.state.locked();
        if let Some(count) = state.pinned.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                state.pinned.remove(&self.digest);
            }
        }
    }
}

#[derive(Default)]
struct State {
    pinned: HashMap<Digest, usize>,
    /// Those that are being collected; disjoint from `pinned`.
    leaving: HashSet<Digest>,
}

#[derive(Default)]
pub(super) struct Pins {
    state: Mutex<State>,
    left: Notify,
}

impl Pins {
    /// Waits while the blob is being collected.
    pub(super) async fn pin(self: &Arc<Self>, digest: Digest) -> Pinned {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            // From here on no notice is missed.
            left.as_mut().enable();
            {
                let mut state = self.state.locked();
                if !state.leaving.contains(&digest) {
                    *state.pinned.entry(digest).or_default() += 1;
                    return Pinned { digest, pins: self.clone() };
                }
            }
            left.await;
        }
    }

    /// Those of `candidates` that nobody has pinned; nobody can, until the result is dropped.
    fn claim(self: &Arc<Self>, candidates: &[Digest]) -> Claim {
        let mut state = self.state.locked();
        let mut digests = HashSet::new();
        for digest in candidates {
            if !state.pinned.contains_key(digest) && state.leaving.insert(*digest) {
                digests.insert(*digest);
            }
        }
        Claim { digests, pins: self.clone() }
    }
}

struct Claim {
    digests: HashSet<Digest>,
    pins: Arc<Pins>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.pins.state.locked();
        state.leaving.retain(|digest| !self.digests.contains(digest));
        drop(state);
        self.pins.left.notify_waiters();
    }
}

impl Blobs {
    /// Names everybody who refers to blobs, once; until then nothing is collected.
    pub fn set_referrers(&self, referrers: Vec<Arc<dyn Referrer>>) {
        if self.referrers.set(referrers).is_err() {
            tracing::error!("the referrers of blobs were named before; the first ones count");
        }
    }

    /// Removes those of `digests` that nobody needs any more, and tells how many they were.
    pub async fn collect(self: &Arc<Self>, digests: &[Digest]) -> Result<usize, BlobError> {
        let (blobs, digests) = (self.clone(), digests.to_vec());
        // A task of its own: a caller that goes away must not let a pin in before a deletion under way is done.
        let collect = tokio::spawn(async move { blobs.collect_all(&digests).await });
        collect
            .await
            .map_err(|error| BlobError::Io { what: "collecting".to_owned(), error: std::io::Error::other(error) })?
    }

    /// The same, for callers who hold changes off meanwhile: nobody waits for a store that is far away. What it does not
    /// delete is left to the next sweep.
    pub async fn collect_soon(self: &Arc<Self>, digests: &[Digest]) -> Result<(), BlobError> {
        if !self.is_remote() {
            return self.collect(digests).await.map(drop);
        }
        let (blobs, digests) = (self.clone(), digests.to_vec());
        tokio::spawn(async move {
            if let Err(error) = blobs.collect_all(&digests).await {
                tracing::warn!(%error, "blobs that nobody needs stay until the next sweep");
            }
        });
        Ok(())
    }

    async fn collect_all(&self, digests: &[Digest]) -> Result<usize, BlobError> {
        let Some(referrers) = self.referrers.get() else { return Ok(0) };
        let mut removed = 0;
        for batch in digests.chunks(BATCH) {
            let claim = self.pins.claim(batch);
            let mut unneeded = claim.digests.clone();
            referrers.iter().for_each(|referrer| referrer.keep(&mut unneeded));
            for digest in &unneeded {
                self.delete(digest).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes whatever nobody needs: what a node that was killed has left behind. In a bucket only what is older than
    /// its grace: another node may be about to write the record of a newer one.
    pub async fn sweep(self: &Arc<Self>) -> Result<usize, BlobError> {
        let age = match &self.backend {
            Backend::Shared { grace, .. } => *grace,
            Backend::Folder { .. } | Backend::Memory => std::time::Duration::ZERO,
        };
        let candidates = self.list_older_than(age).await?;
        self.collect(&candidates).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn what_is_pinned_is_not_claimed() {
        let (pins, digest) = (Arc::<Pins>::default(), Digest::of(b"weft"));
        let pinned = pins.pin(digest).now_or_never().unwrap();
        assert!(pins.claim(&[digest]).digests.is_empty());
        drop(pinned);
        assert!(pins.claim(&[digest]).digests.contains(&digest));
    }

    #[test]
    fn a_pin_waits_until_a_claim_is_over() {
        let (pins, digest) = (Arc::<Pins>::default(), Digest::of(b"weft"));
        let claim = pins.claim(&[digest]);
        let mut pin = std::pin::pin!(pins.pin(digest));
        assert!(pin.as_mut().now_or_never().is_none());
        drop(claim);
        assert!(pin.as_mut().now_or_never().is_some());
    }

    #[test]
    fn a_second_pin_outlives_the_first() {
        let (pins, digest) = (Arc::<Pins>::default(), Digest::of(b"weft"));
        let first = pins.pin(digest).now_or_never().unwrap();
        let second = pins.pin(digest).now_or_never().unwrap();
        drop(first);
        assert!(pins.claim(&[digest]).digests.is_empty());
        drop(second);
        assert!(pins.state.locked().pinned.is_empty());
    }

    #[test]
    fn two_claims_never_share_a_blob() {
        let (pins, digest) = (Arc::<Pins>::default(), Digest::of(b"weft"));
        let first = pins.claim(&[digest]);
        let second = pins.claim(&[digest]);
        assert!(second.digests.is_empty());
        drop(second);
        assert!(pins.pin(digest).now_or_never().is_none());
        drop(first);
    }
}
