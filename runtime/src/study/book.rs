//! What a study's followers are told, numbered, so that one who was cut off misses nothing that is still kept.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::watch;

use super::record::{TuneEvent, TuneState};
use crate::locks::Lock;
use crate::tenant::Charge;

/// Events that are kept for those who come late: so many of them, and so many bytes.
const KEPT: usize = 4_096;
const KEPT_BYTES: u64 = 512 << 10;
/// So many bytes of the latest events are kept even if the tenant has no room for them.
const KEPT_ANYWAY: u64 = 8 << 10;

struct Book {
    events: VecDeque<(u64, TuneEvent)>,
    last: u64,
    /// Bytes of all events, which are the tenant's.
    charge: Charge,
    is_over: bool,
}

impl Book {
    fn push(&mut self, event: TuneEvent) {
        if let TuneEvent::State { state, .. } = &event {
            self.is_over = *state != TuneState::Running;
        }
        self.last += 1;
        let mut bytes = self.charge.bytes() + event.bytes();
        self.events.push_back((self.last, event));
        while self.events.len() > KEPT || self.events.len() > 1 && !self.pay(bytes) {
            let dropped = self.events.pop_front();
            bytes -= dropped.map_or(0, |(_, event)| event.bytes());
        }
        if self.events.len() == 1 {
            self.charge.set_whatever_the_limit(bytes);
        }
    }

    /// Has the tenant pay for so many bytes in all, if that is not too much.
    fn pay(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.charge.bytes());
        if bytes > KEPT_BYTES || bytes > KEPT_ANYWAY && !self.charge.grow_if_plenty(more) {
            return false;
        }
        self.charge.set_whatever_the_limit(bytes);
        true
    }
}

/// The events of one study.
pub struct StudyBook {
    book: Mutex<Book>,
    /// The latest number; wakes those who follow.
    latest: watch::Sender<u64>,
}

impl StudyBook {
    /// Numbers begin after this one.
    pub(super) fn after(last: u64, charge: Charge) -> Self {
        let book = Book { events: VecDeque::new(), last, charge, is_over: false };
        Self { book: Mutex::new(book), latest: watch::channel(last).0 }
    }

    pub(super) fn tell(&self, event: TuneEvent) {
        let mut book = self.book.locked();
        book.push(event);
        let number = book.last;
        drop(book);
        self.latest.send_replace(number);
    }

    /// Up to `limit` events after the one with this number, oldest first.
    pub fn since(&self, after: u64, limit: usize) -> Vec<(u64, TuneEvent)> {
        let book = self.book.locked();
        let start = book.events.partition_point(|(number, _)| *number <= after);
        book.events.range(start..).take(limit).cloned().collect()
    }

    /// Whether the study is over, or stopped, by what was told last.
    pub fn is_over(&self) -> bool {
        self.book.locked().is_over
    }

    /// Tells whoever follows that there is something new.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::Account;

    #[test]
    fn the_latest_events_are_kept_and_are_the_tenants() {
        let account = Account::new("job_bytes", 1 << 20, None);
        let book = StudyBook::after(7, Charge::none(account.clone()));
        for trial in 0..20_000 {
            book.tell(TuneEvent::Report { trial, epoch: 1, value: 0.5 });
        }
        let kept = book.since(0, usize::MAX);
        assert!(kept.len() <= KEPT && account.used() <= KEPT_BYTES, "{} events", kept.len());
        assert_eq!(kept.last().map(|(number, _)| *number), Some(20_007));
        assert_eq!(book.since(20_006, 10).len(), 1);
        assert!(!book.is_over());
        book.tell(TuneEvent::State { state: TuneState::Done, reason: String::new() });
        assert!(book.is_over());
        drop(book);
        assert_eq!(account.used(), 0);
    }
}
