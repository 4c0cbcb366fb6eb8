//! A few items ahead: one thread makes them, one takes them, and a cancel wakes both.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use weft_gpu::Cancel;
use weft_gpu::run::Listener;

use crate::locks::Lock as _;

pub struct Queue<T> {
    depth: usize,
    cancel: Cancel,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    ready: VecDeque<T>,
    /// Nobody takes any more.
    closed: bool,
    /// Nobody makes any more.
    finished: bool,
}

/// Whether the next item is to be made.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    Go,
    Cancelled,
    Closed,
}

impl<T> Queue<T> {
    pub fn new(depth: usize, cancel: Cancel) -> Self {
        let state = State { ready: VecDeque::new(), closed: false, finished: false };
        Self { depth, cancel, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until another item may be made.
    pub fn room(&self) -> Turn {
        let mut state = self.state.locked();
        loop {
            if state.closed {
                return Turn::Closed;
            }
            if self.cancel.is_cancelled() {
                return Turn::Cancelled;
            }
            if state.ready.len() < self.depth {
                return Turn::Go;
            }
            state = self.wait(state);
        }
    }

    /// Adds an item. Does not wait: [`Self::room`] has.
    pub fn push(&self, item: T) {
        let mut state = self.state.locked();
        // An item that nobody takes would be kept by a queue that nobody looks at.
        if !state.closed {
            state.ready.push_back(item);
        }
        self.changed.notify_all();
    }

    /// Waits for an item; nothing after the last. When cancelled, the last is what `cancelled` gives.
    pub fn pop(&self, cancelled: impl FnOnce() -> T) -> Option<T> {
        let mut state = self.state.locked();
        loop {
            if state.closed {
                return None;
            }
            if self.cancel.is_cancelled() {
                drop(state);
                self.close();
                return Some(cancelled());
            }
            if let Some(item) = state.ready.pop_front() {
                self.changed.notify_all();
                return Some(item);
            }
            if state.finished {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// Takes no more items, and drops those that are there.
    pub fn close(&self) {
        let mut state = self.state.locked();
        state.closed = true;
        let ready = std::mem::take(&mut state.ready);
        self.changed.notify_all();
        drop(state);
        drop(ready);
    }

    /// While it lives, there may be more items.
    pub fn producing(&self) -> Producing<'_, T> {
        Producing(self)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Listener for Queue<T> {
    fn cancelled(&self) {
        // Whoever looked at the flag before it was set is waiting by the time the lock is free.
        let _state = self.state.locked();
        self.changed.notify_all();
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Queue").field("depth", &self.depth).finish_non_exhaustive()
    }
}

pub struct Producing<'a, T>(&'a Queue<T>);

impl<T> Drop for Producing<'_, T> {
    fn drop(&mut self) {
        self.0.state.locked().finished = true;
        self.0.changed.notify_all();
    }
}
