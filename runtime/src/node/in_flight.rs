//! Requests that are being answered, for whoever waits until there are none. Two atomic operations per request.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::sync::Notify;

/// How many requests are being answered.
#[derive(Default)]
pub struct InFlight {
    count: AtomicUsize,
    none: Notify,
}

impl InFlight {
    /// Counts a request until the result is dropped.
    pub fn begin(&self) -> ActiveRequest<'_> {
        self.count.fetch_add(1, SeqCst);
        ActiveRequest(self)
    }

    /// Waits for a moment at which there is none.
    pub async fn none(&self) {
        loop {
            let mut told = pin!(self.none.notified());
            // From here on it is told, so a request that ends after the look below is not missed.
            told.as_mut().enable();
            if self.count.load(SeqCst) == 0 {
                return;
            }
            told.await;
        }
    }
}

/// A request that is being answered.
pub struct ActiveRequest<'a>(&'a InFlight);

impl Drop for ActiveRequest<'_> {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Every order in which two requests can begin and end and somebody begins to wait.
    #[test]
    fn whoever_waits_is_told_when_the_last_request_has_ended() {
        for order in ["bbewe", "bwebe", "wbebe", "bwbee", "bbwee", "bebew", "bewbe"] {
            let requests = InFlight::default();
            let (mut active, mut waiting, mut told) = (Vec::new(), None, false);
            for event in order.chars() {
                match event {
                    'b' => active.push(requests.begin()),
                    'e' => drop(active.pop()),
                    _ => waiting = Some(Box::pin(requests.none())),
                }
                if let Some(wait) = &mut waiting
                    && !told
                {
                    told = wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(());
                    assert!(!told || active.is_empty(), "{order}: told too early");
                }
            }
            assert!(told, "{order}: not told");
        }
    }
}
