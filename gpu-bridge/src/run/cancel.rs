//! What stops a call, and whoever wants to know of it at once.

use std::fmt;
use std::sync::{Arc, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::threads::{AtomicBool, Mutex, MutexGuard, Ordering};

/// A flag that stops work: kernels look at it between tiles and, in tiles that may be long, every few million operations;
/// whoever waits for a turn is woken by it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    set: AtomicBool,
    listeners: Mutex<Vec<Weak<dyn Listener>>>,
}

/// One that wants to know at once when a [`Cancel`] is set.
pub trait Listener: fmt::Debug + Send + Sync {
    fn cancelled(&self);
}

impl Cancel {
    pub fn cancel(&self) {
        self.0.set.store(true, Ordering::SeqCst);
        // They take locks of their own, so not under this one.
        let listeners = self.listeners().clone();
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.cancelled());
    }

    /// Lets work go on.
    pub fn clear(&self) {
        self.0.set.store(false, Ordering::SeqCst);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.set.load(Ordering::Relaxed)
    }

    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Tells the listener when it is cancelled, as long as the guard lives. It may have been before: look at it once more.
    pub fn listen(&self, listener: Weak<dyn Listener>) -> Listening<'_> {
        self.listeners().push(Weak::clone(&listener));
        Listening { cancel: self, listener }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<dyn Listener>>> {
        self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it lives, its listener hears of the cancel.
#[must_use]
pub struct Listening<'a> {
    cancel: &'a Cancel,
    listener: Weak<dyn Listener>,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut listeners = self.cancel.listeners();
        if let Some(index) = listeners.iter().position(|other| other.ptr_eq(&self.listener)) {
            listeners.swap_remove(index);
        }
    }
}
