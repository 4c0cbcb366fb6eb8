//! What a job's followers are told, numbered, so that one who was cut off misses nothing that is still kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::record::{EpochRecord, Job, JobEvent, State};
use crate::locks::Lock;
use crate::tenant::Charge;

/// Events that are kept for those who come late: so many of them, and so many bytes.
const KEPT: usize = 1_024;
const KEPT_BYTES: u64 = 256 << 10;
/// So many bytes of a job's latest events are kept even if its tenant has no room for them; the latest event in any case.
const KEPT_ANYWAY: u64 = 8 << 10;
/// Events of a job that is over that are kept once those who followed it have had time to hear of its end.
const LAST: usize = 16;
/// How long all that a job has told is kept after its end, for those who follow it.
const HEARD_AFTER: Duration = Duration::from_secs(60);
/// Progress is told no more often than this.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

struct Book {
    events: VecDeque<(u64, JobEvent)>,
    last: u64,
    progressed: Option<Instant>,
    /// Bytes of all events, which are the tenant's.
    charge: Charge,
}

impl Book {
    fn push(&mut self, event: JobEvent) {
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

    /// Has the tenant pay for so many bytes in all, if that is not too much: room for the history of its jobs is worth more.
    fn pay(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.charge.bytes());
        if bytes > KEPT_BYTES || bytes > KEPT_ANYWAY && !self.charge.grow_if_plenty(more) {
            return false;
        }
        self.charge.set_whatever_the_limit(bytes);
        true
    }

    /// Forgets all but the latest events.
    fn keep_last(&mut self, most: usize) {
        self.events.drain(..self.events.len().saturating_sub(most));
        let bytes: u64 = self.events.iter().map(|(_, event)| event.bytes()).sum();
        self.charge.set_whatever_the_limit(bytes);
    }

    /// Whether the job is over by what was told last.
    fn is_over(&self) -> bool {
        let state = |(_, event): &(u64, JobEvent)| match event {
            JobEvent::State { state, .. } => Some(*state),
            _ => None,
        };
        self.events.iter().rev().find_map(state).is_some_and(State::is_over)
    }

    /// Takes the latest event back, if it only says how far the job is.
    fn take_back_progress(&mut self) {
        if let Some((_, event @ JobEvent::Progress(_))) = self.events.back() {
            self.charge.shrink(event.bytes());
            self.events.pop_back();
        }
    }
}

/// The events of one job.
pub struct EventBook {
    book: Mutex<Book>,
    /// The latest number; wakes those who follow.
    latest: watch::Sender<u64>,
}

impl EventBook {
    /// The events of a job as it was found: its epochs, and how it is. Numbers of a later start come after all of an
    /// earlier one. What is kept of them is charged.
    pub fn of(job: &Job, start: u64, charge: Charge) -> Self {
        let last = start << 32;
        let book = Book { events: VecDeque::new(), last, progressed: None, charge };
        let book = Self { book: Mutex::new(book), latest: watch::channel(last).0 };
        // One of a job that is over is how it ended.
        let epochs = if job.state.is_over() { LAST - 1 } else { KEPT };
        for epoch in &job.history[job.history.len().saturating_sub(epochs)..] {
            book.tell(JobEvent::Epoch(Box::new(EpochRecord::clone(epoch))));
        }
        book.tell(JobEvent::State { state: job.state, reason: job.reason.clone() });
        book
    }

    pub fn tell(&self, event: JobEvent) {
        let mut book = self.book();
        if let JobEvent::Progress(_) = event {
            // The latest is what counts.
            book.take_back_progress();
            book.progressed = Some(Instant::now());
        }
        book.push(event);
        let number = book.last;
        drop(book);
        self.latest.send_replace(number);
    }

    /// Whether enough time has passed since progress was told.
    pub fn wants_progress(&self) -> bool {
        self.book().progressed.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY)
    }

    /// Up to `limit` events after the one with this number, oldest first.
    pub fn after(&self, after: u64, limit: usize) -> Vec<(u64, JobEvent)> {
        let book = self.book();
        let start = book.events.partition_point(|(number, _)| *number <= after);
        book.events.range(start..).take(limit).cloned().collect()
    }

    /// Whether the job is over by what was told last.
    pub fn is_over(&self) -> bool {
        self.book().is_over()
    }

    /// Keeps only the latest events of a job that is over, once those who follow it have had time to read all.
    pub fn forget_later(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let book = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(HEARD_AFTER).await;
            if let Some(book) = book.upgrade() {
                book.forget_if_over();
            }
        });
    }

    /// Keeps only the latest events of a job that is over.
    pub fn forget_if_over(&self) {
        let mut book = self.book();
        if book.is_over() {
            book.keep_last(LAST);
        }
    }

    /// Tells whoever follows that there is something new.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::record::tests::job;
    use crate::tenant::Account;

    #[test]
    fn events_are_kept_up_to_a_number_of_bytes_which_are_the_tenants() {
        let account = Account::new("job_bytes", 1 << 20, None);
        let book = EventBook::of(&job(State::Running, 0), 0, Charge::none(account.clone()));
        for worker in 0..4_096 {
            book.tell(JobEvent::Worker { worker, reason: "x".repeat(4_096) });
        }
        let kept = book.after(0, usize::MAX);
        assert!((2..KEPT_BYTES as usize / 4_096 + 1).contains(&kept.len()), "{} events", kept.len());
        assert!(matches!(kept.last(), Some((_, JobEvent::Worker { worker: 4_095, .. }))), "the latest are kept");
        assert!((1..=KEPT_BYTES).contains(&account.used()), "{} bytes", account.used());
        for step in 0..3 {
            book.tell(JobEvent::Progress(crate::job::record::Progress { step, ..Default::default() }));
        }
        let progress = |(_, event): &(u64, JobEvent)| matches!(event, JobEvent::Progress(_));
        let events = book.after(0, usize::MAX);
        assert_eq!(events.iter().filter(|event| progress(event)).count(), 1, "only the latest progress is kept");
        drop(book);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn a_tenant_without_room_has_the_latest_events_and_no_more() {
        let account = Account::new("job_bytes", 1, None);
        let books: Vec<_> =
            (0..8).map(|_| EventBook::of(&job(State::Running, 0), 0, Charge::none(account.clone()))).collect();
        for worker in 0..100 {
            for book in &books {
                book.tell(JobEvent::Worker { worker, reason: "x".repeat(1 << 10) });
            }
        }
        assert!(account.used() <= 8 * KEPT_ANYWAY, "{} bytes", account.used());
        for book in &books {
            let kept = book.after(0, usize::MAX);
            assert!(kept.len() > 4, "{} events", kept.len());
            assert!(matches!(kept.last(), Some((_, JobEvent::Worker { worker: 99, .. }))), "the latest are kept");
        }
        // However large it is.
        let first = &books[0];
        first.tell(JobEvent::Worker { worker: 0, reason: "x".repeat(KEPT_ANYWAY as usize) });
        assert_eq!(first.after(0, usize::MAX).len(), 1);
        drop(books);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn a_job_that_is_over_keeps_its_last_events() {
        let account = Account::new("job_bytes", 1 << 20, None);
        let book = EventBook::of(&job(State::Running, 0), 0, Charge::none(account.clone()));
        let tell = |worker| book.tell(JobEvent::Worker { worker, reason: String::new() });
        (0..100).for_each(tell);
        book.forget_if_over();
        assert_eq!(book.after(0, usize::MAX).len(), 101, "it is not over");
        let before = account.used();
        book.tell(JobEvent::State { state: State::Done, reason: String::new() });
        book.forget_if_over();
        let kept = book.after(0, usize::MAX);
        assert_eq!((kept.len(), book.is_over()), (LAST, true));
        assert!(account.used() < before / 5, "{} of {before} bytes", account.used());
    }
}
