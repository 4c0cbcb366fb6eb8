//! What a job's followers are told, numbered, so that one who was cut off misses nothing that is still kept.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::record::{Job, JobEvent, State};
use crate::locks::Lock;

/// Events that are kept for those who come late.
const KEPT: usize = 1_024;
/// Progress is told no more often than this.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Book {
    events: VecDeque<(u64, JobEvent)>,
    last: u64,
    progressed: Option<Instant>,
}

/// The events of one job.
pub struct EventBook {
    book: Mutex<Book>,
    /// The latest number; wakes those who follow.
    latest: watch::Sender<u64>,
}

impl EventBook {
    /// The events of a job as it was found: its epochs, and how it is. Numbers of a later start come after all of an
    /// earlier one.
    pub fn of(job: &Job, start: u64) -> Self {
        let last = start << 32;
        let book = Self { book: Mutex::new(Book { last, ..Book::default() }), latest: watch::channel(last).0 };
        for epoch in &job.history {
            book.tell(JobEvent::Epoch(Box::new(epoch.clone())));
        }
        book.tell(JobEvent::State { state: job.state, reason: job.reason.clone() });
        book
    }

    pub fn tell(&self, event: JobEvent) {
        let mut book = self.book();
        if let JobEvent::Progress(_) = event {
            // The latest is what counts.
            if let Some((_, JobEvent::Progress(_))) = book.events.back() {
                book.events.pop_back();
            }
            book.progressed = Some(Instant::now());
        }
        book.last += 1;
        let number = book.last;
        book.events.push_back((number, event));
        if book.events.len() > KEPT {
            book.events.pop_front();
        }
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
        let state = |(_, event): &(u64, JobEvent)| match event {
            JobEvent::State { state, .. } => Some(*state),
            _ => None,
        };
        self.book().events.iter().rev().find_map(state).is_some_and(State::is_over)
    }

    /// Tells whoever follows that there is something new.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.locked()
    }
}
